from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.trail import Trail
from sessions.run.money.accounts import Accounts
from sessions.run.money.ledger import (
    balance,
    balance_of,
    reserve_job,
    reserve_review,
    reserve_turn,
    settle,
    settle_job,
    settle_storage,
)
from specs.jobs.job_records import ObservedRuntime
from specs.session.design import Budget, HeldBack
from specs.session.operations import attempt_usd
from specs.session.session_spec import ResolvedSpec
from specs.stages.registry import Stage
from specs.system.digests import digest_bytes
from specs.system.errors import BudgetExceeded, PeergateError
from specs.trail.entry import GENESIS, Entry, EntryKind
from testing.factories.bodies import BODIES, append_json
from testing.factories.spec_files import loads, write_spec

BUDGET = Budget(
    max_cost_usd=10,
    machine_usd_per_hour=2.0,
    max_hours=100,
    held_back=HeldBack(evaluation=0.2, review=0.05, teardown=0.05),
)
HOUR = 3600 * 10**9


class Clock:
    """A clock the test moves."""

    def __init__(self) -> None:
        self.ns = 10**18

    def pass_hours(self, hours: float) -> None:
        self.ns += round(hours * HOUR)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("specs.system.steady_clock.ticks_ns", lambda: clock.ns)
    return clock


@pytest.fixture
def trail(tmp_path: Path, clock: Clock) -> Iterator[Trail]:
    trail = Trail(tmp_path / "trail.sqlite", "small")
    append_json(trail, "open", "open", BODIES["open"])
    yield trail
    trail.close()


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> ResolvedSpec:
    return loads(write_spec(tmp_path_factory.mktemp("spec")))


NAMES = {"generate": "sample", "sft": "train", "evaluate": "base", "package": "ship"}


@pytest.fixture
def stage(resolved: ResolvedSpec) -> Any:
    """Return a function that gives a stage of a kind whose cap is so many USD."""

    def of(kind: str, usd: float) -> Stage:
        minutes = usd / BUDGET.machine_usd_per_hour * 60
        return resolved.spec.stage(NAMES[kind]).model_copy(update={"max_minutes": minutes})

    return of


def money(trail: Trail) -> tuple[float, float, float]:
    now = balance(trail, BUDGET)
    return now.spent_usd, now.reserved_usd, now.left_usd


def test_the_price_cap_is_the_time_limit_at_the_machines_rate(resolved: ResolvedSpec) -> None:
    assert attempt_usd(BUDGET, resolved.spec.stage("train")) == 1.0
    assert attempt_usd(BUDGET, resolved.spec.stage("base")) == 0.333333
    assert attempt_usd(BUDGET.model_copy(update={"machine_usd_per_hour": 0}), resolved.spec.stage("base")) == 0


def test_a_reservation_is_replaced_by_what_the_job_cost(trail: Trail, stage: Any) -> None:
    assert money(trail) == (0, 0, 10)
    train = stage("sft", 3)
    reserve_job(trail, BUDGET, train, "small.train.1")
    assert money(trail) == (0, 3, 7)
    settle_job(trail, BUDGET, "small.train.1", seconds=1800)
    assert money(trail) == (1, 0, 9)
    reserve_job(trail, BUDGET, train, "small.train.2")
    assert money(trail) == (1, 3, 6)
    settle_job(trail, BUDGET, "small.train.2", seconds=1.5 * 3600)
    assert money(trail) == (4, 0, 6)


def test_a_job_that_took_no_time_costs_nothing(trail: Trail, stage: Any) -> None:
    reserve_job(trail, BUDGET, stage("sft", 3), "small.train.1")
    settle_job(trail, BUDGET, "small.train.1", seconds=-0.2)
    assert money(trail) == (0, 0, 10)


def test_reserving_and_settling_twice_counts_once(trail: Trail, stage: Any) -> None:
    train = stage("sft", 3)
    for _ in range(3):
        reserve_job(trail, BUDGET, train, "small.train.1")
    assert money(trail) == (0, 3, 7)
    for seconds in (1800, 7200):
        settle_job(trail, BUDGET, "small.train.1", seconds)
    assert money(trail) == (1, 0, 9)
    # A repeated launch of a settled job does not set its money aside again.
    reserve_job(trail, BUDGET, train, "small.train.1")
    assert money(trail) == (1, 0, 9)
    assert len(list(trail.iterate("spend"))) == 2


