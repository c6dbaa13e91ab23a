"""What a builder said and did in each attempt, and the gate's answer, read from the trail for people.

Long texts are cut and name the digest of the whole for `peergate audit show`. Models, jobs and reviewers wrote
everything in it, so it is made printable and masked once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from agents.turns import ModelTurn
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from sessions.pages.overview import when
from specs.system import markdown
from specs.system.errors import EvidenceMissing
from specs.system.masking import Masker, current
from specs.system.text import block, one_line, plain
from specs.trail.entry import DESIGN

MARKDOWN = "transcript.md"
SAID, ASKED, TOLD = 6000, 2000, 2000
"""Characters of what a model said, of arguments, of a result."""
SHORT = 600
MOST = 4000
"""Characters of one line."""


class TranscriptText(NamedTuple):
    """A text as it is shown, with the digest of the whole if it is cut."""

    shown: str
    digest: str | None = None


_GONE = "(it is not in the store any more)"


class Event(NamedTuple):
    """One entry of the trail, in words."""

    seq: int
    time: str
    kind: str
    what: str
    """One line."""
    texts: tuple[TranscriptText, ...] = ()
    phase: str = ""
    helper: str = ""
    usd: float = 0.0


Described = tuple[str, tuple[TranscriptText, ...]]


class AttemptTranscript(NamedTuple):
    """Everything on record of one attempt, in order."""

    stage: str
    attempt: int
    events: tuple[Event, ...]

    @property
    def usd(self) -> float:
        """What the builder's turns cost."""
        return sum(event.usd for event in self.events)

    def as_json(self) -> dict[str, Any]:
        """Return the form of `transcript --json`."""
        events = [event._asdict() | {"texts": [text._asdict() for text in event.texts]} for event in self.events]
        return {"stage": self.stage, "attempt": self.attempt, "usd": round(self.usd, 6), "events": events}


class Transcript:
    """Describes the entries of a trail."""

    def __init__(self, store: Store, masker: Masker | None = None) -> None:
        self._store = store
        self._masker = masker or current()

    def attempts(self, entries: Sequence[RecordedEntry]) -> Iterator[AttemptTranscript]:
        """Yield the attempts in the order in which they began."""
        matching_events: dict[tuple[str, int], list[Event]] = {}
        for entry in entries:
            if (event := self._event(entry)) is not None:
                # Entries about the design name no stage, or this one.
                matching_events.setdefault((entry.raw["stage"] or DESIGN, entry.raw["attempt"]), []).append(event)
        for (stage, attempt), events in matching_events.items():
            yield AttemptTranscript(stage, attempt, tuple(events))

    def _event(self, value: RecordedEntry) -> Event | None:
        kind, body = value.kind, value.raw
        if kind not in _KINDS:
            return None
        what, texts = getattr(self, f"_{'job' if kind in _JOB else kind}")(body)
        usd = body["usd"] if kind == "turn" else 0.0
        phase, helper = body.get("phase", ""), self._line(body.get("helper", ""))
        return Event(value.seq, when(value), kind, self._line(what), texts, phase, helper, usd)

    def _line(self, text: str) -> str:
        return one_line(self._clean(text), MOST)

    def _text(self, whole: str, most: int, digest: str | None = None) -> TranscriptText:
        clean = self._clean(whole)
        return TranscriptText(clean, None) if len(clean) <= most else TranscriptText(plain(clean, most), digest)

    def _read_stored(self, digest: str, most: int) -> TranscriptText:
        """Return a text of the store; a missing text is named as missing, because the rest can still be read."""
        try:
            return self._text(self._store.get(digest).decode("utf-8", "replace"), most, digest)
        except EvidenceMissing:
            return TranscriptText(_GONE, digest)

    def _clean(self, text: str) -> str:
        return self._masker.text(plain(text, len(text)))

    # One description for each kind of entry: a line, and texts below it.

    def _turn(self, body: dict[str, Any]) -> Described:
        usage = body["usage"] or {}
        tokens = ", ".join(f"{count} {name.removesuffix('_tokens')}" for name, count in usage.items() if count)
        cost = f"{body['usd']:.4f} USD{'' if body['usd_is_measured'] else ' at most'}"
        counted = f", tokens: {tokens}" if tokens else ""
        what = f"turn {body['number']} of {body['model']}: {cost}{counted}, {body['stop']}"
        try:
            text = ModelTurn.model_validate(self._store.get_value(body["said"])).text
        except EvidenceMissing:
            return what, (TranscriptText(_GONE, body["said"]),)
        return what, (self._text(text, SAID, body["said"]),) if text.strip() else ()

    def _call(self, body: dict[str, Any]) -> Described:
        text = self._read_stored(body["arguments"], ASKED)
        return f"call {body['number']}: {body['tool']}", (text,) if text.shown.strip() not in ("", "{}") else ()

    def _result(self, body: dict[str, Any]) -> Described:
        ends = ", the phase ends" if body["ends_phase"] else ""
        return f"{'refused' if body['is_error'] else 'done'}{ends}", (self._read_stored(body["text"], TOLD),)

    def _plan(self, body: dict[str, Any]) -> Described:
        changes = ", ".join(f"{name} = {value}" for name, value in body["changes"].items()) or "as the spec says"
        what = "a person is asked" if body["escalate"] else f"launched, {changes}"
        return what, (self._text(body["reason"], SHORT),)

    def _submit(self, body: dict[str, Any]) -> Described:
        back = f", {body['sent_back']} sent back before" if body["sent_back"] else ""
        if body["unsubmitted"]:
            return f"nothing was handed in: {body['unsubmitted']}{back}", ()
        claims = [f"{claim['stage']} {claim['metric']} = {claim['value']:g}" for claim in body["claims"]]
        return f"handed in with {len(claims)} claims{back}", (self._text("\n".join(claims), SHORT),) if claims else ()

    def _decision(self, body: dict[str, Any]) -> Described:
        required = [f"required: {name} = {value:g}" for name, value in body["required"].items()]
        text = "\n".join([*body["reasons"], *required])
        return f"the gate: {body['outcome']}", (self._text(text, TOLD),) if text else ()

    def _verdict(self, body: dict[str, Any]) -> Described:
        if not body["error"]:
            return f"judged by {body['reviewer']}", ()
        return f"no verdict from {body['reviewer']} ({body.get('cause')})", (self._text(body["error"], SHORT),)

    def _human(self, body: dict[str, Any]) -> Described:
        return f"{body['by']} answered: {body['answer']}", (self._text(body["reason"], SHORT),)

    def _job(self, body: dict[str, Any]) -> Described:
        return body["key"], ()


