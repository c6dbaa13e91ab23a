"""Reviews in JSON and JSON lines: a verdict under a known key and the text of an answer become lines of text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from specs.text import plain

_VERDICT = re.compile(r"verdict|decision|approval|approved?|outcome|recommendation|go_no_go|status")
_TEXT = re.compile(
    r"response|reply|output|answer|text|content|review|result|summary|reasoning|reasons?|reviews|responses|results|message"
    r"|messages|choices|rationale|notes|comments?|feedback|body|justification"
)
_ASIDE = re.compile(r"role|prompt|request|(?:model|reviewer|id|date|time|tokens|usage|effort|cost|finish_reason)\w*")
_BINDING = ("conditions", "required_changes", "safeguards", "requirements")
_FAILED = re.compile(r"[45]\d\d|failed|failure|error|timeout|timed_out|cancelled|crashed")
_CUT = re.compile(r"length|max_tokens|max_output_tokens|incomplete")
_DEEPEST = 8


class Fault(NamedTuple):
    """A call that failed or was cut, as a file records it."""

    status: Literal["transport_error", "incomplete", "undetermined"]
    text: str


def words_of_json(text: str, *, lines: bool) -> str | Fault | None:
    """Return what a reviewer says in JSON, or with ``lines`` in one JSON value a line.

    Returns the fault of the call if the file records one; None when the text is not JSON.
    """
    said: list[str] = []
    for line in filter(str.strip, text.split("\n") if lines else [text]):
        try:
            value = json.loads(line, object_pairs_hook=_object)
        except ValueError:
            return Fault("incomplete", "not whole JSON") if line.lstrip()[:1] in ("{", "[") else None
        if not isinstance(value, (dict, list)):
            return None
        for part in _parts(value, 0):
            if isinstance(part, Fault):
                return part
            said.append(plain(part[:1].upper() + part[1:], len(part) + 1))
    return "\n\n".join(said) if said else Fault("undetermined", "JSON without a verdict or a reviewer's words")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object with both values of a key that appears twice, so that neither can hide the other."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = [found[key], value] if key in found else value
    return found


def _parts(value: Any, depth: int) -> Iterator[str | Fault]:
    """Yield what the reviewer says in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _DEEPEST:
        for one in value:
            yield from _parts(one, depth + 1)
    elif isinstance(value, dict):
        if fault := _fault(value):
            yield fault
        elif value.get("role", "assistant") in ("assistant", "reviewer") and depth < _DEEPEST:
            for key, one in value.items():
                for item in one if isinstance(one, list) else [one]:
                    yield from _field(re.sub(r"[- ]", "_", key.lower()), item, depth)


def _field(name: str, item: Any, depth: int) -> Iterator[str | Fault]:
    """Yield a labelled line for a verdict, the text of an answer, and a doubt for a key without a known meaning."""
    known = _VERDICT.fullmatch(name) is not None
    if known and isinstance(item, bool):
        yield f"Approval: {'yes' if item else 'no'}"
    elif known and isinstance(item, str):
        yield f"{name if name in ('status', 'recommendation') else 'verdict'}: {item}"
    elif known or _TEXT.fullmatch(name):
        yield from _parts(item, depth + 1)
    elif not _ASIDE.fullmatch(name) and item not in (None, "", [], {}, False):
        yield f"{'must' if name in _BINDING else 'but'}: {name.replace('_', ' ')}."


def _fault(value: dict[str, Any]) -> Fault | None:
    """Return what is wrong with the call that an object records."""
    error = next((value[key] for key in ("error", "exception", "traceback", "is_error") if value.get(key)), None)
    status = str(value.get("status", value.get("status_code", value.get("code", "")))).lower()
    if error or _FAILED.fullmatch(status):
        return Fault("transport_error", f"error: {plain(str(error or status), 200)}")
    ended = [str(value.get(key)) for key in ("finish_reason", "stop_reason", "status")]
    cut = value.get("truncated") is True or any(_CUT.fullmatch(one) for one in ended)
    return Fault("incomplete", "the answer was cut off at its length limit") if cut else None
