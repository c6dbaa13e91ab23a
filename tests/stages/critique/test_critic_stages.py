"""The stages with critics, revisions and preferences as jobs on tiny random models: rows, resuming, derivation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from specs.stages.base.artifacts import Example
from specs.stages.base.rubric import Rubric
from specs.stages.base.stage import Kind
from specs.stages.critique.rows import DroppedPair
from specs.stages.registry import outputs_of as outputs_due
from testing.factories.bound_evidence import bound
from testing.factories.critic_evidence import STAGES
from testing.factories.evidence_on_disk import evidence_of
from testing.fixtures.critic_jobs import CONSTITUTION, instructions, labelled_items, lines, lively_checkpoint, responses
from testing.fixtures.simulated_kill import SimulatedKill
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.witnessed_jobs import mis_scored, rewrite, unwritten
from training.jobs.critique import best_of_n, critic_stage, pair_judge, revise
from training.jobs.critique.critic import Critic
from training.jobs.job import Job, StageResult

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]

WORK: dict[str, Callable[[Job], StageResult]] = {
    "critique_instructions": critic_stage.critique_instructions,
    "critique_responses": critic_stage.critique_responses,
    "revise": revise.revise,
    "best_of_n": best_of_n.prefer,
}
# A byte is a token of these models, and they read 512 of them.
HEAD: dict[str, Any] = {"good": "it is good", "bad": "it is bad", "head": "Judge it.\n{options}\nElse {bad}."}
RUBRICS = {
    "critique_instructions": Rubric(judges="instruction", item="I: {instruction}\nLabel:", **HEAD),
    "critique_responses": Rubric(judges="response", item="I: {instruction}\nR: {response}\nLabel:", **HEAD),
    "best_of_n": Rubric(
        judges="comparison",
        good="A is better",
        bad="B is better",
        head="Compare these two.\n{options}",
        item="I: {instruction}\n1: {first}\n2: {second}\nLabel:",
    ),
}
SMALL: dict[str, dict[str, Any]] = {
    "critique_instructions": {"margin": 0.0, "agreement": "mean"},
    "critique_responses": {"margin": 0.0, "agreement": "mean"},
    "revise": {"revisions": 2, "critique_tokens": 6, "revision_tokens": 12, "min_words": 1},
    "best_of_n": {
        "samples": 3,
        "max_new_tokens": 24,
        "shown_characters": 40,
        "margin": 0.0,
        "agreement": "mean",
        "shots": [],
        "max_length_ratio": 100,
        "hard_negatives": ["verbosity", "off_topic"],
    },
}
Form = Literal["base", "instruct"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    # Of these seeds the first tells items apart as a critic, and the second ends most of what it writes.
    return {
        "critic": lively_checkpoint(folder / "critic", seed=3),
        "writer": lively_checkpoint(folder / "writer", seed=5),
    }


def job_of(folder: Path, kind: str, models: dict[str, Path], form: Form = "base", **parameters: Any) -> Job:
    """Return a job with six instructions or examples."""
    data = folder / "data"
    inputs = {"model": models["critic" if kind.startswith("critique") else "writer"]}
    arguments = dict(SMALL[kind]) | parameters
    if kind == "revise":
        inputs |= {"examples": lines(data / "examples.jsonl", responses()), "constitution": CONSTITUTION}
    else:
        judges: Literal["instruction", "response", "comparison"] = RUBRICS[kind].judges
        inputs["calibration"] = lines(data / "labelled.jsonl", labelled_items(judges))
        arguments["rubric"] = RUBRICS[kind].model_dump(mode="json")
    if kind == "critique_instructions":
        inputs["items"] = lines(data / "items.jsonl", instructions())
    if kind == "critique_responses":
        inputs["examples"] = lines(data / "examples.jsonl", responses())
    if kind == "best_of_n":
        inputs |= {"prompts": lines(data / "items.jsonl", instructions()), "judge": models["critic"]}
    job_kind: Kind = STAGES[kind].kind
    return stage_job(folder / "job", job_kind, inputs, form, **arguments)


def outputs_of(job: Job) -> dict[str, Path]:
    return {name: job.out / f"{name}.jsonl" for name in outputs_due(job.order.kind, job.parameters)}


def bytes_of(job: Job) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in outputs_of(job).items()}


def as_evidence(folder: Path, kind: str, job: Job, form: Form) -> Evidence:
    """Return the evidence of a job's attempt, with what it really left."""
    folder.mkdir()
    whole = evidence_of(folder, "base")
    stage = STAGES[kind].model_copy(update={"parameters": job.parameters})
    return bound(whole, stage, dict(job.inputs), outputs_of(job), form)


