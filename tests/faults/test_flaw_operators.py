"""Every flaw operator says before it runs what has to stop it."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.flaws.healthy import ENGINES, ITEMS, METHODS, OTHERS, PRECISIONS, VARIATIONS
from bench.flaws.languages import LANGUAGES, write_prompt, write_topic
from bench.flaws.operator import AUDIT, FAMILIES, REFUSALS, REPORT, SESSIONS
from bench.flaws.operators import OPERATORS
from bench.flaws.run_many import outcome
from bench.flaws.session import SessionEnd
from bench.flaws.table import page
from reviews.evidence.text_overlap import find_overlaps
from reviews.gate import loosening_check
from reviews.gate.check_list import CHECKS
from reviews.gate.design_checks import DESIGN_CHECKS
from training.items.format_items import HELDOUT_TOPICS, TRAIN_TOPICS


def test_operators_have_names_of_their_own_and_something_expected() -> None:
    assert len({item.name for item in OPERATORS}) == len(OPERATORS)
    for operator in OPERATORS:
        assert operator.family in FAMILIES and operator.expected, operator
        assert operator.changes_something() and operator.session in SESSIONS, operator
    assert len(OPERATORS) >= 60
    assert min(Counter(item.family for item in OPERATORS)[name] for name in FAMILIES) >= 3


def test_what_has_to_stop_an_operator_is_a_check() -> None:
    named = {check.id for check in (*CHECKS, *DESIGN_CHECKS, *loosening_check.CHECKS)}
    ids = named | {*REPORT, AUDIT, *REFUSALS}
    for operator in OPERATORS:
        unknown = [
            what
            for what in operator.expected
            if not any(id.startswith(what) if what.endswith(".") else id == what for id in ids)
        ]
        assert unknown == [], operator.name


def test_a_flaw_is_stopped_by_what_was_expected_only() -> None:
    operator = next(item for item in OPERATORS if item.expected == ("witness.answers",))
    twin = SessionEnd("approve", ("critics.swap",), ("health.near",))
    fared = {
        SessionEnd("reject", ("witness.answers",)): "stopped",
        SessionEnd("approve", ("witness.answers",)): "named",
        SessionEnd("approve", (), ("witness.answers",)): "warned",
        SessionEnd("waiting", ("health.kept",), ("witness.answers",)): "ended without acceptance",
        SessionEnd("waiting", (), (), ("witness.answers",)): "stopped",
        SessionEnd("waiting", (), (), ("jobs.measured",)): "ended without acceptance",
        SessionEnd("refused", ("spec.yaml:1:1: no",)): "refused",
        SessionEnd("approve", ("critics.swap",)): "missed",
        SessionEnd("broke", ("NotPlanted",)): "broken",
    }
    assert {ended: outcome(operator, ended, twin) for ended in fared} == fared
    known = SessionEnd("waiting", ("witness.answers",))
    assert outcome(operator, known, known) == "ended without acceptance"


def test_the_page_counts_by_family_and_names_what_was_not_run() -> None:
    results = {"outcome": "reject", "failed": ["witness.answers"], "warned": [], "blocked": []}
    other = {"operator": "hinted", "family": "answers", "result": "ended without acceptance", "seconds": 1.0}
    counted = page([results | other, results | other | {"operator": "few-repaired", "warned": ["witness.answers"]}])
    assert "| first | 0 of 2 (0.0% [0.0%, 65.8%]) | 0 of 2 (0.0% [0.0%, 65.8%]) | 0 of 2" in counted
    assert "| 1 of 2 (50.0% [9.5%, 90.5%]) |\n| second" in counted
    result = results | {"operator": "repaired", "family": "answers", "result": "stopped", "seconds": 1.0}
    healthy = {"healthy": 1, "variation": "lora float32 batched quoted", "result": "rejected"}
    healthy |= {"outcome": "waiting", "failed": ["strata.sensitivity"]}
    output = page([result, healthy])
    assert "No model was asked" in output and "No model was asked" not in page([{**MODEL_ROW}])
    assert "| all | 1 | 0 | 0 | 0 | 0 | 0 |" in output and output.count("` | not run |") == len(OPERATORS) - 1
    assert (
        "Refused: 1 of 1 (100.0% [20.7%, 100.0%])" in output
        and "1 of 1 healthy sessions" in output
        and "method: lora 1 (1 rejected)" in output
    )
    assert "rejected by: strata.sensitivity 1; by a criterion of their own spec: 0" in output
    assert "rejected by: none; by a criterion of their own spec: 1" in page([result, healthy | {"failed": []}])


MODEL_ROW = {
    **{"reviewer": "openai:m", "evidence": "packets", "usd": 0.01, "gate": "design.1", "places": []},
    **{"case": "twin-sft", "approve": True, "kind": "sound"},
}


def test_the_page_compares_reviewers_with_intervals() -> None:
    row = {name: MODEL_ROW[name] for name in ("reviewer", "evidence", "usd", "gate", "places")}
    approved = {"case": "twin-sft", "approve": True}
    place = ["/registered/stages/0"]
    rows = [
        row | approved | {"kind": "sound"},
        row | approved | {"kind": "wording", "approve": False},
        row | {"case": "twin-sft unequal_arms", "kind": "substance", "approve": False, "places": place},
        row | {"case": "twin-sft learned_heldout", "kind": "substance", "approve": True},
        row | {"case": "tiny-n", "kind": "planted", "approve": None},
    ]
    (line,) = [line for line in page(rows).splitlines() if line.startswith("| openai:m, packets")]
    cells = [cell.split(" (")[0].strip() for cell in line.split("|")[2:]]
    assert cells[:5] == ["0 of 1", "1 of 2", "1 of 2", "1 of 1", "0 of 1"]
    assert cells[5:8] == ["1 to 0, p = 1", "0 of 5", "0.05"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_topics_of_a_language_have_words_of_their_own(language: str) -> None:
    topics = (*TRAIN_TOPICS, *HELDOUT_TOPICS)
    assert len({write_topic(language, topic) for topic in topics}) == len(topics)


@pytest.mark.parametrize("language", LANGUAGES)
def test_prompts_on_other_topics_do_not_overlap_in_any_language(language: str) -> None:
    kinds = LANGUAGES[language].kinds
    train, heldout = (
        [(f"{topic} {kind}", write_prompt(language, topic, kind)) for topic in topics for kind in kinds]
        for topics in (TRAIN_TOPICS, HELDOUT_TOPICS)
    )
    assert not find_overlaps(train, heldout)
    assert find_overlaps([*train, ("copy", heldout[7][1])], heldout), "the control"


def test_healthy_sessions_have_every_combination_once() -> None:
    names = {healthy.name for healthy in VARIATIONS}
    combined = len(METHODS) * len(PRECISIONS) * len(ENGINES) * len(ITEMS)
    assert len(names) == len(VARIATIONS) == combined + len(OTHERS) + len(LANGUAGES)
    assert {(healthy.task, healthy.launcher) for healthy in OTHERS} == {
        ("instruction_following", None),
        ("format_instructions", "local"),
    }
