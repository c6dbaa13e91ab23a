"""A tool's context: the phase it works in, and how its arguments are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from agents.workbench_protocol import Workbench
from sessions.builder.redaction import Redactor
from sessions.session import Session
from specs.stages.registry import Stage
from specs.trail.builder_tools import HelperTask, SubmitStage
from specs.trail.tool_arguments import MOST_ARGUMENTS as MOST_ARGUMENTS
from specs.trail.tool_arguments import Arguments, Phase, Tool, read_as
from specs.trail.tool_arguments import ToolCallRefusal as ToolCallRefusal


class HelperBench(Workbench, Protocol):
    """A helper's workbench, as the tool that delegates sees it."""

    work: PhaseWork

    @property
    def ended_by(self) -> str:
        """The bound that ended the task; empty otherwise."""
        ...


OpenHelper = Callable[["PhaseWork", int, HelperTask], HelperBench]
"""Opens a helper's workbench: for whose work, the number of the task, the task."""


@dataclass
class PhaseWork:
    """One phase of one attempt, as the tools see and end it."""

    session: Session
    stage: Stage
    attempt: int
    phase: Phase
    wall: Redactor
    open_helper: OpenHelper | None = None
    """None if delegating is not allowed."""
    call: str = ""
    """The key of the current call."""
    launch: LaunchRequest | None = None
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
        """Return whether the phase has ended."""
        return self.launch is not None or self.submission is not None or self.job_ended or bool(self.handed_in)

    @property
    def at(self) -> tuple[str, int]:
        """Stage and attempt."""
        return self.stage.name, self.attempt


@dataclass(frozen=True)
class LaunchRequest:
    """What the builder wants: a launch with changes, or a person's answer."""

    reason: str
    changes: dict[str, float | int | str | bool] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    escalate: bool = False


def read_arguments(tool: Tool, text: str) -> Arguments:
    """Return the arguments of a call; raises Refused as :func:`specs.trail.tool_arguments.read_as`."""
    return read_as(tool.arguments, text)
