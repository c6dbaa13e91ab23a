"""What each party has spent and reserved, and may still take, added up from the ledger's lines alone.

Three shares of the budget are held back: evaluation's stays whole whatever earlier evaluations cost, review's pays
reviews, and teardown's pays the review of an amendment when review's is used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, get_args

from reviews.trail.chain.envelope import RecordedEntry, entries_of
from specs.session.design import Budget
from specs.stages.registry import Stage, kind_of
from specs.trail.entry import AMENDMENT
from specs.trail.session_bodies import SpendEntry

Party = Literal["builder", "helper", "reviewer", "job", "storage"]
PARTIES: tuple[Party, ...] = get_args(Party)

HELPER_PART = 0.5
"""The part of the builder's money that one turn of a helper may take at most, so that helpers never take all."""
TOLERANCE_USD = 1e-9


class LedgerLine(NamedTuple):
    """One reservation, or its settled cost; ``task`` is empty except for helpers."""

    key: str
    party: str
    stage: str
    task: str
    usd: float
    is_settled: bool


class BudgetLimit(NamedTuple):
    """One bound on what may be reserved, in words that follow a number of USD."""

    usd: float
    words: str


class Accounts:
    """The ledger's lines of a trail, and their sums."""

    def __init__(self, entries: Iterable[RecordedEntry], budget: Budget) -> None:
        self.budget = budget
        self.lines: dict[str, LedgerLine] = {}
        for body in (entry.body for entry in entries_of(entries, SpendEntry)):
            settled = body.what == "settle"
            self.lines[body.job] = LedgerLine(body.job, body.party, body.stage, body.task, body.usd, settled)

    def select(self, *parties: Party, stage: str | None = None, task: str | None = None) -> Iterator[LedgerLine]:
        """Yield the lines of some parties, or of all, of one stage or one helper's task."""
        for line in self.lines.values():
            wanted = not parties or line.party in parties
            if wanted and stage in (None, line.stage) and task in (None, line.task):
                yield line

    def sum_committed(self, *parties: Party, stage: str | None = None, task: str | None = None) -> float:
        """Return spent and reserved money together."""
        return sum(line.usd for line in self.select(*parties, stage=stage, task=task))

    def sum_spent(self, *parties: Party, stage: str | None = None) -> float:
        """Return settled money."""
        return sum(line.usd for line in self.select(*parties, stage=stage) if line.is_settled)

    def sum_reserved(self, *parties: Party, stage: str | None = None) -> float:
        """Return reserved money that is not settled."""
        return sum(line.usd for line in self.select(*parties, stage=stage) if not line.is_settled)

    @property
    def left_usd(self) -> float:
        """Money that is neither spent nor reserved, held-back shares included."""
        return self.budget.max_cost_usd - self.sum_committed()

    @property
    def review_left_usd(self) -> float:
        """The rest of the share for reviews, which take it before teardown's."""
        return max(self.budget.review_usd - self.sum_committed("reviewer"), 0.0)

    @property
    def teardown_left_usd(self) -> float:
        """The rest of the share for teardown."""
        over = max(self.sum_committed("reviewer") - self.budget.review_usd, 0.0)
        return max(self.budget.teardown_usd - over, 0.0)

    def limits(
        self, party: Party, stage: Stage | str, task: str = "", task_usd: float | None = None
    ) -> list[BudgetLimit]:
        """Return every bound on what a party may reserve for a stage now."""
        if party == "reviewer":
            return [self._review_limit(stage if isinstance(stage, str) else stage.name)]
        own = not isinstance(stage, str) and kind_of(stage).reads_heldout
        value = self.review_left_usd + self.teardown_left_usd + (0.0 if own else self.budget.evaluation_usd)
        limits = [BudgetLimit(self.left_usd - value, f"of {self.budget.max_cost_usd:g} are left for it")]
        if not isinstance(stage, str) and stage.max_cost_usd is not None:
            rest = stage.max_cost_usd - self.sum_stage_committed(stage.name)
            limits.append(BudgetLimit(rest, f"of the {stage.max_cost_usd:g} USD for stage '{stage.name}' are left"))
        if party in ("builder", "helper"):
            rest = self.budget.builder_usd - self.sum_committed("builder", "helper")
            limits.append(BudgetLimit(rest, f"of the {self.budget.builder_usd:g} USD for the builder are left"))
        if party == "helper":
            part = HELPER_PART * min(limit.usd for limit in limits)
            limits.append(BudgetLimit(part, f"are the part of a helper, {HELPER_PART:g} of the remaining money"))
            if task_usd is not None:
                rest = task_usd - self.sum_committed("helper", task=task)
                limits.append(BudgetLimit(rest, f"of the {task_usd:g} USD for the task '{task}' are left"))
        return limits

    def sum_stage_committed(self, stage: str) -> float:
        """Return the money that counts against a stage's limit: jobs, storage and turns, but no reviews."""
        return self.sum_committed("job", "storage", "builder", "helper", stage=stage)

    def _review_limit(self, stage: str) -> BudgetLimit:
        share, teardown = self.budget.review_usd, self.teardown_left_usd
        if stage == AMENDMENT:
            words = f"of the {share + self.budget.teardown_usd:.4f} USD for reviews and teardown are left"
            return BudgetLimit(min(self.review_left_usd + teardown, self.left_usd), words)
        words = f"of the {share:.4f} USD for reviews are left"
        return BudgetLimit(min(self.review_left_usd, self.left_usd - teardown), words)
