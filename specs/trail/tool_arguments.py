"""Reads the arguments of a model's call of a tool, strictly: no value is converted."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import ValidationError

from specs.system.strict_json import read_json
from specs.system.text import plain
from specs.trail.requested_review import Request

MOST_ARGUMENTS = 100_000
"""Characters."""
MOST_PROBLEMS = 5
_NAME = 60
ArgumentsT = TypeVar("ArgumentsT", bound=Request)


class ToolCallRefusal(Exception):
    """A call that is not carried out; says why, and what to do instead."""


def read_as(form: type[ArgumentsT], text: str) -> ArgumentsT:
    """Return the arguments of a call. A number written as text is not a number.

    Raises:
        Refused: they are too long, no JSON object, say something twice, or do not fit the form.
    """
    if len(text) > MOST_ARGUMENTS:
        raise ToolCallRefusal(f"the arguments have {len(text)} characters, at most {MOST_ARGUMENTS} are read")
    try:
        value = read_json(text or "{}")
        written = json.dumps(value, allow_nan=False).encode()
    except ValueError as error:
        raise ToolCallRefusal(f"malformed arguments: no JSON that can be read: {error}") from error
    if not isinstance(value, dict):
        raise ToolCallRefusal(f"malformed arguments: one JSON object is needed, this is a {type(value).__name__}")
    try:
        return form.model_validate_json(written, strict=True)
    except ValidationError as error:
        raise ToolCallRefusal(_what_is_wrong(error)) from error


def _what_is_wrong(error: ValidationError) -> str:
    """Return in one line what is wrong with the arguments."""
    problems = error.errors(include_input=False, include_url=False)
    parts = [
        f"{'.'.join(plain(str(part), _NAME) for part in error['loc']) or 'arguments'}: {plain(error['msg'], 300)}"
        for error in problems[:MOST_PROBLEMS]
    ]
    more = f"; and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
    return f"malformed arguments: {'; '.join(parts)}{more}"
