"""Pairs by the task's verifier: which samples make them, and what finds pairs that do not follow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from specs.stages.base.artifacts import Preference
from specs.stages.critique.kinds import BEST_OF_N_VERIFIED
from specs.stages.critique.parameters import BestOfNVerifiedParameters
from specs.stages.critique.rows import VerifiedRow
from specs.stages.generation.rows import GenerationRow
from testing.factories.bound_evidence import bound
from testing.factories.evidence_on_disk import evidence_of, prompt_items, samples, with_manifest
from testing.factories.spec_files import list_problems, loads, write_spec
from testing.fixtures.critic_jobs import lines
from testing.fixtures.stage_jobs import stage_job
from training.jobs.critique.best_of_n_verified import prefer_verified
from training.jobs.job import Job
from training.rules.critique.preference_pairs import NotTheirs, mixed_prompts, verdicts, verified_pairs

TASK = "format_instructions"
SETTINGS = BestOfNVerifiedParameters(pairs_per_prompt=2, validation_share=0.2, max_length_ratio=100)
STAGE = BEST_OF_N_VERIFIED.stage(
    name="pairs",
    kind="best_of_n_verified",
    inputs={"samples": "sample.rows", "prompts": "data.prompts"},
    parameters=SETTINGS,
)


def rows(**changes: Any) -> list[GenerationRow]:
    return [GenerationRow.model_validate(row | changes) for row in samples()]


def test_what_the_verifier_accepts_is_chosen_over_what_it_refuses() -> None:
    given_rows = rows()
    verified_rows = verdicts(TASK, prompt_items(), given_rows)
    pairs = verified_pairs(given_rows, verified_rows, SETTINGS).pairs
    assert [row.verdict for row in verified_rows] == ["accepted", "refused"] * 5
    assert len(pairs) == 5 and mixed_prompts(verified_rows) == 5
    assert all(preference.chosen.islower() and preference.rejected == "A Tale In Capitals." for preference in pairs)
    assert {preference.split for preference in pairs} == {"train", "validation"}
    assert {(preference.source, preference.margin, preference.made_by) for preference in pairs} == {
        ("verified", None, "sample")
    }


def test_what_the_token_limit_ended_is_on_neither_side() -> None:
    given_rows = rows(truncated=True)
    verified_rows = verdicts(TASK, prompt_items(), given_rows)
    assert {row.verdict for row in verified_rows} == {"truncated"}
    assert verified_pairs(given_rows, verified_rows, SETTINGS).pairs == [] and mixed_prompts(verified_rows) == 0


@pytest.mark.parametrize(("most", "remaining"), [(100.0, 5), (1.5, 0)])
def test_pairs_of_very_different_lengths_are_left_out(most: float, remaining: int) -> None:
    given_rows = rows()
    parameters = SETTINGS.model_copy(update={"max_length_ratio": most})
    assert len(verified_pairs(given_rows, verdicts(TASK, prompt_items(), given_rows), parameters).pairs) == remaining


def test_a_sample_of_another_prompt_is_refused() -> None:
    with pytest.raises(NotTheirs, match="sample 0 of 'p0' does not belong to an input prompt"):
        verdicts(TASK, prompt_items(), [row.model_copy(update={"prompt": "Other words."}) for row in rows()])
    with pytest.raises(NotTheirs, match="'other'"):
        verdicts(TASK, prompt_items(), [row.model_copy(update={"item": "other"}) for row in rows()])


@given(
    texts=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["in small letters.", "In Large Letters.", "a b", "A", ""])),
        max_size=30,
    ),
    most=st.integers(1, 3),
)
def test_a_sample_stands_in_one_pair_at_most(texts: list[tuple[int, str]], most: int) -> None:
    items = prompt_items()
    given_rows = [
        rows()[2 * place].model_copy(update={"sample": n, "completion": f"{text}{n % 3}" if text else ""})
        for n, (place, text) in enumerate(texts)
    ]
    parameters = SETTINGS.model_copy(update={"pairs_per_prompt": most})
    verified_rows = verdicts(TASK, items, given_rows)
    pairs = verified_pairs(given_rows, verified_rows, parameters).pairs
    accepted = {
        row.completion.strip()
        for row, verified_row in zip(given_rows, verified_rows, strict=True)
        if verified_row.verdict == "accepted"
    }
    refused = {
        row.completion.strip()
        for row, verified_row in zip(given_rows, verified_rows, strict=True)
        if verified_row.verdict == "refused"
    }
    for item in items:
        own = [preference for preference in pairs if preference.item == item.id]
        assert len(own) <= most
        assert (
            len({preference.chosen for preference in own})
            == len({preference.rejected for preference in own})
            == len(own)
        )
    assert all(preference.chosen in accepted and preference.rejected in refused for preference in pairs)


def job_of(tmp_path: Path) -> Job:
    model = tmp_path / "model"
    model.write_text("none is needed")
    inputs = {
        "samples": lines(tmp_path / "samples.jsonl", rows()),
        "prompts": lines(tmp_path / "prompts.jsonl", list(prompt_items())),
        "model": model,
    }
    return stage_job(tmp_path / "job", "best_of_n_verified", inputs, "instruct", **SETTINGS.model_dump())


def test_the_job_writes_what_the_functions_return(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    done = prefer_verified(job)
    verified_rows = verdicts(TASK, prompt_items(), rows())
    selected = (job.out / "preferences.jsonl").read_text(encoding="utf-8").splitlines()
    assert [Preference.model_validate_json(line) for line in selected] == verified_pairs(
        rows(), verified_rows, SETTINGS
    ).pairs
    assert done.effective == SETTINGS.model_dump(mode="json") and done.facts == {
        "samples": 10,
        "pairs": 5,
        "dropped": {},
    }


def nothing(_: list[VerifiedRow], __: list[Preference]) -> None:
    pass


def evidence(folder: Path, change: Callable[[list[VerifiedRow], list[Preference]], None] = nothing) -> Evidence:
    verified_rows = verdicts(TASK, prompt_items(), rows())
    pairs = verified_pairs(rows(), verified_rows, SETTINGS).pairs
    change(verified_rows, pairs)
    inputs = {
        "samples": lines(folder / "in" / "samples.jsonl", rows()),
        "prompts": lines(folder / "in" / "prompts.jsonl", list(prompt_items())),
    }
    outputs = {
        "rows": lines(folder / "o" / "rows.jsonl", verified_rows),
        "preferences": lines(folder / "o" / "p.jsonl", pairs),
    }
    return bound(evidence_of(folder, "sample"), STAGE, inputs, outputs, "instruct")


def test_a_stage_without_a_model_gets_no_warning_about_precision(tmp_path: Path) -> None:
    """Not even with what the job itself writes; a stage with a model keeps the warning about such a manifest."""
    for name in ("pairs", "sampled"):
        (tmp_path / name).mkdir()
    done = prefer_verified(job_of(tmp_path))
    stated = {"device": done.device, "dtype": done.dtype, "threads": done.threads}
    result = with_manifest(evidence(tmp_path / "pairs"), **stated)
    report = {check.id: (check.status, check.detail) for check in run_checks(result, measure(result))}
    assert report["jobs.device"] == ("NOT_APPLICABLE", "the stage runs no model, so it has no precision")
    sampled = with_manifest(evidence_of(tmp_path / "sampled", "sample"), **stated)
    assert {check.id: check.status for check in run_checks(sampled, measure(sampled))}["jobs.device"] == "WARN"


def failed(result: Evidence) -> set[str]:
    return {
        check.id
        for check in run_checks(result, measure(result))
        if check.status not in ("PASS", "NOT_APPLICABLE", "WARN")
    }


def test_whole_evidence_is_measured_and_passes(tmp_path: Path) -> None:
    result = evidence(tmp_path)
    assert {name: metric.value for name, metric in measure(result).metrics.items()} == {
        "verified_samples": 10,
        "verified_accepted_rate": 0.5,
        "verified_mixed_prompts": 5,
        "verified_pairs": 5,
        "verified_pairs_for_validation": 1,
        "verified_length_bias": pytest.approx(0.777, abs=0.1),
        "verified_pairs_dropped_ratio": 0,
        "verified_pairs_dropped_balance": 0,
        "verified_pairs_log_length_ratio": pytest.approx(0.764, abs=1e-3),
    }
    # These tales are twice as long as what stands against them, on purpose.
    assert failed(result) == {"pairs.length"}


def call_it_accepted(verified_rows: list[VerifiedRow], _: list[Preference]) -> None:
    verified_rows[1] = verified_rows[1].model_copy(update={"verdict": "accepted"})


def leave_out_a_refusal(verified_rows: list[VerifiedRow], _: list[Preference]) -> None:
    del verified_rows[3]


def turn_a_pair(_: list[VerifiedRow], pairs: list[Preference]) -> None:
    pairs[0] = pairs[0].model_copy(update={"chosen": pairs[0].rejected, "rejected": pairs[0].chosen})


def write_a_better_answer(_: list[VerifiedRow], pairs: list[Preference]) -> None:
    pairs[0] = pairs[0].model_copy(update={"chosen": "a tale that no one sampled."})


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (call_it_accepted, "pairs.verdicts"),
        (leave_out_a_refusal, "pairs.verdicts"),
        (turn_a_pair, "pairs.derived"),
        (write_a_better_answer, "pairs.derived"),
    ],
)
def test_what_does_not_follow_from_the_samples_is_found(tmp_path: Path, change: Any, check: str) -> None:
    assert check in failed(evidence(tmp_path, change))


PAIRS = """\
  - name: pairs
    kind: best_of_n_verified
    inputs: {samples: SAMPLES, prompts: PROMPTS}
    parameters: {seed: 7}
  - name: ship
"""


def spec_with(folder: Path, samples: str, prompts: str) -> Path:
    return write_spec(folder, ("  - name: ship\n", PAIRS.replace("SAMPLES", samples).replace("PROMPTS", prompts)))


def test_a_spec_pairs_the_samples_of_a_generate_stage(tmp_path: Path) -> None:
    assert loads(spec_with(tmp_path, "sample.rows", "data.prompts")).spec.stage("pairs").kind == "best_of_n_verified"


@pytest.mark.parametrize(
    ("samples", "prompts", "message"),
    [
        ("tuned.rows", "data.prompts", "'tuned.rows' are rows of a stage of kind evaluate"),
        ("train.rows", "data.prompts", "'train.rows' are rows of a stage of kind sft"),
        ("sample.rows", "data.others", "prompts are 'data.others', the samples are of 'data.prompts'"),
    ],
)
def test_samples_of_other_stages_are_refused(tmp_path: Path, samples: str, prompts: str, message: str) -> None:
    path = spec_with(tmp_path, samples, prompts)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("data:\n", "data:\n  others: {path: prompts.jsonl}\n"), encoding="utf-8")
    assert any(message in word for word in list_problems(path))
