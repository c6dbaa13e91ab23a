"""Tools as models are shown them, and the arguments of their calls, read strictly: no value is converted."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import ConfigDict, ValidationError

from specs.system.digests import Contract
from specs.system.strict_json import read_json
from specs.system.text import plain

MOST_ARGUMENTS = 100_000
"""Characters."""
MOST_PROBLEMS = 5
_NAME = 60
Phase = Literal["plan", "watch", "submit"]
"""``plan`` until a launch is asked for, ``watch`` while the job runs, ``submit`` when its rows are measured."""
CANCEL_TOOL = "cancel_job"


class Request(Contract):
    """What all requests share: they are schemas of tools, so models read their docstrings."""

    model_config = ConfigDict(use_attribute_docstrings=True)


ArgumentsT = TypeVar("ArgumentsT", bound=Request)


class Tool(NamedTuple):
    """A tool as a model is shown it."""

    name: str
    description: str
    arguments: type[Request]
    phases: tuple[Phase, ...]

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return self.arguments.model_json_schema()


_ALWAYS: tuple[Phase, ...] = ("plan", "watch", "submit")


def tool_of(arguments: type[Request], *phases: Phase) -> Tool:
    """Return the tool with these arguments, named and described as their class; open in all phases where none is."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", arguments.__name__).lower()
    described = " ".join((arguments.__doc__ or "").split())
    open_in = phases or _ALWAYS
    when = "" if open_in == _ALWAYS else f" Open in: {', '.join(open_in)}."
    return Tool(name, described + when, arguments, open_in)


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
