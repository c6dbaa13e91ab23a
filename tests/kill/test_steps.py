"""Kills at counted steps instead of drawn moments, and what the matrix says when a part is taken out.

A step is what can leave something behind: an append to the trail, a file of the store, an order, a job that is
started. The command is killed right before and right after each, once in every run.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.kill.conftest import Ground
from tests.kill.faults import COUNT, KILL_AT, WITHOUT
from tests.kill.forked import STARTS_WITHIN
from tests.kill.house import POSTGRES_LOCAL, SQLITE_LOCAL, SQLITE_RAY
from tests.kill.runs import Kill, problems, run

HOUSES = (
    SQLITE_LOCAL,
    pytest.param(POSTGRES_LOCAL, marks=pytest.mark.slow),
    pytest.param(SQLITE_RAY, marks=pytest.mark.nightly),
)
PARTS = 16


def slow_start(ground: Ground) -> dict[str, str]:
    """Let wrappers take their time, so that a job that was started is not yet claimed when the session goes on.

    How long that takes is measured: on a loaded machine a claim within a fixed time would always come first.
    """
    return {STARTS_WITHIN: f"{max(0.6, ground.whole_s / 4):.2f}"}


in_every_house = pytest.mark.parametrize("house", HOUSES, ids=lambda house: house.name)
# Ray keeps one job a key too, so that there the claim alone is not what a second run depends on.
in_local_houses = pytest.mark.parametrize("house", HOUSES[:2], ids=lambda house: house.name)


KILLS: list[Kill] = [Kill("job", 1, 0.0, 0.0)]
"""The first command ends with a question, and the second one answers it."""


@pytest.fixture(scope="module")
def counted() -> dict[str, list[str]]:
    """What commands do, by the file it was written into; filled when it is first asked for."""
    return {}


def steps_of(ground: Ground, counted: dict[str, list[str]], kills: list[Kill], command: int) -> list[str]:
    """Return what a command does, moment by moment."""
    name = f"{ground.house.name}.{command}"
    if name not in counted:
        path = ground.site.folder / f"count.{name}"
        environ = {COUNT: str(path)}
        ran = run(ground.site, ground.house, f"counted.{name}", kills, 1.0, command_of=command, **environ)
        ground.site.forget(ran.ground)
        counted[name] = [line.split(" ", 1)[1] for line in path.read_text(encoding="utf-8").splitlines()]
    return counted[name]


@pytest.fixture
def moments(ground: Ground, counted: dict[str, list[str]]) -> list[str]:
    """Return what the first command does."""
    return steps_of(ground, counted, [], 1)


@pytest.fixture
def answering(ground: Ground, counted: dict[str, list[str]]) -> list[str]:
    """Return what the command with an answer does until the answer is carried out."""
    every = steps_of(ground, counted, KILLS, 2)
    return every[: every.index("after Trail.append(grant)") + 1]


def killed_at(ground: Ground, name: str, moment: int, kills: Sequence[Kill] = (), /, **environ: str) -> list[str]:
    """Return what is wrong with a run of which one command is killed at a moment: the first, or the one after kills."""
    command = 2 if kills else 1
    name = f"{ground.house.name}.{name}"
    try:
        environ = {KILL_AT: str(moment), **environ}
        ran = run(ground.site, ground.house, name, list(kills), 1.0, command_of=command, **environ)
        results = problems(ground.house, ran, ground.undisturbed)
        assert ran.commands > command or WITHOUT in environ, "nothing was killed"
    except AssertionError as error:
        return [str(error)]
    ground.site.forget(ran.ground)
    return results


def at(moments: list[str], what: str, count: int) -> list[int]:
    """Return the numbers of the first moments of a kind."""
    return [number for number, moment in enumerate(moments, 1) if moment == what][:count]


@in_every_house
def test_a_command_does_all_kinds_of_steps(moments: list[str]) -> None:
    kinds = {moment.split(" ", 1)[1].partition("(")[0] for moment in moments}
    assert kinds == {"Trail.append", "Store.put", "start", "write order.json"}
    assert len(at(moments, "after start", 100)) == SQLITE_LOCAL.jobs


@in_local_houses
def test_without_the_claim_a_job_runs_twice(ground: Ground, moments: list[str]) -> None:
    (moment,) = at(moments, "after start", 1)
    slow = slow_start(ground)
    assert killed_at(ground, f"claimed.{moment}", moment, **slow) == []
    results: list[str] = []
    for turn in range(10):
        results += killed_at(ground, f"unclaimed.{moment}.{turn}", moment, **slow, **{WITHOUT: "claim"})
        if any("ran 2 times" in text for text in results):
            return
    pytest.fail(f"the matrix did not notice that the claim was gone: {results}")


@in_local_houses
def test_without_its_position_a_session_takes_no_answer(ground: Ground, answering: list[str]) -> None:
    """The graph keeps nothing between two commands: where the session is, and what it asks, says the trail."""
    (moment,) = at(answering, "before Trail.append(human)", 1)
    results = killed_at(ground, f"no-position.{moment}", moment, KILLS, **{WITHOUT: "position"})
    assert any("not waiting for an answer" in text for text in results), results


@in_every_house
def test_a_kill_while_an_answer_is_recorded_loses_no_answer(ground: Ground, answering: list[str]) -> None:
    for what in ("before Trail.append(human)", "after Trail.append(human)"):
        (moment,) = at(answering, what, 1)
        assert killed_at(ground, f"answer.{moment}", moment, KILLS) == [], what


@in_every_house
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_kill_at_any_step_of_an_answer_changes_nothing(ground: Ground, answering: list[str]) -> None:
    results = {moment: killed_at(ground, f"answers.{moment}", moment, KILLS) for moment in range(1, len(answering) + 1)}
    wrong = {moment: [answering[moment - 1], *row] for moment, row in results.items() if row}
    print(f"{len(answering)} moments of an answer, {len(wrong)} of them with problems")
    assert not wrong


@in_every_house
@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_kill_at_any_step_changes_nothing(ground: Ground, moments: list[str], part: int) -> None:
    results: dict[int, list[str]] = {}
    tried = range(1 + part, len(moments) + 1, PARTS)
    for moment in tried:
        wrong = killed_at(ground, f"step.{moment}", moment)
        if wrong:
            results[moment] = [moments[moment - 1], *wrong]
    print(f"{len(tried)} of {len(moments)} moments, {len(results)} of them with problems")
    assert not results