def test_a_job_that_has_its_money_may_be_launched_again_when_nothing_is_left(trail: Trail, stage: Any) -> None:
    reserve_job(trail, BUDGET, stage("sft", 7), "small.train.1")
    with pytest.raises(BudgetExceeded):
        reserve_job(trail, BUDGET, stage("sft", 7), "small.train.2")
    reserve_job(trail, BUDGET, stage("sft", 7), "small.train.1")


def test_resuming_never_resets_the_ledger(trail: Trail, stage: Any) -> None:
    reserve_job(trail, BUDGET, stage("sft", 3), "small.train.1")
    settle_job(trail, BUDGET, "small.train.1", seconds=3600)
    reserve_job(trail, BUDGET, stage("sft", 4), "small.train.2")
    before = balance(trail, BUDGET)
    for n in range(3):
        again = Trail(trail.path, "small")
        append_json(again, "resume", f"resume/{n}", BODIES["resume"])
        assert balance(again, BUDGET) == before
        with pytest.raises(BudgetExceeded):
            reserve_job(again, BUDGET, stage("sft", 1.01), "small.train.3")
        again.close()


# 10 USD, of which 20 % are kept for evaluation, 5 % for review and 5 % for teardown.
@pytest.mark.parametrize(("kind", "most"), [("sft", 7.0), ("generate", 7.0), ("evaluate", 9.0), ("package", 9.0)])
def test_held_back_shares_are_for_evaluation_only(trail: Trail, stage: Any, kind: str, most: float) -> None:
    with pytest.raises(BudgetExceeded, match=rf"may cost {most + 0.001:.4f} USD, {most:.4f} USD of 10 are left for it"):
        reserve_job(trail, BUDGET, stage(kind, most + 0.001), "small.x.1")
    assert money(trail) == (0, 0, 10)
    assert trail.find("reserve/small.x.1") is None
    reserve_job(trail, BUDGET, stage(kind, most), "small.x.1")
    assert money(trail) == (0, most, 10 - most)


def test_evaluation_is_possible_when_training_has_spent_all_it_may(trail: Trail, stage: Any) -> None:
    reserve_job(trail, BUDGET, stage("sft", 7), "small.train.1")
    settle_job(trail, BUDGET, "small.train.1", seconds=3.5 * 3600)
    with pytest.raises(BudgetExceeded, match=r"0\.0000 USD of 10 are left for it"):
        reserve_job(trail, BUDGET, stage("generate", 0.01), "small.sample.1")
    reserve_job(trail, BUDGET, stage("evaluate", 2), "small.base.1")
    with pytest.raises(BudgetExceeded):
        reserve_job(trail, BUDGET, stage("package", 0.01), "small.ship.1")


def test_what_is_reserved_cannot_be_reserved_again(trail: Trail, stage: Any) -> None:
    reserve_job(trail, BUDGET, stage("sft", 4), "small.train.1")
    with pytest.raises(BudgetExceeded):
        reserve_job(trail, BUDGET, stage("sft", 3.001), "small.train.2")
    reserve_job(trail, BUDGET, stage("sft", 3), "small.train.2")


@pytest.mark.parametrize("seconds", [1e9, 1e300, float("inf")])
def test_a_job_that_says_it_took_longer_than_was_reserved_costs_no_more_than_that(
    trail: Trail, stage: Any, seconds: float
) -> None:
    reserve_job(trail, BUDGET, stage("sft", 1), "small.train.1")
    settle_job(
        trail, BUDGET, "small.train.1", seconds=ObservedRuntime(at_least_s=0, at_most_s=1e7).bound_seconds(seconds)
    )
    assert money(trail) == (1, 0, 9)


def test_a_job_that_was_seen_to_cost_more_than_its_cap_counts_in_full(trail: Trail, stage: Any) -> None:
    reserve_job(trail, BUDGET, stage("sft", 1), "small.train.1")
    settle_job(trail, BUDGET, "small.train.1", seconds=6 * 3600, seen_s=6 * 3600)
    assert money(trail) == (12, 0, -2)
    with pytest.raises(BudgetExceeded, match=r"0\.0000 USD of 10 are left"):
        reserve_job(trail, BUDGET, stage("evaluate", 0.01), "small.base.1")


