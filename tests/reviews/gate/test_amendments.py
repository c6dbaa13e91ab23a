"""What of a registered spec may change, and what that makes of later claims."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reviews.gate.amendments import changes, explain_refusals, is_exploratory
from reviews.history.history import History
from specs.session.session_spec import ResolvedSpec
from testing.factories.bodies import BODIES, append_json, body_of
from testing.factories.sessions_on_disk import OnDisk, open_session
from testing.factories.spec_files import loads, write_spec


@pytest.fixture
def session(tmp_path: Path) -> Iterator[OnDisk]:
    opened = open_session(tmp_path)
    yield opened
    opened.trail.close()


def amended(session: OnDisk, *replaced: tuple[str, str]) -> ResolvedSpec:
    folder = session.run / "amended"
    folder.mkdir()
    return loads(write_spec(folder, *replaced))


MONEY = ("max_cost_usd: 10", "max_cost_usd: 20")
EFFECT = ("minimum_effect: 0.1", "minimum_effect: 0.2")
LATE = ("{metric: loss_drop, above: 0}", "{metric: loss_drop, above: 0.1}")
EARLY = ("{metric: truncation_rate, at_most: 0.5}", "{metric: truncation_rate, at_most: 0.9}")
ROUNDS = ("max_rounds: 3", "max_rounds: 5")


def test_every_difference_is_reported_with_both_values(session: OnDisk) -> None:
    amendment_changes = changes(session.resolved, amended(session, MONEY, EFFECT))
    lines = [(change.pointer, change.before, change.after) for change in amendment_changes]
    assert lines == [("/analysis/minimum_effect", 0.1, 0.2), ("/budget/max_cost_usd", 10.0, 20.0)]
    assert changes(session.resolved, session.resolved) == ()


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (("kind: instruct}", "kind: base}"), "/model/kind"),
        (("Train the model to follow", "Train the model to obey"), "/objective"),
        (("name: ship", "name: boat"), "/stages/4/name"),
    ],
)
def test_what_the_session_is_about_cannot_be_amended(session: OnDisk, change: tuple[str, str], pointer: str) -> None:
    amendment_changes = changes(session.resolved, amended(session, change))
    assert any(pointer in problem for problem in explain_refusals(History([]), session.resolved, amendment_changes))


def test_other_data_is_another_session(session: OnDisk) -> None:
    other = amended(session)
    other = other.model_copy(update={"data_digests": other.data_digests | {"prompts": "sha256:" + "1" * 64}})
    problems = explain_refusals(History([]), session.resolved, changes(session.resolved, other))
    assert problems and "/data_digests/prompts" in problems[0]


def test_a_stage_that_has_run_keeps_its_criteria_but_not_its_limits(session: OnDisk) -> None:
    session.decide(None, 1, "approve")
    session.mint()
    session.decide("base", 1, "approve")
    entries = list(session.trail.iterate())
    amendment_changes = changes(session.resolved, amended(session, EARLY, LATE, ROUNDS, MONEY))
    problems = explain_refusals(History(entries), session.resolved, amendment_changes)
    assert len(problems) == 1 and "'base' has run with it" in problems[0]


def test_nothing_is_amended_while_a_stage_is_under_way(session: OnDisk) -> None:
    session.decide(None, 1, "approve")
    session.mint()
    amendment_changes = changes(session.resolved, amended(session, MONEY))
    assert "under way" in explain_refusals(History(session.trail.iterate()), session.resolved, amendment_changes)[0]
    session.retract(next(session.trail.iterate("decision")))
    assert explain_refusals(History(session.trail.iterate()), session.resolved, amendment_changes) == []


@pytest.mark.parametrize(("change", "exploratory"), [(MONEY, False), (ROUNDS, False), (EFFECT, True), (LATE, True)])
def test_what_was_chosen_after_a_look_at_data_is_exploratory(
    session: OnDisk, change: tuple[str, str], exploratory: bool
) -> None:
    amendment_changes = changes(session.resolved, amended(session, change))
    assert is_exploratory(History(session.trail.iterate()), amendment_changes) is False
    append_json(session.trail, "launch", "launch/small.base.1", body_of("launch", key="small.base.1"))
    assert is_exploratory(History(session.trail.iterate()), amendment_changes) is exploratory


ENVELOPE = ("    max_minutes: 30\n", "    max_minutes: 30\n    max_cost_usd: 4\n")
RANGE = ("{min: 1e-6, max: 1e-4}", "{min: 1e-6, max: 1e-3}")


def short(session: OnDisk, stage: str | None, at: str, attempt: int = 1) -> None:
    """Record that the budget does not reach for what comes next."""
    number = sum(1 for _ in session.trail.iterate("budget")) + 1
    body = {"stage": stage, "attempt": attempt, "at": at, "reasons": ["not enough"]}
    append_json(session.trail, "budget", f"budget/{number}", body)


def problems(session: OnDisk, *replaced: tuple[str, str]) -> list[str]:
    amendment_changes = changes(session.resolved, amended(session, *replaced))
    return explain_refusals(History(session.trail.iterate()), session.resolved, amendment_changes)


def test_a_granted_attempt_that_waits_for_money_may_be_amended_in_all_that_has_not_run(session: OnDisk) -> None:
    session.decide(None, 1, "approve")
    session.mint()
    short(session, "base", "launch")
    assert problems(session, MONEY, EARLY, LATE, ENVELOPE) == []


def test_an_attempt_whose_grant_was_never_used_is_not_under_way_for_ever(session: OnDisk) -> None:
    session.decide(None, 1, "approve")
    session.mint()
    short(session, "base", "launch")
    session.retry("base")
    session.mint()
    assert problems(session, MONEY) == ["stage 'base' is under way: amend when its gate has decided"]
    session.decide("base", 2, "approve")
    (only,) = problems_again(session, MONEY, EARLY)
    assert "'base' has run with it" in only


def problems_again(session: OnDisk, *replaced: tuple[str, str]) -> list[str]:
    (session.run / "amended").rename(session.run / "amended before")
    return problems(session, *replaced)


def test_a_grant_that_was_used_stays_under_way_whatever_the_budget(session: OnDisk) -> None:
    session.decide(None, 1, "approve")
    session.mint()
    append_json(
        session.trail, "launch", "launch/small.base.1", BODIES["launch"] | {"key": "small.base.1", "stage": "base"}
    )
    short(session, "sample", "launch")
    assert problems(session, MONEY) == ["stage 'base' is under way: amend when its gate has decided"]


@pytest.mark.parametrize("at", ["review", "submit"])
def test_at_a_gate_that_waits_for_money_nothing_changes_by_which_it_is_judged(session: OnDisk, at: str) -> None:
    session.decide(None, 1, "approve")
    session.mint()
    append_json(
        session.trail, "launch", "launch/small.base.1", BODIES["launch"] | {"key": "small.base.1", "stage": "base"}
    )
    short(session, "base", at)
    (first, second) = problems(session, MONEY, ROUNDS, EFFECT, RANGE)
    assert "/analysis/minimum_effect cannot be amended now" in first
    assert "/stages/2/ranges/learning_rate/max cannot be amended now" in second


def test_a_design_that_waits_for_money_keeps_its_analysis(session: OnDisk) -> None:
    short(session, None, "design_gate")
    (only,) = problems(session, MONEY, EFFECT)
    assert "a gate waits for money" in only
