"""A base model through both specs to the end: asked in bare text, stopped at its end mark, stage 2 after stage 1.

The tokenizer of the model has a chat template, as those of many base models have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.tables.open_table import read_entries
from specs.loading.loading import find_spec, load_spec
from specs.stages.base.sampling import END_MARK
from specs.stages.base.stage import ModelKind
from specs.stages.registry import STAGE_KINDS
from testing.fixtures.small_pipeline import PROMPTING, InProcessLauncher, answering_model, base_model, open_small
from testing.fixtures.stage_jobs import stage_job
from tests.stages.test_pipeline_resumes import Result, result_of, to_its_end
from training.jobs.finetuning.sft import sft
from training.jobs.generation.generate import generate

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.integration,
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*"),
]


class Session(NamedTuple):
    """A session that came to its end."""

    run: Path
    result: Result

    def read_rows(self, stage: str, output: str = "rows") -> list[dict[str, Any]]:
        path = self.run / "jobs" / f"{self.run.name}.{stage}.1" / "out" / f"{output}.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def order(self, stage: str) -> dict[str, Any]:
        return json.loads((self.run / "jobs" / f"{self.run.name}.{stage}.1" / "order.json").read_bytes())


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, Session]:
    """Return stage 1 of a base model, and stage 2 of what stage 1 packaged."""

    def draw(*_: object) -> list[str]:
        return []

    results: list[Session] = []
    folder = tmp_path_factory.mktemp("models")
    model, control = base_model(folder / "base"), answering_model(folder / "control")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sessions.pages.report.plots.draw", draw)
        for name in ("self_instruct_sft", "cai_preferences"):
            run = open_small(name, tmp_path_factory.mktemp(name), model, control=control)
            assert to_its_end(run, InProcessLauncher()) == 0
            results.append(Session(run, result_of(run)))
            model = run / "jobs" / f"{name}.package.1" / "out" / "package"
    return results[0], results[1]


def test_both_specs_come_to_their_ends_with_a_base_model(sessions: tuple[Session, Session]) -> None:
    counted = ({"sft": "steps", "self_instruct": "instructions_kept"}, {"dpo": "dpo_steps", "revise": "revision_pairs",
                "sft": "steps"})  # fmt: skip
    for session, counts in zip(sessions, counted, strict=True):
        stages = [stage.name for stage in load_spec(find_spec(session.run.name), "gpu").spec.stages]
        entries = read_entries(session.run / "trail.sqlite")
        assert [entry.raw["stage"] for entry in entries if entry.kind == "launch"] == stages
        for stage, metric in counts.items():
            assert session.result.metrics[stage][metric]["value"] >= 2, stage
        assert verify_run(session.run, "trail.sqlite", "store").exit_code == 0
        answers = {entry.raw["stage"]: entry.raw["summary"] for entry in entries if entry.kind == "checks"}
        for stage in load_spec(find_spec(session.run.name), "gpu").spec.stages:
            kind = STAGE_KINDS[stage.kind]
            assert (answers[stage.name].get("witness.answers") == "PASS") == bool(kind.witness_prompts), stage.name
            scores = bool(kind.scores_of(stage.parameters))
            assert (answers[stage.name].get("witness.scores") == "PASS") == scores, stage.name


def test_every_answer_stands_before_what_ended_it(sessions: tuple[Session, Session]) -> None:
    first, second = sessions
    values = [row for item in sessions for stage in ("baseline", "evaluate") for row in item.read_rows(stage)]
    answers = [(row["output"], row) for row in (*values, *second.read_rows("evaluate_sft"))]
    assert all(END_MARK not in text and "<|start|>" not in text for text, _ in answers)
    # Its own end is the mark, and hardly one runs on to the limit.
    ends = [row["stop"] for _, row in answers if row["finish"] == "stop"]
    assert set(ends) <= {END_MARK, "\nInstruction"} and len(ends) > 0.7 * len(answers)
    assert all(
        row["form"] == "completion" for row in (*first.read_rows("self_instruct"), *first.read_rows("sample_responses"))
    )
    for session in sessions:
        for stage in ("baseline", "evaluate", "package"):
            assert session.order(stage)["model_kind"] == "base"


def sampled(folder: Path, session: Session, kind: ModelKind, *left_out: str) -> tuple[int, list[dict[str, Any]]]:
    """Draw samples from the model of a session in its form, or without parts of it; return how many pass, and all."""
    orders = {"model": session.order("sft"), "instructions": session.order("sample_responses")}
    model, prompts = ((session.run / order["inputs"][role]["path"]).resolve() for role, order in orders.items())
    form = {name: session.order("evaluate")["parameters"][name] for name in ("wrapper", "stops")}
    parameters: dict[str, Any] = form | {"response_end": END_MARK, "samples_per_prompt": 4, "temperature": 0.9}
    parameters |= {"max_new_tokens": 48, "batch_size": 32, "seed": 31}
    parameters = {name: value for name, value in parameters.items() if name not in left_out}
    job = stage_job(folder, "generate", {"model": model, "prompts": prompts}, kind, **parameters)
    generate(job)
    rows = [json.loads(line) for line in (job.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    return (job.out / "accepted.jsonl").read_bytes().count(b"\n"), rows


def test_without_the_form_and_its_end_no_sample_is_accepted(sessions: tuple[Session, Session], tmp_path: Path) -> None:
    _, second = sessions
    accepted, rows = sampled(tmp_path / "same", second, "base")
    assert accepted >= 8 and all(END_MARK not in row["completion"] for row in rows)
    # As it was: nothing ends a sample, so a right answer is one with its mark and what follows, or runs on.
    endless, rows = sampled(tmp_path / "endless", second, "base", "stops", "response_end")
    assert endless == 0 and sum(END_MARK in row["completion"] for row in rows) > 0.7 * len(rows)
    # And as it was before that: the template of the tokenizer, for a model that has never seen one.
    chat, _ = sampled(tmp_path / "chat", second, "instruct", *PROMPTING)
    assert chat == 0


def test_training_reads_what_was_declared(sessions: tuple[Session, Session], tmp_path: Path) -> None:
    first, _ = sessions
    order = first.order("sft")
    inputs = {role: (first.run / item["path"]).resolve() for role, item in order["inputs"].items()}
    parameters = {name: value for name, value in order["parameters"].items() if name not in PROMPTING}
    modes = {kind: sft(stage_job(tmp_path / kind, "sft", inputs, kind, **parameters)).effective for kind in KINDS}
    assert [modes[kind]["prompt_format"] for kind in KINDS] == ["{prompt}\n\n", None]


KINDS: tuple[ModelKind, ...] = ("base", "instruct")