@pytest.mark.parametrize(("hours", "fits"), [(1.499, True), (1.501, False), (2.5, False)])
def test_no_attempt_starts_that_may_outlast_the_hours(
    trail: Trail, stage: Any, clock: Clock, hours: float, fits: bool
) -> None:
    """Half an hour of 2 has to be left for an attempt that may take half an hour."""
    budget = BUDGET.model_copy(update={"max_hours": 2})
    clock.pass_hours(hours)
    append_json(trail, "decision", "decision/base.1", BODIES["decision"])
    if fits:
        reserve_job(trail, budget, stage("sft", 1), "small.train.1")
    else:
        with pytest.raises(BudgetExceeded, match=rf"has run {hours:.2f} h of 2 h, the attempt may take 0\.50 h"):
            reserve_job(trail, budget, stage("sft", 1), "small.train.1")
        assert trail.find("reserve/small.train.1") is None


@pytest.mark.parametrize("party", ["builder", "helper"])
def test_after_the_hours_no_turn_begins(trail: Trail, stage: Any, clock: Clock, party: Any) -> None:
    budget, train = BUDGET.model_copy(update={"max_hours": 2}), stage("sft", 1)
    clock.pass_hours(1.99)
    append_json(trail, "decision", "decision/base.1", BODIES["decision"])
    settle(trail, reserve_turn(trail, budget, train, 1, 0.1, party), 0.1)
    clock.pass_hours(0.02)
    append_json(trail, "note", "note/1", BODIES["note"])
    with pytest.raises(BudgetExceeded, match=rf"has run 2\.01 h of 2 h: the {party}'s turn does not begin"):
        reserve_turn(trail, budget, train, 1, 0.1, party)
    more = budget.model_copy(update={"max_hours": 3})
    assert reserve_turn(trail, more, train, 1, 0.1, party).endswith("/2")


def hours(trail: Trail) -> float:
    return round(balance(trail, BUDGET).hours, 6)


def test_pauses_do_not_count_as_active_time(trail: Trail, clock: Clock) -> None:
    clock.pass_hours(0.25)
    append_json(trail, "pause", "pause/1", BODIES["pause"])
    assert hours(trail) == 0.25
    clock.pass_hours(100)
    append_json(trail, "resume", "resume/1", BODIES["resume"])
    assert hours(trail) == 0.25
    clock.pass_hours(0.5)
    append_json(trail, "exit", "exit/a", BODIES["exit"])
    assert hours(trail) == 0.75
    assert balance(trail, BUDGET).left_hours == pytest.approx(99.25)


def test_the_time_after_a_kill_does_not_count(trail: Trail, clock: Clock) -> None:
    clock.pass_hours(0.25)
    append_json(trail, "launch", "launch/a", BODIES["launch"])
    # Killed here: no pause was recorded.
    clock.pass_hours(100)
    append_json(trail, "resume", "resume/1", BODIES["resume"])
    clock.pass_hours(0.5)
    append_json(trail, "exit", "exit/a", BODIES["exit"])
    assert hours(trail) == 0.75


def test_what_is_recorded_in_a_pause_adds_no_time(trail: Trail, clock: Clock) -> None:
    clock.pass_hours(0.25)
    append_json(trail, "pause", "pause/1", BODIES["pause"])
    clock.pass_hours(100)
    # `peergate cancel` of a paused session ends it without resuming.
    append_json(trail, "exit", "exit/a", BODIES["exit"])
    clock.pass_hours(1)
    append_json(trail, "close", "close", BODIES["close"])
    assert hours(trail) == 0.25


def spend(n: int, what: str, job: int, cents: int) -> RecordedEntry:
    body = {"what": what, "job": f"job{job}", "party": "job", "stage": "train", "usd": cents / 100}
    return made(n, "spend", 0, body)


def made(n: int, kind: EntryKind, time_ns: int, body: dict[str, Any]) -> RecordedEntry:
    entry = Entry(seq=n, kind=kind, session="s", key=str(n), time_ns=str(time_ns), previous=GENESIS, body=body)
    return RecordedEntry(entry, digest_bytes(entry.canonical()))


