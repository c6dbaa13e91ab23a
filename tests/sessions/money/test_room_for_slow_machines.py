"""Shipped specs leave room: a machine that does other work at the same time ends no training."""

from __future__ import annotations

import pytest
from ruamel.yaml import YAML

from sessions.run.money.estimate import forecasts
from specs.loading.loading import load_spec
from specs.stages.registry import kind_of
from specs.system.home import HOME
from testing.fixtures.sandbox import needs_sandbox

LIBRARY = HOME / "specs" / "library"
ROOM = 4
"""Times the forecast of a machine that does nothing else."""


def shipped() -> list[tuple[str, str | None]]:
    """Return every shipped spec with each of its profiles."""
    results: list[tuple[str, str | None]] = []
    for path in sorted(LIBRARY.glob("*.yaml")):
        results += [(path.stem, profile) for profile in YAML(typ="safe").load(path).get("profiles") or [None]]
    return results


@needs_sandbox
@pytest.mark.parametrize(("name", "profile"), shipped())
def test_every_training_may_take_four_times_its_forecast(name: str, profile: str | None) -> None:
    resolved = load_spec(LIBRARY / f"{name}.yaml", profile)
    known = {forecast.stage: forecast.hours * 60 for forecast in forecasts(resolved)}
    trained = {stage.name for stage in resolved.spec.stages if kind_of(stage).trains}
    assert trained == known.keys(), "a training without a forecast shows nothing"
    short = {
        stage: (round(minutes, 1), resolved.spec.stage(stage).max_minutes)
        for stage, minutes in known.items()
        if resolved.spec.stage(stage).max_minutes < ROOM * minutes
    }
    assert short == {}, "minutes forecast, and minutes allowed"


LONG = 60
"""Minutes."""


@needs_sandbox
@pytest.mark.parametrize(("name", "profile"), shipped())
def test_every_long_training_keeps_snapshots_to_resume_from(name: str, profile: str | None) -> None:
    stages = load_spec(LIBRARY / f"{name}.yaml", profile).spec.stages
    long = [stage for stage in stages if kind_of(stage).trains and stage.max_minutes >= LONG]
    assert [stage.name for stage in long if not stage.parameters.model_dump().get("checkpoint_steps")] == []
