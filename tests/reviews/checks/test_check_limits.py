"""Each check at its threshold and just past it: the line is where the spec says, and on the right side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reviews.comparison import arms, subgroup_checks
from reviews.evidence.evidence import Evidence
from reviews.evidence.subgroups import ArmPair
from reviews.stages.evaluation.item_checks import sizes_of
from specs.stages.base.artifacts import Item
from testing.factories.evidence_on_disk import (
    TALES,
    N,
    answers,
    design_results,
    evidence_of,
    examples,
    heldout_items,
    prompt_items,
    resolved_spec,
    samples,
    steps,
    write_rows,
)
from testing.factories.flaws import ALL, NONE, change_completions, two_kinds, with_spec, with_thresholds
from testing.factories.judged_evidence import results_of

Rows = list[dict[str, Any]]
FAILS, WARNS, WORSENS = ("PASS", "FAIL"), ("PASS", "WARN"), ("WARN", "FAIL")

OTHER_TALES = (
    "gulls kept the secret of the lighthouse.",
    "someone painted the evening in the wrong colours.",
    "noon fell asleep on a garden wall.",
    "no mouse would ever answer her letters.",
    "under the lime tree lay nine small coats.",
)


def first(count: int, rows: Rows, **changes: Any) -> Rows:
    """Return the rows with the first few changed."""
    return [row | changes if place < count else row for place, row in enumerate(rows)]


def ten(change: Callable[[int, str], str]) -> Rows:
    """Return ten accepted samples of different wording, each changed as told."""
    texts = [text for pair in zip(TALES, OTHER_TALES, strict=True) for text in pair]
    return [
        row | {"completion": change(place, text)}
        for place, (row, text) in enumerate(zip(samples(), texts, strict=True))
    ]


def stray(change: Callable[[int, str], str], every: int = 1) -> Rows:
    """Return ten accepted samples of which two are changed, by the place of their prompt."""
    changed = (0, every)
    return ten(lambda place, text: change(place // 2, text) if place in changed else text)


def half(prefix: str) -> Rows:
    """Return ten accepted samples, of which the first of each prompt begins in one way."""
    return ten(lambda place, text: f"{prefix}{text}" if place % 2 == 0 else text)


def spiked() -> Rows:
    return [row | {"grad_norm": 180.0 if row["step"] == 3 else 2.0} for row in steps()]


def halved() -> Rows:
    return [row | {"loss": 2.0 if row["step"] <= 5 else 1.0} for row in steps()]


def shifted() -> Rows:
    """One step's rate is an eighth of the granted one too high."""
    return [row | {"learning_rate": row["learning_rate"] + (1.25e-6 if row["step"] == 5 else 0.0)} for row in steps()]


