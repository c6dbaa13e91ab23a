"""What a builder said and did in each attempt, and what the gate said after: read from the trail, for people.

Texts are cut to a size; where something is left out the digest of the whole is beside it, and `peergate audit show`
prints that. Everything in it was written by models, jobs and reviewers: it is made printable, and masked once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from agents.turns import Turn
from reviews.gate.packet import DESIGN
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from sessions.report.overview import when
from specs import markdown
from specs.errors import EvidenceMissing
from specs.masking import Masker, current
from specs.text import block, one_line, plain

MARKDOWN = "transcript.md"
SAID, ASKED, TOLD = 6000, 2000, 2000
"""Characters of what a model said, of arguments, of a result."""
SHORT = 600
MOST = 4000
"""Characters of one line."""


class Text(NamedTuple):
    """A text as far as it is shown, with the digest of the whole where something is left out."""

    shown: str
    digest: str | None = None


class Event(NamedTuple):
    """One entry of the trail, in words."""

    seq: int
    time: str
    kind: str
    what: str
    """One line."""
    texts: tuple[Text, ...] = ()
    phase: str = ""
    helper: str = ""
    usd: float = 0.0


class Attempt(NamedTuple):
    """Everything on record of one attempt, in order."""

    stage: str
    attempt: int
    events: tuple[Event, ...]

    @property
    def usd(self) -> float:
        """What the builder's turns cost."""
        return sum(one.usd for one in self.events)

    def as_json(self) -> dict[str, Any]:
        """Return the form of `transcript --json`."""
        events = [one._asdict() | {"texts": [text._asdict() for text in one.texts]} for one in self.events]
        return {"stage": self.stage, "attempt": self.attempt, "usd": round(self.usd, 6), "events": events}


class Transcript:
    """Describes the entries of a trail."""

    def __init__(self, store: Store, masker: Masker | None = None) -> None:
        self._store = store
        self._masker = masker or current()

    def attempts(self, entries: Sequence[Recorded]) -> Iterator[Attempt]:
        """Yield the attempts in the order in which they began."""
        found: dict[tuple[str, int], list[Event]] = {}
        for one in entries:
            event = self._event(one)
            if event is not None:
                # Entries about the design name no stage, or this one.
                found.setdefault((one.body["stage"] or DESIGN, one.body["attempt"]), []).append(event)
        for (stage, attempt), events in found.items():
            yield Attempt(stage, attempt, tuple(events))

    def _event(self, one: Recorded) -> Event | None:
        tell = _TELL.get(one.entry.kind)
        if tell is None:
            return None
        what, texts = tell(self, one.body)
        body = one.body
        usd = body["usd"] if one.entry.kind == "turn" else 0.0
        line = self.line(what)
        phase, helper = body.get("phase", ""), self.line(body.get("helper", ""))
        return Event(one.entry.seq, when(one), one.entry.kind, line, texts, phase, helper, usd)

    def line(self, text: str) -> str:
        """Return a text as one printable line without secrets."""
        return one_line(self._clean(text), MOST)

    def text(self, whole: str, most: int, digest: str | None = None) -> Text:
        """Return a text without secrets, cut to a size."""
        clean = self._clean(whole)
        return Text(clean, None) if len(clean) <= most else Text(plain(clean, most), digest)

    def stored(self, digest: str, most: int) -> Text:
        """Return a text of the store; a missing one is named as missing, because the rest can still be read."""
        try:
            return self.text(self._store.get(digest).decode("utf-8", "replace"), most, digest)
        except EvidenceMissing:
            return Text("(it is not in the store any more)", digest)

    def _clean(self, text: str) -> str:
        return self._masker.text(plain(text, len(text)))

    def turn(self, body: dict[str, Any]) -> tuple[str, tuple[Text, ...]]:
        """Describe an answer of the model."""
        usage = body["usage"] or {}
        tokens = ", ".join(f"{count} {name.removesuffix('_tokens')}" for name, count in usage.items() if count)
        cost = f"{body['usd']:.4f} USD{'' if body['usd_is_measured'] else ' at most'}"
        counted = f", tokens: {tokens}" if tokens else ""
        what = f"turn {body['number']} of {body['model']}: {cost}{counted}, {body['stop']}"
        try:
            said = Turn.model_validate(self._store.get_value(body["said"])).text
        except EvidenceMissing:
            return what, (Text("(it is not in the store any more)", body["said"]),)
        return what, (self.text(said, SAID, body["said"]),) if said.strip() else ()

    def call(self, body: dict[str, Any]) -> tuple[str, tuple[Text, ...]]:
        """Describe a call of a tool."""
        asked = self.stored(body["arguments"], ASKED)
        return f"call {body['number']}: {body['tool']}", (asked,) if asked.shown.strip() not in ("", "{}") else ()

    def result(self, body: dict[str, Any]) -> tuple[str, tuple[Text, ...]]:
        """Describe the result of a call."""
        ends = ", the phase ends" if body["ends_phase"] else ""
        return f"{'refused' if body['is_error'] else 'done'}{ends}", (self.stored(body["text"], TOLD),)

    def plan(self, body: dict[str, Any]) -> tuple[str, tuple[Text, ...]]:
        """Describe how the planning ended."""
        if body["escalate"]:
            return "a person is asked", (self.text(body["reason"], SHORT),)
        changes = ", ".join(f"{name} = {value}" for name, value in body["changes"].items()) or "as the spec says"
        return f"launched, {changes}", (self.text(body["reason"], SHORT),)

    def submit(self, body: dict[str, Any]) -> tuple[str, tuple[Text, ...]]:
        """Describe what the builder submitted."""
        back = f", {body['sent_back']} sent back before" if body["sent_back"] else ""
        if body["unsubmitted"]:
            return f"nothing was handed in: {body['unsubmitted']}{back}", ()
        claims = [f"{one['stage']} {one['metric']} = {one['value']:g}" for one in body["claims"]]
        return f"handed in with {len(claims)} claims{back}", (self.text("\n".join(claims), SHORT),) if claims else ()

    def decision(self, body: dict[str, Any]) -> tuple[str, tuple[Text, ...]]:
        """Describe the decision of the gate."""
        required = [f"required: {name} = {value:g}" for name, value in body["required"].items()]
        told = "\n".join([*body["reasons"], *required])
        return f"the gate: {body['outcome']}", (self.text(told, TOLD),) if told else ()

    def verdict(self, body: dict[str, Any]) -> tuple[str, tuple[Text, ...]]:
        """Name the reviewer, or why there is no verdict."""
        if not body["error"]:
            return f"judged by {body['reviewer']}", ()
        return f"no verdict from {body['reviewer']} ({body.get('cause')})", (self.text(body["error"], SHORT),)

    def human(self, body: dict[str, Any]) -> tuple[str, tuple[Text, ...]]:
        """Describe the answer of a person."""
        return f"{body['by']} answered: {body['answer']}", (self.text(body["reason"], SHORT),)

    def job(self, body: dict[str, Any]) -> tuple[str, tuple[Text, ...]]:
        """Name the job that began or ended."""
        return body["key"], ()


