"""The matrix with a stage that really trains: killed after it has saved a step, it ends with the same weights."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.fixtures.tiny_training import tiny_checkpoint
from tests.kill.conftest import Ground
from tests.kill.house import SQLITE_LOCAL, TRAINING, House
from tests.kill.runs import TARGETS, Kill, problems, result_of, run
from tests.kill.site import NAME, Site

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
TRAINED = House("sqlite+local", changes=TRAINING, silent=("train",))


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A site whose model can be trained, with the result of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("training")
    tiny_checkpoint(folder / "templates" / "weights", chat=False)
    site = Site(folder)
    try:
        ran = run(site, TRAINED, "whole", [], 1.0)
        yield Ground(site, TRAINED, ran.seconds, result_of(SQLITE_LOCAL, ran.run))
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
    resumed = [one.body["resumes"] for one in entries if one.entry.kind == "launch" and one.body.get("resumes")]
    cut_off = [one for one in entries if one.entry.key in (f"lost/{NAME}.train.1", f"exit/{NAME}.train.1")]
    print(f"seed {seed}: landed {ran.landed}; attempt 1 {[one.entry.kind for one in cut_off]}; resumed {resumed}")
    log = (ran.run / "jobs" / f"{NAME}.train.2" / "log.txt") if resumed else None
    if log is not None:
        assert f"goes on from step {resumed[0]['step']}, saved by attempt 1" in log.read_text(encoding="utf-8")
