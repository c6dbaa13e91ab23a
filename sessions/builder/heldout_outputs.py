"""Which stages see held-out items, so that what they leave tells something of them."""

from __future__ import annotations

from collections.abc import Iterator

from sessions.session import Session
from specs.session.session_spec import SessionSpec
from specs.stages.registry import Stage, kind_of, outputs_of


def sees_heldout(spec: SessionSpec, stage: Stage) -> bool:
    """Say whether a stage takes held-out items, or rows of a stage that does; a checkpoint carries none."""
    if stage.reads_heldout or kind_of(stage).reads_heldout:
        return True
    for reference in stage.inputs.values():
        owner, _, output = reference.partition(".")
        source = next((one for one in spec.stages if one.name == owner and one.name != stage.name), None)
        if source is None or outputs_of(source.kind, source.parameters).get(output) == "checkpoint":
            continue
        # A stage reads of earlier ones only, so this ends.
        if spec.stages.index(source) < spec.stages.index(stage) and sees_heldout(spec, source):
            return True
    return False


def rows_on_heldout(session: Session) -> Iterator[str]:
    """Yield the digests of the rows that were made from held-out items so far."""
    spec = session.resolved.spec
    seeing = {stage.name for stage in spec.stages if sees_heldout(spec, stage)}
    for ended in session.trail.iterate("exit"):
        if ended.body["stage"] in seeing:
            yield from (one["digest"] for one in ended.body["outputs"].values() if one["stored"])
