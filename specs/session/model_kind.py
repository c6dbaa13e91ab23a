"""Which kind of model a stage reads: base or instruct, as the spec declares it of the weights that it comes from."""

from __future__ import annotations

from specs.session.session_spec import SessionSpec
from specs.stages.registry import Stage, kind_of
from specs.stages.stage import ModelKind


def kind_read(spec: SessionSpec, stage: Stage) -> ModelKind:
    """Return the kind of the model that a stage reads; what was trained from a model is of that model's kind.

    A stage that reads no model gets the kind of the session's model.
    """
    reference = stage.inputs.get("model", "model")
    by_name = {one.name: one for one in spec.stages}
    # Each step leads to an earlier stage, so there are no more steps than stages.
    for _ in spec.stages:
        owner = by_name.get(reference.partition(".")[0])
        if owner is None:
            break
        trained = owner.parameters.trains if kind_of(owner).runs_code else None
        reference = owner.inputs.get(trained or "model", "model")
    return spec.control.kind if reference == "control" and spec.control is not None else spec.model.kind


def kind_in_order(spec: SessionSpec, stage: Stage) -> ModelKind | None:
    """Return what the order of a stage's job says of its model; nothing where it goes without saying."""
    kind = kind_read(spec, stage)
    unsaid = kind_of(stage).runs_code or (kind == "instruct" and kind_of(stage).instruct_unsaid)
    return None if unsaid else kind
