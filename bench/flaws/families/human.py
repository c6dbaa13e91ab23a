"""What people, and rules in their name, do to a session whose gate has closed."""

from __future__ import annotations

from bench.flaws.operator import Desk, Operator

COLLAPSE = (("identical_answers: 0.5", "identical_answers: 0.05"),)
"""A threshold that the model cannot meet: the gate of the baseline asks a person."""
_LOOSE = ("identical_answers: 0.05", "identical_answers: 0.5")
_EASIER = ("minimum_effect: 0.3", "minimum_effect: 0.1")


def _loosen(desk: Desk) -> None:
    desk.amend(_LOOSE)
    desk.answer("retry", "the threshold is another now")


def _loosen_in_a_name(desk: Desk) -> None:
    desk.amend(_LOOSE, override=True)
    desk.answer("retry", "the threshold is another now")


def _ease(desk: Desk) -> None:
    desk.amend(_EASIER, override=True)
    _approve(desk)


def _approve(desk: Desk) -> None:
    while desk.waits():
        desk.answer("approve", "it was approved before")


def _by_rule(desk: Desk) -> None:
    while desk.waits():
        desk.answer("approve", "rule: approve whatever asks")


def _lift_check(desk: Desk) -> None:
    for stage in ("before", "after"):
        desk.lift("health.collapse", stage)
    desk.answer("retry", "the check is lifted")
    _approve(desk)


def _stale(desk: Desk) -> None:
    """Take the design's approval back and approve it again at once, without another review."""
    desk.retract("decision/design.1")
    _approve(desk)


OPERATORS = (
    Operator("loosened-threshold", "human", "an amendment loosens the threshold that just failed",
             ("amendment.loosens",), spec=COLLAPSE, person=_loosen),
    Operator("loosened-in-a-name", "human", "the same amendment in another person's name",
             ("amendment.loosens", "report.override"), spec=COLLAPSE, person=_loosen_in_a_name),
    Operator("eased-goal", "human", "the registered effect is made smaller after a gate has closed",
             ("amendment.loosens", "report.exploratory"), spec=COLLAPSE, person=_ease),
    Operator("approved-by-rule", "human", "a rule approves a gate that has closed", ("report.override",),
             spec=COLLAPSE, person=_by_rule),
    Operator("lifted-check", "human", "the check that failed is lifted", ("report.override",), spec=COLLAPSE,
             person=_lift_check),
    Operator("stale-approval", "human", "an approval that was taken back is given again, unread",
             ("report.override", "report.retracted"), spec=COLLAPSE, person=_stale),
)  # fmt: skip
