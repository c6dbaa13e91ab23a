"""Reviews in JSON and JSON lines: what a reviewer said in them becomes text, and that is read as any other review.

Only keys with a known meaning count. Requests, other speakers and the transcript of an agent are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from reviews.legacy.vocabulary import head_of
from specs.text import plain

_VERDICTS = (
    "verdict",
    "decision",
    "approval",
    "approved",
    "approve",
    "outcome",
    "recommendation",
    "go_no_go",
    "status",
)
_LABELS = {"status": "Status", "recommendation": "Recommendation", "outcome": "Verdict"}
_TEXTS = (
    "response",
    "reply",
    "output",
    "answer",
    "text",
    "content",
    "review",
    "result",
    "summary",
    "reasoning",
    "body",
)
_LISTS = ("reviews", "responses", "results", "messages", "choices", "message", "data")
_REVIEWING = ("assistant", "reviewer", "codex", "gemini", "model")
_OTHERS = re.compile(r"(?i)\b(?:builder|agent|author|user|human|requester|implementer|developer|claude|system|tool)\b")
_FAILED = ("failed", "failure", "error", "timeout", "timed_out", "cancelled", "crashed")
_CUT = ("length", "max_tokens", "max_output_tokens", "incomplete")
_POINTS = {
    "conditions": "Conditions",
    "required_changes": "Required changes",
    "must_fix": "Must fix",
    "blockers": "Blockers",
    "blocking_issues": "Blockers",
    "blocking": "Blockers",
    "critical": "Critical",
    "critical_issues": "Critical",
    "safeguards": "Safeguards",
    "concerns": "Concerns",
    "risks": "Risks",
}
"""Lists of points become a section with that heading."""
_UNDONE = re.compile(
    r"supersed|overrid|overrul|retract|withdr|revok|void|obsolete|replaced|cancel|draft|example|dry_?run|mock"
    r"|simulat|fake|dummy"
)
"""Keys that take back what stands beside them."""
_DEEPEST = 12
_PLACED = 400
"""Lines of which the place in the file is looked for."""
_SNIPPET = 60
_FEW_WORDS = 4
_MOST = 1_000_000


class Fault(NamedTuple):
    """A call that failed or was cut, as a JSON file records it."""

    status: Literal["transport_error", "incomplete", "undetermined"]
    line: int | None
    text: str


def words_of_json(text: str, *, lines: bool) -> tuple[str, list[int]] | Fault | None:
    """Return what a reviewer says in JSON as text, with the line of the file of each line of it.

    Args:
        text: a JSON file, or with ``lines`` a file of one JSON value a line.
        lines: see above.

    Returns:
        The words, or the fault of the call; None when the text is no JSON at all.
    """
    values: list[tuple[int, Any]] = []
    for number, line in enumerate(text.split("\n"), 1) if lines else [(1, text)]:
        try:
            if line.strip():
                values.append((number, json.loads(line, object_pairs_hook=_object)))
        except ValueError:
            if line.lstrip()[:1] in ("{", "["):
                return Fault("incomplete", number, f"not whole JSON: {line.strip()[:80]}")
            return None
    if not any(isinstance(value, (dict, list)) for _, value in values):
        return None
    named = any(_speaker(value) == "reviewer" for _, value in values)
    said: list[str] = []
    numbers: list[int] = []
    for number, value in values:
        for part in _parts(value, named, 0):
            if isinstance(part, Fault):
                return part._replace(line=number)
            for one in [*plain(part, _MOST).split("\n"), ""]:
                said.append(one)
                numbers.append(number if lines or len(said) > _PLACED else _line_of(one, text))
    if not said:
        return Fault("undetermined", None, "JSON without a verdict or a reviewer's words")
    return "\n".join(said), numbers


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of a key that stands twice both values are kept, so that neither can hide the other."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = [found[key], value] if key in found else value
    return found


def _line_of(told: str, text: str) -> int:
    """Return the line of a JSON file where some words stand; the first where they cannot be found."""
    words = json.dumps(told.lstrip("- ").partition(": ")[2] or told, ensure_ascii=False)[1:-1][:_SNIPPET]
    at = text.find(words) if words else -1
    return text.count("\n", 0, at) + 1 if at >= 0 else 1


def _speaker(value: Any) -> str:
    """Return who speaks in a JSON object: ``reviewer``, ``assistant``, ``other``, or nothing when it does not say."""
    if not isinstance(value, dict):
        return ""
    for key in ("role", "speaker"):
        if isinstance(said := value.get(key), str):
            who = said.lower()
            return "assistant" if who == "assistant" else "reviewer" if who in _REVIEWING else "other"
    named = (value.get(key) for key in ("from", "author", "by"))
    return "other" if any(isinstance(one, str) and _OTHERS.search(one) for one in named) else ""


def _parts(value: Any, named: bool, depth: int) -> Iterator[str | Fault]:
    """Yield what the reviewer says in a JSON value; ``named``: one of the speakers is called the reviewer."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _DEEPEST:
        named = named or any(_speaker(one) == "reviewer" for one in value)
        for one in value:
            yield from _parts(one, named, depth + 1)
    elif isinstance(value, dict) and depth < _DEEPEST:
        # Session identities mark the transcript of the agent itself: its words about its own work are no review.
        speaker = _speaker(value)
        if speaker == "other" or (named and speaker == "assistant") or "sessionId" in value or "parentUuid" in value:
            return
        fault = _fault(value)
        if fault is None:
            yield from _fields(value, named, depth)
        else:
            yield fault