_JOB = ("launch", "exit", "lost")
_KINDS = ("turn", "call", "result", "plan", "submit", "verdict", "decision", "human", *_JOB)


def _with_phases(events: Iterable[Event]) -> Iterator[tuple[str, Event]]:
    """Yield each event with the phase that begins with it, or an empty text."""
    phase = ""
    for event in events:
        new = event.phase if event.phase != phase else ""
        phase = new or phase
        yield new, event


def lines_of(attempt: AttemptTranscript) -> Iterator[str]:
    """Yield an attempt as lines for a terminal."""
    yield f"== {attempt.stage}.{attempt.attempt}: {attempt.usd:.4f} USD for the builder's turns =="
    for phase, event in _with_phases(attempt.events):
        if phase:
            yield f"-- {phase} --"
        helper = f" [helper {event.helper}]" if event.helper else ""
        yield f"{event.time}  entry {event.seq}  {event.kind}{helper}: {event.what}"
        for text in event.texts:
            yield from block(text.shown, len(text.shown), "    ").split("\n")
            if text.digest:
                yield f"    whole: {text.digest}"


def markdown_of(session: str, attempts: Iterable[AttemptTranscript]) -> str:
    """Return attempts as Markdown, with texts in fenced blocks that they cannot end."""
    parts = [f"# {markdown.line(session)}: what the builder did", _NOTE]
    for attempt in attempts:
        parts.append(f"## {markdown.line(attempt.stage)}, attempt {attempt.attempt}")
        parts.append(f"The builder's turns cost {attempt.usd:.4f} USD.")
        for phase, event in _with_phases(attempt.events):
            if phase:
                parts.append(f"### {markdown.line(phase)}")
            helper = f" (helper {markdown.line(event.helper)})" if event.helper else ""
            parts.append(f"**{event.kind}**{helper}, entry {event.seq}, {event.time}: {markdown.line(event.what)}")
            for text in event.texts:
                parts.append(markdown.fence_text(text.shown, len(text.shown)))
                if text.digest:
                    parts.append(f"Cut; whole: `{text.digest}`")
    return "\n\n".join(parts) + "\n"


_NOTE = (
    "Read from the trail. Models, jobs and reviewers wrote what is in blocks. `peergate audit show RUN` "
    "with an entry or a digest prints it in full."
)


def render_transcript(entries: Sequence[RecordedEntry], store: Store, masker: Masker) -> str:
    """Return the transcript of a session as Markdown; empty if its builder called no tool."""
    attempts = list(Transcript(store, masker).attempts(entries))
    if not any(event.kind == "call" for attempt in attempts for event in attempt.events):
        return ""
    return markdown_of(entries[0].session, attempts)
