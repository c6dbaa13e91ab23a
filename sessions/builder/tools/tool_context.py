"""What a tool works with, and how it says no."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from agents.workbench_protocol import Workbench
from sessions.builder.redaction import Wall
from sessions.session import Session
from specs.stages.registry import Stage
from specs.trail.builder_tools import HelperTask, Phase
from specs.trail.grant_and_claim import Claim


class Refused(Exception):
    """A call that is not carried out; the only argument says why and what to do instead."""


class HelperBench(Workbench, Protocol):
    """A helper's workbench, as the tool that delegates sees it."""

    work: Work

    @property
    def ended_by(self) -> str:
        """Which bound ended the task; empty if none did."""
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
    """None where nobody may delegate."""
    call: str = ""
    """The key of the call that is being carried out."""
    launch: Launch | None = None
    """Set by ``launch_stage`` and ``ask_person``: how the phase ``plan`` ends."""
    submission: Submission | None = None
    """Set by ``submit_stage``: how the phase ``submit`` ends."""
    job_ended: bool = False
    handed_in: str = ""
    """Set by ``hand_in``: the note a helper's task ends with."""

    @property
    def key(self) -> str:
        """The job key of the attempt."""
        return f"{self.session.name}.{self.stage.name}.{self.attempt}"

    @property
    def done(self) -> bool:
        """Whether the phase has ended."""
        return self.launch is not None or self.submission is not None or self.job_ended or bool(self.handed_in)


@dataclass(frozen=True)
class Launch:
    """What the builder wants: these changes, or that a person is asked."""

    reason: str
    changes: dict[str, float | int | str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    escalate: bool = False


@dataclass(frozen=True)
class Submission:
    """What the builder states about the attempt."""

    claims: tuple[Claim, ...] = ()
    answers: dict[str, str] = field(default_factory=dict)