@pytest.mark.parametrize("form", ["base", "instruct"])
@pytest.mark.parametrize("kind", WORK)
def test_what_a_job_leaves_is_what_its_checks_derive_again(
    tmp_path: Path, models: dict[str, Path], kind: str, form: Form
) -> None:
    job = job_of(tmp_path, kind, models, form)
    done = WORK[kind](job)
    assert all(done.effective[name] == value for name, value in job.order.parameters.items())
    assert done.tokens > 0 and done.device == "cpu"
    results = {check.id: check for check in run_checks(as_evidence(tmp_path / "gate", kind, job, form), None)}
    derived = ("follows", "prompts", "complete", "accepted", "principles", "examples", "derived", "split")
    mine = {id: check for id, check in results.items() if id.split(".")[1] in derived and id.split(".")[0] != "text"}
    # Without a judge a stage that revises has no critic.
    checks = {id: check for id, check in mine.items() if kind != "revise" or not id.startswith("critics.")}
    assert len(checks) >= 4 and {id: check.detail for id, check in checks.items() if check.status != "PASS"} == {}


@pytest.mark.parametrize("kind", ["critique_instructions", "revise", "best_of_n"])
def test_a_job_that_was_ended_goes_on_and_leaves_the_same_bytes(
    tmp_path: Path, models: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(critic_stage, "GROUP", 2)
    monkeypatch.setattr(revise, "GROUP", 2)
    monkeypatch.setattr(best_of_n, "PROMPTS_A_GROUP", 2)
    monkeypatch.setattr(pair_judge, "GROUP", 3)
    whole = job_of(tmp_path / "whole", kind, models)
    WORK[kind](whole)
    job = job_of(tmp_path / "ended", kind, models)
    owner, name = {
        "critique_instructions": (Critic, "critiques"),
        "revise": (revise.Reviser, "group"),
        "best_of_n": (Critic, "comparisons"),
    }[kind]
    real, calls = getattr(owner, name), list[int]()

    def ends_the_third_time(*values: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise SimulatedKill
        return real(*values)

    def counted(*values: Any) -> Any:
        calls.append(1)
        return real(*values)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, ends_the_third_time)
        with pytest.raises(SimulatedKill):
            WORK[kind](job)
    assert not (job.out / "rows.jsonl").exists()
    calls.clear()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, counted)
        WORK[kind](job)
    assert bytes_of(job) == bytes_of(whole)
    # What was whole was not done again: the labelled sample and a group, or two groups.
    compared = len(bytes_of(job).get("comparisons", b"").splitlines())
    groups = {"critique_instructions": 3, "revise": 3, "best_of_n": -(-compared // 3)}
    assert len(calls) == groups[kind] - (2 if kind == "revise" else 1)


def test_the_accepted_examples_are_the_input_lines(tmp_path: Path, models: dict[str, Path]) -> None:
    job = job_of(tmp_path, "critique_responses", models)
    WORK["critique_responses"](job)
    examples = [Example.model_validate_json(line) for line in (job.out / "accepted.jsonl").read_bytes().splitlines()]
    assert examples and all(example in responses() for example in examples)


def test_a_sample_without_labels_ends_the_job_before_a_model_is_loaded(
    tmp_path: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path, "critique_instructions", models)
    lines(job.inputs["calibration"], instructions(2))

    def loaded(_: Path) -> None:
        pytest.fail("a model was loaded")

    monkeypatch.setattr(critic_stage, "load_for_inference", loaded)
    with pytest.raises(SystemExit, match=r"item 'i0' has the label None; it has to be 'good' or 'bad'"):
        WORK["critique_instructions"](job)


def test_margins_of_the_parameters_decide(tmp_path: Path, models: dict[str, Path]) -> None:
    """Nothing is confident at 20 nats, and nothing is accepted then."""
    job = job_of(tmp_path, "critique_instructions", models, margin=20.0)
    WORK["critique_instructions"](job)
    assert (job.out / "accepted.jsonl").read_bytes() == b""
    other = job_of(tmp_path / "other", "critique_instructions", models)
    WORK["critique_instructions"](other)
    selected = (other.out / "accepted.jsonl").read_bytes().splitlines()
    # The control: at no margin some are accepted and some are not.
    assert 0 < len(selected) < 6


RULES: dict[str, dict[str, float]] = {
    "revise": {"max_length_ratio": 3.0, "revisions": 1, "revision_tokens": 60, "revision_temperature": 1.5, "seed": 2},
    "best_of_n": {"length_balance": 0.05},
}


@pytest.mark.parametrize("kind", RULES)
def test_pairs_that_a_rule_leaves_out_are_written_down_and_derived_again(
    tmp_path: Path, models: dict[str, Path], kind: str
) -> None:
    job = job_of(tmp_path, kind, models, "instruct", **RULES[kind])
    done = WORK[kind](job)
    out = [DroppedPair.model_validate_json(line) for line in (job.out / "dropped.jsonl").read_bytes().splitlines()]
    assert out and (job.out / "preferences.jsonl").read_bytes()
    assert done.facts["dropped"] == dict(Counter(pair.reason for pair in out))
    checks = {check.id: check for check in run_checks(as_evidence(tmp_path / "gate", kind, job, "instruct"), None)}
    assert checks["pairs.derived"].status == "PASS" and f"left out: {out[0].reason}" in checks["pairs.derived"].detail


def test_a_judge_decides_which_revisions_become_pairs_and_a_kill_changes_nothing(
    tmp_path: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_judge, "GROUP", 1)
    rubric = RUBRICS["best_of_n"].model_dump(mode="json")
    arguments = RULES["revise"] | {"max_length_ratio": 100.0}
    judge = {"rubric": rubric, "margin": 0.0, "shown_characters": 40}

    def judged_job(folder: Path) -> Job:
        data = folder / "data"
        inputs = {
            "model": models["writer"],
            "judge": models["critic"],
            "examples": lines(data / "examples.jsonl", responses()),
            "calibration": lines(data / "labelled.jsonl", labelled_items("comparison")),
            "constitution": CONSTITUTION,
        }
        return stage_job(folder / "job", "revise", inputs, "instruct", judge=judge, **(SMALL["revise"] | arguments))

    whole = judged_job(tmp_path / "whole")
    done = revise.revise(whole)
    assert done.facts["comparisons"] == 5 and done.facts["labelled"] == 4
    checks = {
        check.id: check for check in run_checks(as_evidence(tmp_path / "gate", "revise", whole, "instruct"), None)
    }
    requests = ("critics.follows", "critics.prompts", "critics.complete", "pairs.derived", "revise.complete")
    assert {id: checks[id].detail for id in requests if checks[id].status != "PASS"} == {}
    ended = judged_job(tmp_path / "ended")
    real, calls = Critic.comparisons, list[int]()

    def ends_the_third_time(self: Critic, pairs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise SimulatedKill
        return real(self, pairs)

    with monkeypatch.context() as patch:
        patch.setattr(Critic, "comparisons", ends_the_third_time)
        with pytest.raises(SimulatedKill):
            revise.revise(ended)
    revise.revise(ended)
    assert bytes_of(ended) == bytes_of(whole)


def judging(folder: Path, kind: str, models: dict[str, Path], form: Form = "base") -> Job:
    """Return a job with scores, a judge of revisions among them."""
    job = job_of(folder, kind, models, form)
    if kind == "revise":
        inputs = {role: Path(artifact.path) for role, artifact in job.order.inputs.items()} | {
            "judge": models["critic"],
            "calibration": lines(folder / "data" / "labelled.jsonl", labelled_items("comparison")),
        }
        rubric = RUBRICS["best_of_n"].model_dump(mode="json")
        judge = {"rubric": rubric, "margin": 0.0, "shown_characters": 40}
        more = {"judge": judge, "revision_tokens": 48, "revision_temperature": 1.5}
        job = stage_job(folder / "judged", "revise", inputs, form, **SMALL[kind] | more)
    WORK[kind](job)
    return job


def likelier(row: dict[str, Any]) -> None:
    """Shift all log-probabilities alike, so that margins and verdict stay as they are."""
    for order in ("plain", "swapped"):
        scores = row[order]["scores"]
        moved = {name: round(score - 0.01, 6) for name, score in scores.items() if isinstance(score, float)}
        row[order]["scores"] = scores | moved


def turned(row: dict[str, Any]) -> None:
    """Swap what the two orders of the labels gave."""
    row["plain"]["scores"], row["swapped"]["scores"] = row["swapped"]["scores"], row["plain"]["scores"]


def relabelled(row: dict[str, Any]) -> None:
    """Have a person say the opposite."""
    others = {"good": "bad", "bad": "good", "first": "second", "second": "first"}
    row["label"] = others[row["label"]]


def overruled(row: dict[str, Any]) -> None:
    """Edit the verdict, and nothing else."""
    if "accepted" in row:
        row["accepted"] = not row["accepted"]
    else:
        row["preferred"] = "first" if row["preferred"] == "second" else "second"


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("critique_instructions", "base"),
        ("critique_responses", "instruct"),
        pytest.param("best_of_n", "base", marks=pytest.mark.more),
        ("revise", "instruct"),
    ],
)
def test_a_witness_scores_what_a_critic_was_asked(
    tmp_path: Path, models: dict[str, Path], kind: str, form: Form
) -> None:
    job = judging(tmp_path, kind, models, form)
    verdicts, weights = ("rows", "model") if kind.startswith("critique") else ("comparisons", "judge")
    assert mis_scored(job) == {verdicts: set(), "calibration": set()}
    assert all(mis_scored(job, "other", **{weights: models["writer"]}).values())
    for place, edit in enumerate((likelier, turned, overruled)):
        rewrite(job, verdicts, lambda rows, place=place, edit=edit: edit(rows[place]))
    rewrite(job, "calibration", lambda rows: relabelled(rows[1]))
    assert mis_scored(job, "edited") == {verdicts: {0, 1, 2}, "calibration": {1}}


@pytest.mark.parametrize("kind", ["best_of_n", "revise"])
@pytest.mark.parametrize("form", [pytest.param("base", marks=pytest.mark.more), "instruct"])
def test_a_witness_reads_what_was_written_as_it_was_asked(
    tmp_path: Path, models: dict[str, Path], kind: str, form: Form
) -> None:
    job = job_of(tmp_path, kind, models, form)
    WORK[kind](job)
    assert unwritten(job) == set()
    assert unwritten(job, models["critic"], "other")


@pytest.mark.parametrize(("kind", "stage"), [("revise", revise.revise), ("best_of_n", best_of_n.prefer)])
def test_progress_is_reported_within_a_group(
    tmp_path: Path,
    models: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    stage: Callable[[Job], StageResult],
) -> None:
    monkeypatch.setattr("training.jobs.job.PROGRESS_EVERY_S", 0.0)
    job = job_of(tmp_path, kind, models, batch_size=2)
    stage(job)
    written = [json.loads(line) for line in (job.folder / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
    unit = "chains" if kind == "revise" else "prompts"
    done = [line["done"] for line in written if line["unit"] == unit]
    assert done == sorted(done) and done[-1] == 6
    assert len(set(done) - {0, 6}) >= 2, "all six are one group, and lines come before it is whole"
