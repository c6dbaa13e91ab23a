"""The review trail as one HTML page that opens without a server: no script, nothing loaded from elsewhere.

Made from entries and stored values alone, so that anyone with an export can render it again and compare. Every text in
it is untrusted: escaped and made plain.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from reviews.audit.export import PAGE, STORE
from reviews.history.history import History
from reviews.history.people import count_overrides
from reviews.trail.chain.envelope import RecordedEntry, open_envelope, restore_entry, signatures_text
from reviews.trail.chain.signed_head import parse_note
from reviews.trail.chain.store import Store
from reviews.trail.chain.tiles import CHECKPOINT, read_bundles
from sessions.pages.overview import when
from sessions.pages.report import timeline
from sessions.pages.template import FOLDER, make_plain, render
from specs.system import text as plain_text
from specs.system.errors import PeergateError
from specs.system.masking import Masker
from specs.system.regular_files import read_regular
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import DecisionEntry, VerdictEntry
from specs.trail.key_policy import Policy
from specs.trail.session_bodies import CloseEntry, WorkspaceEntry

MOST_ENTRIES = 10_000
"""Entries with a body on the page; of a longer trail the newest, those of the story first: a browser opens no more."""
MOST_CHARACTERS = 60_000
"""The limit for a value from the store."""
MOST_EVIDENCE = 20_000_000
"""Characters of all values together; later values are named by their file in the store."""
GROUP = 250
"""Entries that open at once."""
MOST_EVENTS = 2_000
"""The limit for the newest events of the transcript: each has up to 6,000 characters."""
MOST_GATES = 200
"""Gates whose checks are on the page: each is looked up in all entries."""
_TEMPLATE = "trail.html.j2"
_SOURCES = (
    *("gate_page", "page_result", "plots", "report", "../result", "../template", "timeline", "transcript"),
    *("samples/judged_samples", "samples/page_samples"),
)
_CODE = re.compile(r"page code [0-9a-f]{64}\b")
"""The mark of every page: the code that made it."""
_SAMPLES = re.compile(r'<section id="samples">.*?</section>', re.DOTALL)
STATES = ("approve", "null", "reject", "overridden", "stop", "retracted", "revise", "escalate", "budget", "cancelled")
MOST_REASONS = 6
"""Reasons of the end at the head of the page; a check may name many rows."""
_LISTED = (
    *("packet", "verdict", "checks", "metrics", "decision", "exit", "manifest", "order"),
    *("request", "response", "answer"),
)


def page_code() -> str:
    """Return the digest of the code that makes the page."""
    here = Path(__file__)
    sources = [
        here,
        *(FOLDER / name for name in (_TEMPLATE, "parts.html.j2", "page.css")),
        *(here.parent / f"{name}.py" for name in _SOURCES),
    ]
    sources.append(Path(str(plain_text.__file__)))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def trail_page(history: History, *, with_samples: bool = True) -> str:
    """Return the page of a trail."""
    # Slow: imports all code of a gate.
    from sessions.pages.report.page_result import page_result, page_scorecard
    from sessions.pages.report.report import curves_of
    from sessions.pages.report.samples.page_samples import page_samples

    closing = history.newest(CloseEntry)
    steps = list(timeline.describe_entries(history))
    visible = _select_entries(history, {step.entry.seq for step in steps})
    decision = closing.body.decision if closing and closing.fits else None
    evidence = _Evidence(history.store)
    return render(
        _TEMPLATE,
        recorded=True,
        code=page_code(),
        style=Markup(_style()),
        style_hash=Markup(style_hash()),
        session=history.session if history else "",
        count=len(history),
        newest=history[-1].digest if history else "",
        reviews=history.find(WorkspaceEntry) is not None,
        result=page_result(history),
        scored=page_scorecard(history),
        most_reasons=MOST_REASONS,
        closed=decision,
        closed_state=_state(decision),
        overrides=_read_or(count_overrides, history) or 0,
        keys=keys_of(history),
        gates=[
            value | {"whole": _whole(history, value) if place <= MOST_GATES else None}
            for place, value in enumerate(gates_of(history), 1)
        ],
        curves=_read_or(curves_of, history) or [],
        stages=_read_or(_stages, history) or [],
        transcript=_read_or(_transcript, history),
        samples=_read_or(page_samples, history) if with_samples else None,
        story=[
            {"seq": step.entry.seq, "kind": step.entry.kind, "time": _time(step.entry)}
            | {"what": step.what, "lines": step.lines}
            for step in steps
        ],
        visible={value.seq for value in visible},
        left_out=len(history) - len(visible),
        groups=[
            [_entry(value, evidence) for value in visible[at : at + GROUP]] for at in range(0, len(visible), GROUP)
        ],
    )


def _whole(history: History, gate: dict[str, Any]) -> dict[str, Any] | None:
    """Return the checks and criteria of a gate; None where they cannot be read."""
    from sessions.pages.report.gate_page import gate_page

    return _read_or(gate_page, history, gate["stage"], gate["attempt"])


def _stages(history: History) -> list[dict[str, Any]]:
    """Return every attempt with its metrics."""
    from sessions.pages.report.report import stage_of

    spec = history.resolved.spec
    results = [stage_of(history, stage.name, stage.kind, spec.thresholds) for stage in spec.stages]
    return [value for value in results if value["attempts"]]


def _transcript(history: History) -> dict[str, Any] | None:
    """Return the newest events of the builder's transcript; None if it called no tool."""
    from sessions.pages.report.transcript import Transcript

    # Without the secrets of this environment: anyone who has an export makes the same page. They were masked before.
    attempts = list(Transcript(history.store, Masker({})).attempts(history))
    if not any(event.kind == "call" for attempt in attempts for event in attempt.events):
        return None
    seqs = sorted(event.seq for attempt in attempts for event in attempt.events)
    first = seqs[-MOST_EVENTS:][0]
    visible = [
        {"stage": attempt.stage, "attempt": attempt.attempt}
        | {"events": [{"at": "", "event": event} for event in attempt.events if event.seq >= first]}
        for attempt in attempts
    ]
    return {"attempts": [value for value in visible if value["events"]], "left_out": max(0, len(seqs) - MOST_EVENTS)}