_TELL = {
    "turn": Transcript.turn,
    "call": Transcript.call,
    "result": Transcript.result,
    "plan": Transcript.plan,
    "launch": Transcript.job,
    "exit": Transcript.job,
    "lost": Transcript.job,
    "submit": Transcript.submit,
    "verdict": Transcript.verdict,
    "decision": Transcript.decision,
    "human": Transcript.human,
}


def lines_of(attempt: Attempt) -> Iterator[str]:
    """Yield an attempt as lines for a terminal."""
    yield f"== {attempt.stage}.{attempt.attempt}: {attempt.usd:.4f} USD for the builder's turns =="
    phase = ""
    for one in attempt.events:
        if one.phase and one.phase != phase:
            phase = one.phase
            yield f"-- {phase} --"
        helper = f" [helper {one.helper}]" if one.helper else ""
        yield f"{one.time}  entry {one.seq}  {one.kind}{helper}: {one.what}"
        for text in one.texts:
            yield from block(text.shown, len(text.shown), "    ").split("\n")
            if text.digest:
                yield f"    whole: {text.digest}"


def markdown_of(session: str, attempts: Iterable[Attempt]) -> str:
    """Return all attempts as Markdown. Texts are in fenced blocks that they cannot end."""
    parts = [f"# {markdown.line(session)}: what the builder did", _NOTE]
    for attempt in attempts:
        parts.append(f"## {markdown.line(attempt.stage)}, attempt {attempt.attempt}")
        parts.append(f"The builder's turns cost {attempt.usd:.4f} USD.")
        phase = ""
        for one in attempt.events:
            if one.phase and one.phase != phase:
                phase = one.phase
                parts.append(f"### {markdown.line(phase)}")
            helper = f" (helper {markdown.line(one.helper)})" if one.helper else ""
            parts.append(f"**{one.kind}**{helper}, entry {one.seq}, {one.time}: {markdown.line(one.what)}")
            for text in one.texts:
                parts.append(markdown.fenced(text.shown, len(text.shown)))
                if text.digest:
                    parts.append(f"Cut; whole: `{text.digest}`")
    return "\n\n".join(parts) + "\n"


_NOTE = (
    "Read from the trail. Models, jobs and reviewers wrote what is in blocks. `peergate audit show RUN` "
    "with an entry or a digest prints it in full."
)


def rendered(entries: Sequence[Recorded], store: Store, masker: Masker) -> str:
    """Return the transcript of a session as Markdown; empty if its builder called no tool."""
    attempts = list(Transcript(store, masker).attempts(entries))
    if not any(one.kind == "call" for attempt in attempts for one in attempt.events):
        return ""
    return markdown_of(entries[0].entry.session, attempts)
