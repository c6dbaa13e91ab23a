"""Reviews in JSON and JSON lines: verdicts are read by field, the text of an answer as words.

Known by field: Codex (``/review``, ``exec --json``, adversarial reviews), Claude Code's results, reviews of GitHub,
items of OpenAI's Responses, chat completions and messages, and objects with a verdict of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from specs.system.text import plain

_VERDICT = (
    "verdict",
    "decision",
    "outcome",
    "recommendation",
    "go_no_go",
    "approval",
    "approved",
    "overall_correctness",
)
_STATES = {"approved": "approve", "changes_requested": "request changes"}
"""States of a review on GitHub that decide; comments, pending and dismissed reviews do not."""
_TEXT = (
    *(
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
        "message",
    ),
    *("messages", "choices", "rationale", "notes", "comments", "body", "item", "reviews", "overall_explanation"),
    *("results", "responses", "feedback"),
)
_SPEECH = ("message", "agent_message", "output_text", "text", "result", "item.completed")
"""Types of an item that is an answer; reasoning, calls of tools and what the program says of itself are not."""
_BINDING = re.compile(r"conditions|required_changes|safeguards|requirements|caveats?|must_fix")
_BLOCKING = re.compile(r"block(?:ing|ers?)(?:_\w+)?|critical(?:_\w+)?")
_ASIDE = re.compile(
    r"role|prompt|request|type|next_steps|usage|nits?|(?:model|reviewer|user|author|id|session|commit|date|time|created|submitted"
    r"|tokens|effort|cost|duration|overall_confidence|confidence|schema|version|subtype|is_error|finish_reason|stop_reason|url|html)\w*"
)
_FAILED = re.compile(r"[45]\d\d|failed|failure|error|timeout|timed_out|cancelled|crashed")
_CUT = re.compile(r"length|max_tokens|max_output_tokens|incomplete")
_DEEPEST = 8


class LegacyCallFault(NamedTuple):
    """A call that failed or was cut, as a file records it."""

    status: Literal["transport_error", "incomplete", "undetermined"]
    text: str


def words_of_json(text: str) -> str | LegacyCallFault | None:
    """Return what a reviewer says in a JSON value, or in one JSON value a line.

    Returns the fault of the call if the file records one; None when the text is not JSON.
    """
    try:
        values = [json.loads(text, object_pairs_hook=_object)]
    except ValueError:
        values: list[Any] = []
        for line in filter(str.strip, text.split("\n")):
            try:
                values.append(json.loads(line, object_pairs_hook=_object))
            except ValueError:
                return LegacyCallFault("incomplete", "not whole JSON") if line.lstrip()[:1] in ("{", "[") else None
    parts = [part for value in values if isinstance(value, (dict, list)) for part in _parts(value, 0)]
    if fault := next((part for part in parts if isinstance(part, LegacyCallFault)), None):
        return fault
    texts = [part[:1].upper() + part[1:] for part in map(str, parts) if part.strip()]
    return (
        plain("\n\n".join(texts), len(text) * 4) if texts else LegacyCallFault("undetermined", "JSON without a verdict")
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object with both values of a key that appears twice, so that neither can hide the other."""
    current: dict[str, Any] = {}
    for key, value in pairs:
        current[key] = [current[key], value] if key in current else value
    return current


def _parts(value: Any, depth: int) -> Iterator[str | LegacyCallFault]:
    """Yield what the reviewer says in a value."""
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        inner = _parse_nested_json(value)
        yield from [value] if inner is None else _parts(inner, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _parts(item, depth + 1)
    elif isinstance(value, dict):
        if fault := _fault(value):
            yield fault
        elif value.get("role", "assistant") in ("assistant", "reviewer") and value.get("type", "text") in _SPEECH:
            decides = any(_name(key) in _VERDICT for key in value)
            for key, item in value.items():
                yield from _field(_name(key), item, depth, decides=decides)


def _parse_nested_json(text: str) -> Any:
    """Return the JSON that a text consists of, as agents answer with a schema; None for other texts."""
    if text.strip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text, object_pairs_hook=_object)
    except ValueError:
        return None


def _name(key: str) -> str:
    return re.sub(r"[- ]", "_", key.lower())


def _field(name: str, value: Any, depth: int, *, decides: bool = False) -> Iterator[str | LegacyCallFault]:
    """Yield a labelled line for a verdict, a finding or a condition, and the text of an answer.

    Next to a verdict (``decides``) a field without a known meaning is a doubt.
    """
    for item in value if isinstance(value, list) else [value]:
        if name in _VERDICT and isinstance(item, bool):
            yield f"Verdict: {'approve' if item else 'reject'}"
        elif name in _VERDICT and (isinstance(item, str) or item is None):
            yield f"Verdict: {item or 'none'}"
        elif name == "state" and isinstance(item, str):
            yield f"Verdict: {_STATES.get(item.lower(), 'none')}"
        elif (
            name in ("severity", "priority") or name == "title" and isinstance(item, str) and re.match(r"\[P\d\]", item)
        ):
            yield f"Finding: {item[1:3] if name == 'title' else item if isinstance(item, str) else f'P{item}'}"
        elif _BLOCKING.fullmatch(name) and item:
            yield "Finding: blocker"
        elif _BINDING.fullmatch(name) and item:
            yield f"Conditions: {name.replace('_', ' ')}"
        elif name == "findings":
            yield from _findings(item)
        elif name in _TEXT or name in _VERDICT:
            yield from _parts(item, depth + 1)
        elif decides and name == "status" and isinstance(item, str):
            yield f"Status: {item}"
        elif decides and not _ASIDE.fullmatch(name) and item not in (None, "", {}, False):
            yield f"Maybe: {name.replace('_', ' ')}"


def _findings(finding: Any) -> Iterator[str | LegacyCallFault]:
    """Yield how severe a finding is; its own recommendation is not a verdict."""
    if isinstance(finding, dict):
        for key in ("severity", "priority", "title"):
            if key in finding:
                yield from _field(key, finding[key], _DEEPEST)


def _fault(value: dict[str, Any]) -> LegacyCallFault | None:
    """Return what is wrong with the call that an object records."""
    error = next((value[key] for key in ("error", "exception", "traceback", "is_error") if value.get(key)), None)
    status = str(value.get("status", value.get("status_code", value.get("code", "")))).lower()
    if error or _FAILED.fullmatch(status):
        return LegacyCallFault("transport_error", f"error: {plain(str(error or status), 200)}")
    ended = [str(value.get(key)) for key in ("finish_reason", "stop_reason", "status")]
    cut = value.get("truncated") is True or any(_CUT.fullmatch(end) for end in ended)
    return LegacyCallFault("incomplete", "the answer was cut off at its length limit") if cut else None