@settings(max_examples=100, deadline=None)
@given(jobs=st.lists(st.tuples(st.integers(0, 500), st.none() | st.integers(0, 500)), max_size=8))
def test_nothing_is_lost_between_spent_reserved_and_left(jobs: list[tuple[int, int | None]]) -> None:
    entries = [spend(n, "reserve", n, cap) for n, (cap, _) in enumerate(jobs)]
    entries += [spend(100 + n, "settle", n, cost) for n, (_, cost) in enumerate(jobs) if cost is not None]
    now = balance_of(entries, BUDGET)
    assert now.spent_usd == pytest.approx(sum(cost for _, cost in jobs if cost is not None) / 100)
    assert now.reserved_usd == pytest.approx(sum(cap for cap, cost in jobs if cost is None) / 100)
    assert now.spent_usd + now.reserved_usd + now.left_usd == pytest.approx(BUDGET.max_cost_usd)


@settings(max_examples=100, deadline=None)
@given(
    stretches=st.lists(st.tuples(st.lists(st.integers(0, HOUR), max_size=4), st.booleans(), st.integers(0, 99 * HOUR)))
)
def test_active_time_is_the_sum_of_the_stretches(stretches: list[tuple[list[int], bool, int]]) -> None:
    """Each stretch: what its steps took, whether it ended with a pause or a kill, and how long no one was there."""
    entries: list[RecordedEntry] = []
    now = active = 0
    for number, (steps, paused, away) in enumerate(stretches):
        entries.append(made(len(entries), (kind := "resume" if number else "open"), now, BODIES[kind]))
        for n, step in enumerate(steps):
            now += step
            active += step
            last = paused and n == len(steps) - 1
            entries.append(made(len(entries), (kind := "pause" if last else "metrics"), now, BODIES[kind]))
        now += away
    assert balance_of(entries, BUDGET).hours == pytest.approx(active / HOUR)


# ---- parties ------------------------------------------------------------------------------------------------


def test_the_builder_has_a_cap_of_its_own(trail: Trail, stage: Any) -> None:
    train = stage("sft", 1)
    output = r"the builder's turn may cost 2\.0100 USD, 2\.0000 USD of the 2 USD for the builder are left"
    with pytest.raises(BudgetExceeded, match=output):
        reserve_turn(trail, BUDGET, train, 1, 2.01)
    settle(trail, reserve_turn(trail, BUDGET, train, 1, 2.0), 0.5)
    stated = BUDGET.model_copy(update={"builder_max_usd": 0.75})
    with pytest.raises(BudgetExceeded, match=r"0\.2500 USD of the 0\.75 USD for the builder are left"):
        reserve_turn(trail, stated, train, 1, 0.26)


def test_the_builder_leaves_the_shares_alone_but_may_use_evaluations_for_one(trail: Trail, stage: Any) -> None:
    rich = BUDGET.model_copy(update={"builder_max_usd": 100})
    with pytest.raises(BudgetExceeded, match=r"7\.0000 USD of 10 are left"):
        reserve_turn(trail, rich, stage("sft", 1), 1, 7.01)
    reserve_turn(trail, rich, stage("evaluate", 1), 1, 9.0)


def test_a_turn_whose_answer_was_lost_counts_as_its_whole_cap(trail: Trail, stage: Any) -> None:
    train = stage("sft", 1)
    lost = reserve_turn(trail, BUDGET, train, 1, 0.4)
    again = reserve_turn(trail, BUDGET, train, 1, 0.4)
    assert again != lost and money(trail)[:2] == (0.4, 0.4)
    settle(trail, again, 0.1)
    # It came back after all, too late.
    settle(trail, lost, 0.0)
    assert money(trail)[:2] == (0.5, 0)
    assert reserve_turn(trail, BUDGET, train, 2, 0.1) not in (lost, again)


@pytest.mark.parametrize("usd", [None, math.nan, math.inf])
def test_what_no_one_knows_costs_the_whole_cap(trail: Trail, stage: Any, usd: float | None) -> None:
    settle(trail, reserve_turn(trail, BUDGET, stage("sft", 1), 1, 0.4), usd)
    assert money(trail)[:2] == (0.4, 0)


