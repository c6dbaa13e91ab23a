"""The matrix with a stage that really trains: killed after it has saved a step, it ends with the same weights."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from testing.fixtures.tiny_training import tiny_checkpoint
from tests.kill.conftest import Ground, opened
from tests.kill.house import POSTGRES_LOCAL, SQLITE_LOCAL, STOPPING, TRAINING, House
from tests.kill.runs import TARGETS, Kill, problems, run
from tests.kill.site import NAME, Site

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
HOUSES = [
    replace(house, changes=(*house.changes, *TRAINING), silent=("train",)) for house in (SQLITE_LOCAL, POSTGRES_LOCAL)
]
HOUSES.append(replace(SQLITE_LOCAL, name="sqlite+local+stopping", changes=STOPPING, silent=("train",)))
"""The last is killed between the readings by which its rule decides."""


@pytest.fixture(scope="module", params=HOUSES, ids=lambda house: house.name)
def training(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A site whose model can be trained, with the result of a run that no one disturbed."""
    house: House = request.param
    if missing := house.missing():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("training")
    tiny_checkpoint(folder / "templates" / "weights")
    site = Site(folder)
    try:
        with opened(site, house) as ground:
            yield ground
    finally:
        site.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_training_that_is_killed_ends_with_the_same_weights(training: Ground, seed: int) -> None:
    draw = random.Random(seed)
    target = TARGETS[seed % len(TARGETS)]
    kills = [
        Kill(target, 3, 0.0, draw.random() * 0.2, saved=draw.choice((3, 6))),
        Kill(draw.choice(("job", "wrapper", "all")), 4, 0.0, draw.random() * 0.2, saved=9),
    ]
    ran = run(training.site, training.house, f"seed.{seed}", kills, training.whole_s)
    assert problems(training.house, ran, training.undisturbed) == []
    entries = training.house.entries(ran.run)
    launches = [entry.raw for entry in entries if entry.key.startswith(f"launch/{NAME}.train.")]
    resumed = [row["resumes"] for row in launches if row.get("resumes")]
    print(f"seed {seed}: landed {ran.landed}; {len(launches)} attempts at training, went on from {resumed}")
    for launch in launches[-1:]:
        log = (ran.run / "jobs" / launch["key"] / "log.txt").read_text(encoding="utf-8")
        taken = launch.get("resumes")
        assert ("resumes from step" in log) == (taken is not None)
        if taken is not None:
            assert f"resumes from step {taken['step']}, saved by attempt {taken['attempt']} ({taken['digest']})" in log