def _fault(value: dict[str, Any]) -> Fault | None:
    """Return what is wrong with the call that a JSON object records."""
    if error := value.get("error") or value.get("exception") or value.get("traceback"):
        return Fault("transport_error", None, f"error: {plain(str(error), 200)}")
    codes = [value.get(key) for key in ("status", "status_code", "code")]
    status = str(value.get("status", "")).lower()
    if any(isinstance(code, int) and code >= 400 for code in codes) or value.get("is_error") is True:
        return Fault("transport_error", None, f"error status {next((code for code in codes if code), '')}")
    if status in _FAILED:
        return Fault("transport_error", None, f"status: {status}")
    ended = [value.get(key) for key in ("finish_reason", "stop_reason", "status")]
    if value.get("truncated") is True or any(isinstance(one, str) and one in _CUT for one in ended):
        return Fault("incomplete", None, "the answer was cut off at its length limit")
    return None


def _fields(value: dict[str, Any], named: bool, depth: int) -> Iterator[str | Fault]:
    """Yield a labelled line for each verdict, a section for each list of points, and the text of each answer."""
    for key, one in value.items():
        name = key.lower().replace("-", "_").replace(" ", "_")
        if one and _UNDONE.search(name):
            yield f"This review is superseded ({name})."
        elif name in _VERDICTS and isinstance(one, bool):
            yield f"Approval: {'yes' if one else 'no'}"
        elif name in _VERDICTS and isinstance(one, str):
            yield f"{_LABELS.get(name, 'Verdict')}: {one}"
        elif name in _VERDICTS and isinstance(one, list) and all(isinstance(item, str) for item in one):
            # A key that stood twice: every value is shown.
            yield from (f"Verdict: {item}" for item in one)
        elif name in _POINTS and one:
            points = [_point(item) for item in (one if isinstance(one, list) else [one])]
            yield f"## {_POINTS[name]}\n" + "\n".join(f"- {point}" for point in points)
        elif name == "findings" and isinstance(one, list) and one:
            yield "## Findings\n" + "\n".join(f"- {_point(item)}" for item in one)
        elif name not in (*_TEXTS, *_LISTS, *_VERDICTS) and isinstance(one, str) and _is_verdict(one):
            # A verdict under an unknown key may stand against the one under a known key.
            yield f"{name}: {one}"
        elif name in (*_TEXTS, *_LISTS, *_VERDICTS):
            yield from _parts(one, named, depth + 1)


def _is_verdict(value: str) -> bool:
    head = head_of(value, "alone") if len(value.split()) <= _FEW_WORDS else None
    return head is not None


def _point(value: Any) -> str:
    """Return one point of a list as a line, its severity first."""
    if not isinstance(value, dict):
        return " ".join(str(value).split())
    severity = value.get("severity") or value.get("level") or ""
    words = [value.get(key) for key in ("title", "text", "statement", "description", "message", "condition", "detail")]
    place = value.get("file") or value.get("path") or ""
    told = " ".join(str(word) for word in words if word) or json.dumps(value, ensure_ascii=False)
    where = f" ({place}{':' + str(value['line']) if isinstance(value.get('line'), int) else ''})" if place else ""
    return " ".join(f"{f'[{severity}] ' if severity else ''}{told}{where}".split())
