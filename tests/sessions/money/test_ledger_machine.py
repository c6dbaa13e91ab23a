"""The ledger under any order of events: what is reserved, settled, lost, repeated, crashed and resumed.

The test keeps books of its own, in the simplest way there is, and compares. What the ledger does not refuse must never
reach what is held back for someone else.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from reviews.trail.trail import Trail
from sessions.run.money import ledger
from sessions.run.money.accounts import HELPER_PART, Accounts
from specs.session.design import Budget, HeldBack
from specs.stages.evaluation.kinds import EVALUATE
from specs.stages.finetuning.kinds import SFT
from specs.stages.packaging.kinds import PACKAGE
from specs.stages.registry import Stage
from specs.system.errors import BudgetExceeded
from specs.trail.entry import AMENDMENT
from testing.factories.bodies import BODIES, append_json

NEAR = 1e-6
CENTS = st.integers(1, 400).map(lambda cents: cents / 100)
PARTS = st.sampled_from([0.02, 0.1, 0.25, 0.5, 0.65, 0.8, 0.95])
"""Of what is left: near the edges, where a wrong rule shows."""
STAGES: dict[str, Stage] = {
    "train": SFT.stage(name="train", kind="sft", inputs={}),
    "tight": SFT.stage(name="tight", kind="sft", inputs={}, max_cost_usd=1.5),
    "tuned": EVALUATE.stage(name="tuned", kind="evaluate", inputs={}),
    "ship": PACKAGE.stage(name="ship", kind="package", inputs={}, max_cost_usd=2.0),
}
Turns = Literal["builder", "helper"]


class LedgerMachine(RuleBasedStateMachine):
    """Parties that spend in any order, processes that die, and sessions that are resumed."""

    open = Bundle("open")

    @initialize(
        cents=st.integers(300, 1500),
        evaluation=st.sampled_from([0.0, 0.2, 0.4]),
        review=st.sampled_from([0.0, 0.1, 0.3]),
        teardown=st.sampled_from([0.0, 0.05]),
        builder=st.none() | st.integers(50, 800),
    )
    def begin(self, cents: int, evaluation: float, review: float, teardown: float, builder: int | None) -> None:
        """Open a session."""
        self.folder = tempfile.TemporaryDirectory()
        self.budget = Budget(
            max_cost_usd=cents / 100,
            machine_usd_per_hour=60.0,
            max_hours=1000,
            held_back=HeldBack(evaluation=evaluation, review=review, teardown=teardown),
            builder_max_usd=None if builder is None else builder / 100,
            storage_usd_per_gb=1.0,
        )
        self.trail = Trail(Path(self.folder.name) / "trail.sqlite", "small")
        append_json(self.trail, "open", "open", BODIES["open"])
        self.books: dict[str, tuple[str, str, float]] = {}
        """By key: party, stage, and what counts now."""
        self.attempts = 0

    def teardown(self) -> None:
        if hasattr(self, "trail"):
            self.trail.close()
            self.folder.cleanup()

    # ---- what happens

    @rule(target=open, stage=st.sampled_from(sorted(STAGES)), part=PARTS, gb=st.integers(0, 20))
    def launch(self, stage: str, part: float, gb: int) -> Any:
        """Start an attempt whose time limit costs this much of what is left."""
        usd = self.part(part)
        self.attempts += 1
        key = f"small.{stage}.{self.attempts}"
        timed = STAGES[stage].model_copy(update={"max_minutes": usd})
        try:
            ledger.reserve_job(self.trail, self.budget, timed, key, keeps_bytes=gb * 10**7)
        except BudgetExceeded:
            assert self.trail.find(f"reserve/{key}") is None and self.trail.find(f"reserve/storage/{key}") is None
            return ("nothing", key, 0.0)
        self.books[key] = ("job", stage, usd)
        self.books[f"storage/{key}"] = ("storage", stage, gb / 100)
        return ("job", key, usd)

    @rule(target=open, stage=st.sampled_from(["design", AMENDMENT, *sorted(STAGES)]), usd=CENTS)
    def ask(self, stage: str, usd: float) -> Any:
        """Ask for a review; an earlier one of the same attempt is lost and counts in full."""
        try:
            key = ledger.reserve_review(self.trail, self.budget, stage, 1, usd)
        except BudgetExceeded:
            return ("nothing", stage, 0.0)
        assert key not in self.books
        self.books[key] = ("reviewer", stage, usd)
        return ("review", key, usd)

    @rule(
        target=open,
        stage=st.sampled_from(sorted(STAGES)),
        part=PARTS,
        party=st.sampled_from(["builder", "helper"]),
        task=st.sampled_from(["a", "b"]),
        of_task=st.none() | CENTS,
    )
    def turn(self, stage: str, part: float, party: Turns, task: str, of_task: float | None) -> Any:
        """Take a turn; one before it that was not settled is lost and counts in full."""
        usd = self.part(part, of=self.budget.builder_usd)
        task = task if party == "helper" else ""
        of_task = of_task if party == "helper" else None
        remaining = self.budget.builder_usd - self.taken("builder", "helper")
        try:
            key = ledger.reserve_turn(self.trail, self.budget, STAGES[stage], 1, usd, party, task, of_task)
        except BudgetExceeded:
            return ("nothing", stage, 0.0)
        assert party == "builder" or usd <= HELPER_PART * remaining + NEAR, "a helper took more than its part"
        assert key not in self.books
        self.books[key] = (party, stage, usd)
        return ("turn", key, usd)

    @rule(what=consumes(open), share=st.floats(0, 1))
    def settle(self, what: Any, share: float) -> None:
        """Settle one of them, in any order, at its cap or below."""
        kind, key, cap = what
        usd = round(cap * share, 4)
        if kind == "job":
            ledger.settle_job(self.trail, self.budget, key, usd * 60)
            ledger.settle_storage(self.trail, self.budget, key, 0)
            self.books[f"storage/{key}"] = ("storage", self.books[key][1], 0.0)
        elif kind in ("review", "turn"):
            ledger.settle(self.trail, key, usd)
        if kind != "nothing" and not self.is_lost(key):
            self.books[key] = (*self.books[key][:2], usd)

    @rule(what=consumes(open))
    def lose(self, what: Any) -> None:
        """A process dies between reserve and settle: no one settles, and the cap goes on counting."""

    @rule(what=open, share=st.floats(0, 1))
    def repeat(self, what: Any, share: float) -> None:
        """A step that was carried out is carried out again, with another figure: the first counts."""
        kind, key, cap = what
        if kind == "job" and self.trail.find(f"settle/{key}") is not None:
            ledger.settle_job(self.trail, self.budget, key, cap * share * 60)
        elif kind == "job":
            ledger.reserve_job(self.trail, self.budget, STAGES[self.books[key][1]], key)

    @rule(share=st.floats(1.0, 1.5))
    def resume(self, share: float) -> None:
        """Go on in another process, with a budget that is the same or was raised: nothing is counted anew."""
        before = Accounts(self.trail.iterate(), self.budget)
        lines = (before.sum_spent(), before.sum_reserved(), before.left_usd)
        self.trail.close()
        self.trail = Trail(self.trail.path, "small")
        again = Accounts(self.trail.iterate(), self.budget)
        assert (again.sum_spent(), again.sum_reserved(), again.left_usd) == lines
        self.budget = self.budget.model_copy(update={"max_cost_usd": round(self.budget.max_cost_usd * share, 4)})

    def part(self, part: float, of: float | None = None) -> float:
        """Return a part of a sum, or of what no one has taken."""
        remaining = self.budget.max_cost_usd - sum(usd for _, _, usd in self.books.values())
        return round(max(remaining if of is None else of, 0.05) * part, 4)

    # ---- what must hold

    def is_lost(self, key: str) -> bool:
        """Return whether a later reservation has settled this one at its cap before we did."""
        settled = self.trail.find(f"settle/{key}")
        return settled is not None and settled.raw["usd"] == self.trail.find(f"reserve/{key}").raw["usd"]  # type: ignore[union-attr]

    def taken(self, *parties: str, stage: str | None = None) -> float:
        """Add up our own books."""
        return sum(usd for party, at, usd in self.books.values() if party in parties and stage in (None, at))

    @invariant()
    def books_agree(self) -> None:
        """What the trail says is what we have noted."""
        if not hasattr(self, "trail"):
            return
        now = Accounts(self.trail.iterate("spend"), self.budget)
        assert now.sum_spent() + now.sum_reserved() == pytest.approx(
            sum(usd for _, _, usd in self.books.values()), abs=1e-3
        )

    @invariant()
    def nothing_is_overspent_and_no_share_invaded(self) -> None:
        """Add up who has what, by our own books."""
        if not hasattr(self, "trail"):
            return
        budget, reviews = self.budget, self.taken("reviewer")
        others = self.taken("job", "storage", "builder", "helper")
        amendments = self.taken("reviewer", stage=AMENDMENT)
        assert others + reviews <= budget.max_cost_usd + NEAR, "more was given out than there is"
        assert reviews <= budget.review_usd + budget.teardown_usd + NEAR
        assert reviews - amendments <= budget.review_usd + NEAR, "reviews took what is held back for teardown"
        assert others <= budget.max_cost_usd - budget.review_usd - budget.teardown_usd + NEAR, (
            "a review could not be paid"
        )
        assert self.taken("builder", "helper") <= budget.builder_usd + NEAR
        for name, stage in STAGES.items():
            if stage.max_cost_usd is not None:
                assert self.taken("job", "storage", "builder", "helper", stage=name) <= stage.max_cost_usd + NEAR

    @invariant()
    def the_next_evaluation_can_be_paid(self) -> None:
        """Whatever training took, the share held back is there for evaluations."""
        if not hasattr(self, "trail"):
            return
        budget = self.budget
        evaluations = sum(self.taken("job", "storage", "builder", "helper", stage=name) for name in ("tuned", "ship"))
        training = sum(self.taken("job", "storage", "builder", "helper", stage=name) for name in ("train", "tight"))
        count = budget.review_usd + budget.teardown_usd + budget.evaluation_usd
        assert training <= max(budget.max_cost_usd - count, 0) + NEAR, "training took what is held back for evaluation"
        assert evaluations + training <= budget.max_cost_usd - budget.review_usd - budget.teardown_usd + NEAR


LedgerMachine.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    # Every step writes to a disk, so making a failure shorter would take minutes.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
)
TestLedger = LedgerMachine.TestCase


@pytest.mark.nightly
class TestLedgerLonger(LedgerMachine.TestCase):
    """The same, until rarer orders have come up too."""

    settings = settings(LedgerMachine.TestCase.settings, max_examples=300, stateful_step_count=40)
