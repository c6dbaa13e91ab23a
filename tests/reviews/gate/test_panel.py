"""Several verdicts as one: nobody's evidence is outvoted, and silence does not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.gate.panel import ReviewerAnswer, disagree, member_answer, merge
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.system.digests import digest_bytes
from specs.trail.entry import Entry
from specs.trail.verdict import Condition, Decision, Finding, NoVerdict, RequiredChange, Verdict
from testing.factories.bodies import body_of
from tests.reviews.gate.test_decide import LOOK, MOVE, RANK, check, decided, finding, verdict

WHY = NoVerdict(cause="server_error", what="it is down", detail="503", help="wait")
DOWN = ReviewerAnswer("third", None, WHY)


def panel(*verdicts: Verdict | None, quorum: int = 2) -> Verdict:
    names = ("first", "second", "third", "fourth")
    return merge(
        [ReviewerAnswer(name, item, None if item else WHY) for name, item in zip(names, verdicts, strict=False)], quorum
    )


def judged(*verdicts: Verdict | None, quorum: int = 2, **more: Any) -> Decision:
    return decided(result=panel(*verdicts, quorum=quorum), **more)


def test_all_approve() -> None:
    assert judged(verdict(), verdict()).outcome == "approve"


def test_what_each_said_stands_in_the_verdict_or_that_no_one_did() -> None:
    merged = panel(verdict(recommendation="go on", reasoning="fits"), None, verdict(recommendation="wait"))
    assert merged.recommendation == "first: go on; third: wait" and merged.reasoning == "first: fits\nthird: "
    silent = panel(None, None)
    assert (silent.recommendation, silent.reasoning) == ("none", "no one answered")


def test_a_finding_with_evidence_is_not_outvoted() -> None:
    strict = verdict(finding(change=MOVE))
    assert judged(verdict(), verdict(), strict).outcome == "escalate"
    # Not even when its own member approves.
    assert judged(verdict(), verdict(finding(change=MOVE), approve=True)).outcome == "revise"


def test_members_that_agree_revise_or_reject_as_one_reviewer_does() -> None:
    assert judged(verdict(finding(change=MOVE)), verdict(finding("/checks/0", change=MOVE))).outcome == "revise"
    assert judged(verdict(finding()), verdict(finding("/checks/0"))).outcome == "reject"
    assert judged(verdict(finding(change=LOOK)), verdict(approve=False)).outcome == "escalate"


def test_one_member_alone_does_not_reject_for_all() -> None:
    decision = judged(verdict(), verdict(finding()))
    assert decision.outcome == "escalate"
    assert "the reviewers disagree: first approves, second does not" in decision.reasons


def test_a_member_who_points_at_nothing_can_be_outvoted_and_is_named() -> None:
    decision = judged(verdict(), verdict(), verdict(approve=False))
    assert decision.outcome == "approve" and "third does not approve" in decision.reasons
    assert judged(verdict(), verdict(approve=False)).outcome == "escalate"


@pytest.mark.parametrize(
    ("verdicts", "quorum", "outcome"),
    [
        ((verdict(), verdict(), None), 2, "approve"),
        ((verdict(), None, None), 2, "escalate"),
        ((verdict(), None), 1, "approve"),
        ((None, None), 1, "escalate"),
    ],
)
def test_who_gave_no_verdict_does_not_count(verdicts: tuple[Verdict | None, ...], quorum: int, outcome: str) -> None:
    decision = judged(*verdicts, quorum=quorum)
    assert decision.outcome == outcome
    assert "down" in " ".join(decision.reasons)


def test_too_few_members_are_no_verdict_and_the_reason_counts_them() -> None:
    decision = judged(verdict(), None, None)
    output = "no verdict from panel: 1 of 3 members of the panel gave a verdict, 2 required"
    assert decision.reasons[0].startswith(f"{output}; second: it is down; third: it is down")
    assert panel(verdict(), verdict(), None).no_verdict is None


def test_without_a_quorum_a_person_is_asked_even_where_a_rule_knows_a_change() -> None:
    failed = (check("FAIL", required_change=MOVE),)
    assert judged(verdict(), None, checks=failed).outcome == "escalate"
    assert judged(verdict(), verdict(), checks=failed).outcome == "revise"


def test_what_a_member_said_is_read_from_its_entry(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def answer(name: str, outcome: Verdict) -> ReviewerAnswer:
        body = body_of("verdict", verdict=store.put_value(outcome), reviewer=name)
        entry = Entry(seq=1, kind="verdict", session="s", key="k", time_ns="1", previous=digest_bytes(b""), body=body)
        return member_answer(store, RecordedEntry(entry, digest_bytes(b"entry")))

    result = verdict(finding())
    assert answer("ada", result) == ReviewerAnswer("ada", result)
    assert answer("bob", verdict(no_verdict=WHY, approve=False)) == ReviewerAnswer("bob", None, WHY)


def test_the_merged_verdict_holds_what_everybody_said() -> None:
    condition = Condition(text="c", stage="later")
    first = verdict(finding(severity="minor"), risks=("small",), not_judged=("truth", "style"), conditions=(condition,))
    second = verdict(finding(severity="note"), risks=("small", "old"), not_judged=("truth",), conditions=(condition,))
    merged = merge([ReviewerAnswer("a", first), ReviewerAnswer("b", second), DOWN], 2)
    assert [item.id for item in merged.findings] == ["1-f", "2-f"]
    assert [item.statement for item in merged.findings] == ["a: it is wrong", "b: it is wrong"]
    assert (merged.risks, merged.not_judged, merged.conditions) == (("small", "old"), ("truth",), (condition,))
    assert [(vote.reviewer, vote.approve) for vote in merged.votes] == [("a", True), ("b", True), ("third", None)]
    assert merged.votes[0].verdict == first.content_digest() and merged.votes[2].error == "it is down"
    assert [vote.approve for vote in merged.votes].count(None) == 1 and not disagree(merged)


def said_by_a_member(findings: list[Finding], approve: bool) -> Verdict:
    return verdict(*findings, approve=approve)


moves: Any = st.none() | st.sampled_from([MOVE, LOOK, RequiredChange(text="t", parameter="rate", value=3.0)])
finding_lists: Any = st.lists(
    st.builds(finding, st.sampled_from(["/stage", "/checks/0", "/nowhere"]), st.just("blocking"), moves), max_size=2
)
members: Any = st.lists(st.none() | st.builds(said_by_a_member, finding_lists, st.booleans()), min_size=2, max_size=4)


@given(members, st.integers(1, 3), st.sampled_from([MOVE, LOOK, None]))
def test_a_finding_more_never_makes_a_panel_milder(
    verdicts: list[Verdict | None], quorum: int, change: RequiredChange | None
) -> None:
    before = judged(*verdicts, quorum=quorum)
    for index, item in enumerate(verdicts):
        # Who objects without a word leaves it to a person; a word that explains the objection is not a trouble more.
        if item is None or (not item.approve and not item.findings):
            continue
        worse = item.model_copy(update={"findings": (*item.findings, finding("/stage", change=change))})
        after = judged(*verdicts[:index], worse, *verdicts[index + 1 :], quorum=quorum)
        assert RANK.index(after.outcome) >= RANK.index(before.outcome)
        assert after.outcome not in ("approve", "null")


@given(members, st.integers(1, 3))
def test_a_panel_approves_only_with_its_quorum(verdicts: list[Verdict | None], quorum: int) -> None:
    if judged(*verdicts, quorum=quorum).outcome == "approve":
        assert sum(item is not None and item.approve for item in verdicts) >= quorum
        assert not any(item.findings for item in verdicts if item is not None)
