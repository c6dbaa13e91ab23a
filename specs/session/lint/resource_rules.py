"""Rules on where jobs run and what they ask for: what a launcher can give, and what a rented machine may cost."""

from __future__ import annotations

from collections.abc import Iterator

from specs.resources import held_hours
from specs.session.problems import LintProblem, Loc
from specs.session.session_spec import SessionSpec


def lint_machines(spec: SessionSpec) -> Iterator[LintProblem]:
    """What a stage asks for, its session's values included, is something its launcher can give and the ledger hold."""
    for index, stage in enumerate(spec.with_resources().stages):
        asked, launcher = stage.resources, spec.launcher_of(stage.name)
        own: Loc = ("stages", index, "launcher")
        if launcher == "skypilot" and (asked is None or asked.max_usd_per_hour is None):
            message = "a rented machine has a price, and nobody says how much it may cost"
            place = own if stage.launcher else ("launcher",)
            yield LintProblem(place, message, "add resources.max_usd_per_hour to the stage or the session")
        if launcher == "ray" and getattr(stage.parameters, "device", None) == "cuda" and not (asked and asked.gpus):
            # It hides them from what asks for cores alone; what asks for nothing sees all, with whoever else does.
            message = "the stage has device: cuda, and Ray keeps a GPU only for what asks for one"
            device: Loc = ("stages", index, "parameters", "device")
            yield LintProblem(device, message, "add resources.gpus: 1 to the stage or the session")
        if asked is None:
            continue
        if asked.spot and launcher != "skypilot":
            message = f"'{launcher}' rents no machines, so none can be a spot machine"
            yield LintProblem(_place(spec, index, "spot"), message, "remove the line, or take skypilot")
        if asked.gpu is not None and launcher == "local":
            message = f"'local' cannot choose the kind of GPU '{asked.gpu}': it has what this machine has"
            yield LintProblem(_place(spec, index, "gpu"), message, "remove the line, or take another launcher")
        if asked.gpu is not None and not asked.gpus:
            message = f"the kind of GPU is '{asked.gpu}', and no number of them is asked for"
            yield LintProblem(_place(spec, index, "gpu"), message, "add gpus: 1")
        if launcher == "skypilot" and asked.gpus and asked.gpu is None:
            message = f"{asked.gpus} GPUs of no kind: SkyPilot rents machines by the kind of their GPU"
            yield LintProblem(_place(spec, index, "gpus"), message, "add gpu, as SkyPilot names it: gpu: H200")
        if held_hours(stage) * 60 < stage.max_minutes - 1e-9:
            message = (
                f"the machine is held for {held_hours(stage):g} h at most, the job may take {stage.max_minutes:g} min"
            )
            hint = "raise max_hours: it includes the machine's start; or lower max_minutes"
            yield LintProblem(_place(spec, index, "max_hours"), message, hint)


def _place(spec: SessionSpec, index: int, key: str) -> Loc:
    """Return where a value of a stage's resources was written: in the stage, or in the session."""
    own = spec.stages[index].resources
    if own is not None and key in own.model_fields_set:
        return ("stages", index, "resources", key)
    return ("resources", key)
