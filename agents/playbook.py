"""The embedded builder: follows the spec and applies what a gate required, without a model or network."""

from __future__ import annotations

from typing import Any

from agents.workbench_protocol import Workbench
from specs.jobs.grant_and_claim import StageView
from specs.system.vendors.conversation import ToolCall
from specs.trail.builder_tools import AskPerson, LaunchStage, SubmitStage
from specs.trail.tool_arguments import Arguments


class Playbook:
    """A deterministic :class:`agents.workbench_protocol.Builder`."""

    name = "playbook"

    def work(self, bench: Workbench) -> None:
        """Launch with what the spec or the gate says, and submit without claims; the session waits for the job."""
        if bench.phase == "plan":
            request = propose_plan(bench.view)
            bench.call(_call("launch_stage" if isinstance(request, LaunchStage) else "ask_person", request))
        elif bench.phase == "submit":
            bench.call(_call("submit_stage", SubmitStage()))


def propose_plan(view: StageView) -> LaunchStage | AskPerson:
    """Take the spec's parameters first, as its pilot had them; afterwards exactly the required changes, or ask."""
    if view.opened_by == "approval":
        moved = ", with what was moved in its pilot" if view.changes else ""
        return _launch(view, view.changes, f"the parameters of the spec{moved}")
    if view.opened_by == "retry":
        return _launch(view, view.changes, "a person asked for another attempt")
    outside = [
        name
        for name, value in view.required.items()
        if name not in view.ranges or not view.ranges[name][0] <= value <= view.ranges[name][1]
    ]
    if outside or not view.required:
        what = f"the required change of {', '.join(outside)} is" if outside else "no required change is"
        return AskPerson(reason=f"{what} inside the allowed ranges")
    applied = ", ".join(f"{name} = {value:g}" for name, value in sorted(view.required.items()))
    return _launch(view, view.changes | view.required, f"required by the gate: {applied}")


def _launch(view: StageView, changes: dict[str, Any], reason: str) -> LaunchStage:
    numbers = {name: value for name, value in changes.items() if name != "code"}
    return LaunchStage(stage=view.stage, changes=numbers, code=changes.get("code"), reason=reason)


def _call(name: str, arguments: Arguments) -> ToolCall:
    return ToolCall(id=name, name=name, arguments=arguments.model_dump_json(exclude_defaults=True))
