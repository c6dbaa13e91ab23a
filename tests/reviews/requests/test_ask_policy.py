"""The ask-policy: what must be asked, what must not, and that doubt always asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.requests.ask_policy import MUST_ASK, MUST_NOT_ASK, SURE, apply, facts_of, policy_answer, tier_of
from reviews.requests.registered_values import SpecValueIndex
from specs.lint.party_rules import LATENCY_S
from specs.system.vendors.parties import Efforts, ReviewLimits
from specs.trail.requested_review import DecisionKind, PolicyAnswer, QuestionRequest, Stakes
from testing.factories.spec_files import loads, write_spec

KINDS: tuple[DecisionKind, ...] = get_args(DecisionKind)
RATE, GATE = "/stages/2/parameters", "/stages/1/gate/criteria"
ORDER: tuple[Stakes, ...] = ("low", "medium", "high", "critical")

kinds = st.one_of(st.none(), st.sampled_from(KINDS))
stakes = st.one_of(st.none(), st.sampled_from(ORDER))
confidences = st.one_of(st.none(), st.floats(0, 1))
WORDS = (
    *("alpha", "batch", "size", "16", "temperature", "0.7", "1.7", "file", "name", "log", "should", "registered"),
    *("spec", "skip", "baseline", "of", "is", "the", "what", "5"),
)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> SpecValueIndex:
    return SpecValueIndex(loads(write_spec(tmp_path_factory.mktemp("spec"))).spec)


def answer(question: str, registered: SpecValueIndex | None = None, **arguments: Any) -> PolicyAnswer:
    return policy_answer(QuestionRequest(topic="t", question=question, **arguments), registered)


def test_the_table_covers_every_kind_once() -> None:
    assert {*MUST_ASK, *MUST_NOT_ASK, "already_in_spec"} == set(KINDS)
    assert not MUST_ASK.keys() & MUST_NOT_ASK.keys()


@pytest.mark.parametrize("kind", sorted(MUST_ASK))
@pytest.mark.parametrize("level", ORDER)
def test_what_must_be_asked_is_asked_whatever_the_stakes(kind: DecisionKind, level: Stakes) -> None:
    result = answer("name of the log file", kind=kind, stakes=level, confidence=1.0)
    assert result.ask and result.rule == f"ask.{kind}"


@pytest.mark.parametrize(
    ("question", "arguments", "rule"),
    [
        ("which name has the log file", {"kind": "trivial"}, "answer.trivial"),
        ("start the next shard", {"kind": "execution"}, "answer.execution"),
        ("json or csv for the log", {"kind": "technical", "stakes": "low"}, "answer.technical"),
        ("json or csv for the log", {"kind": "technical", "stakes": "medium", "confidence": 0.1}, "answer.technical"),
        ("json or csv for the log", {"kind": "technical", "stakes": "high", "confidence": SURE}, "answer.technical"),
        ("json or csv for the log", {"kind": "technical", "stakes": "high", "confidence": 0.89}, "ask.stakes"),
        ("json or csv for the log", {"kind": "technical", "stakes": "critical"}, "ask.stakes"),
        ("json or csv for the log", {"kind": "technical"}, "ask.ambiguous"),
        ("json or csv for the log", {}, "ask.ambiguous"),
        ("which name has the log file", {"kind": "trivial", "stakes": "critical"}, "ask.stakes"),
        ("may I skip the control arm", {"kind": "trivial"}, "ask.speaks_of"),
        ("run it without the held-out split", {"kind": "execution"}, "ask.speaks_of"),
        ("another threshold is nicer", {"kind": "technical", "stakes": "low"}, "ask.speaks_of"),
        ("what is the learning rate", {"kind": "already_in_spec"}, "ask.not_in_spec"),
    ],
)
def test_rules_outside_a_session(question: str, arguments: dict[str, Any], rule: str) -> None:
    result = answer(question, **arguments)
    assert (result.rule, result.ask) == (rule, rule.startswith("ask."))
    assert result.why


@pytest.mark.parametrize(
    ("question", "arguments", "rule", "results"),
    [
        ("What alpha is registered?", {}, "answer.in_spec", [("/analysis/alpha", "0.05")]),
        ("the learning-rate", {"kind": "already_in_spec"}, "answer.in_spec", [(f"{RATE}/learning_rate", "1e-05")]),
        ("registered acceptance rate?", {}, "answer.in_spec", [(f"{GATE}/0", "acceptance_rate >= 0.1")]),
        ("which seed has train in the spec", {}, "answer.in_spec", [("/stages/2/parameters/seed", "7")]),
        # Someone who wants another value asks no question about the spec.
        ("Should the registered alpha be 0.1?", {}, "ask.ambiguous", []),
        ("is the registered alpha right", {"kind": "already_in_spec"}, "ask.not_in_spec", []),
        ("What alpha is good?", {}, "ask.ambiguous", []),
        ("which optimiser is registered", {"kind": "already_in_spec"}, "ask.not_in_spec", []),
        ("temperature 0.7", {"kind": "trivial"}, "answer.in_range", [("/stages/1/ranges/temperature", "0.5 to 1.0")]),
        ("temperature 1.2", {"kind": "trivial"}, "ask.outside_range", [("/stages/1/ranges/temperature", "0.5 to 1.0")]),
        ("temperature of 1.2", {"kind": "technical", "stakes": "low"}, "ask.outside_range", None),
        ("epochs = 3 for train", {"kind": "trivial"}, "ask.outside_range", [("/stages/2/parameters/epochs", "2")]),
        ("epochs = 2 for train", {"kind": "trivial"}, "answer.in_range", [("/stages/2/parameters/epochs", "2")]),
    ],
)
def test_rules_in_a_session_know_the_registered_spec(
    registered: SpecValueIndex,
    question: str,
    arguments: dict[str, Any],
    rule: str,
    results: list[tuple[str, str]] | None,
) -> None:
    result = answer(question, registered, **arguments)
    assert result.rule == rule
    if results is not None:
        assert [(value.pointer, value.value) for value in result.values] == results


def test_an_option_among_the_answers_counts_as_part_of_the_question() -> None:
    result = answer("which of the two", kind="trivial", options=("log to a file", "skip the evaluation"))
    assert result.rule == "ask.speaks_of"


@given(kinds, stakes, confidences, texts, st.booleans())
def test_more_stakes_or_less_confidence_never_turn_asking_into_not_asking(
    registered: SpecValueIndex,
    kind: DecisionKind | None,
    level: Stakes | None,
    sure: float | None,
    text: str,
    inside: bool,
) -> None:
    spec = registered if inside else None
    request = QuestionRequest(topic="t", question=text, kind=kind, stakes=level, confidence=sure)
    if not policy_answer(request, spec).ask:
        return
    higher = ORDER[ORDER.index(level) :] if level else ()
    surer = [None, *([sure / 2, 0.0] if sure is not None else [])]
    for more in higher:
        for less in surer:
            harder = request.model_copy(update={"stakes": more, "confidence": less})
            assert policy_answer(harder, spec).ask, (more, less)


@given(kinds, stakes, confidences, texts, st.booleans())
def test_the_answer_is_a_function_of_the_question_and_names_its_rule(
    registered: SpecValueIndex,
    kind: DecisionKind | None,
    level: Stakes | None,
    sure: float | None,
    text: str,
    inside: bool,
) -> None:
    request = QuestionRequest(topic="t", question=text, kind=kind, stakes=level, confidence=sure)
    spec = registered if inside else None
    result = policy_answer(request, spec)
    assert result == apply(facts_of(request, spec)) and result.rule.startswith("ask." if result.ask else "answer.")
    if kind in MUST_ASK:
        assert result.ask
    if kind is None and not result.ask:
        assert result.rule == "answer.in_spec" and inside


def test_the_order_of_what_was_found_does_not_depend_on_the_process(tmp_path: Path) -> None:
    """A set in its place would give another order in the next process, and the audit another answer."""
    spec = loads(write_spec(tmp_path)).spec
    names = list(SpecValueIndex(spec)._values)  # pyright: ignore[reportPrivateUsage]
    assert names.index("objective") < names.index("alpha") < names.index("learning_rate")
    assert names.index("alpha") + 1 == names.index("analysis.alpha")


@pytest.mark.parametrize(
    ("kind", "level", "plan", "tier"),
    [
        ("gpu_spend", "low", True, "high"),
        ("methodology", "critical", True, "high"),
        ("methodology", None, False, "medium"),
        ("priority", "high", False, "medium"),
        ("experimental_design", "low", False, "medium"),
        ("technical", "low", True, "low"),
        ("methodology", "low", True, "low"),
        (None, None, True, "medium"),
    ],
)
def test_effort_follows_stakes(kind: DecisionKind | None, level: Stakes | None, plan: bool, tier: str) -> None:
    assert tier_of(kind, level, plan) == tier


def test_every_tier_has_the_time_it_takes() -> None:
    """Elsewhere gates had 300 s and took up to ten minutes: they were the calls most likely to time out."""
    efforts = Efforts()
    for tier, least in (("low", 120), ("medium", 300), ("high", 600)):
        effort: ReviewLimits = getattr(efforts, tier)
        assert effort.timeout_s >= least and LATENCY_S[tier] >= least
