"""Reviews in JSON and JSON lines: what a reviewer says in them becomes lines of text.

Only keys with a known meaning count. Requests, other speakers and the transcript of an agent are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from specs.text import plain

_KEYS = re.compile(
    r"(?P<verdict>verdict|decision|approval|approved?|outcome|recommendation|go_no_go|status)$"
    r"|(?P<points>conditions|required_changes|must_fix|blockers|critical(?:_issues)?|safeguards|concerns|risks|findings)$"
    r"|(?P<text>response|reply|output|answer|text|content|review|result|summary|reasoning|body|reviews|responses|results"
    r"|messages?|choices|data)$"
    r"|(?P<undone>.*(?:supersed|overr|retract|withdr|revok|void|obsolete|replaced|cancel|draft|example|dry_?run|mock|simul))"
)
_OTHERS = re.compile(r"(?i)\b(?:builder|agent|author|user|human|requester|implementer|developer|claude|system|tool)\b")
_FAILED = re.compile(r"failed|failure|error|timeout|timed_out|cancelled|crashed")
_CUT = re.compile(r"length|max_tokens|max_output_tokens|incomplete")
_DEEPEST = 12


class Fault(NamedTuple):
    """A call that failed or was cut, as a file records it."""

    status: Literal["transport_error", "incomplete", "undetermined"]
    line: int | None
    text: str


def words_of_json(text: str, *, lines: bool) -> tuple[str, list[int]] | Fault | None:
    """Return what a reviewer says in JSON, with the line of the file of each line of it.

    Args:
        text: a JSON file, or with ``lines`` a file of one JSON value a line.
        lines: see above.

    Returns:
        The words, or the fault of the call; None when the text is no JSON at all.
    """
    said: list[str] = []
    numbers: list[int] = []
    values: list[tuple[int, Any]] = []
    for number, line in enumerate(text.split("\n"), 1) if lines else [(1, text)]:
        try:
            values += [(number, json.loads(line, object_pairs_hook=_object))] if line.strip() else []
        except ValueError:
            return Fault("incomplete", number, "not whole JSON") if line.lstrip()[:1] in ("{", "[") else None
    if not any(isinstance(value, (dict, list)) for _, value in values):
        return None
    named = any(_speaker(value) == "reviewer" for _, value in values)
    for number, value in values:
        for part in _parts(value, named, 0):
            if isinstance(part, Fault):
                return part._replace(line=number)
            found = [*plain(part, len(part) + 1).split("\n"), ""]
            said += found
            numbers += [number] * len(found)
    nothing = Fault("undetermined", None, "JSON without a verdict or a reviewer's words")
    return ("\n".join(said), numbers) if said else nothing


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of a key that appears twice both values are kept, so that neither can hide the other."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = [found[key], value] if key in found else value
    return found


def _speaker(value: Any) -> str:
    """Return who speaks in an object: ``reviewer``, ``assistant``, ``other``, or nothing when it does not say."""
    if not isinstance(value, dict):
        return ""
    if isinstance(who := value.get("role", value.get("speaker")), str):
        return who if who == "assistant" else "reviewer" if who in ("reviewer", "codex", "gemini", "model") else "other"
    named = (value.get(key) for key in ("from", "author", "by"))
    return "other" if any(isinstance(one, str) and _OTHERS.search(one) for one in named) else ""


def _parts(value: Any, named: bool, depth: int) -> Iterator[str | Fault]:
    """Yield what the reviewer says in a value; ``named``: one of the speakers is called the reviewer."""
    if isinstance(value, str):
        yield value[:1].upper() + value[1:]
    elif isinstance(value, list) and depth < _DEEPEST:
        for one in value:
            yield from _parts(one, named or any(_speaker(other) == "reviewer" for other in value), depth + 1)
    elif isinstance(value, dict) and depth < _DEEPEST:
        # Session identities mark the transcript of the agent itself: its words about its own work are no review.
        speaker = _speaker(value)
        if speaker == "other" or (named and speaker == "assistant") or "sessionId" in value or "parentUuid" in value:
            return
        fault = _fault(value)
        yield from [fault] if fault else _fields(value, named, depth)


def _fault(value: dict[str, Any]) -> Fault | None:
    """Return what is wrong with the call that an object records."""
    error = value.get("error") or value.get("exception") or value.get("traceback") or value.get("is_error")
    status = str(value.get("status", value.get("status_code", value.get("code", "")))).lower()
    if error or re.fullmatch(r"[45]\d\d", status) or _FAILED.fullmatch(status):
        return Fault("transport_error", None, f"error: {plain(str(error or status), 200)}")
    ended = [str(value.get(key)) for key in ("finish_reason", "stop_reason", "status")]
    cut = value.get("truncated") is True or any(_CUT.fullmatch(one) for one in ended)
    return Fault("incomplete", None, "the answer was cut off at its length limit") if cut else None


def _fields(value: dict[str, Any], named: bool, depth: int) -> Iterator[str | Fault]:
    """Yield a labelled line for each verdict, a section for each list of points, and the text of each answer."""
    for key, one in value.items():
        name = re.sub(r"[- ]", "_", key.lower())
        kind = hit.lastgroup if (hit := _KEYS.match(name)) else None
        if kind == "undone" and one:
            yield "This review is superseded."
        elif kind == "verdict" and isinstance(one, bool):
            yield f"Approval: {'yes' if one else 'no'}"
        elif kind == "verdict" and isinstance(one, (str, list)):
            told = one if isinstance(one, list) else [one]
            label = name.capitalize() if name in ("status", "recommendation") else "Verdict"
            yield from (f"{label}: {item}" for item in told if isinstance(item, str))
        elif kind == "points" and one:
            points = one if isinstance(one, list) else [one]
            yield f"## {name.replace('_', ' ').capitalize()}\n" + "\n".join(f"- {_point(item)}" for item in points)
        elif kind in ("text", "verdict"):
            yield from _parts(one, named, depth + 1)
        elif kind is None and isinstance(one, str) and len(one.split()) <= 4:
            # A verdict under an unknown key may contradict the one under a known key.
            yield f"{name.replace('_', ' ')}: {plain(one, len(one) + 1) or '-'}."


def _point(value: Any) -> str:
    """Return one point of a list as a line, its severity first."""
    if not isinstance(value, dict):
        return " ".join(str(value).split())
    severity = value.get("severity") or value.get("level")
    told = " ".join(str(one) for key, one in value.items() if key not in ("severity", "level", "file", "path", "line"))
    place = f"{value.get('file') or value.get('path') or ''}:{value.get('line') or ''}".strip(":")
    return " ".join(f"{f'[{severity}] ' if severity else ''}{told} {f'({place})' if place else ''}".split())