RIGHT = answers([True] * N)
IN_A_HOUSE = "once there was a very small house by the sea."
PROMPTS = [item.prompt.lower() for item in prompt_items()]
LIMITS: dict[str, tuple[str, str, Rows, tuple[float, float], tuple[str, str]]] = {
    "truncated_answers": ("health.truncation", "base", first(3, RIGHT, truncated=True), (0.25, 0.24), FAILS),
    "empty_answers": ("health.empty", "base", first(3, RIGHT, output=" "), (0.25, 0.24), FAILS),
    "label_answers": ("health.labels", "base", first(3, RIGHT, output="Option B."), (0.25, 0.24), FAILS),
    "identical_answers": ("health.collapse", "base", first(3, RIGHT, output="a small answer"), (0.25, 0.24), FAILS),
    "truncated_samples": ("health.samples", "sample", first(5, samples(), truncated=True), (0.5, 0.49), WARNS),
    "delimiters": ("residue.delimiters", "sample", stray(lambda _, text: f"{text} ###"), (0.2, 0.19), WORSENS),
    "refusals": ("residue.refusals", "sample", stray(lambda _, text: f"i cannot. {text}"), (0.2, 0.19), WORSENS),
    "prompt_copies": ("residue.copies", "sample", stray(lambda place, _: PROMPTS[place], 2), (0.2, 0.19), WORSENS),
    "repeated_edges": ("residue.edges", "sample", half("here is one: "), (0.5, 0.49), WARNS),
    "copies": ("variety.copies", "sample", change_completions("one answer for every prompt there is."), (5, 4), FAILS),
    "near_duplicates": (
        "variety.near",
        "sample",
        change_completions(*(f"{IN_A_HOUSE} {n}" for n in "abcde")),
        (0.8, 0.79),
        FAILS,
    ),
    "length_spread": ("variety.lengths", "sample", first(1, samples(), completion_tokens=300), (30, 29.9), WARNS),
    "gradient_spike": ("training.gradient", "train", spiked(), (90, 89), WARNS),
    "schedule_deviation": ("training.schedule", "train", shifted(), (0.126, 0.124), FAILS),
    "loss_drop": ("training.loss", "train", halved(), (0.5, 0.51), WARNS),
    "passes": ("training.starvation", "train", steps(), (2, 1), WARNS),
    # 100 parameters, 500 tokens in 2 passes.
    "parameters_per_token": ("training.starvation", "train", steps(), (0.4, 0.39), WARNS),
}
"""By threshold: check, stage and rows; the value at which the rows are and one just past it; the status of both."""


