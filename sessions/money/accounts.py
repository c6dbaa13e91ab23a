"""Who has spent and reserved how much, and what each may still take: added up from the ledger's lines, nothing else.

Three shares of the budget are held back. Evaluation's is there in full whatever evaluations before cost, so that the
last one can be paid too; only stages that measure or package reach into it. Review's is for reviews.
Teardown's is for the review of an amendment when review's share is used up: a session out of money can be given more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, get_args

from reviews.trail.envelope import Recorded
from specs.session.session_spec import Budget
from specs.stages.registry import Stage, kind_of

Party = Literal["builder", "helper", "reviewer", "job", "storage"]
PARTIES: tuple[Party, ...] = get_args(Party)

AMENDMENT = "amendment"
"""What stands for the stage in the lines of an amendment's review."""
HELPER_PART = 0.5
"""The part of what is left for the builder that one turn of a helper may take at most: helpers never take all."""
TOLERANCE_USD = 1e-9


class Line(NamedTuple):
    """One reservation, or what it came to."""

    key: str
    party: str
    stage: str
    task: str
    """The helper's task; empty for everybody else."""
    usd: float
    is_settled: bool


class Limit(NamedTuple):
    """One bound on what may be reserved, in words that follow a number of USD."""

    usd: float
    words: str


class Accounts:
    """The lines of a trail, added up in different ways."""

    def __init__(self, entries: Iterable[Recorded], budget: Budget) -> None:
        self.budget = budget
        self.lines: dict[str, Line] = {}
        for recorded in entries:
            if recorded.entry.kind == "spend":
                body = recorded.body
                settled = body["what"] == "settle"
                line = Line(body["job"], body["party"], body["stage"], body.get("task", ""), body["usd"], settled)
                self.lines[line.key] = line

    def select(self, *parties: Party, stage: str | None = None, task: str | None = None) -> Iterator[Line]:
        """Yield the lines of some parties (all without any), of one stage or one helper's task."""
        for line in self.lines.values():
            if (
                (not parties or line.party in parties)
                and (stage is None or line.stage == stage)
                and (task is None or line.task == task)
            ):
                yield line

    def taken(self, *parties: Party, stage: str | None = None, task: str | None = None) -> float:
        """Return what is spent and reserved together."""
        return sum(line.usd for line in self.select(*parties, stage=stage, task=task))

    def spent(self, *parties: Party, stage: str | None = None) -> float:
        """Return what is settled."""
        return sum(line.usd for line in self.select(*parties, stage=stage) if line.is_settled)

    def reserved(self, *parties: Party, stage: str | None = None) -> float:
        """Return what is set aside and not settled."""
        return sum(line.usd for line in self.select(*parties, stage=stage) if not line.is_settled)

    @property
    def left_usd(self) -> float:
        """What is neither spent nor reserved, held-back shares included."""
        return self.budget.max_cost_usd - self.taken()

    @property
    def review_left_usd(self) -> float:
        """What is left of the share for reviews; they take it before they take teardown's."""
        return max(self.budget.review_usd - self.taken("reviewer"), 0.0)

    @property
    def teardown_left_usd(self) -> float:
        """What is left of the share for teardown."""
        over = max(self.taken("reviewer") - self.budget.review_usd, 0.0)
        return max(self.budget.teardown_usd - over, 0.0)

    def limits(self, party: Party, stage: Stage | str, task: str = "", task_usd: float | None = None) -> list[Limit]:
        """Return every bound on what a party may reserve for a stage now."""
        if party == "reviewer":
            return [self._review_limit(stage if isinstance(stage, str) else stage.name)]
        own = not isinstance(stage, str) and kind_of(stage).reads_heldout
        held = self.review_left_usd + self.teardown_left_usd + (0.0 if own else self.budget.evaluation_usd)
        found = [Limit(self.left_usd - held, f"of {self.budget.max_cost_usd:g} are left for it")]
        if not isinstance(stage, str) and stage.max_cost_usd is not None:
            rest = stage.max_cost_usd - self.stage_taken(stage.name)
            found.append(Limit(rest, f"of the {stage.max_cost_usd:g} USD for stage '{stage.name}' are left"))
        if party in ("builder", "helper"):
            rest = self.budget.builder_usd - self.taken("builder", "helper")
            found.append(Limit(rest, f"of the {self.budget.builder_usd:g} USD for the builder are left"))
        if party == "helper":
            part = HELPER_PART * min(one.usd for one in found)
            found.append(Limit(part, f"are the part of a helper, {HELPER_PART:g} of what is left"))
            if task_usd is not None:
                rest = task_usd - self.taken("helper", task=task)
                found.append(Limit(rest, f"of the {task_usd:g} USD for the task '{task}' are left"))
        return found

    def stage_taken(self, stage: str) -> float:
        """Return what counts against a stage's own limit: jobs, storage and the builder's turns, but no reviews."""
        return self.taken("job", "storage", "builder", "helper", stage=stage)

    def _review_limit(self, stage: str) -> Limit:
        teardown = self.teardown_left_usd
        if stage == AMENDMENT:
            words = (
                f"of the {self.budget.review_usd + self.budget.teardown_usd:.4f} USD for reviews and teardown are left"
            )
            return Limit(min(self.review_left_usd + teardown, self.left_usd), words)
        words = f"of the {self.budget.review_usd:.4f} USD for reviews are left"
        return Limit(min(self.review_left_usd, self.left_usd - teardown), words)
