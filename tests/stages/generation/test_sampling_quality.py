"""What is wrong with sampled rows, from which row on it breaks a stage off, and what metrics and checks make of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from specs.stages.base.kind import StageKind
from specs.stages.base.metric import RowMetric
from specs.stages.base.sampling import SAMPLED, Quality
from specs.stages.base.stage import Kind
from specs.stages.generation.rows import GenerationRow, SelfInstructRow
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import STAGE_KINDS
from specs.system.digests import digest_value
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import CheckResult
from testing.factories.critic_evidence import candidates, chains, critic_evidence
from testing.factories.evidence_on_disk import evidence_of, samples
from testing.factories.text_evidence import instruct_rows, respond_rows, text_evidence
from training.rules.sampling_quality import (
    Rates,
    SampleFaults,
    Tally,
    group_size,
    of_calls,
    of_chains,
    of_samples,
    why_low,
)

FINE = SampleFaults(("a", "tale"), empty=False, runaway=False, truncated=False, leaked=False)
FAULTS: dict[str, Callable[[int], SampleFaults]] = {
    "empty": lambda _: FINE._replace(words=(), empty=True),
    "runaway": lambda n: FINE._replace(words=(str(n),), runaway=True),
    "truncated": lambda n: FINE._replace(words=(str(n),), truncated=True),
    "leaked": lambda n: FINE._replace(words=(str(n),), leaked=True),
    "repeated": lambda _: FINE,
}


def fine(n: int) -> SampleFaults:
    return FINE._replace(words=("tale", str(n)))


def rates_of(rows: Iterable[SampleFaults]) -> Rates:
    tally = Tally(Quality())
    tally.add(rows)
    return tally.rates


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_a_stage_off_from_the_first_rows_on_and_not_at_its_limit(fault: str) -> None:
    limits = Quality(first=10, **{fault: 0.4})
    bad = 4 + (fault == "repeated")
    rows = [FAULTS[fault](n) for n in range(bad)] + [fine(n) for n in range(10 - bad)]
    assert why_low(rows, limits) == ""
    worse = [FAULTS[fault](99) for _ in range(1)] + rows[:-1]
    assert why_low(worse, limits).startswith("5 of 10 rows ") and "more than 0.4" in why_low(worse, limits)
    assert why_low(worse[:9], limits) == ""
    assert why_low(worse, None) == "" and why_low(worse, limits.model_copy(update={fault: 1.0})) == ""


def test_everything_that_is_too_much_is_reported() -> None:
    rows = [FINE._replace(words=(), empty=True, truncated=True)] * 3
    assert why_low(rows, Quality(first=3)) == (
        "3 of 3 rows are empty, more than 0.3; 3 of 3 rows hit the token limit, more than 0.5"
    )


@given(st.lists(st.sampled_from([*FAULTS, "fine"]), max_size=30), st.randoms(use_true_random=False))
def test_rates_do_not_depend_on_the_order_or_on_how_rows_are_grouped(names: list[str], order: random.Random) -> None:
    rows = [FAULTS[name](n) if name in FAULTS else fine(n) for n, name in enumerate(names)]
    tally = Tally(Quality(first=5))
    faults = list(rows)
    while faults:
        size = order.randint(1, 4)
        tally.add(faults[:size])
        faults = faults[size:]
    shuffled = order.sample(rows, len(rows))
    assert tally.rates == rates_of(shuffled) == rates_of(rows)
    assert tally.why() == why_low(shuffled, Quality(first=5))


def completion(text: str, prompt: str = "Say it.", **changes: Any) -> GenerationRow:
    row = samples()[0] | {"completion": text, "prompt": prompt} | changes
    return GenerationRow.model_validate(row)


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("A tale.", set[str]()),
        (" \n ", {"empty"}),
        ("A tale.\nUser: more", {"runaway", "leaked"}),
        ("on and on " * 51, {"runaway"}),
        ("A tale. ###END###", {"leaked"}),
        ("A tale. ##", {"leaked"}),
    ],
)
def test_what_is_wrong_with_a_row(text: str, results: set[str]) -> None:
    (faults,) = of_samples([completion(text)], ())
    assert {name for name in ("empty", "runaway", "truncated", "leaked") if getattr(faults, name)} == results


def test_a_delimiter_that_was_asked_for_is_no_leak_and_stop_strings_of_the_stage_are_looked_for() -> None:
    assert not of_samples([completion("A tale. ###END###", "End with ###END###.")], ())[0].leaked
    assert of_samples([completion("A tale. ~~ So.")], ("~~",))[0].leaked
    assert not of_samples([completion("A tale. ###END###")], ("~~",))[0].leaked


def test_rows_that_differ_in_case_and_marks_repeat_each_other_and_empty_ones_do_not() -> None:
    rows = of_samples([completion(text) for text in ("A tale.", "a  TALE", "", "", "Another.")], ())
    assert (rates_of(rows).repeated, rates_of(rows).empty) == (1, 2)


def test_a_call_without_an_instruction_is_empty_and_probes_do_not_count() -> None:
    rows = [SelfInstructRow.model_validate(row) for row in instruct_rows()]
    assert rates_of(of_calls(rows)).rows == 2 and rates_of(of_calls(rows)).empty == 0
    self_instruct_row = rows[0].model_copy(update={"raw": " more of these"})
    assert rates_of(of_calls([self_instruct_row])).empty == 1


def test_a_chain_counts_by_any_of_its_rounds() -> None:
    rows = chains(change=lambda n, place: "" if (n, place) == (2, 0) else f"Tale {n} of {place}, told at home.")
    assert rates_of(of_chains(rows)).empty == 1
    cut = rows[0].rounds[0].model_copy(update={"critique_finish": "length"})
    assert of_chains([rows[0].model_copy(update={"rounds": (cut, rows[0].rounds[1])})])[0].truncated


@pytest.mark.parametrize(
    ("quality", "most", "rows_per_prompt", "size"),
    [(None, 256, 4, 256), (60, 256, 1, 60), (60, 256, 4, 15), (10, 256, 4, 3), (600, 256, 1, 256), (1, 8, 4, 1)],
)
def test_groups_are_no_larger_than_the_first_rows(
    quality: int | None, most: int, rows_per_prompt: int, size: int
) -> None:
    assert group_size(None if quality is None else Quality(first=quality), most, rows_per_prompt) == size


def test_a_stage_without_limits_is_registered_as_before() -> None:
    for kind, digest in BEFORE.items():
        assert digest_value(STAGE_KINDS[kind].parameters().model_dump(mode="json")) == f"sha256:{digest}"
        limited = STAGE_KINDS[kind].parameters.model_validate({"quality": {"first": 20}})
        assert limited.model_dump()["quality"]["first"] == 20
    with pytest.raises(ValueError, match="quality"):
        STAGE_KINDS["base_model_check"].parameters.model_validate({"quality": {}})


BEFORE: dict[Kind, str] = {
    "self_instruct": "bf2fcd3b51b2474d2fad3eb6f5b70c3c0b6d3ba6e77b03ea9056458f02815586",
    "sample_responses": "4531ecc26866534eb9d10af7954d178e7290bd87207ed368425846cde927844f",
    "generate": "9d9f8148daa1f5dc5f9bfebec453336c5e40995639f73b7f8b09dcfdcf7e8bfa",
    "revise": "351c1eeb9c53e03cdd2bd111b5ca7d22205b60daa39b307f4057c9003f14e297",
    "best_of_n": "51aaf30499308a77393ce1ee6143e1cad13fcfe64b188b61cd527b299729088a",
}
"""Digests of the parameters of a stage that sets none, as they were before there were limits."""


def _generate(folder: Path) -> Evidence:
    rows = [row | {"completion": "Told alike."} if n % 2 else row for n, row in enumerate(samples())]
    return evidence_of(folder, "sample", rows)


def _prefer(folder: Path) -> Evidence:
    return critic_evidence(
        folder, "best_of_n", rows=candidates(lambda n, place: f"Tale {n}." if place else "Told alike.")
    )


def _revise(folder: Path) -> Evidence:
    rows = chains(change=lambda n, place: "Told alike, all of them." if n % 2 else f"{n} tales of {place} are told.")
    return critic_evidence(folder, "revise", rows=rows)


def _instructed_alike() -> list[dict[str, Any]]:
    """Return rows of which the second says what the first says, in a place of its own."""
    first, second, *others = instruct_rows()
    return [first, first | {name: second[name] for name in ("shard", "round", "call", "probe")}, *others]


ALIKE: dict[Kind, Callable[[Path], Evidence]] = {
    "generate": _generate,
    "self_instruct": lambda folder: text_evidence(folder, "self_instruct", _instructed_alike()),
    "sample_responses": lambda folder: text_evidence(
        folder, "sample_responses", respond_rows(raw_0=" Told alike.", raw_1="told alike")
    ),
    "best_of_n": _prefer,
    "revise": _revise,
}


def finished(evidence: Evidence, quality: dict[str, Any] | None) -> CheckResult:
    """Return what the check says of the same rows under other limits."""
    limits = {} if quality is None else {"quality": Quality.model_validate(quality).model_dump(mode="json")}
    changed = replace(evidence, parameters=evidence.parameters | limits)
    try:
        metrics = measure(changed)
    except EvidenceMissing:
        metrics = None
    return next(check for check in run_checks(changed, metrics) if check.id == "text.finished")


@pytest.mark.parametrize("kind", ALIKE)
def test_rows_that_repeat_each_other_close_the_gate_of_every_stage_that_samples(tmp_path: Path, kind: Kind) -> None:
    evidence = ALIKE[kind](tmp_path)
    assert finished(evidence, None).status == "PASS"
    check = finished(evidence, {"first": 2, "repeated": 0.05})
    assert check.status == "FAIL" and "rows repeat an earlier row, more than 0.05" in check.detail
    assert finished(evidence, {"first": 2, "repeated": 1.0}).status == "PASS"
    assert finished(evidence, {"first": 1000, "repeated": 0.05}).status == "PASS"
    name = next(id for id in declared_rates(STAGE_KINDS[kind]) if id.endswith("_repeat_rate"))
    assert measure(evidence).metrics[name].value > 0.05


def declared_rates(kind: StageKind) -> list[str]:
    return [metric.id for metric in kind.metrics if isinstance(metric, RowMetric) and metric.output == SAMPLED]


def test_every_rate_is_a_metric_and_every_kind_that_samples_has_some() -> None:
    assert (
        {name for name, kind in STAGE_KINDS.items() if declared_rates(kind)}
        == set(ALIKE)
        == {kind for kind, stage_kind in STAGE_KINDS.items() if "quality" in stage_kind.parameters.model_fields}
    )
    assert {id for kind in STAGE_KINDS.values() for id in declared_rates(kind)} <= set(METRICS)


def test_responses_that_cannot_be_compared_are_measured_where_they_broke_the_stage_off(tmp_path: Path) -> None:
    evidence = critic_evidence(tmp_path, "best_of_n", rows=candidates(lambda n, place: ""))
    with pytest.raises(EvidenceMissing, match="no two responses could be compared"):
        measure(evidence)
    limits = {"quality": Quality(first=4).model_dump(mode="json")}
    broken = replace(evidence, parameters=evidence.parameters | limits)
    values = {id: metric.value for id, metric in measure(broken).metrics.items()}
    assert values["candidate_empty_rate"] == 1 and "pairs" not in values
    assert "18 of 18 rows are empty" in finished(broken, {"first": 4}).detail
