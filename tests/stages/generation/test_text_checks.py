"""Metrics and checks of the kinds that write text: healthy evidence passes, each flaw is found by its check."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from reviews.gate.packet import build_packet
from reviews.stages.generation import checks as text
from specs.stages.metric_catalog import METRICS, metrics_of
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from testing.factories.evidence_on_disk import heldout_items, with_manifest
from testing.factories.judged_evidence import results_of, values_of
from testing.factories.text_evidence import (
    ANSWERS,
    FOLLOWS,
    TEXTS,
    guard_row,
    guard_rows,
    instruct_rows,
    respond_rows,
    text_evidence,
)

KINDS = ("base_model_check", "self_instruct", "sample_responses")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["base", "instruct"])
def test_healthy_evidence_passes_every_check(tmp_path: Path, kind: str, model: str) -> None:
    checks = results_of(text_evidence(tmp_path, kind, model=model))
    assert {id: check.detail for id, check in checks.items() if check.status not in ("PASS", "NOT_APPLICABLE")} == {}
    assert {check.id for check in text.CHECKS if kind in check.kind_names()} <= set(checks)


@pytest.mark.parametrize("kind", KINDS)
def test_every_registered_metric_is_measured(tmp_path: Path, kind: str) -> None:
    assert sorted(values_of(text_evidence(tmp_path, kind))) == sorted(metrics_of(kind))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", KINDS)
def test_without_what_the_job_left_nothing_passes_that_reads_it(tmp_path: Path, kind: str) -> None:
    bare = replace(text_evidence(tmp_path, kind), manifest=None, exit=None, outputs={}, output_digests={})
    checks = results_of(bare)
    mine = {check.id for check in text.CHECKS if kind in check.kind_names()} - {"base_model_check.name"}
    assert {checks[id].status for id in mine} == {"BLOCKED"}


def changed(rows: list[dict[str, Any]], place: int, **changes: Any) -> list[dict[str, Any]]:
    return [row | changes if number == place else row for number, row in enumerate(rows)]


def kept_more(evidence: Evidence, name: str, row: dict[str, Any]) -> Evidence:
    path = evidence.outputs[name]
    with path.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row) + "\n")
    return evidence


Make = Callable[[Path], Evidence]
ADDED = {"ids_with_special": [0, 1, 2, 3]}
SWAPPED = {"ids_with_special": [1, 9, 3]}
TEMPLATED = {"ids": [0, 1, 2], "ids_with_special": [0, 1, 2], "template_ids": [0]}
OTHER_TEXT = {"decoded": "user: Translate to Pig Latin: hello world\nassistant:"}
REPEATS = ("Describe an old house by the sea.",) * 30
FLAWS: dict[str, tuple[str, str, Make]] = {
    "a tokenizer that adds tokens": ("base_model_check.encoding", "FAIL",
     lambda path: text_evidence(path, "base_model_check", changed(guard_rows(), 2, **ADDED))),
    "a tokenizer that puts a token in the place of another": ("base_model_check.encoding", "FAIL",
     lambda path: text_evidence(path, "base_model_check", changed(guard_rows(), 2, **SWAPPED))),
    "a template token in a bare prompt": ("base_model_check.encoding", "FAIL",
     lambda path: text_evidence(path, "base_model_check", changed(guard_rows(), 2, **TEMPLATED))),
    "a template of plain words": ("base_model_check.encoding", "FAIL",
     lambda path: text_evidence(path, "base_model_check", changed(guard_rows(), 0, **OTHER_TEXT))),
    "a control that follows nothing": ("base_model_check.control", "FAIL",
     lambda path: text_evidence(path, "base_model_check", guard_rows(control=4))),
    "a control without a template": (
        "base_model_check.control",
        "FAIL",
        lambda path: text_evidence(
            path,
            "base_model_check",
            [row for row in guard_rows() if (row["model"], row["form"]) != ("control", "chat")],
        ),
    ),
    "a control that is the model itself": (
        "base_model_check.control",
        "FAIL",
        lambda path: with_manifest(
            text_evidence(path, "base_model_check"), inputs={"model": digest_bytes(b"m"), "control": digest_bytes(b"m")}
        ),
    ),
    "a base model that follows": ("base_model_check.kind", "FAIL",
     lambda path: text_evidence(path, "base_model_check", guard_rows(bare=4))),
    "an instruct model that does not": ("base_model_check.kind", "FAIL",
     lambda path: text_evidence(path, "base_model_check", guard_rows(templated=4), model="instruct")),
    "an instruct model named base": ("base_model_check.name", "FAIL",
     lambda path: text_evidence(path, "base_model_check", source="hub:some/Model-3B-Instruct")),
    "a base model named instruct": (
        "base_model_check.name",
        "FAIL",
        lambda path: text_evidence(
            path, "base_model_check", guard_rows(templated=8), model="instruct", source="hub:some/Model-3B-Base"
        ),
    ),
    "an instruction that no one wrote": (
        "text.derived",
        "FAIL",
        lambda path: kept_more(
            text_evidence(path, "self_instruct"),
            "instructions",
            {"id": "x", "group": "x", "kind": "general", "prompt": "Praise the reviewer.", "constraint": {}},
        ),
    ),
    "an example that no one wrote": (
        "text.derived",
        "FAIL",
        lambda path: kept_more(
            text_evidence(path, "sample_responses"),
            "examples",
            {
                "item": "i0",
                "group": "i0",
                "kind": "general",
                "sample": 1,
                "prompt": TEXTS[0],
                "completion": "Fine it is.",
            },
        ),
    ),
    "marks that were taken away": ("text.derived", "FAIL",
     lambda path: text_evidence(path, "sample_responses", changed(respond_rows(finish_0="length"), 0, marks=[]))),
    "a cleaned answer that its raw text does not give": (
        "text.derived",
        "FAIL",
        lambda path: text_evidence(
            path, "sample_responses", changed(respond_rows(), 0, completion="A far better answer.")
        ),
    ),
    "a chat prompt for a base model": ("text.prompts", "FAIL",
     lambda path: text_evidence(path, "sample_responses", respond_rows("chat"))),
    "a bare prompt for an instruct model": ("text.prompts", "FAIL",
     lambda path: text_evidence(path, "self_instruct", instruct_rows("completion"), model="instruct")),
    "a prompt with other worked pairs": (
        "text.prompts",
        "FAIL",
        lambda path: text_evidence(
            path, "sample_responses", changed(respond_rows(), 3, prompt=f"Instruction: {TEXTS[3]}\nResponse:")
        ),
    ),
    "a call with another seed": ("text.prompts", "FAIL",
     lambda path: text_evidence(path, "self_instruct", changed(instruct_rows(), 1, seed=1))),
    "a call that showed other instructions": (
        "text.prompts",
        "FAIL",
        lambda path: text_evidence(
            path, "self_instruct", changed(instruct_rows(), 0, examples=["seed0", "seed1", "seed1"])
        ),
    ),
    "an answer left out": ("text.finished", "FAIL",
     lambda path: text_evidence(path, "sample_responses", respond_rows()[:-1])),
    "an answer given twice": ("text.finished", "FAIL",
     lambda path: text_evidence(path, "sample_responses", [*respond_rows(), respond_rows()[0]])),
    "a seed without effect": ("text.repeatable", "FAIL",
     lambda path: text_evidence(path, "self_instruct", changed(instruct_rows(), 4, raw=" Name a bird."))),
    "a seed that is not used": ("text.repeatable", "FAIL",
     lambda path: text_evidence(path, "self_instruct", changed(instruct_rows(), 3, raw=" Name a cow."))),
    "no probe": ("text.repeatable", "FAIL", lambda path: text_evidence(path, "self_instruct", instruct_rows()[:2])),
    "a held-out prompt as an instruction": (
        "text.overlap",
        "FAIL",
        lambda path: text_evidence(
            path, "self_instruct", instruct_rows("completion", *TEXTS[:5], heldout_items()[0].prompt)
        ),
    ),
    "answers that end in a mark": (
        "text.residue",
        "FAIL",
        lambda path: text_evidence(
            path, "sample_responses", respond_rows(raw_0=f"{ANSWERS[0]} <|im_end", raw_1=f"{ANSWERS[1]} <|im_end")
        ),
    ),
    "one answer that refuses": (
        "text.residue",
        "WARN",
        lambda path: text_evidence(
            path, "sample_responses", respond_rows(raw_0="I'm sorry, I cannot describe houses.")
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_found_by_its_check(tmp_path: Path, flaw: str) -> None:
    check, status, make = FLAWS[flaw]
    assert results_of(make(tmp_path))[check].status == status


HELD = "Write one line of verse about the old stone bridge over the river."


@pytest.mark.parametrize(
    ("written", "status"),
    [
        (HELD, "FAIL"),
        (HELD.upper().replace(".", " !!"), "FAIL"),
        (HELD.removesuffix("river.") + "rivers.", "FAIL"),
        (f"Please do this: {HELD} Thank you.", "FAIL"),
        # The controls: the same form about something else, and a few of the words.
        (HELD.replace("old stone bridge over the river", "small brown dog in the garden"), "PASS"),
        ("Describe the old stone bridge.", "PASS"),
    ],
)
@pytest.mark.parametrize("kind", ["self_instruct", "sample_responses"])
def test_a_generated_instruction_is_compared_with_the_heldout_prompts(
    tmp_path: Path, kind: str, written: str, status: str
) -> None:
    item = heldout_items()[0].model_copy(update={"prompt": HELD})
    if kind == "self_instruct":
        evidence = text_evidence(tmp_path, kind, instruct_rows("completion", *TEXTS[:5], written))
        lines = evidence.outputs["instructions"].read_text(encoding="utf-8").splitlines()
        assert len(lines) == 6
    else:
        # Anyone who answers it is stopped as well, should its gate have been lifted.
        rows = respond_rows()
        rows[0] |= {"instruction": written, "prompt": rows[0]["prompt"].replace(TEXTS[0], written)}
        evidence = text_evidence(tmp_path, kind, rows)
        items = evidence.inputs["instructions"]
        items.write_text(items.read_text(encoding="utf-8").replace(TEXTS[0], written), encoding="utf-8")
    leaked = replace(evidence, heldout=(item, *heldout_items()[1:]))
    assert results_of(leaked)["text.overlap"].status == status


def test_every_check_has_a_flaw_that_it_finds() -> None:
    assert {check.id for check in text.CHECKS} == {check for check, _, _ in FLAWS.values()}


def test_shards_that_repeat_themselves_are_broken_off(tmp_path: Path) -> None:
    (first, *_) = instruct_rows()
    raw = "\n".join(f"{4 + n}. {text}" for n, text in enumerate(REPEATS * 3)).removeprefix("4.")
    checks = results_of(text_evidence(tmp_path, "self_instruct", [first | {"raw": raw}, *instruct_rows()[1:]]))
    assert checks["text.finished"].status == "FAIL" and "89 of 90" in checks["text.finished"].detail


def test_answers_that_run_away_break_the_stage_off(tmp_path: Path) -> None:
    healthy = text_evidence(tmp_path, "sample_responses", respond_rows(raw_0="on and on " * 90))
    assert results_of(healthy)["text.finished"].status == "PASS"
    parameters = healthy.parameters | {"abort_after": 6, "abort_runaway": 0.1}
    assert "1 of 6 answers ran away" in results_of(replace(healthy, parameters=parameters))["text.finished"].detail


def test_a_check_speaks_past_its_threshold_and_not_at_it(tmp_path: Path) -> None:
    def status(rows: list[dict[str, Any]], check: str, **thresholds: float) -> str:
        evidence = text_evidence(tmp_path, "base_model_check", rows)
        spec = evidence.resolved.spec
        result = spec.thresholds.model_copy(update=thresholds)
        resolved = evidence.resolved.model_copy(update={"spec": spec.model_copy(update={"thresholds": result})})
        return results_of(replace(evidence, resolved=resolved))[check].status

    followed = guard_rows(bare=3, control=6)
    assert status(followed, "base_model_check.kind", base_follows=0.34) == "PASS"
    assert status(followed, "base_model_check.kind", base_follows=0.33) == "FAIL"
    assert status(followed, "base_model_check.control", control_follows=0.66) == "PASS"
    assert status(followed, "base_model_check.control", control_follows=0.67) == "FAIL"


def test_guard_metrics_count_commands_and_sentences_apart(tmp_path: Path) -> None:
    values = values_of(
        text_evidence(tmp_path, "base_model_check", guard_rows(bare=2, templated=5, control=8, control_bare=3))
    )
    assert values == {
        "sentinels": 13,
        "sentinels_followed": pytest.approx(2 / 9),
        "templated_followed": pytest.approx(5 / 9),
        "control_followed": pytest.approx(8 / 9),
        "control_bare_followed": pytest.approx(3 / 9),
        "sentences_completed": 1,
        "encoding_faults": 0,
    }


@pytest.mark.parametrize(
    ("rows", "output"),
    [
        (guard_rows()[:-1], "answered 12 sentinels, not 13"),
        ([*guard_rows(), guard_rows()[0]], "answered 14 sentinels"),
        (changed(guard_rows(), 0, prompt="Tell me a joke"), "does not hold its prompt"),
        (changed(guard_rows(), 20, prompt="<|start|>user"), "does not hold"),
        (guard_rows()[26:], "the declared model was given no sentinel"),
        ([guard_row("primes", "declared", "completion", "")], "answered 1 sentinels"),
    ],
)
def test_guard_rows_that_are_not_one_for_each_sentinel_measure_nothing(
    tmp_path: Path, rows: list[dict[str, Any]], output: str
) -> None:
    with pytest.raises(EvidenceMissing, match=output):
        measure(text_evidence(tmp_path, "base_model_check", rows))


def test_instruct_metrics_are_over_what_was_written(tmp_path: Path) -> None:
    rows = instruct_rows("completion", TEXTS[0], TEXTS[0], "Another one of these", TEXTS[1], TEXTS[0], TEXTS[2])
    values = values_of(text_evidence(tmp_path, "self_instruct", changed(rows, 1, finish="length")))
    # The last item of the second shard was cut by the limit; its second repeats one of the first shard.
    assert {id: values[id] for id in values if not id.startswith("instruct_re") and id != "instruct_seed_effect"} == {
        "instruct_calls": 2,
        "instructions_parsed": 4,
        "instructions_kept": 2,
        "instructions_kept_rate": 0.5,
        "instructions_held_out": 0,
        "instructions_left": 2,
        "instruction_uniqueness": 0.5,
        "instruction_multiplicity": 3,
        "instruction_near_rate": 0,
        "cross_shard_rate": pytest.approx(1 / 3),
        "meta_rate": pytest.approx(1 / 6),
        "instruct_token_limit_rate": 0.5,
        "empty_calls_rate": 0,
        "instruction_median_words": 7,
        "instruct_leak_rate": 0,
    }
    assert (values["instruct_repeatable"], values["instruct_seed_effect"]) == (1, 1)
    assert values["instruct_repeat_rate"] == 0


def test_respond_metrics_are_over_all_answers_and_over_those_kept(tmp_path: Path) -> None:
    rows = respond_rows(
        finish_0="length", raw_1="on and on " * 60, raw_2="True", raw_3="Read it. ##", raw_4=f" {ANSWERS[5]}"
    )
    measured = measure(text_evidence(tmp_path, "sample_responses", rows)).metrics
    values = {id: metric.value for id, metric in measured.items()}
    assert values == {
        "responses": 6,
        "responses_kept": 2,
        "responses_kept_rate": pytest.approx(2 / 6),
        "runaway_rate_v2": pytest.approx(1 / 6),
        "runaway_rate_v1": pytest.approx(1 / 6),
        "response_token_limit_rate": pytest.approx(1 / 6),
        "incomplete_rate": pytest.approx(1 / 6),
        "delimiter_leak_rate": pytest.approx(1 / 6),
        "out_of_scope_rate": pytest.approx(1 / 6),
        "response_residue": 0,
        "response_median_tokens": 14.5,
        "response_uniqueness": 0.5,
        "response_multiplicity": 2,
        "response_near_rate": 0.5,
        "response_empty_rate": 0,
        "response_repeat_rate": pytest.approx(1 / 6),
    }
    assert measured["responses_kept_rate"].n == 6 and measured["response_uniqueness"].n == 2
    assert measured["response_median_tokens"].unit == "model tokens" != METRICS["instruction_median_words"].unit


def test_an_ending_that_many_answers_share_is_residue_whatever_it_is(tmp_path: Path) -> None:
    ended: dict[str, Any] = {f"raw_{place}": f"{answer} ~~~" for place, answer in enumerate(ANSWERS)}
    assert values_of(text_evidence(tmp_path, "sample_responses", respond_rows(**ended)))["response_residue"] == 1.0
    words: dict[str, Any] = {f"raw_{place}": f"{answer} So it is said." for place, answer in enumerate(ANSWERS[:5])}
    assert values_of(text_evidence(tmp_path, "sample_responses", respond_rows(**words)))[
        "response_residue"
    ] == pytest.approx(5 / 6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_reviewer_is_shown_rows(tmp_path: Path, kind: str) -> None:
    evidence = text_evidence(tmp_path, kind)
    metrics = measure(evidence)
    packet = build_packet(
        evidence, metrics, run_checks(evidence, metrics), checks_digest=digest_bytes(b"checks"), claims=()
    )
    assert packet.kind == kind and packet.sample_rows
    output = str(packet.sample_rows)
    assert any(text in output for text in (FOLLOWS["json"], TEXTS[0], ANSWERS[0], "sentinel"))


def test_a_row_for_another_instruction_measures_nothing(tmp_path: Path) -> None:
    rows = changed(respond_rows(), 1, instruction="Praise me.")
    with pytest.raises(EvidenceMissing, match="does not answer an instruction of the input"):
        measure(text_evidence(tmp_path, "sample_responses", rows))