def _read_or(read: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function reads of unverified entries and values; None where it cannot."""
    from sessions.pages.report.page_result import UNREADABLE

    try:
        return read(*arguments)
    except UNREADABLE:
        return None


def _time(value: RecordedEntry) -> str:
    return when(value).replace("T", " ")[:19]


@cache
def _style() -> str:
    return (FOLDER / "page.css").read_text(encoding="utf-8")


def style_hash() -> str:
    """Return the source that the page's policy allows: its style, and nothing else, by digest."""
    return f"sha256-{base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()}"


def _select_entries(history: History, counts: set[int]) -> list[RecordedEntry]:
    if len(history) <= MOST_ENTRIES:
        return list(history)
    chosen = sorted((entry.seq for entry in history), key=lambda seq: (seq in counts, seq))[-MOST_ENTRIES:]
    wanted = set(chosen)
    return [entry for entry in history if entry.seq in wanted]


def keys_of(history: History) -> list[dict[str, Any]]:
    """Return the keys of the newest policy, for people to compare."""
    newest = next((entry.entry.policy for entry in reversed(history) if entry.entry.policy is not None), None)
    if newest is None:
        return []
    texts = {"role", "id", "since", "until", "revoked"}
    return [key.model_dump(include=texts) for key in Policy.model_validate(newest).keys]


def gates_of(history: History) -> list[dict[str, Any]]:
    """Return one row for each decision: what was judged, by whom, and the outcome."""
    rows: list[dict[str, Any]] = []
    for entry in history.of(DecisionEntry):
        if not entry.fits:
            continue
        decision, stage = entry.body, entry.body.stage or DESIGN
        judged = history.find(VerdictEntry, stage, decision.attempt)
        judged = judged if judged and judged.fits else None
        verdict = _read_stored(history.store, judged.body.verdict) if judged else None
        findings = verdict.get("findings", []) if isinstance(verdict, dict) else []
        rows.append(
            {
                "seq": entry.seq,
                "stage": stage,
                "attempt": decision.attempt,
                "outcome": decision.outcome,
                "state": _state(decision.outcome),
                "reasons": decision.reasons,
                "conditions": decision.conditions,
                "reviewer": judged.body.reviewer if judged else "",
                "error": judged.body.error if judged else "not on record",
                "findings": [
                    {"severity": finding.get("severity", ""), "text": finding.get("statement", finding.get("text", ""))}
                    for finding in findings
                    if isinstance(finding, dict)
                ],
            }
        )
    return rows


class _Evidence:
    """The values that entries name, each shown once: three entries name the same long packet."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._first: dict[str, int] = {}
        self._remaining = MOST_EVIDENCE

    def of(self, value: RecordedEntry) -> list[dict[str, Any]]:
        return [
            {"name": name, "digest": digest} | self._value(digest, value.seq)
            for name in _LISTED
            if isinstance(digest := value.raw.get(name), str) and digest.startswith("sha256:")
        ]

    def _value(self, digest: str, seq: int) -> dict[str, Any]:
        if self._first.setdefault(digest, seq) != seq:
            return {"value": None, "with": self._first[digest]}
        if self._remaining <= 0:
            return {"value": f"left out here: file store/{digest[7:9]}/{digest[9:]}", "with": None}
        text = _text(_read_stored(self._store, digest))
        self._remaining -= len(text)
        return {"value": text, "with": None}


def _entry(value: RecordedEntry, evidence: _Evidence) -> dict[str, Any]:
    return {
        "seq": value.seq,
        "kind": value.kind,
        "key": value.key,
        "time": _time(value),
        "digest": value.digest,
        "previous": value.entry.previous,
        "body": _text(value.raw),
        "evidence": evidence.of(value),
    }


def _state(outcome: Any) -> str:
    """Return the style of a decision: no untrusted text becomes the name of a style."""
    return outcome if outcome in STATES else ""


def _read_stored(store: Store, digest: Any) -> Any:
    try:
        data = store.get(str(digest))
    except PeergateError:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")


def _text(value: Any) -> str:
    if value is None:
        return "not in the content store"
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return make_plain(text, MOST_CHARACTERS)


def page_damage(folder: Path, notes: list[str]) -> list[str]:
    """Make the page of an export again and return how it differs.

    A page of other code is only noted, as are samples that cannot be judged here or could not be judged where the page
    was made.
    """
    try:
        there = read_regular(folder / PAGE).decode()  # as it is: reading text would turn line ends into others
        size = parse_note(read_regular(folder / CHECKPOINT)).size
        envelopes = read_bundles(folder, size)
    except (OSError, UnicodeDecodeError, PeergateError) as error:
        return [f"{PAGE}: cannot be read: {str(error).splitlines()[0]}"]
    if not _CODE.search(there):
        return [f"{PAGE}: does not name the code that made it, as every page of an export does"]
    if f"page code {page_code()}" not in there:
        notes.append(f"{PAGE} was made by another version of Peergate and is not compared with the entries")
        return []
    opened = map(open_envelope, envelopes)
    entries = [restore_entry(value.payload, signatures_text(*value.signatures)) for value in opened]
    history = History(entries, Store(folder / STORE))
    made = trail_page(history)
    if made == there:
        return []
    bare = trail_page(history, with_samples=False)
    if there == bare:
        notes.append(f"{PAGE} has no samples: they could not be judged where it was made")
        return []
    if made == bare and _SAMPLES.sub("", made) == _SAMPLES.sub("", there, count=1):
        notes.append(f"{PAGE}: its samples are not compared, as they cannot be judged here")
        return []
    return [f"{PAGE}: does not show these entries"]
