"""The workbench of a helper: one bounded task that reads, computes and hands in, under the call that delegated it."""

from __future__ import annotations

import time

from sessions.builder.tools.reading_tools import MOST_READABLE, find_artifact
from sessions.builder.tools.tool_context import PhaseWork
from sessions.builder.workbench import SessionWorkbench
from sessions.run.money import ledger
from specs.system.text import enclose
from specs.trail.builder_tools import HELPER_TOOLS, HelperTask
from specs.trail.tool_arguments import Tool

EXCERPT = 6_000
"""Characters of each artifact in the brief; the rest is read in pages."""


class HelperWorkbench(SessionWorkbench):
    """One helper's :class:`agents.workbench_protocol.Workbench`."""

    def __init__(self, parent: PhaseWork, number: int, task: HelperTask) -> None:
        self._task = task
        self._until = time.monotonic() + task.timeout_minutes * 60
        self._name = f"{parent.call.rpartition('.')[2]}-{number}"
        super().__init__(parent.session, parent.stage, parent.attempt, parent.phase, helper=self._name)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of a helper."""
        return HELPER_TOOLS

    @property
    def brief(self) -> str:
        """The task, with the beginning of each artifact it was given."""
        parts = [
            "# Your task",
            self._task.task,
            f"At most {self._task.max_output_tokens} tokens of answers and {self._task.timeout_minutes:g} minutes.",
        ]
        for name in self._task.artifacts:
            readable = find_artifact(self._session, name)
            if readable is None:
                parts.append(f"Artifact '{name}' does not exist or may not be read.")
                continue
            # Cleaned before it is cut: half of a withheld text is not recognized.
            text = self.work.wall.readable(readable.digest, MOST_READABLE)
            more = f" (the first {EXCERPT} characters; read_artifact has the rest)" if len(text) > EXCERPT else ""
            parts.append(f"{name}: {readable.what}{more}\n" + enclose("artifact", text[:EXCERPT]))
        return self._wall.scrub("\n\n".join(parts))

    @property
    def done(self) -> bool:
        """Return whether the task is handed in, or a bound is reached."""
        return bool(self.work.handed_in) or bool(self.ended_by)

    @property
    def ended_by(self) -> str:
        """The bound that ended the task; empty before."""
        if self.gave_up:
            return self.gave_up
        if time.monotonic() > self._until:
            return f"its {self._task.timeout_minutes:g} minutes are over"
        if self.written >= self._task.max_output_tokens:
            return f"its answers have {self.written} tokens, {self._task.max_output_tokens} are allowed"
        return ""

    def reserve(self, cap_usd: float) -> str:
        """Reserve the most a turn may cost, out of the task's money and the builder's remaining money."""
        self._session.checkpoint()
        work, budget = self.work, self._session.resolved.spec.budget
        at = work.stage, work.attempt
        return ledger.reserve_turn(
            self._session.trail, budget, *at, cap_usd, "helper", task=self._name, task_usd=self._task.max_usd
        )