@pytest.mark.parametrize("cap", [math.nan, math.inf, -1.0])
def test_an_unknown_price_is_refused(trail: Trail, stage: Any, cap: float) -> None:
    with pytest.raises(BudgetExceeded, match="the price of the builder's turn is not known"):
        reserve_turn(trail, BUDGET, stage("sft", 1), 1, cap)
    assert money(trail) == (0, 0, 10)


def test_what_was_never_reserved_cannot_be_settled(trail: Trail) -> None:
    with pytest.raises(PeergateError, match="nothing is reserved"):
        settle(trail, "builder/train.1/7", 0.1)


def test_helpers_get_a_part_of_what_is_left_and_stay_within_their_task(trail: Trail, stage: Any) -> None:
    train = stage("sft", 1)

    def helper(task: str, cap: float, task_usd: float | None = None) -> str:
        return reserve_turn(trail, BUDGET, train, 1, cap, "helper", task, task_usd)

    with pytest.raises(BudgetExceeded, match=r"1\.0000 USD are the part of a helper, 0\.5 of the remaining money"):
        helper("a", 1.01)
    first = helper("a", 0.3, 0.5)
    # A helper at work next to it loses nobody's turn.
    helper("b", 0.3, 0.5)
    assert trail.find(f"settle/{first}") is None
    with pytest.raises(BudgetExceeded, match=r"0\.2000 USD of the 0\.5 USD for the task 'a' are left"):
        helper("a", 0.21, 0.5)
    settle(trail, first, 0.1)
    helper("a", 0.4, 0.5)
    with pytest.raises(BudgetExceeded, match=r"1\.2000 USD of the 2 USD for the builder are left"):
        reserve_turn(trail, BUDGET, train, 1, 1.21)


def test_a_stage_has_a_limit_of_its_own_over_attempts_and_turns(trail: Trail, stage: Any) -> None:
    train = stage("sft", 1).model_copy(update={"max_cost_usd": 2.0})
    reserve_job(trail, BUDGET, train, "small.train.1")
    settle_job(trail, BUDGET, "small.train.1", seconds=1440)
    settle(trail, reserve_turn(trail, BUDGET, train, 1, 0.3), 0.3)
    output = r"may cost 1\.0000 USD, 0\.9000 USD of the 2 USD for stage 'train' are left"
    with pytest.raises(BudgetExceeded, match=output):
        reserve_job(trail, BUDGET, train, "small.train.2")
    with pytest.raises(BudgetExceeded, match="for stage 'train'"):
        reserve_turn(trail, BUDGET, train, 2, 0.91)
    reserve_job(trail, BUDGET, stage("generate", 3), "small.sample.1")


def test_what_is_kept_is_paid_for_if_the_spec_states_a_rate(trail: Trail, stage: Any) -> None:
    train = stage("sft", 3)
    reserve_job(trail, BUDGET, train, "small.train.1", keeps_bytes=10**9)
    settle_storage(trail, BUDGET, "small.train.1", 10**9)
    assert money(trail)[:2] == (0, 3)
    rated = BUDGET.model_copy(update={"storage_usd_per_gb": 2.0})
    with pytest.raises(BudgetExceeded, match=r"keeping its outputs may cost 4\.0000 USD, 1\.0000 USD"):
        reserve_job(trail, rated, train, "small.train.2", keeps_bytes=2 * 10**9)
    assert trail.find("reserve/small.train.2") is None
    reserve_job(trail, rated, train, "small.train.2", keeps_bytes=5 * 10**8)
    settle_storage(trail, rated, "small.train.2", 4 * 10**8)
    assert money(trail)[:2] == (0.8, 6)
    reserve_job(trail, rated, stage("sft", 0.1), "small.train.3", keeps_bytes=5 * 10**7)
    settle_storage(trail, rated, "small.train.3", None)
    assert money(trail)[0] == pytest.approx(0.9)


