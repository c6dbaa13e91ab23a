"""Evidence of any stage from its files: a grant and a manifest that fit them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from reviews.evidence.evidence import Evidence
from specs.loading.loading import load_constitution
from specs.stages.registry import Stage
from specs.system.digests import digest_path, digest_value
from testing.factories.evidence_on_disk import exit_of, tokens_in, with_manifest, witness_of
from testing.fixtures.critic_jobs import CONSTITUTION


def bound(
    whole: Evidence,
    stage: Stage,
    inputs: dict[str, Path],
    outputs: dict[str, Path],
    model: Literal["base", "instruct"] = "base",
) -> Evidence:
    """Return the evidence with grant and manifest that fit the stage's files."""
    spec = whole.resolved.spec
    declared = spec.model.model_copy(update={"kind": model})
    resolved = whole.resolved.model_copy(
        update={
            "spec": spec.model_copy(update={"model": declared, "stages": (*spec.stages, stage)}),
            "constitution_digest": load_constitution(CONSTITUTION)[1],
        }
    )
    made = with_files(replace(whole, resolved=resolved), stage, inputs, outputs)
    assert made.manifest is not None
    return replace(made, witness=witness_of(outputs["rows"].parent, stage, outputs, made.manifest))


def with_files(whole: Evidence, stage: Stage, inputs: dict[str, Path], outputs: dict[str, Path]) -> Evidence:
    """Return the evidence of a stage with these files: grant, exit and manifest name their digests."""
    parameters = stage.parameters.model_dump(mode="json")
    input_digests = {role: digest_path(path) for role, path in inputs.items()}
    output_digests = {name: digest_path(path) for name, path in outputs.items()}
    assert whole.grant is not None
    grant = whole.grant.model_copy(
        update={
            "stage": stage.name,
            "kind": stage.kind,
            "parameters": digest_value(parameters),
            "inputs": input_digests,
            "registration": whole.resolved.registration(),
        }
    )
    made = replace(
        whole,
        registered=whole.resolved.registration(),
        stage=stage,
        grant=grant,
        exit=exit_of(grant.key()),
        parameters=parameters,
        inputs=inputs,
        outputs=outputs,
        output_digests=output_digests,
        baseline_rows=None,
    )
    return with_manifest(
        made,
        key=grant.key(),
        kind=stage.kind,
        parameters=grant.parameters,
        inputs=input_digests,
        outputs=output_digests,
        effective=parameters,
        seed=0,
        tokens=tokens_in(outputs.get("rows")),
    )
