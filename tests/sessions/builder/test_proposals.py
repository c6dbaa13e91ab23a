"""Experiments that a builder proposes: they run nothing, can be registered, and count every value that is tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessions.builder.tools.proposal_tools import FOLDER
from sessions.builder.workbench import SessionWorkbench
from sessions.run.signed_specs import DRAFT, require_signature
from sessions.session import Session
from specs.loading.loading import load_spec
from specs.system.errors import BlockedError
from testing.factories.benches import bench_of, call


@pytest.fixture
def bench(session: Session) -> SessionWorkbench:
    return bench_of(session)


def drafts(session: Session) -> list[Path]:
    return sorted((session.run.parent / FOLDER).glob(f"*{DRAFT}"))


def test_a_sweep_is_a_session_a_value_with_a_share_of_alpha_and_budget(
    session: Session, bench: SessionWorkbench
) -> None:
    before = session.resolved.spec
    requests: dict[str, Any] = {"stage": "train", "parameter": "learning_rate", "reason": "its order of magnitude"}
    result = call(bench, "propose_sweep", values=[1e-6, 1e-5], **requests)
    assert not result.is_error and "signs" in result.text, result.text
    specs = [load_spec(path) for path in drafts(session)]
    assert [item.spec.stage("train").parameters.learning_rate for item in specs] == [1e-6, 1e-5]
    for path, resolved_spec in zip(drafts(session), specs, strict=True):
        spec = resolved_spec.spec
        assert spec.analysis.alpha == pytest.approx(before.analysis.alpha / 2)
        assert spec.budget.max_cost_usd == pytest.approx(before.budget.max_cost_usd / 2)
        assert {criterion.below for criterion in spec.analysis.hypothesis() if criterion.below} == {spec.analysis.alpha}
        assert resolved_spec.data_digests == session.resolved.data_digests
        with pytest.raises(BlockedError, match="no person has signed"):
            require_signature(path, session.run.parent, resolved_spec.registration())
    (note,) = session.trail.iterate("note")
    assert note.raw["what"] == "amendment" and not list(session.trail.iterate("grant", "launch", "spend"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"parameter": "epochs"}, "has neither a range nor choices at stage 'train': it is not registered"),
        ({"values": [1e-5, 1e-3]}, "learning_rate = 0.001 is outside the registered 1e-06 to 0.0001"),
        ({"values": [1e-5, "high"]}, "is outside the registered"),
        ({"values": [1e-5, 1e-5]}, "these are 1"),
        ({"values": [1e-6, 2e-6, 3e-6, 4e-6]}, "at most the 3 attempts registered for the stage: these are 4"),
        ({"values": [1e-6, 1e-5, 1e-4]}, "budget.max_cost_usd: 3.33333 USD do not cover one attempt of each stage"),
        ({"stage": "nowhere"}, "unknown stage 'nowhere'"),
    ],
)
def test_a_sweep_outside_of_what_is_registered_is_refused(
    session: Session, bench: SessionWorkbench, changes: dict[str, Any], why: str
) -> None:
    requests: dict[str, Any] = {"stage": "train", "parameter": "learning_rate", "values": [1e-6, 1e-5], "reason": "r"}
    result = call(bench, "propose_sweep", **(requests | changes))
    assert result.is_error and why in result.text, result.text
    assert drafts(session) == [] and not list(session.trail.iterate("note"))


def test_a_stage_more_can_be_registered_or_is_refused_with_its_problem(
    session: Session, bench: SessionWorkbench
) -> None:
    stage = json.loads(session.resolved.spec.stage("sample").model_dump_json()) | {"name": "again"}
    result = call(bench, "propose_stage", stage=json.dumps(stage), before="train", reason="how stable is it")
    assert not result.is_error, result.text
    (path,) = drafts(session)
    assert [item.name for item in load_spec(path).spec.stages] == ["base", "sample", "again", "train", "tuned", "ship"]
    assert [item.name for item in session.resolved.spec.stages][1:3] == ["sample", "train"], (
        "this session stays as it is"
    )
    path.unlink()
    for text, why in (
        (json.dumps(stage | {"kind": "no_such_kind"}), "could not be registered"),
        (json.dumps(stage | {"inputs": {"model": "model", "prompts": "heldout"}}), "could not be registered"),
        (
            json.dumps(json.loads(session.resolved.spec.stage("tuned").model_dump_json()) | {"name": "more"}),
            "no registered test",
        ),
        ("{a", "stage is not JSON"),
        ("[]", "could not be registered"),
    ):
        refused = call(bench, "propose_stage", stage=text, reason="r")
        assert refused.is_error and why in refused.text, refused.text
        assert drafts(session) == []