def statuses_of(evidence: Evidence, check: str, threshold: str, values: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(results_of(with_thresholds(evidence, **{threshold: value}))[check].status for value in values)


@pytest.mark.parametrize("threshold", LIMITS)
def test_a_check_speaks_past_its_threshold_and_not_at_it(tmp_path: Path, threshold: str) -> None:
    check, stage, rows, values, expected = LIMITS[threshold]
    assert statuses_of(evidence_of(tmp_path, stage, rows), check, threshold, values) == expected


def test_repeated_rows_are_reported_past_the_threshold(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "train")
    write_rows(evidence.inputs["examples"], [*examples()[:4], examples()[0]])
    assert statuses_of(evidence, "leakage.duplicates", "repeated_rows", (0.2, 0.19)) == WARNS


def test_a_kind_carries_the_gain_past_the_threshold(tmp_path: Path) -> None:
    """The first kind gains 8 of 8, the second 2 of 4; asked for is 0.8; kinds that count the same gain 0.75."""
    evidence = evidence_of(tmp_path, "tuned")
    analysis = evidence.resolved.spec.analysis.model_copy(update={"minimum_effect": 0.8})
    lost_kind = two_kinds(with_spec(evidence, analysis=analysis), NONE + NONE, ALL + "111100", first=8)
    # 0.625 of 0.8 is the 0.5 that remains.
    assert statuses_of(lost_kind, "strata.sensitivity", "kind_dependence", (0.625, 0.626)) == WORSENS


@pytest.mark.parametrize("flaw", ["residue.delimiters", "residue.refusals", "residue.copies"])
def test_one_stray_completion_is_a_warning_and_shown(tmp_path: Path, flaw: str) -> None:
    stray = {
        "residue.delimiters": f"{TALES[0]} <|im_end|>",
        "residue.refusals": "i am sorry, i cannot help with tales.",
        "residue.copies": prompt_items()[0].prompt.lower(),
    }[flaw]
    result = results_of(evidence_of(tmp_path, "sample", change_completions(stray, *TALES[1:])))[flaw]
    assert result.status == "WARN" and [row["item"] for row in result.rows] == ["p0"]


def test_a_gain_that_reaches_the_registered_effect_without_any_kind_passes(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned")
    statuses: list[str] = []
    for least in (0.5, 0.51):
        analysis = evidence.resolved.spec.analysis.model_copy(update={"minimum_effect": least})
        made = two_kinds(with_spec(evidence, analysis=analysis), NONE + NONE, ALL + "111000")
        statuses.append(results_of(made)["strata.sensitivity"].status)
    assert statuses == ["PASS", "WARN"]


def compared(folder: Path, after: str, *, least: float = 0.1, alpha: float = 0.05, groups: str = "") -> dict[str, str]:
    """Return the statuses of a comparison whose baseline is wrong everywhere."""
    evidence = evidence_of(folder, "tuned")
    analysis = evidence.resolved.spec.analysis.model_copy(update={"minimum_effect": least, "alpha": alpha})
    made = two_kinds(with_spec(evidence, analysis=analysis), NONE + NONE, after, groups)
    return {id: check.status for id, check in results_of(made).items()}


@pytest.mark.parametrize(
    ("after", "least", "alpha"),
    # Significant but smaller than registered; large enough but not significant; p = 2 / 64 is not below alpha.
    [(ALL + NONE, 0.6, 0.05), ("111100" + NONE, 0.3, 0.05), (ALL + NONE, 0.1, 2 / 64)],
)
def test_without_the_registered_result_nothing_hangs_on_a_kind(
    tmp_path: Path, after: str, least: float, alpha: float
) -> None:
    assert compared(tmp_path, after, least=least, alpha=alpha)["strata.sensitivity"] == "NOT_APPLICABLE"


def test_a_result_just_as_registered_may_hang_on_a_kind(tmp_path: Path) -> None:
    assert compared(tmp_path, ALL + NONE, least=0.5)["strata.sensitivity"] == "WARN"


@pytest.mark.parametrize(("least", "status"), [(0.5, "WARN"), (0.51, "FAIL")])
def test_a_kind_may_carry_the_result_by_its_gain_and_not_by_its_number_of_items(
    tmp_path: Path, least: float, status: str
) -> None:
    """8 of 12 items gain, all of one kind: 0.67 on the whole, 0.5 if both kinds count the same."""
    evidence = evidence_of(tmp_path, "tuned")
    analysis = evidence.resolved.spec.analysis.model_copy(update={"minimum_effect": least})
    made = two_kinds(with_spec(evidence, analysis=analysis), NONE + NONE, ALL + "110000", first=8)
    check = results_of(made)["strata.sensitivity"]
    assert check.status == status and check.rows[0]["without"] == "lowercase"
    assert ("+0.500" in check.detail) == (status == "FAIL")


BIG = {"lowercase": (20, 20, 0)}
"""By kind: items, how many gained, how many lost."""


@pytest.mark.parametrize(
    ("others", "status"),
    [
        ({"uppercase": (20, 0, 4)}, "WARN"),
        ({"uppercase": (20, 0, 7)}, "FAIL"),
        # No kind by itself, but all together.
        ({"uppercase": (20, 0, 3), "title": (20, 0, 3)}, "FAIL"),
        # One kind, though as many items gained in another.
        ({"uppercase": (20, 0, 7), "title": (20, 7, 0)}, "FAIL"),
        ({"uppercase": (20, 0, 3), "title": (20, 3, 0)}, "WARN"),
    ],
)
def test_a_kind_may_not_carry_the_result_where_others_got_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: dict[str, tuple[int, int, int]], status: str
) -> None:
    pairs = tuple(
        ArmPair(kind, f"{kind} {place}", gained <= place < gained + lost, place < gained)
        for kind, (n, gained, lost) in (BIG | others).items()
        for place in range(n)
    )

    def return_pairs(_: Evidence) -> tuple[ArmPair, ...]:
        return pairs

    for module in (arms, subgroup_checks):
        monkeypatch.setattr(module, "pairs_of", return_pairs)
    evidence = evidence_of(tmp_path, "tuned")
    analysis = evidence.resolved.spec.analysis.model_copy(update={"minimum_effect": 0.2, "alpha": 0.05})
    check = results_of(with_spec(evidence, analysis=analysis))["strata.sensitivity"]
    assert check.status == status, check.detail
    assert ("significantly worse" in check.detail) == (status == "FAIL")


def test_only_a_significant_gain_can_rest_on_few_groups(tmp_path: Path) -> None:
    four = "aaabbbcccddd"
    assert compared(tmp_path, ALL + NONE, groups=four)["strata.groups"] == "WARN"
    assert compared(tmp_path, ALL + NONE, groups=four, alpha=2 / 64)["strata.groups"] == "PASS"
    assert compared(tmp_path, ALL + ALL, groups=four)["strata.groups"] == "WARN", "of four signs 2 in 16 are all alike"
    assert compared(tmp_path, ALL + ALL, groups="aabbccddeeff")["strata.groups"] == "PASS", "and of six 2 in 64"


@pytest.mark.parametrize(
    ("clusters", "status", "names"),
    [(12, "PASS", "interval"), (6, "PASS", "interval"), (5, "WARN", "5 clusters"), (4, "FAIL", "4 clusters")],
)
def test_groups_that_ask_the_same_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clusters: int, status: str, names: str
) -> None:
    """Twelve items that all gain: 2 / 2**6 is below 0.05, 2 / 2**5 is not; of four clusters each has three groups."""

    def count_off(heldout: Sequence[Item]) -> dict[str, int]:
        return {item.group: place % clusters for place, item in enumerate(heldout)}

    monkeypatch.setattr(subgroup_checks, "clusters_of", count_off)
    evidence = two_kinds(evidence_of(tmp_path, "tuned"), NONE + NONE, ALL + ALL, "abcdefghijkl")
    outcome = results_of(evidence)["strata.groups"]
    assert (outcome.status, names in outcome.detail) == (status, True), outcome.detail


