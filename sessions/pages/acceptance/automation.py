"""Who decided at the gates of a session, and what people gave: their answers, their labels and the time they took."""

from __future__ import annotations

from typing import NamedTuple

from reviews.history.history import History
from reviews.history.people import count_overrides
from reviews.trail.chain.envelope import RecordedEntry
from specs.stages.base.kind import StageKind
from specs.stages.base.metric import MetricSet, RowMetric
from specs.stages.registry import kind_of
from specs.trail.gate_bodies import DecisionEntry, HumanAnswerEntry, OverrideEntry

LABELLED = "calibration"
"""The output that holds how a critic or judge did on labelled items."""


class Automation(NamedTuple):
    """How many gates code, a model and a person decided, and what people gave."""

    by_code: int
    by_model: int
    by_person: int
    overrides: int
    waited_minutes: float
    """From each question to its answer: people cannot have worked longer on their answers."""
    labels: int
    """Labelled items that admitted judges and critics, each stage's once."""

    def line(self) -> str:
        """Return it in words."""
        gates = self.by_code + self.by_model + self.by_person
        overrides = f"{self.overrides} override{'' if self.overrides == 1 else 's'}"
        return (
            f"of {gates} gates {self.by_code} decided by code, {self.by_model} by the review of a model, "
            f"{self.by_person} by a person; {overrides}; {self.labels} labelled items; "
            f"{self.waited_minutes:.0f} minutes until people answered"
        )


def automation_of(history: History) -> Automation:
    """Return who decided at the gates of a session: a model where it reviewed and no check closed the gate."""
    parties = [_decided_by(history, entry) for entry in history.of(DecisionEntry)]
    waited = 0
    for answer in history.of(HumanAnswerEntry):
        if (question := history.find_digest(answer.body.question)) is not None:
            waited += answer.time_ns - question.time_ns
    return Automation(
        parties.count("code"),
        parties.count("model"),
        parties.count("person"),
        count_overrides(history),
        waited / 60e9,
        _count_labels(history),
    )


def _decided_by(history: History, entry: RecordedEntry[DecisionEntry]) -> str:
    stage, attempt = entry.body.stage, history.attempt_of(entry.body)
    vendors = {reviewer.vendor for reviewer in history.resolved.spec.reviewers()}
    lifted = any(
        override.seq < entry.seq and override.body.stage == stage is not None for override in history.of(OverrideEntry)
    )
    if lifted or attempt.answer is not None or "person" in vendors:
        return "person"
    failed = any(check.status == "FAIL" and check.blocking for check in attempt.check_results)
    return "code" if failed or vendors <= {"checklist"} else "model"


def _count_labels(history: History) -> int:
    total = 0
    for stage in history.resolved.spec.stages:
        measured = [attempt.metric_set for attempt in history.attempts(stage.name) if attempt.metric_set]
        total += count_labels(kind_of(stage), measured[-1]) if measured else 0
    return total


def count_labels(kind: StageKind, metrics: MetricSet) -> int:
    """Return how many labelled items a stage used: the greatest population of its metrics over the labelled sample."""
    labelled = [metric.id for metric in kind.metrics if isinstance(metric, RowMetric) and metric.output == LABELLED]
    return max((metrics.metrics[id].n for id in labelled if id in metrics.metrics), default=0)