def test_the_review_of_an_amendment_may_use_teardowns_share(trail: Trail, stage: Any) -> None:
    settle(trail, reserve_review(trail, BUDGET, "train", 1, 0.4), 0.4)
    with pytest.raises(BudgetExceeded, match=r"0\.1000 USD of the 0\.5000 USD for reviews are left"):
        reserve_review(trail, BUDGET, "train", 2, 0.3)
    with pytest.raises(BudgetExceeded, match=r"0\.6000 USD of the 1\.0000 USD for reviews and teardown are left"):
        reserve_review(trail, BUDGET, "amendment", 1, 0.61)
    settle(trail, reserve_review(trail, BUDGET, "amendment", 1, 0.3), 0.3)
    with pytest.raises(BudgetExceeded, match=r"0\.0000 USD of the 0\.5000 USD for reviews are left"):
        reserve_review(trail, BUDGET, "train", 2, 0.01)
    # 0.7 of the two shares are gone, so 0.3 are still held back, and 2 for evaluation.
    reserve_job(trail, BUDGET, stage("sft", 7.0), "small.train.1")


def test_a_session_that_waits_for_a_person_uses_no_hours(trail: Trail, clock: Clock) -> None:
    clock.pass_hours(0.5)
    append_json(trail, "budget", "budget/1", BODIES["budget"])
    clock.pass_hours(9)
    append_json(trail, "checks", "checks/amendment.1", BODIES["checks"] | {"stage": "amendment"})
    append_json(trail, "amendment", "amendment/1", BODIES["amendment"])
    clock.pass_hours(9)
    append_json(trail, "resume", "resume/1", BODIES["resume"])
    clock.pass_hours(0.25)
    append_json(trail, "exit", "exit/a", BODIES["exit"])
    assert hours(trail) == 0.75


@pytest.mark.parametrize(
    ("kind", "report"), [("budget", {}), ("decision", {"outcome": "escalate"}), ("plan", {"escalate": True})]
)
def test_a_session_that_waits_and_is_closed_uses_no_hours(
    trail: Trail, clock: Clock, kind: EntryKind, report: dict[str, Any]
) -> None:
    clock.pass_hours(0.5)
    append_json(trail, kind, f"{kind}/1", BODIES[kind] | report)
    clock.pass_hours(9)
    append_json(trail, "close", "close", BODIES["close"])
    assert hours(trail) == 0.5


def test_a_session_that_was_killed_uses_no_hours_while_it_is_amended(trail: Trail, clock: Clock) -> None:
    clock.pass_hours(0.5)
    append_json(trail, "launch", "launch/a", BODIES["launch"])
    clock.pass_hours(9)
    append_json(trail, "checks", "checks/amendment.1", BODIES["checks"] | {"stage": "amendment"})
    append_json(trail, "amendment", "amendment/1", BODIES["amendment"])
    assert hours(trail) == 0.5


def test_a_dead_man_limit_that_is_switched_off_is_registered(resolved: ResolvedSpec, tmp_path: Path) -> None:
    assert resolved.spec.budget.dead_man_minutes == 720
    never = loads(write_spec(tmp_path, ("  max_hours: 2\n", "  max_hours: 2\n  dead_man_minutes: null\n")))
    assert never.spec.budget.dead_man_minutes is None and never.registration() != resolved.registration()
    again = ResolvedSpec.model_validate_json(never.canonical())
    assert again == never and again.registration() == never.registration()


@settings(max_examples=50, deadline=None)
@given(
    order=st.permutations(range(5)), settled=st.integers(0, 5), after=st.lists(st.booleans(), min_size=5, max_size=5)
)
def test_the_order_in_which_things_are_settled_does_not_matter(
    order: list[int], settled: int, after: list[bool]
) -> None:
    """Neither among themselves, nor before or after something else is reserved."""
    reserved = [spend(n, "reserve", n, 50 + n) for n in range(5)]
    ended = {n: spend(10 + n, "settle", n, 7 * n) for n in sorted(order)[:settled]}
    late = [ended[n] for n in order if n in ended and after[n]]
    early = [ended[n] for n in order if n in ended and not after[n]]
    other = spend(99, "reserve", 99, 30)
    mixed, plain = (
        Accounts([*reserved, *early, other, *late], BUDGET),
        Accounts([*reserved, *ended.values(), other], BUDGET),
    )
    for accounts in (mixed, plain):
        assert accounts.sum_spent() == pytest.approx(sum(7 * n for n in ended) / 100)
        assert accounts.sum_reserved() == pytest.approx((30 + sum(50 + n for n in range(5) if n not in ended)) / 100)
    assert mixed.limits("job", "train")[0].usd == pytest.approx(plain.limits("job", "train")[0].usd)
