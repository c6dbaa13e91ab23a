"""What a builder said and did in each attempt, and the gate's answer, read from the trail for people.

Long texts are cut and name the digest of the whole for `peergate audit show`. Models, jobs and reviewers wrote
everything in it, so it is made printable and masked once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, get_args

from agents.turns import ModelTurn
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from sessions.pages.overview import when
from specs.system import markdown
from specs.system.errors import EvidenceMissing
from specs.system.masking import Masker, current
from specs.system.text import block, one_line, plain
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import (
    DecisionEntry,
    HumanAnswerEntry,
    PlanEntry,
    SubmitEntry,
    ToolCallEntry,
    ToolResultEntry,
    TurnEntry,
    VerdictEntry,
)
from specs.trail.session_bodies import ExitEntry, LaunchEntry, LostJobEntry

MARKDOWN = "transcript.md"
TURN_CHARS, ARGUMENT_CHARS, RESULT_CHARS = 6000, 2000, 2000
"""Characters of what a model said, of arguments, of a result."""
SHORT = 600
MOST = 4000
"""Characters of one line."""


class TranscriptText(NamedTuple):
    """A text as it is shown, with the digest of the whole if it is cut."""

    excerpt: str
    digest: str | None = None


_GONE = "(no longer in the store)"


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
_Builders = TurnEntry | ToolCallEntry | ToolResultEntry | PlanEntry | SubmitEntry
_Jobs = LaunchEntry | ExitEntry | LostJobEntry
DescribedBody = _Builders | _Jobs | VerdictEntry | DecisionEntry | HumanAnswerEntry
"""The bodies of the entries that are described."""
_FORMS: tuple[type[DescribedBody], ...] = get_args(DescribedBody)


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

    def attempts(self, history: History) -> Iterator[AttemptTranscript]:
        """Yield the attempts in the order in which they began."""
        events: dict[tuple[str, int], list[Event]] = {}
        for entry in history.of(*_FORMS):
            # Entries about the design name no stage, or this one.
            events.setdefault((entry.body.stage or DESIGN, entry.body.attempt), []).append(self._event(entry))
        for (stage, attempt), of_attempt in events.items():
            yield AttemptTranscript(stage, attempt, tuple(of_attempt))

    def _event(self, entry: RecordedEntry[DescribedBody]) -> Event:
        body = entry.body
        what, texts = self._describe(body)
        phase = body.phase if isinstance(body, (TurnEntry, ToolCallEntry)) else ""
        helper = self._line(body.helper) if isinstance(body, (TurnEntry, ToolCallEntry)) else ""
        usd = body.usd if isinstance(body, TurnEntry) else 0.0
        return Event(entry.seq, when(entry), entry.kind, self._line(what), texts, phase, helper, usd)

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

    def _describe(self, body: DescribedBody) -> Described:
        """Return a line, and texts below it."""
        match body:
            case TurnEntry():
                return self._describe_turn(body)
            case ToolCallEntry():
                text = self._read_stored(body.arguments, ARGUMENT_CHARS)
                return f"call {body.number}: {body.tool}", (text,) if text.excerpt.strip() not in ("", "{}") else ()
            case ToolResultEntry():
                ends = ", the phase ends" if body.ends_phase else ""
                return f"{'refused' if body.is_error else 'done'}{ends}", (self._read_stored(body.text, RESULT_CHARS),)
            case PlanEntry():
                changes = ", ".join(f"{name} = {value}" for name, value in body.changes.items()) or "as the spec says"
                what = "a person is asked" if body.escalate else f"launched, {changes}"
                return what, (self._text(body.reason, SHORT),)
            case SubmitEntry():
                return self._describe_submission(body)
            case VerdictEntry():
                if not body.error:
                    return f"judged by {body.reviewer}", ()
                return f"no verdict from {body.reviewer} ({body.cause})", (self._text(body.error, SHORT),)
            case DecisionEntry():
                required = [f"required: {name} = {value:g}" for name, value in body.required.items()]
                text = "\n".join([*body.reasons, *required])
                return f"the gate: {body.outcome}", (self._text(text, RESULT_CHARS),) if text else ()
            case HumanAnswerEntry():
                return f"{body.by} answered: {body.answer}", (self._text(body.reason, SHORT),)
            case LaunchEntry() | ExitEntry() | LostJobEntry():
                return body.key, ()

    def _describe_turn(self, turn: TurnEntry) -> Described:
        usage = turn.usage or {}
        tokens = ", ".join(f"{count} {name.removesuffix('_tokens')}" for name, count in usage.items() if count)
        cost = f"{turn.usd:.4f} USD{'' if turn.usd_is_measured else ' at most'}"
        counted = f", tokens: {tokens}" if tokens else ""
        what = f"turn {turn.number} of {turn.model}: {cost}{counted}, {turn.stop}"
        try:
            text = ModelTurn.model_validate(self._store.get_value(turn.answer)).text
        except EvidenceMissing:
            return what, (TranscriptText(_GONE, turn.answer),)
        return what, (self._text(text, TURN_CHARS, turn.answer),) if text.strip() else ()

    def _describe_submission(self, submission: SubmitEntry) -> Described:
        back = f", {submission.sent_back} sent back before" if submission.sent_back else ""
        if submission.unsubmitted:
            return f"nothing was handed in: {submission.unsubmitted}{back}", ()
        claims = [f"{claim.stage} {claim.metric} = {claim.value:g}" for claim in submission.claims]
        return f"handed in with {len(claims)} claims{back}", (self._text("\n".join(claims), SHORT),) if claims else ()


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
            yield from block(text.excerpt, len(text.excerpt), "    ").split("\n")
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
                parts.append(markdown.fence_text(text.excerpt, len(text.excerpt)))
                if text.digest:
                    parts.append(f"Cut; whole: `{text.digest}`")
    return "\n\n".join(parts) + "\n"


_NOTE = (
    "Read from the trail. Models, jobs and reviewers wrote what is in blocks. `peergate audit show RUN` "
    "with an entry or a digest prints it in full."
)


def render_transcript(history: History, masker: Masker) -> str:
    """Return the transcript of a session as Markdown; empty if its builder called no tool."""
    attempts = list(Transcript(history.store, masker).attempts(history))
    if not any(event.kind == "call" for attempt in attempts for event in attempt.events):
        return ""
    return markdown_of(history.session, attempts)
