"""Metrics of the kinds that measure a model: values by hand, and rows that are not evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate.measurer import measure
from reviews.stages.evaluation.multiple_choice import outcomes
from reviews.stages.evaluation.perplexity import ratio_interval
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.kinds import EVALUATE
from specs.stages.evaluation.parameters import EvaluateParameters
from specs.stages.metric_catalog import METRICS
from specs.system.errors import EvidenceMissing
from testing.factories.evaluation_evidence import (
    ANSWER_TEXTS,
    SURPRISE,
    TEXTS,
    TOKENS,
    choice_rows,
    choose_evidence,
    compare_evidence,
    conversation_rows,
    conversations,
    converse_evidence,
    perplexity_evidence,
    perplexity_rows,
    row,
)
from testing.factories.evidence_on_disk import evidence_of, write_rows
from training.rules.tasks.choices import answer_of, choices_of
from training.rules.tasks.conversation import expected_of, judge_turn, turns_of

TWENTY = ["reference", "candidate"] * 10


def values(evidence: Evidence) -> dict[str, float]:
    return {id: metric.value for id, metric in measure(evidence).metrics.items()}


def test_perplexity_is_all_nats_over_all_tokens_and_bytes(tmp_path: Path) -> None:
    metrics = measure(perplexity_evidence(tmp_path)).metrics
    size = sum(len(text) for text in TEXTS)
    assert metrics["nats_per_token"].value == pytest.approx(sum(SURPRISE) / sum(TOKENS))
    assert metrics["nats_per_byte"].value == pytest.approx(sum(SURPRISE) / size)
    assert (metrics["texts"].value, metrics["scored_tokens"].value, metrics["nats_per_byte"].n) == (
        4,
        sum(TOKENS),
        size,
    )
    interval = metrics["nats_per_token"].interval
    ratios = [nats / tokens for nats, tokens in zip(SURPRISE, TOKENS, strict=True)]
    assert interval is not None and min(ratios) <= interval[0] < sum(SURPRISE) / sum(TOKENS) < interval[1] <= max(
        ratios
    )


def test_a_mean_of_per_text_means_would_be_another_figure() -> None:
    assert sum(a / b for a, b in zip(SURPRISE, TOKENS, strict=True)) / 4 != pytest.approx(sum(SURPRISE) / sum(TOKENS))


def test_an_auditor_draws_the_same_interval_from_the_texts_with_numpy_alone() -> None:
    import numpy as np

    nats, tokens = np.array([3.1, 8.7, 2.2, 9.9, 4.6, 1.3, 7.5, 6.4]), np.array([3, 7, 2, 6, 5, 1, 9, 4])
    drawn = np.random.default_rng(42).integers(0, 8, size=(10_000, 8))
    ends = np.percentile(nats[drawn].sum(axis=1) / tokens[drawn].sum(axis=1), (2.5, 97.5))
    assert ratio_interval(list(nats), list(tokens)) == pytest.approx(tuple(ends), rel=1e-12)


def test_two_texts_have_an_interval_and_one_has_none() -> None:
    assert ratio_interval([2.0, 6.0], [2, 2]) == pytest.approx((1.0, 3.0))
    assert ratio_interval([2.0], [2]) is None


def test_a_row_that_counts_other_bytes_than_its_text_is_no_evidence(tmp_path: Path) -> None:
    rows = perplexity_rows()
    with pytest.raises(EvidenceMissing, match="has 16 bytes, the row says 99"):
        measure(perplexity_evidence(tmp_path, [rows[0].model_copy(update={"bytes": 99}), *rows[1:]]))
    with pytest.raises(EvidenceMissing, match="1 items have no answer"):
        measure(perplexity_evidence(tmp_path, rows[1:]))


def test_choices_are_ranked_raw_per_token_and_per_byte(tmp_path: Path) -> None:
    # Choice 2 has 4 tokens and 10 bytes. Right are 1, 2, 1, 2.
    rows = choice_rows([(1.0, 2.0), (1.0, 3.0), (1.0, 9.0), (2.0, 30.0)])
    results = values(choose_evidence(tmp_path, rows))
    # Raw: 1 1 1 1. Per token: 1 vs .5, .75, 2.25, 7.5: 2 2 1 1. Per byte: 1 vs .2, .3, .9; 2 vs 3: 2 2 2 1.
    assert results["choice_accuracy"] == 0.5
    assert results["choice_accuracy_per_token"] == 0.5
    assert results["choice_accuracy_per_byte"] == 0.25
    assert (results["questions"], results["chance_rate"]) == (4, 0.5)


def test_a_long_choice_is_right_only_by_the_measures_that_allow_for_its_length(tmp_path: Path) -> None:
    # Choice 2 has 4 tokens and 10 bytes, and is right for every second question.
    evidence = choose_evidence(tmp_path, choice_rows([(1.0, 9.0), (1.0, 2.0)] * 2))
    results = values(evidence)
    # Raw: always 1. Per token: 1 vs 2.25, .5. Per byte: 1 vs .9, .2.
    names = ("choice_accuracy", "choice_accuracy_per_token", "choice_accuracy_per_byte")
    assert [results[name] for name in names] == [0.5, 1.0, 0.5]
    # What the comparison of two models pairs is the choice per byte, question by question.
    assert outcomes(evidence, evidence.outputs["rows"], "binary") == [0, 1, 0, 1]


def test_an_item_that_is_no_question_is_no_evidence(tmp_path: Path) -> None:
    """Measuring the others would let anyone who asks leave out the hard ones."""
    evidence = choose_evidence(tmp_path, choice_rows([(1.0, 2.0)] * 4))
    for place in (0, 2):
        items = list(evidence.heldout)
        items[place] = items[place].model_copy(update={"constraint": {"choice_1": "a", "answer": 1}})
        with pytest.raises(EvidenceMissing, match=f"items: question 'q{place}'"):
            measure(replace(evidence, heldout=tuple(items)))


def test_a_tie_between_choices_is_not_right(tmp_path: Path) -> None:
    assert values(choose_evidence(tmp_path, choice_rows([(1.0, 1.0)] * 4)))["choice_accuracy"] == 0.0


def test_a_row_with_other_choices_than_its_item_is_no_evidence(tmp_path: Path) -> None:
    evidence = choose_evidence(tmp_path, choice_rows([(1.0, 2.0)] * 4))
    rows = [row(choice_row) for choice_row in choice_rows([(1.0, 2.0)] * 4)]
    rows[2]["choices"] = [*rows[2]["choices"], rows[2]["choices"][0]]
    write_rows(evidence.outputs["rows"], rows)
    with pytest.raises(EvidenceMissing, match="other choices"):
        measure(evidence)


@pytest.mark.parametrize(
    "constraint",
    [
        {"choice_1": "a", "answer": 1},
        {"choice_1": "a", "choice_3": "b", "answer": 1},
        {"choice_1": "a", "choice_2": "a", "answer": 1},
        {"choice_1": "a", "choice_2": " ", "answer": 1},
        {"choice_1": "a", "choice_2": "b", "answer": 3},
        {"choice_1": "a", "choice_2": "b"},
        {"choice_1": "a", "choice_2": "b", "hint": "c", "answer": 1},
    ],
)
def test_what_is_no_question_is_refused(constraint: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="question 'q'"):
        answer_of(Item(id="q", group="g", kind="k", prompt="p", constraint=constraint))


def test_choices_keep_their_order_beyond_nine() -> None:
    constraint: dict[str, str | int] = {f"choice_{n}": f"c{n}" for n in range(1, 12)}
    item = Item(id="q", group="g", kind="k", prompt="p", constraint=constraint | {"answer": 10})
    assert choices_of(item)[9] == "c10" and answer_of(item) == 9


def test_a_conversation_passes_when_every_later_turn_does(tmp_path: Path) -> None:
    assert values(converse_evidence(tmp_path)) == {
        "conversations": 32,
        "conversation_pass_rate": 1.0,
        "turn_pass_rate": 1.0,
        "lowest_kind_pass_rate": 1.0,
        "turn_truncation_rate": 0.0,
    }
    wrong = ("I do not know.", "Hello there.", "They make HONEY.", "As you wish, my friend.")
    results = values(converse_evidence(tmp_path, conversation_rows(wrong, 8)))
    assert (results["conversation_pass_rate"], results["lowest_kind_pass_rate"]) == (0.25, 0.0)


def test_the_lowest_kind_is_the_one_with_the_lowest_share_however_few_it_has(tmp_path: Path) -> None:
    wrong = ("It is called Tom.", "hello there to you.", "They make honey.", "I shall now use very many words.")
    rows = conversation_rows((*wrong, *ANSWER_TEXTS), 8)
    every = converse_evidence(tmp_path, rows)
    # Of eight updates four pass, of one memory that one.
    selected = [
        conversation_row
        for conversation_row in rows
        if conversation_row.item.startswith("update") or conversation_row.item == "memory0"
    ]
    ids = {conversation_row.item for conversation_row in selected}
    evidence = replace(every, heldout=tuple(item for item in every.heldout if item.id in ids))
    write_rows(evidence.outputs["rows"], [row(conversation_row) for conversation_row in selected])
    results = values(evidence)
    assert (results["lowest_kind_pass_rate"], results["conversation_pass_rate"]) == (0.5, pytest.approx(5 / 9))


def test_an_item_that_is_no_conversation_is_no_evidence(tmp_path: Path) -> None:
    evidence = converse_evidence(tmp_path)
    first, *others = evidence.heldout
    spoiled = first.model_copy(update={"constraint": {"turn_2": "q"}})
    with pytest.raises(EvidenceMissing, match=r"items: .*expects something of turns"):
        measure(replace(evidence, heldout=(spoiled, *others)))


def test_the_first_turn_only_has_to_say_something() -> None:
    item = conversations()[0]
    assert judge_turn(item, 1, "Whatever.").passed and not judge_turn(item, 1, " ").passed


@pytest.mark.parametrize(
    ("constraint", "output", "reason"),
    [
        ({"require_2": "blue; Lisbon|Lisboa"}, "A BLUE tram in lisboa.", ""),
        ({"require_2": "blue; Lisbon|Lisboa"}, "A blue tram in Porto.", "does not hold Lisbon or Lisboa"),
        ({"require_2": "art"}, "A party.", "does not hold art"),
        ({"forbid_2": "red|green"}, "A Green tram.", "holds green"),
        ({"forbid_2": "red"}, "A reddish tram.", ""),
        ({"most_words_2": 2}, "One two three", "has 3 words, at most 2 are asked for"),
        ({"form_2": "quoted"}, "no", "does not begin and end with a double quotation mark"),
    ],
)
def test_what_a_turn_has_to_show(constraint: dict[str, Any], output: str, reason: str) -> None:
    item = Item(id="c", group="g", kind="memory", prompt="p", constraint={"turn_2": "q"} | constraint)
    assert judge_turn(item, 2, output).reason == reason


@pytest.mark.parametrize(
    ("constraint", "output"),
    [
        ({}, "has the turns"),
        ({"turn_3": "q", "require_3": "x"}, "without a gap"),
        ({"turn_2": "q"}, "expects something of turns"),
        ({"turn_2": "q", "require_3": "x"}, "expects something of turns"),
        ({"turn_2": "q", "must_2": "x"}, "unknown key"),
    ],
)
def test_what_is_no_conversation_is_refused(constraint: dict[str, Any], output: str) -> None:
    with pytest.raises(ValueError, match=output):
        turns_of(Item(id="c", group="g", kind="memory", prompt="p", constraint=constraint))


@pytest.mark.parametrize("constraint", [{"most_words_2": "three"}, {"form_2": "bullets"}, {"form_2": "sonnet"}])
def test_expectations_that_mean_nothing_are_refused(constraint: dict[str, Any]) -> None:
    item = Item(id="c", group="g", kind="memory", prompt="p", constraint={"turn_2": "q"} | constraint)
    with pytest.raises(ValueError, match="no"):
        expected_of(item, 2)


def test_a_conversation_held_with_other_turns_is_no_evidence(tmp_path: Path) -> None:
    rows = conversation_rows(times=8)
    other = rows[0].turns[1].model_copy(update={"user": "Say Tom."})
    rows[0] = rows[0].model_copy(update={"turns": (rows[0].turns[0], other)})
    with pytest.raises(EvidenceMissing, match="other turns than its own"):
        measure(converse_evidence(tmp_path, rows))


def test_a_duel_counts_ties_half_and_knows_flips(tmp_path: Path) -> None:
    better = ["candidate"] * 5 + ["reference"] * 2 + ["first", "last", "first"]
    results = values(compare_evidence(tmp_path, better, TWENTY, TWENTY))
    assert results["win_rate"] == pytest.approx((5 + 1.5) / 10)
    assert (results["tie_rate"], results["order_flips"], results["duels"]) == (0.3, 0.3, 10)
    assert (results["judge_kappa"], results["judge_longer"]) == (1.0, 0.0)
    assert results["win_rate_controlled"] == pytest.approx(0.65, abs=0.01)


def test_a_judge_that_prefers_the_longer_answer_more_than_people_do(tmp_path: Path) -> None:
    evidence = compare_evidence(tmp_path, ["candidate"], TWENTY, ["candidate"] * 20)
    unequal = [
        (len(str(item.constraint["candidate"])) > len(str(item.constraint["reference"])), item.constraint["label"])
        for item in evidence.data["labels"]
        if len(str(item.constraint["candidate"])) != len(str(item.constraint["reference"]))
    ]
    judged = sum(longer for longer, _ in unequal) / len(unequal)
    people = sum(longer == (label == "candidate") for longer, label in unequal) / len(unequal)
    assert values(evidence)["judge_longer"] == pytest.approx(judged - people) != 0


def test_a_judge_that_takes_the_longer_answer_wins_nothing_at_equal_lengths(tmp_path: Path) -> None:
    better, lengths = ["candidate"] * 8 + ["reference"] * 4, [(5, 45)] * 8 + [(45, 5)] * 4
    results = values(compare_evidence(tmp_path, better, TWENTY, TWENTY, lengths))
    assert results["win_rate"] == pytest.approx(2 / 3)
    assert abs(results["win_rate_controlled"] - 0.5) < 0.1


def test_only_preferences_between_answers_of_unequal_length_say_what_a_judge_thinks_of_length(tmp_path: Path) -> None:
    # Of six pairs the first two are as long as each other; the candidate is longer in 3, the reference in 2, 4 and 5.
    people = ["candidate", "candidate", "candidate", "candidate", "tie", "reference"]
    judged = ["reference", "reference", "reference", "candidate", "reference", "first"]
    results = values(compare_evidence(tmp_path, ["candidate"], people, judged))
    # People take the longer in 3 and 5, not in 2; the judge in 2, 3 and 4, and has no opinion on 5.
    assert results["judge_longer"] == pytest.approx(1 - 2 / 3)


def test_people_without_a_preference_like_neither_length(tmp_path: Path) -> None:
    longer = ["reference" if n % 3 > n % 2 else "candidate" for n in range(6)]
    assert values(compare_evidence(tmp_path, ["candidate"], ["tie"] * 6, longer))["judge_longer"] == 0.5


def test_a_judge_without_eyes_has_no_kappa(tmp_path: Path) -> None:
    results = values(compare_evidence(tmp_path, ["candidate"], TWENTY, ["reference"] * 20))
    assert results["judge_kappa"] == pytest.approx(0.0)


def test_a_preference_that_its_figures_do_not_give_is_no_evidence(tmp_path: Path) -> None:
    evidence = compare_evidence(tmp_path, ["reference"] * 3, TWENTY, TWENTY)
    lines = evidence.outputs["rows"].read_text(encoding="utf-8")
    flipped = lines.replace('"preferred": "reference"', '"preferred": "candidate"')
    assert flipped != lines
    evidence.outputs["rows"].write_text(flipped, encoding="utf-8")
    with pytest.raises(EvidenceMissing, match="candidate is stated, reference follows"):
        measure(evidence)


def test_a_judgement_of_other_answers_is_no_evidence(tmp_path: Path) -> None:
    evidence = compare_evidence(tmp_path, ["reference"] * 3, TWENTY, TWENTY)
    lines = evidence.inputs["candidate"].read_text(encoding="utf-8")
    evidence.inputs["candidate"].write_text(lines.replace("two 1", "TWO 1"), encoding="utf-8")
    with pytest.raises(EvidenceMissing, match="other answers"):
        measure(evidence)
    granted = evidence.parameters | {"shown_characters": 50}
    long = compare_evidence(tmp_path / "long", ["reference"] * 3, TWENTY, TWENTY, lengths=(80, 80))
    with pytest.raises(EvidenceMissing, match="another prompt"):
        measure(replace(long, parameters=granted))


@pytest.mark.parametrize(
    ("old", "new", "output"),
    [
        # The judge's own figures say otherwise.
        ('"preferred": "reference"', '"preferred": "candidate"', "candidate is stated, reference follows"),
        ('"old 0"', '"Old 0"', "was judged on other answers than it holds"),
        # Nothing follows from a label without a probability.
        ('"a": -0.25', '"a": null', "'l0': the label A has no log-probability"),
    ],
)
def test_a_calibration_that_does_not_follow_from_its_pairs_is_no_evidence(
    tmp_path: Path, old: str, new: str, output: str
) -> None:
    evidence = compare_evidence(tmp_path, ["reference"], TWENTY, TWENTY)
    lines = evidence.outputs["calibration"].read_text(encoding="utf-8")
    assert old in lines
    evidence.outputs["calibration"].write_text(lines.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(EvidenceMissing, match=output):
        measure(evidence)


def test_a_calibration_on_pairs_that_no_one_labelled_is_no_evidence(tmp_path: Path) -> None:
    evidence = compare_evidence(tmp_path, ["reference"], TWENTY, TWENTY)
    first, *others = evidence.data["labels"]
    unlabelled = first.model_copy(update={"constraint": first.constraint | {"label": "both"}})
    for labels in ((unlabelled, *others), ()):
        with pytest.raises(EvidenceMissing, match=r"data\.labels: .*labelled pairs|data\.labels: pair 'l0'"):
            measure(replace(evidence, data=evidence.data | {"labels": labels}))


def test_an_evaluation_on_a_data_file_is_measured_with_its_own_scorer(tmp_path: Path) -> None:
    items = tuple(
        Item(id=f"x{n}", group=f"x{n}", kind="sum", prompt=f"{n} + 1?", constraint={"answer": str(n + 1)})
        for n in range(4)
    )
    parameters = EvaluateParameters(scorer="exact_answer")
    stage = EVALUATE.stage(
        name="sums", kind="evaluate", inputs={"model": "model", "items": "data.sums"}, parameters=parameters
    )
    rows = [
        {"item": f"x{n}", "prompt_tokens": 3, "output": str(min(n + 1, 3)), "output_tokens": 1, "truncated": False}
        for n in range(4)
    ]
    base = evidence_of(tmp_path, "base")
    write_rows(base.outputs["rows"], rows)
    evidence = replace(
        base, stage=stage, parameters=parameters.model_dump(mode="json"), data=base.data | {"sums": items}
    )
    assert measure(evidence).metrics["accuracy"].value == 0.75
    with pytest.raises(EvidenceMissing, match="cannot be judged"):
        measure(replace(evidence, parameters=parameters.model_dump(mode="json") | {"scorer": "format_instructions"}))
    with pytest.raises(EvidenceMissing, match="unknown data file"):
        measure(replace(evidence, data=base.data))


def test_every_metric_of_these_kinds_is_measured(tmp_path: Path) -> None:
    made = {
        "perplexity": perplexity_evidence(tmp_path),
        "multiple_choice": choose_evidence(tmp_path / "c", choice_rows([(1.0, 2.0)] * 4)),
        "pairwise_judge": compare_evidence(tmp_path / "d", ["first"], TWENTY, TWENTY),
        "multi_turn": converse_evidence(tmp_path / "t", conversation_rows(ANSWER_TEXTS, 8)),
    }
    for kind, evidence in made.items():
        assert set(measure(evidence).metrics) == {id for id, metric in METRICS.items() if metric.scope == kind}
