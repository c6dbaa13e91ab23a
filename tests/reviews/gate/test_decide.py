"""The decision, rule by rule and as properties."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.gate.decide import decide
from specs.stages.base.stage import Criterion, ParameterRange
from specs.system.digests import digest_bytes
from specs.trail.verdict import (
    HELP,
    CheckResult,
    Condition,
    ConditionResult,
    CriterionResult,
    Decision,
    Finding,
    NoVerdict,
    RequiredChange,
    Span,
    Verdict,
)

PACKET = digest_bytes(b"packet")
RANK = ("approve", "null", "revise", "escalate", "reject")
RANGES = {"rate": ParameterRange(min=0.1, max=1.0)}
CURRENT = {"rate": 0.5}
LOOK = RequiredChange(text="look at it again")
MOVE = RequiredChange(text="raise rate", parameter="rate", value=0.8)


def check(status: str = "PASS", **more: Any) -> CheckResult:
    return CheckResult.model_validate(
        {"id": "c", "title": "C", "status": status, "blocking": True, "detail": "d"} | more
    )


def criterion(value: float | None, hypothesis: bool = False) -> CriterionResult:
    registered = Criterion(metric="accuracy", at_least=0.5)
    met = value is not None and registered.met(value)
    return CriterionResult(criterion=registered, value=value, met=met, hypothesis=hypothesis)


def finding(pointer: str = "/stage", severity: str = "blocking", change: RequiredChange | None = None) -> Finding:
    span = Span(artifact=PACKET, pointer=pointer)
    return Finding.model_validate(
        {"id": "f", "severity": severity, "statement": "it is wrong", "evidence": (span,), "required_change": change}
    )


def verdict(*findings: Finding, **changes: Any) -> Verdict:
    plain: dict[str, Any] = {
        "reviewer": "r",
        "findings": findings,
        "recommendation": "",
        "reasoning": "",
        "risks": (),
        "approve": not any(item.severity == "blocking" for item in findings),
    }
    return Verdict.model_validate(plain | changes)


def resolves(span: Span) -> bool:
    return span.pointer is not None and not span.pointer.startswith("/nowhere") and span.quote != "made up"


def decided(
    checks: tuple[CheckResult, ...] = (),
    criteria: tuple[CriterionResult, ...] = (),
    result: Verdict | None = None,
    attempts_left: int = 1,
    **more: Any,
) -> Decision:
    return decide(
        stage="s",
        attempt=1,
        checks=checks,
        criteria=criteria,
        verdict=result or verdict(),
        packet_digest=PACKET,
        resolvable=resolves,
        allowed_ranges=RANGES,
        current=CURRENT,
        attempts_left=attempts_left,
        **more,
    )


def test_nothing_against_it_is_an_approval() -> None:
    decision = decided((check(), check("WARN"), check("NOT_APPLICABLE")), (criterion(0.9),))
    assert decision.outcome == "approve"
    assert decision.reasons == ("none of 2 checks closes the gate, and every criterion is met (accuracy >= 0.5)",)
    assert decided((check(),)).reasons == ("none of 1 checks closes the gate",)


@pytest.mark.parametrize("status", ["BLOCKED", "ERROR"])
def test_missing_evidence_goes_to_a_person(status: str) -> None:
    assert decided((check(status, required_change=MOVE),)).outcome == "escalate"


def test_what_no_parameter_can_mend_is_rejected() -> None:
    assert decided((check("FAIL", repairable=False, required_change=MOVE),)).outcome == "reject"


def test_a_failed_check_with_a_usable_change_is_revised() -> None:
    decision = decided((check("FAIL", required_change=MOVE),))
    assert (decision.outcome, decision.required_changes) == ("revise", (MOVE,))


WORDS = RequiredChange(text="let no two prompts share a completion", by_builder=True)


def test_a_change_in_words_is_the_next_attempts_task_where_the_builder_can_move_anything() -> None:
    decision = decided(result=verdict(finding(change=WORDS)), takes_words=True)
    assert (decision.outcome, decision.required_changes) == ("revise", (WORDS,))
    assert decided(result=verdict(finding(change=WORDS)), takes_words=False).outcome == "escalate"
    assert decided(result=verdict(finding(change=WORDS)), takes_words=True, attempts_left=0).outcome == "escalate"
    assert decided(result=verdict(finding(change=LOOK)), takes_words=True).outcome == "escalate", "words for a person"
    assert decided(result=verdict(finding(change=WORDS)), takes_words=True, unchanged_since=1).outcome == "escalate"


def test_words_and_numbers_are_required_together_and_words_lift_no_floor() -> None:
    other = WORDS.model_copy(update={"text": "and write longer ones"})
    result = verdict(finding(change=WORDS), finding(change=other), finding(change=MOVE), finding(change=WORDS))
    decision = decided(result=result, takes_words=True)
    assert decision.outcome == "revise" and len(decision.required_changes) == 3
    assert all(change in decision.required_changes for change in (WORDS, other, MOVE))
    for check_of in (check("BLOCKED"), check("ERROR"), check("FAIL")):
        assert decided((check_of,), result=result, takes_words=True).outcome == "escalate"
    assert decided((check("FAIL", repairable=False),), result=result, takes_words=True).outcome == "reject"


def test_a_job_that_its_builder_ended_opens_the_next_attempt_and_never_the_next_stage() -> None:
    missing = (check("BLOCKED"), check("FAIL")), (criterion(None),)
    silent = verdict(no_verdict=NoVerdict(cause="withdrawn", what="w", help="h"), approve=False)
    decision = decided(*missing, result=silent, takes_words=True, withdrawn="the loss is 900")
    assert decision.outcome == "revise" and decision.reasons == ("the builder ended this job: the loss is 900",)
    assert decision.required_changes[0].by_builder
    assert decided(*missing, result=silent, takes_words=True, withdrawn="x", attempts_left=0).outcome == "escalate"
    assert decided(*missing, result=silent, takes_words=False, withdrawn="x").outcome == "escalate"
    # Also if everything were well: what was ended has no result.
    assert decided((check(),), (criterion(0.9),), takes_words=True, withdrawn="x").outcome == "revise"


def test_advice_does_not_close_the_gate() -> None:
    assert decided((check("FAIL", blocking=False), check("BLOCKED", blocking=False))).outcome == "approve"


@pytest.mark.parametrize(
    "change",
    [
        None,
        RequiredChange(text="do better"),
        RequiredChange(text="outside", parameter="rate", value=1.5),
        RequiredChange(text="no range", parameter="other", value=0.5),
        RequiredChange(text="the same again", parameter="rate", value=0.5),
    ],
)
def test_a_change_no_one_may_or_can_make_goes_to_a_person(change: RequiredChange | None) -> None:
    assert decided((check("FAIL", required_change=change),)).outcome == "escalate"


def test_lowering_to_zero_and_raising_to_one_contradict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RANGES, "rate", ParameterRange(min=0.0, max=1.0))
    none, all_of_it = (RequiredChange(text="move rate", parameter="rate", value=value) for value in (0.0, 1.0))
    checks = (check("FAIL", required_change=all_of_it), check("FAIL", id="d", required_change=none))
    assert decided(checks).outcome == "escalate"
    assert decided(checks[1:]).required_changes == (none,)


def test_every_blocker_needs_its_own_change() -> None:
    assert decided((check("FAIL", required_change=MOVE), check("FAIL", id="d"))).outcome == "escalate"


def test_changes_that_contradict_each_other_go_to_a_person() -> None:
    other = RequiredChange(text="lower rate", parameter="rate", value=0.2)
    decision = decided((check("FAIL", required_change=MOVE), check("FAIL", required_change=other)))
    assert decision.outcome == "escalate" and "contradict" in decision.reasons[-1]


def test_used_up_rounds_go_to_a_person() -> None:
    decision = decided((check("FAIL", required_change=MOVE),), attempts_left=0)
    assert decision.outcome == "escalate" and "no attempt is left" in decision.reasons[-1]


def test_an_unmet_criterion_takes_its_change_from_the_finding_that_points_at_it() -> None:
    criteria = (criterion(0.9), criterion(0.1))
    assert decided((), criteria, verdict(finding("/criteria/1", change=MOVE))).outcome == "revise"
    assert decided((), criteria, verdict(finding("/criteria/1/value", change=MOVE))).outcome == "revise"
    # Pointing elsewhere mends nothing.
    assert decided((), criteria, verdict(finding("/criteria/0", change=MOVE))).outcome == "escalate"
    assert decided((), criteria, verdict(finding("/criteria/10", change=MOVE))).outcome == "escalate"


def test_an_unmeasured_criterion_goes_to_a_person() -> None:
    decision = decided((), (criterion(None),))
    assert decision.outcome == "escalate" and decision.reasons == ("accuracy >= 0.5 was not measured",)
    assert decided((), (criterion(0.0),)).reasons == ("accuracy >= 0.5 is not met: 0",)
    assert decided((), (criterion(0.125),)).reasons == ("accuracy >= 0.5 is not met: 0.125",)
    assert decided((), (criterion(None, hypothesis=True),)).outcome == "escalate"


def test_an_unmet_hypothesis_on_sound_evidence_is_a_null() -> None:
    decision = decided((check(),), (criterion(0.1, hypothesis=True),))
    assert decision.outcome == "null" and decision.reasons[0].startswith("no significant difference")


def test_an_unmet_hypothesis_on_broken_evidence_is_no_null() -> None:
    assert decided((check("BLOCKED"),), (criterion(0.1, hypothesis=True),)).outcome == "escalate"
    assert decided((check("FAIL", repairable=False),), (criterion(0.1, hypothesis=True),)).outcome == "reject"
    assert decided((), (criterion(0.1, hypothesis=True), criterion(0.1))).outcome == "escalate"


def test_a_blocking_finding_closes_the_gate_even_over_passed_checks() -> None:
    assert decided((check(),), (), verdict(finding("/checks/0", change=LOOK))).outcome == "escalate"
    assert decided((check(),), (), verdict(finding("/checks/0", change=MOVE))).outcome == "revise"
    null = (criterion(0.1, hypothesis=True),)
    assert decided((), null, verdict(finding("/criteria/0", change=LOOK))).outcome == "escalate"


@pytest.mark.parametrize("checks", [(), (check(),), (check("FAIL", required_change=MOVE),)])
def test_a_finding_that_nothing_would_mend_is_a_rejection(checks: tuple[CheckResult, ...]) -> None:
    """Also where a rule knows a change: the reviewer says more than the failed check does."""
    assert decided(checks, (), verdict(finding("/checks/0"))).outcome == "reject"
    assert decided(checks, (), verdict(finding("/nowhere"))).outcome == "escalate"


def test_a_blocking_finding_that_points_at_nothing_is_counted_and_goes_to_a_person() -> None:
    decision = decided((), (), verdict(finding("/nowhere", change=MOVE)))
    assert (decision.outcome, decision.dropped_findings) == ("escalate", 1)


def test_a_remark_that_points_at_nothing_is_counted_and_changes_nothing() -> None:
    decision = decided((), (), verdict(finding("/nowhere", "major")))
    assert (decision.outcome, decision.dropped_findings) == ("approve", 1)


def test_only_findings_that_point_at_nothing_are_counted_as_dropped() -> None:
    result = verdict(finding("/stage", "note"), finding("/nowhere", "minor"), finding("/stage", "major"))
    assert decided(result=result).dropped_findings == 1
    assert decided(result=verdict(finding("/stage", "note"))).dropped_findings == 0


DOWN = NoVerdict(cause="server_error", what="it is down", detail="503", help="wait")


def test_a_reviewer_without_a_verdict_closes_the_gate_and_the_reason_says_what_helps() -> None:
    decision = decided((check(),), result=verdict(no_verdict=DOWN, approve=False))
    assert (decision.outcome, decision.reasons) == ("escalate", ("no verdict from r: it is down; wait (503)",))
    # Nothing was said of it: no empty brackets.
    quiet = verdict(no_verdict=DOWN.model_copy(update={"detail": ""}), approve=False)
    assert decided(result=quiet).reasons == ("no verdict from r: it is down; wait",)


def test_a_failed_check_with_a_usable_change_is_revised_without_the_reviewer() -> None:
    """What the rules ask for does not wait for a reviewer that is down; the decision says that it was."""
    decision = decided((check("FAIL", required_change=MOVE),), result=verdict(no_verdict=DOWN, approve=False))
    assert (decision.outcome, decision.required_changes) == ("revise", (MOVE,))
    assert decision.reasons[-1] == "no verdict from r: it is down; wait (503)"


@pytest.mark.parametrize("cause", HELP)
def test_a_server_that_talks_a_lot_leaves_room_for_what_helps(cause: Any) -> None:
    long = NoVerdict(cause=cause, what="x" * 2000, detail="y" * 2000, help=HELP[cause])
    (reason,) = decided(result=verdict(no_verdict=long, approve=False)).reasons
    assert f"; {long.help} (y" in reason and len(reason) <= 500


def test_a_reviewer_that_does_not_approve_and_says_nothing_closes_the_gate() -> None:
    assert decided(result=verdict(approve=False)).outcome == "escalate"


CARRIED = Condition(text="look at the rarest kind", stage="later", criterion=Criterion(metric="accuracy", at_least=0.9))


def test_an_approval_carries_its_conditions() -> None:
    decision = decided(result=verdict(conditions=(CARRIED,)))
    assert (decision.outcome, decision.conditions) == ("approve", (CARRIED,))
    assert "look at the rarest kind" in " ".join(decision.reasons)


def no_stage(condition: Condition) -> str:
    return f"no stage '{condition.stage}'"


def test_a_condition_that_cannot_be_carried_goes_to_a_person() -> None:
    decision = decided(result=verdict(conditions=(CARRIED,)), why_not_carried=no_stage)
    assert (decision.outcome, decision.conditions) == ("escalate", ())
    assert "no stage 'later'" in decision.reasons[0]


def open_condition(value: float | None, is_due: bool = True, criterion: Criterion | None = CARRIED.criterion) -> Any:
    met = criterion is not None and value is not None and criterion.met(value)
    condition = CARRIED.model_copy(update={"criterion": criterion})
    return ConditionResult(id="early.1/1", condition=condition, is_due=is_due, value=value, met=met)


@pytest.mark.parametrize(
    ("result", "outcome", "met"),
    [
        (open_condition(0.95), "approve", ("early.1/1",)),
        (open_condition(0.5), "escalate", ()),
        (open_condition(None), "escalate", ()),
        (open_condition(0.95, criterion=None), "escalate", ()),
        (open_condition(None, is_due=False), "approve", ()),
        (open_condition(0.95, is_due=False), "approve", ()),
    ],
)
def test_a_due_condition_holds_or_closes_the_gate(result: ConditionResult, outcome: str, met: tuple[str, ...]) -> None:
    decision = decided(conditions=(result,))
    assert (decision.outcome, decision.met) == (outcome, met)


def test_a_condition_that_is_not_due_hides_none_that_is() -> None:
    later, met, unmet = open_condition(None, is_due=False), open_condition(0.95), open_condition(0.5)
    assert decided(conditions=(later, met)).outcome == "approve"
    assert decided(conditions=(later, met, unmet)).outcome == "escalate"


def test_an_unmet_condition_with_a_usable_change_is_revised() -> None:
    result = verdict(finding("/conditions/0", change=MOVE))
    decision = decided(result=result, conditions=(open_condition(0.5),))
    assert (decision.outcome, decision.required_changes) == ("revise", (MOVE,))


@pytest.mark.parametrize("status", ["FAIL", "BLOCKED", "ERROR"])
def test_a_person_can_lift_a_check_and_the_decision_says_who(status: str) -> None:
    checks = (check(status, repairable=False),)
    assert decided(checks).outcome in ("reject", "escalate")
    decision = decided(checks, lifted={"c": "ada: known to be wrong here"})
    assert decision.outcome == "approve" and "lifted by ada: known to be wrong here" in " ".join(decision.reasons)
    assert decided(checks, lifted={"other": "ada: x"}).outcome in ("reject", "escalate")
    # What would have passed anyway is not told as lifted.
    assert decided((check(),), lifted={"c": "ada: x"}).reasons == ("none of 1 checks closes the gate",)


def test_a_lifted_check_lifts_what_only_repeats_it_and_nothing_else() -> None:
    checks, lifted = (check("FAIL"),), {"c": "ada: x"}
    repeated = verdict(finding("/checks/0", change=MOVE), approve=True)
    assert decided(checks, result=repeated, lifted=lifted).outcome == "approve"
    # Without a change it says that nothing would mend it, which the person has lifted too.
    assert decided(checks, result=verdict(finding("/checks/0"), approve=True), lifted=lifted).outcome == "approve"
    assert decided(checks, result=verdict(finding("/sample_rows/0", change=MOVE)), lifted=lifted).outcome == "revise"


def test_an_attempt_with_the_same_evidence_is_not_revised_again() -> None:
    checks = (check("FAIL", required_change=MOVE),)
    assert decided(checks).outcome == "revise"
    again = decided(checks, unchanged_since=1)
    assert again.outcome == "escalate" and "attempt 1" in again.reasons[-1]
    assert decided(unchanged_since=1).outcome == "approve"


def test_a_reviewer_that_approves_over_a_finding_without_evidence_still_closes_the_gate() -> None:
    assert decided(result=verdict(finding("/nowhere"), approve=True)).outcome == "escalate"


def test_a_failed_check_takes_its_change_from_the_finding_that_points_at_it() -> None:
    checks = (check(), check("FAIL", id="d"))
    assert decided(checks, (), verdict(finding("/checks/1", change=MOVE))).outcome == "revise"
    assert decided(checks, (), verdict(finding("/checks/1/detail", change=MOVE))).outcome == "revise"
    assert decided(checks, (), verdict(finding("/stage", change=MOVE))).outcome == "escalate"


def test_only_a_span_that_resolves_carries_a_change() -> None:
    places = (Span(artifact=PACKET, pointer="/stage"), Span(artifact=PACKET, pointer="/criteria/0", quote="made up"))
    pointed = finding(change=MOVE).model_copy(update={"evidence": places})
    assert decided((), (criterion(0.1),), verdict(pointed)).outcome == "escalate"
    honest = pointed.model_copy(update={"evidence": (places[0], Span(artifact=PACKET, pointer="/criteria/0"))})
    assert decided((), (criterion(0.1),), verdict(honest)).outcome == "revise"


def test_a_finding_that_repeats_a_failed_check_needs_no_change_of_its_own() -> None:
    failed = (check("FAIL", required_change=MOVE),)
    assert decided(failed, (), verdict(finding("/checks/0", change=LOOK))).outcome == "revise"
    # One that also points elsewhere says more than the check does.
    both = (Span(artifact=PACKET, pointer="/checks/0"), Span(artifact=PACKET, pointer="/stage"))
    more = finding(change=LOOK).model_copy(update={"evidence": both})
    assert decided(failed, (), verdict(more)).outcome == "escalate"


def test_a_truth_value_is_no_number_to_set() -> None:
    move = RequiredChange.model_construct(text="t", parameter="rate", value=True)
    assert decided((check("FAIL").model_copy(update={"required_change": move}),)).outcome == "escalate"


def test_two_parameters_may_have_to_move_to_the_same_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RANGES, "share", ParameterRange(min=0.1, max=1.0))
    other = RequiredChange(text="raise share", parameter="share", value=0.8)
    decision = decided((check("FAIL", required_change=MOVE), check("FAIL", id="d", required_change=other)))
    assert (decision.outcome, decision.required_changes) == ("revise", (MOVE, other))


def test_the_same_change_named_twice_is_required_once() -> None:
    again = RequiredChange(text="in other words", parameter="rate", value=0.8)
    decision = decided((check("FAIL", required_change=MOVE), check("FAIL", id="d", required_change=again)))
    assert (decision.outcome, decision.required_changes) == ("revise", (MOVE,))


@pytest.mark.parametrize("approve", [True, False])
def test_what_a_reviewer_or_log_wrote_cannot_move_the_cursor_nor_fill_the_screen(approve: bool) -> None:
    hostile = "\x1b[2J" + "x" * 2000
    metric = Condition(text=hostile, stage=hostile)
    spoken = verdict(finding().model_copy(update={"statement": hostile}), reviewer=hostile, conditions=(metric,))
    reasons = [
        *decided((check("FAIL", detail=hostile),), (), spoken, why_not_carried=no_stage).reasons,
        *decided(result=verdict(approve=approve, reviewer=hostile, conditions=(metric,) if approve else ())).reasons,
    ]
    assert len(reasons) == (5 if approve else 4)
    assert all("\x1b" not in reason and len(reason) <= 500 for reason in reasons)


def test_a_decision_names_the_packet_and_the_verdict_it_is_about() -> None:
    result = verdict()
    decision = decided(result=result)
    assert (decision.packet, decision.verdict) == (PACKET, result.content_digest())
    assert result.content_digest() != PACKET


statuses = st.sampled_from(["PASS", "WARN", "FAIL", "NOT_APPLICABLE", "BLOCKED", "ERROR"])
moves = st.none() | st.builds(
    RequiredChange, text=st.just("t"), parameter=st.sampled_from(["rate", "x"]), value=st.sampled_from([0.5, 0.8, 3.0])
)


def checked(status: str, blocking: bool, move: RequiredChange | None, repairable: bool) -> CheckResult:
    return check(status, blocking=blocking, required_change=move, repairable=repairable)


check_results = st.builds(checked, statuses, st.booleans(), moves, st.booleans())
criterion_results = st.builds(criterion, st.none() | st.floats(0, 1), st.booleans())
findings = st.builds(
    finding,
    st.sampled_from(["/checks/0", "/criteria/0", "/stage", "/nowhere"]),
    st.sampled_from(["blocking", "major", "minor", "note"]),
    moves,
)
some_checks = st.lists(check_results, max_size=4).map(tuple)
some_criteria = st.lists(criterion_results, max_size=3).map(tuple)
some_findings = st.lists(findings, max_size=3).map(tuple)


@given(some_checks, some_criteria, some_findings, st.booleans(), st.integers(-1, 2))
def test_what_closes_the_gate_never_coexists_with_approval(
    checks: tuple[CheckResult, ...],
    criteria: tuple[CriterionResult, ...],
    results: tuple[Finding, ...],
    approve: bool,
    remaining: int,
) -> None:
    outcome = decided(checks, criteria, verdict(*results, approve=approve), remaining).outcome
    closed = (
        any(result.blocking and result.status in ("FAIL", "BLOCKED", "ERROR") for result in checks)
        or any(not result.met and (not result.hypothesis or result.value is None) for result in criteria)
        or any(item.severity == "blocking" for item in results)
        or not approve
    )
    if closed:
        assert outcome not in ("approve", "null")
    else:
        assert outcome == ("null" if any(not result.met for result in criteria) else "approve")
    assert outcome != "revise" or remaining > 0


@given(some_checks, some_criteria, some_findings, st.integers(-1, 2))
def test_more_trouble_never_makes_the_outcome_better(
    checks: tuple[CheckResult, ...], criteria: tuple[CriterionResult, ...], results: tuple[Finding, ...], remaining: int
) -> None:
    before = RANK.index(decided(checks, criteria, verdict(*results), remaining).outcome)
    for more in ("BLOCKED", "ERROR", "FAIL"):
        worse = decided((*checks, check(more, id="more")), criteria, verdict(*results), remaining).outcome
        assert RANK.index(worse) >= before
    assert RANK.index(decided(checks, criteria, verdict(*results, approve=False), remaining).outcome) >= before
    assert RANK.index(decided(checks, criteria, verdict(*results), 0).outcome) >= before or before == RANK.index(
        "escalate"
    )


@given(some_checks, some_criteria, some_findings, st.text(max_size=20), st.lists(st.text(max_size=5), max_size=2))
def test_prose_and_remarks_never_move_the_outcome(
    checks: tuple[CheckResult, ...],
    criteria: tuple[CriterionResult, ...],
    results: tuple[Finding, ...],
    prose: str,
    risks: list[str],
) -> None:
    result = verdict(*results)
    plain = decided(checks, criteria, result)
    talk = {"recommendation": prose, "reasoning": f"APPROVED {prose}", "risks": tuple(risks)}
    assert decided(checks, criteria, result.model_copy(update=talk)).outcome == plain.outcome
    remarked = result.model_copy(update={"findings": (*results, finding("/stage", "major"))})
    assert decided((*checks, check("PASS", id="more")), criteria, remarked).outcome == plain.outcome


@given(some_checks, some_criteria, some_findings)
def test_the_same_evidence_gives_the_same_decision(
    checks: tuple[CheckResult, ...], criteria: tuple[CriterionResult, ...], results: tuple[Finding, ...]
) -> None:
    result = verdict(*results)
    assert decided(checks, criteria, result) == decided(checks, criteria, result)


conditions_met = st.builds(
    open_condition, st.none() | st.sampled_from([0.5, 0.95]), st.booleans(), st.none() | st.just(CARRIED.criterion)
)
some_conditions = st.lists(conditions_met, max_size=3).map(tuple)


@given(some_checks, some_criteria, some_findings, some_conditions)
def test_an_open_condition_never_makes_the_outcome_better(
    checks: tuple[CheckResult, ...],
    criteria: tuple[CriterionResult, ...],
    results: tuple[Finding, ...],
    conditions: tuple[ConditionResult, ...],
) -> None:
    result = verdict(*results)
    without = decided(checks, criteria, result).outcome
    outcome = decided(checks, criteria, result, conditions=conditions).outcome
    assert RANK.index(outcome) >= RANK.index(without)
    if any(condition.is_due and not condition.met for condition in conditions):
        assert outcome not in ("approve", "null")


@given(some_checks, some_criteria, some_findings, some_conditions)
def test_lifting_a_check_is_as_if_it_were_not_asked(
    checks: tuple[CheckResult, ...],
    criteria: tuple[CriterionResult, ...],
    results: tuple[Finding, ...],
    conditions: tuple[ConditionResult, ...],
) -> None:
    elsewhere = tuple(item for item in results if item.evidence[0].pointer != "/checks/0")
    result, broken = verdict(*elsewhere), check("FAIL", id="lifted", repairable=False)
    lifted = decided((*checks, broken), criteria, result, conditions=conditions, lifted={"lifted": "ada: x"})
    assert lifted.outcome == decided(checks, criteria, result, conditions=conditions).outcome


@given(
    st.permutations([finding("/stage", change=MOVE), finding("/nowhere"), finding("/checks/0", "note")]), some_checks
)
def test_the_order_of_findings_does_not_matter(results: list[Finding], checks: tuple[CheckResult, ...]) -> None:
    decision, other = decided(checks, result=verdict(*results)), decided(checks, result=verdict(*reversed(results)))
    assert (decision.outcome, decision.required_changes, sorted(decision.reasons)) == (
        other.outcome,
        other.required_changes,
        sorted(other.reasons),
    )
