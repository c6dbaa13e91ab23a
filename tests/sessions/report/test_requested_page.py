"""The page of a requested review: its title shows at one glance how the answer ended."""

from __future__ import annotations

import pytest

from sessions.pages.report.requested_page import mark_of
from specs.trail.requested_review import (
    AdversarialAnswer,
    Answer,
    DraftAnswer,
    Issue,
    QuestionAnswer,
    ReviewAnswer,
    ScoreRow,
)


def with_severities(*severities: str) -> ReviewAnswer:
    issues = tuple(Issue.model_construct(severity=severity) for severity in severities)
    return ReviewAnswer.model_construct(issues=issues)


def with_statuses(*statuses: str) -> AdversarialAnswer:
    rows = tuple(ScoreRow.model_construct(status=status) for status in statuses)
    return AdversarialAnswer.model_construct(scorecard=rows)


@pytest.mark.parametrize(
    ("answer", "mark", "words"),
    [
        (None, "❌", "No answer"),
        (QuestionAnswer.model_construct(approval=True), "✅", "Approved"),
        (QuestionAnswer.model_construct(approval=False), "❌", "Not approved"),
        (QuestionAnswer.model_construct(approval=None), "⚠️", "No approval was asked for"),
        (with_severities("SUGGESTION", "HIGH", "CRITICAL"), "❌", "Critical issues"),
        (with_severities("HIGH", "SUGGESTION"), "⚠️", "Issues of high severity"),
        (with_severities("SUGGESTION"), "✅", "No critical or high issue"),
        (with_severities(), "✅", "No critical or high issue"),
        (with_statuses("supported", "unsupported", "contradicted"), "❌", "Claims contradicted"),
        (with_statuses("supported", "unsupported"), "⚠️", "Claims unsupported"),
        (with_statuses("supported"), "✅", "All claims supported"),
        (with_statuses(), "⚠️", "No claim was judged"),
        (DraftAnswer.model_construct(), "⚠️", "A draft: read it before you start it"),
    ],
)
def test_each_answer_is_seen_at_one_glance(answer: Answer | None, mark: str, words: str) -> None:
    assert mark_of(answer) == (mark, words)
