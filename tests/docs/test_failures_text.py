"""Failures of pipelines that write their own data, by number in docs/explanation/failures.md: each is stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.gate_decision import settle
from reviews.gate.measurer import measure
from reviews.gate.packet import build_packet
from reviews.reviewers.checklist import Checklist
from specs.stages.base.sampling import ROLE_STOPS, SHOTS
from specs.stages.base.stage import Criterion, Gate
from specs.stages.generation.parameters import SampleResponsesParameters
from specs.stages.metric_catalog import METRICS
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from testing.factories.evidence_on_disk import heldout_items
from testing.factories.judged_evidence import values_of
from testing.factories.text_evidence import (
    ANSWERS,
    TEXTS,
    guard_rows,
    instruct_rows,
    respond_rows,
    seed_items,
    text_evidence,
)
from testing.fixtures.small_text import word_tokenizer
from training.engines.stop_strings import StopWatcher
from training.rules.cleaning import is_runaway, is_runaway_v1, leak_in, marks_of
from training.rules.prompt_text import parse, render

DIGEST = digest_bytes(b"checks")


def outcome_of(evidence: Evidence) -> str:
    """Judge evidence as the gate does, with the embedded reviewer."""
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    packet = build_packet(evidence, metrics, run_checks(evidence, metrics), checks_digest=DIGEST, claims=())
    return settle(evidence.resolved, packet, Checklist().review(packet, packet.content_digest()), 1).outcome


def gated(evidence: Evidence, *criteria: Criterion) -> Evidence:
    """Return the evidence with other criteria on its stage."""
    stage = evidence.stage.model_copy(update={"gate": Gate(criteria=criteria)})
    spec = evidence.resolved.spec
    resolved = evidence.resolved.model_copy(update={"spec": spec.model_copy(update={"stages": (*spec.stages, stage)})})
    assert evidence.grant is not None
    grant = evidence.grant.model_copy(update={"registration": resolved.registration()})
    return replace(evidence, stage=stage, resolved=resolved, registered=resolved.registration(), grant=grant)


@pytest.mark.parametrize("kind", ["base_model_check", "self_instruct", "sample_responses"])
def test_what_is_healthy_opens_its_gate(tmp_path: Path, kind: str) -> None:
    # The control of all tests below.
    assert outcome_of(gated(text_evidence(tmp_path, kind))) == "approve"


def test_failure_06_a_templated_prompt_is_distinguished_from_a_trained_model(tmp_path: Path) -> None:
    # The same behaviour, and the ids say which of the two it was.
    followed = guard_rows(bare=9)
    templated = [row | {"template_ids": [0]} if row["form"] == "completion" else row for row in followed]
    assert values_of(text_evidence(tmp_path, "base_model_check", followed))["encoding_faults"] == 0
    assert values_of(text_evidence(tmp_path, "base_model_check", templated))["encoding_faults"] == 13
    assert outcome_of(gated(text_evidence(tmp_path, "base_model_check", templated))) != "approve"


def test_failure_16_a_stop_reduced_to_its_last_token() -> None:
    text = "Three colours: red, blue: and a heading ### of marks.\nUsers: two."
    tokenizer = word_tokenizer(f"{text} {' '.join(ROLE_STOPS)}", 350)
    watch, ids = StopWatcher(tokenizer, ROLE_STOPS, keep_special=True), tokenizer(text)["input_ids"]
    assert not any(watch.has_stopped(ids[:count]) for count in range(1, len(ids) + 1))
    # The control: the last tokens of the stops stand in this text.
    assert {tokenizer(stop)["input_ids"][-1] for stop in ROLE_STOPS} & set(ids)


@pytest.mark.parametrize("tail", ["###", "##", "###END", "### "])
def test_failure_17_the_beginning_of_a_delimiter(tmp_path: Path, tail: str) -> None:
    rows = respond_rows(raw_0=f"{ANSWERS[0]} {tail}")
    assert values_of(text_evidence(tmp_path, "sample_responses", rows))["delimiter_leak_rate"] == pytest.approx(1 / 6)
    assert leak_in(f"{ANSWERS[0]} {tail}".strip(), TEXTS[0], ("###END###",))


def test_failure_18_a_changed_metric_is_another_metric(tmp_path: Path) -> None:
    healthy = " ".join(["It is so. It is."] * 4)
    assert is_runaway_v1(healthy) and not is_runaway(healthy)
    values = values_of(text_evidence(tmp_path, "sample_responses", respond_rows(raw_0=healthy)))
    # Both are told, and a criterion has to name one of them.
    assert (values["runaway_rate_v1"], values["runaway_rate_v2"]) == (pytest.approx(1 / 6), 0)
    assert METRICS["runaway_rate_v1"].definition != METRICS["runaway_rate_v2"].definition


def test_failure_20_units_of_length_have_names() -> None:
    assert METRICS["response_median_tokens"].unit == "model tokens"
    assert "tokenizer of the checkpoint" in METRICS["response_median_tokens"].definition
    assert METRICS["instruction_median_words"].unit == "words"


def test_failure_23_one_question_many_times(tmp_path: Path) -> None:
    rows = instruct_rows("completion", *[TEXTS[0]] * 5, TEXTS[1])
    values = values_of(text_evidence(tmp_path, "self_instruct", rows))
    assert (values["instruction_multiplicity"], values["instruction_uniqueness"]) == (5, pytest.approx(2 / 6))
    assert values["instructions_kept"] == 2
    wanted = Criterion(metric="instruction_uniqueness", at_least=0.5)
    assert outcome_of(gated(text_evidence(tmp_path, "self_instruct", rows), wanted)) != "approve"


def test_failure_24_shards_that_repeat_each_other(tmp_path: Path) -> None:
    rows = instruct_rows("completion", *TEXTS[:3], *TEXTS[:3])
    evidence = text_evidence(tmp_path, "self_instruct", rows)
    assert values_of(evidence)["cross_shard_rate"] == 0.5
    lines = evidence.outputs["instructions"].read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3


def test_failure_26_the_first_item_of_each_batch() -> None:
    text, new = render(TEXTS[:3]), render(TEXTS[3:], 4)
    prompt = f"{text}\n4."
    whole = f"{text}\n{new}"
    assert whole.startswith(prompt)
    items = parse(whole.removeprefix(prompt), first=4, primed=True, cut=False)
    assert [item.text for item in items] == list(TEXTS[3:])


def test_failure_33_worked_pairs_that_are_test_items(tmp_path: Path) -> None:
    evidence = gated(text_evidence(tmp_path, "sample_responses"))
    shot = heldout_items()[0].model_copy(update={"prompt": f"{SHOTS[0].instruction.upper()}!!"})
    leaked = replace(evidence, heldout=(shot, *heldout_items()[1:]))
    assert outcome_of(leaked) != "approve"


def test_failure_33_seeds_that_are_test_items(tmp_path: Path) -> None:
    evidence = gated(text_evidence(tmp_path, "self_instruct"))
    seed = heldout_items()[0].model_copy(update={"prompt": seed_items()[0].prompt})
    assert outcome_of(replace(evidence, heldout=(seed, *heldout_items()[1:]))) != "approve"


@pytest.mark.parametrize(
    ("text", "finish"),
    [("They dance because", "length"), ("The reasons are:", "stop"), ("1. Red - warm 2. Blue -", "stop")],
)
def test_failure_34_answers_that_break_off(tmp_path: Path, text: str, finish: str) -> None:
    rows = respond_rows(raw_1=text, finish_1=finish)
    evidence = text_evidence(tmp_path, "sample_responses", rows)
    assert values_of(evidence)["incomplete_rate"] == pytest.approx(1 / 6)
    assert text not in evidence.outputs["examples"].read_text(encoding="utf-8")


def test_failure_35_a_pilot_that_is_too_small(tmp_path: Path) -> None:
    enough = Criterion(metric="instructions_kept", at_least=6)
    more = Criterion(metric="instructions_kept", at_least=7)
    assert outcome_of(gated(text_evidence(tmp_path, "self_instruct"), enough)) == "approve"
    assert outcome_of(gated(text_evidence(tmp_path, "self_instruct"), more)) != "approve"


def test_failure_36_answers_out_of_scope(tmp_path: Path) -> None:
    rows = respond_rows(raw_0="True.")
    evidence = text_evidence(tmp_path, "sample_responses", rows)
    assert values_of(evidence)["out_of_scope_rate"] == pytest.approx(1 / 6)
    assert rows[0]["marks"] == ["scope:bare_true_false"]
    # Another registered rule, another scope; before and after cleaning stand in the row.
    assert marks_of("True", TEXTS[0], "stop", (), ()) == ()
    assert (rows[0]["raw"], rows[0]["completion"]) == ("True.", "True.")
    assert SampleResponsesParameters().scope[0].name == "bare_true_false"
