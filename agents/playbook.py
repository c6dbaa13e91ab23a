"""The embedded builder: follows the spec to the letter and applies what a gate required, nothing else.

It needs no model and no network. It never looks for a better parameter on its own.
"""

from __future__ import annotations

from specs.grants import Proposal, StageView


class Playbook:
    """A deterministic :class:`agents.builder.Builder`."""

    name = "playbook"

    def propose(self, view: StageView) -> Proposal:
        """Take the spec's parameters first; afterwards exactly the required changes, or escalate."""
        if view.opened_by == "approval":
            return Proposal(reason="the parameters of the spec")
        if view.opened_by == "retry":
            return Proposal(changes=view.changes, reason="a person asked for another attempt")
        outside = [
            name
            for name, value in view.required.items()
            if name not in view.ranges or not view.ranges[name][0] <= value <= view.ranges[name][1]
        ]
        if outside or not view.required:
            what = f"the required change of {', '.join(outside)} is" if outside else "no required change is"
            return Proposal(reason=f"{what} inside the allowed ranges", escalate=True)
        applied = ", ".join(f"{name} = {value:g}" for name, value in sorted(view.required.items()))
        return Proposal(changes=view.changes | view.required, reason=f"required by the gate: {applied}")