@pytest.mark.parametrize("groups", ["aaaaaaaaaaaa", "aaaabbbbcccc"])
def test_fewer_groups_than_an_interval_needs_close_the_gate(tmp_path: Path, groups: str) -> None:
    assert compared(tmp_path, ALL + ALL, groups=groups)["strata.groups"] == "FAIL"


def design_status(folder: Path, check: str, prompts: tuple[str, ...] = (), **thresholds: Any) -> str:
    resolved = resolved_spec(folder)
    spec = resolved.spec.model_copy(update={"thresholds": type(resolved.spec.thresholds)(**thresholds)})
    items = [
        item.model_copy(update={"prompt": prompt}) for item, prompt in zip(prompt_items(), prompts, strict=False)
    ] or list(prompt_items())
    checks = design_results(resolved.model_copy(update={"spec": spec}), heldout_items(), {"prompts": tuple(items)})
    return next(result.status for result in checks if result.id == check)


def test_a_loss_that_rests_on_few_groups_is_a_warning_too(tmp_path: Path) -> None:
    lost = two_kinds(evidence_of(tmp_path, "tuned"), ALL + NONE, NONE + NONE, "aaabbbcccddd")
    assert results_of(lost)["strata.groups"].status == "WARN"


def test_what_the_checks_of_generated_data_show(tmp_path: Path) -> None:
    healthy = results_of(evidence_of(tmp_path, "sample"))
    ids = ["residue.delimiters", "residue.edges", "residue.copies", "residue.refusals", "variety.near"]
    assert [healthy[id].figure for id in ids] == [0.0] * 5
    assert (healthy["variety.copies"].figure, healthy["variety.copies"].rows) == (1.0, ())
    assert healthy["variety.lengths"].figure == 1.0
    edges = results_of(evidence_of(tmp_path, "sample", half("here is one: ")))["residue.edges"]
    row = {"where": "head", "text": "here is one", "completions": 5, "of": 10, "kind": "all"}
    assert edges.rows == (row,) and edges.figure == 0.5
    assert "head 'here is one' in 0.50 of all" in edges.detail
    runaway = results_of(evidence_of(tmp_path, "sample", first(1, samples(), completion_tokens=300)))["variety.lengths"]
    assert [(row["item"], row["tokens"]) for row in runaway.rows] == [("p0", 300)] and runaway.figure == 30.0
    assert runaway.detail == "10 to 300 model tokens, median 10, 95th percentile 300: a tail of runaways"
    near = change_completions("one small house by the wide sea", "one small house by the wide sea!", *TALES[2:])
    (row,) = results_of(evidence_of(tmp_path, "sample", near))["variety.near"].rows
    assert (row["item"], row["completion"][-1], row["repeats"][-1], row["similarity"]) == ("p1", "!", "a", 1.0)
    copied = results_of(evidence_of(tmp_path, "sample", near))["variety.copies"]
    assert copied.figure == 2.0 and [row["item"] for row in copied.rows] == ["p0", "p1"]


