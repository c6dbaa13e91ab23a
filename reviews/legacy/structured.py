"""Reviews in JSON and JSON lines: what a reviewer said in them becomes text, and that is read as any other review.

Only keys with a known meaning count. Requests, other speakers and the transcript of an agent are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from reviews.legacy.text import Reading, read_text
from reviews.text import plain

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
_DEEPEST = 12
_MOST = 1_000_000


def read_json(text: str, *, lines: bool) -> Reading:
    """Read a JSON file, or with ``lines`` a file of one JSON value a line; text that is neither is read as it is."""
    values: list[tuple[int, Any]] = []
    for number, line in enumerate(text.split("\n"), 1) if lines else [(1, text)]:
        try:
            if line.strip():
                values.append((number, json.loads(line, object_pairs_hook=_object)))
        except ValueError:
            if line.lstrip()[:1] in ("{", "["):
                return Reading("incomplete", line=number, text=f"not whole JSON: {line.strip()[:80]}")
            return read_text(text)
    if not values:
        return Reading("transport_error", text="empty")
    said: list[tuple[int, str]] = []
    named = any(_speaker(value) == "reviewer" for _, value in values)
    for number, value in values:
        for part in _parts(value, named, 0):
            if isinstance(part, Reading):
                return part._replace(line=number)
            said.append((number, plain(part, _MOST)))
    if not said:
        return Reading("undetermined", text="JSON without a verdict or a reviewer's words")
    reading = read_text("\n\n".join(part for _, part in said))
    if reading.line is None:
        return reading
    places = [number for number, part in said for _ in range(part.count("\n") + 2)]
    return reading._replace(line=places[reading.line - 1] if lines else _line_of(reading.text, text))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of a key that stands twice both values are kept, so that neither can hide the other."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = [found[key], value] if key in found else value
    return found


def _line_of(told: str, text: str) -> int:
    """Return the line of a JSON file where the words that decided stand; the first where they cannot be found."""
    words = json.dumps(told.partition(": ")[2] or told, ensure_ascii=False)[1:-1]
    return next((number for number, line in enumerate(text.split("\n"), 1) if words and words in line), 1)


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


def _parts(value: Any, named: bool, depth: int) -> Iterator[str | Reading]:
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


def _fault(value: dict[str, Any]) -> Reading | None:
    """Return what is wrong with the call that a JSON object records."""
    if error := value.get("error") or value.get("exception") or value.get("traceback"):
        return Reading("transport_error", text=f"error: {plain(str(error), 200)}")
    codes = [value.get(key) for key in ("status", "status_code", "code")]
    status = str(value.get("status", "")).lower()
    if any(isinstance(code, int) and code >= 400 for code in codes) or value.get("is_error") is True:
        return Reading("transport_error", text=f"error status {next((code for code in codes if code), '')}")
    if status in _FAILED:
        return Reading("transport_error", text=f"status: {status}")
    ended = [value.get(key) for key in ("finish_reason", "stop_reason", "status")]
    if value.get("truncated") is True or any(isinstance(one, str) and one in _CUT for one in ended):
        return Reading("incomplete", text="the answer was cut off at its length limit")
    return None


def _fields(value: dict[str, Any], named: bool, depth: int) -> Iterator[str | Reading]:
    """Yield a labelled line for each verdict and the text of each answer."""
    for key, one in value.items():
        name = key.lower()
        if name in _VERDICTS and isinstance(one, bool):
            yield f"Approval: {'yes' if one else 'no'}"
        elif name in _VERDICTS and isinstance(one, str):
            yield f"{'Status' if name == 'status' else 'Verdict'}: {one}"
        elif name in (*_TEXTS, *_LISTS, *_VERDICTS):
            yield from _parts(one, named, depth + 1)
