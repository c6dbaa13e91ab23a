"""A spec with a further arm, and evidence of its treatment with the arm's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import ArmEvidence, Evidence
from specs.session.evaluation_plan import Arm, CurveForm, LearningCurve
from specs.system.digests import digest_bytes
from testing.factories.evidence_on_disk import answers, write_rows
from testing.factories.spec_files import write_spec

ARM = "    - {name: own drafts, stage: drafts_after, shows: training on the unrevised answers, beaten: true}\n"
STAGES = """\
  - name: drafts
    kind: sft
    inputs: {model: model, examples: sample.accepted}
    parameters: {learning_rate: 1e-5, epochs: 2, batch_size: 1, seed: 7}
    max_minutes: 30
  - name: drafts_after
    kind: evaluate
    inputs: {model: drafts.checkpoint, items: heldout}
    parameters: {max_new_tokens: 32, seed: 7}
  - name: train
"""


def armed_spec(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the small spec with another training as an arm; each change replaces one text."""
    path = write_spec(
        folder, ("  treatment: tuned\n", f"  treatment: tuned\n  arms:\n{ARM}"), ("  - name: train\n", STAGES)
    )
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the spec"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return path


def with_arm(
    evidence: Evidence,
    passed: Sequence[bool],
    name: str = "own drafts",
    *,
    beaten: bool = True,
    rows: Sequence[dict[str, Any]] | None = None,
) -> Evidence:
    """Return the treatment's evidence with another arm that was measured like it, and has these items right."""
    assert evidence.manifest is not None
    stage = name.replace(" ", "_")
    path = evidence.outputs["rows"].parent / f"{stage}.jsonl"
    write_rows(path, answers(list(passed)) if rows is None else list(rows))
    inputs = evidence.manifest.inputs | {"model": digest_bytes(stage.encode())}
    manifest = evidence.manifest.model_copy(update={"inputs": inputs})
    arm = Arm(name=name, stage=stage, shows="another training", beaten=beaten)
    spec = evidence.resolved.spec
    analysis = spec.analysis.model_copy(update={"arms": (*spec.analysis.arms, arm)})
    resolved = evidence.resolved.model_copy(update={"spec": spec.model_copy(update={"analysis": analysis})})
    return replace(
        evidence,
        resolved=resolved,
        arms={**evidence.arms, stage: ArmEvidence(path, manifest, evidence.parameters)},
    )


def with_curve(
    evidence: Evidence, points: Mapping[int, Sequence[bool]], at: int = 15000, form: CurveForm = "log_linear"
) -> Evidence:
    """Return the treatment's evidence with arms of its training on fewer examples, and a learning curve.

    ``points`` are the items that are right by the number of examples; the treatment's training had the most.
    """
    most, arms = max(points), dict[str, ArmEvidence]()
    for size, passed in points.items():
        if size != most:
            evidence = with_arm(evidence, passed, f"of {size}", beaten=False)
    design = evidence.resolved.spec
    stages = {stage.name: stage for stage in design.stages}
    assert evidence.manifest is not None
    for size in points:
        name = "train" if size == most else f"train_{size}"
        manifest = evidence.manifest.model_copy(update={"facts": {"examples": size}})
        arms[name] = ArmEvidence(None, manifest, {"seed": 7, "max_examples_per_kind": size})
        if size != most:
            stages[name] = stages["train"].model_copy(update={"name": name})
            inputs = {"model": f"{name}.checkpoint", "items": "heldout"}
            stages[f"of_{size}"] = stages["tuned"].model_copy(update={"name": f"of_{size}", "inputs": inputs})
    names = tuple(f"of {size}" for size in points if size != most)
    analysis = design.analysis.model_copy(update={"learning_curve": LearningCurve(arms=names, at=at, form=form)})
    spec = design.model_copy(update={"analysis": analysis, "stages": tuple(stages.values())})
    resolved = evidence.resolved.model_copy(update={"spec": spec})
    return replace(evidence, resolved=resolved, arms={**evidence.arms, **arms})


def table_rows(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows of the table of arms as a report holds them: baseline, treatment, and arms of these names."""
    measured = {"items": 20, "right": 10, "accuracy": 0.5, "low": 0.3, "high": 0.7, "shows": ""}
    gain = {"gain": 0.2, "gain_interval": [0.1, 0.3], "gain_p_adjusted": 0.01}
    lead = {"lead": 0.1, "lead_interval": [-0.1, 0.3], "lead_p_adjusted": 0.2, "must_be_beaten": True, "beaten": False}
    rows = [{"name": name, "stage": f"s{place}"} | measured | gain | lead for place, name in enumerate(names)]
    both = {"name": "baseline", "stage": "before"}, {"name": "treatment", "stage": "after"} | gain
    return [*(row | measured for row in both), *rows]