def test_where_nothing_was_accepted_nothing_is_shown(tmp_path: Path) -> None:
    results = results_of(evidence_of(tmp_path, "sample", change_completions("Nothing Is Kept Of This.")))
    ids = ["residue.delimiters", "residue.copies", "residue.refusals", "residue.edges"]
    assert [(results[id].status, results[id].figure) for id in ids] == [("PASS", 0.0)] * 4
    assert {results[id].status for id in ("variety.copies", "variety.near", "variety.lengths")} == {"NOT_APPLICABLE"}


def test_a_split_without_items_is_no_sound_design() -> None:
    outcome = sizes_of((), 8)
    assert (outcome.status, outcome.figure, outcome.repairable) == ("FAIL", 0.0, False) and "no items" in outcome.detail


def test_a_kind_with_as_many_items_as_registered_is_enough(tmp_path: Path) -> None:
    results = [design_status(tmp_path, "design.strata", items_per_kind=least) for least in (N, N + 1)]
    assert results == ["PASS", "FAIL"]


def test_prompts_at_the_registered_similarity_overlap(tmp_path: Path) -> None:
    # "Write one line on elm." has the 3-shingles woL, olo, loe; a fourth word more makes it 3 shared of 4.
    near = (f"{heldout_items()[0].prompt.rstrip('.')} today",)
    results = [design_status(tmp_path, "design.overlap", near, prompt_similarity=value) for value in (0.75, 0.76)]
    assert results == ["FAIL", "PASS"]


def test_a_prompt_that_stands_whole_in_a_training_text_is_looked_for_from_as_many_words_as_registered(
    tmp_path: Path,
) -> None:
    # Five words of a held-out prompt inside a much longer one: "write one line on elm".
    long = f"{heldout_items()[0].prompt.rstrip('.')} and of everything else that ever grew next to a slow brown river"
    results = [design_status(tmp_path, "design.overlap", (long,), contained_words=words) for words in (5, 6)]
    assert results == ["FAIL", "PASS"]


def test_repeated_prompts_at_the_registered_share_are_let_pass(tmp_path: Path) -> None:
    prompts = ("Once.", "Once.", "Twice.", "Thrice.", "Often.")
    results = [design_status(tmp_path, "design.duplicates", prompts, repeated_rows=value) for value in (0.2, 0.19)]
    assert results == ["PASS", "WARN"]


def test_the_design_results_state_the_registered_values(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path)
    spec = resolved.spec.model_copy(update={"thresholds": type(resolved.spec.thresholds)(items_per_kind=2)})
    checks = design_results(resolved.model_copy(update={"spec": spec}), heldout_items(), {})
    report = {check.id: check.threshold for check in checks if check.threshold}
    assert report == {
        "design.power": ">= 0.8",
        "design.overlap": "prompt_similarity < 0.8; contained_words < 8",
        "design.unique": "prompt_similarity < 0.8; contained_words < 8",
        "design.transfer": "prompt_similarity < 0.8; contained_words < 8",
        "design.strata": ">= 2",
        "design.common_answer": "<= 0.8",
        "design.labelled": "labelled_items >= 30; labelled_minority >= 5",
        "design.scorer": "scorer_agreement >= 0.7; scorer_length <= 0.3; scorer_labelled >= 20; scorer_sides >= 0.2; "
        "scorer_matched <= 1.25",
        "design.duplicates": "<= 0.1",
        "design.texts": "<= 0.02",
        "design.brought": "<= 0.25",
        "design.cost": "<= 10",
        "design.schedule": "<= 0.5",
    }
