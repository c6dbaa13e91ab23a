"""A tool's context, how its arguments are read, and how it refuses a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import ValidationError

from agents.workbench_protocol import Workbench
from sessions.builder.redaction import Wall
from sessions.session import Session
from specs.stages.registry import Stage
from specs.strict_json import read_json
from specs.text import plain
from specs.trail.builder_tools import Arguments, HelperTask, Phase, SubmitStage, Tool

MOST_ARGUMENTS = 100_000
"""Characters."""
MOST_PROBLEMS = 5
_NAME = 60


class Refused(Exception):
    """A call that is not carried out; says why, and what to do instead."""


class HelperBench(Workbench, Protocol):
    """A helper's workbench, as the tool that delegates sees it."""

    work: Work

    @property
    def ended_by(self) -> str:
        """The bound that ended the task; empty otherwise."""
        ...


OpenHelper = Callable[["Work", int, HelperTask], HelperBench]
"""Opens a helper's workbench: for whose work, the number of the task, the task."""


@dataclass
class Work:
    """One phase of one attempt, as the tools see and end it."""

    session: Session
    stage: Stage
    attempt: int
    phase: Phase
    wall: Wall
    open_helper: OpenHelper | None = None
    """None where delegating is not allowed."""
    call: str = ""
    """The key of the current call."""
    launch: Launch | None = None
    """Set by ``launch_stage`` and ``ask_person``, which end the phase ``plan``."""
    submission: SubmitStage | None = None
    """Set by ``submit_stage``, which ends the phase ``submit``."""
    job_ended: bool = False
    image: bytes | None = None
    """The PNG of the current call, which its result carries."""
    handed_in: str = ""
    """Set by ``hand_in``: the note that ends a helper's task."""

    @property
    def key(self) -> str:
        """The job key of the attempt."""
        return f"{self.session.name}.{self.stage.name}.{self.attempt}"

    @property
    def done(self) -> bool:
        """Whether the phase has ended."""
        return self.launch is not None or self.submission is not None or self.job_ended or bool(self.handed_in)

    @property
    def at(self) -> tuple[str, int]:
        """Stage and attempt."""
        return self.stage.name, self.attempt


@dataclass(frozen=True)
class Launch:
    """What the builder wants: a launch with changes, or a person's answer."""

    reason: str
    changes: dict[str, float | int | str | bool] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    escalate: bool = False


def read_arguments(tool: Tool, text: str) -> Arguments:
    """Return the arguments of a call. No value is converted: a number written as text is not a number.

    Raises:
        Refused: they are too long, no JSON object, say something twice, or do not fit the tool.
    """
    if len(text) > MOST_ARGUMENTS:
        raise Refused(f"the arguments have {len(text)} characters, at most {MOST_ARGUMENTS} are read")
    try:
        value = read_json(text or "{}")
        written = json.dumps(value, allow_nan=False).encode()
    except ValueError as error:
        raise Refused(f"malformed arguments: no JSON that can be read: {error}") from error
    if not isinstance(value, dict):
        raise Refused(f"malformed arguments: one JSON object is needed, this is a {type(value).__name__}")
    try:
        return tool.arguments.model_validate_json(written, strict=True)
    except ValidationError as error:
        raise Refused(_what_is_wrong(error)) from error


def _what_is_wrong(error: ValidationError) -> str:
    """Return in one line what is wrong with the arguments."""
    problems = error.errors(include_input=False, include_url=False)
    told = [
        f"{'.'.join(plain(str(part), _NAME) for part in one['loc']) or 'arguments'}: {plain(one['msg'], 300)}"
        for one in problems[:MOST_PROBLEMS]
    ]
    more = f"; and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
    return f"malformed arguments: {'; '.join(told)}{more}"
