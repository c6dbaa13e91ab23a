"""A session whose arms run a task of inspect_ai, with jobs that end at once: its gates, headline, audit and export."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.tables.open_table import read_entries
from sessions.jobs.sandbox import code_admission, sandbox
from specs.jobs.job_records import JobOrder, Manifest
from specs.system.digests import digest_path
from specs.system.errors import BlockedError
from testing.factories.benchmark_evidence import ENVIRONMENT, Raw, call, header, samples
from testing.factories.evidence_on_disk import N, heldout_items
from testing.fixtures.command_sessions import called, verify
from testing.fixtures.quick_session import QuickLauncher, drive, healthy_rows, open_quick, quick_session
from testing.fixtures.sandbox import needs_sandbox
from training.rules.evaluation.inspect_log import NAME, read_log, write_log

TASK = "TASK = 'a task of inspect_ai'\n"
ARM = (
    "script: task.py\n    parameters: "
    '{task: lines, args: {data: "{items}"}, score: match, max_new_tokens: 32, seed: 7}\n'
)
EPOCHS = 2
SAMPLED = ARM.replace("seed: 7", f"temperature: 0.7, samples_per_item: {EPOCHS}, seed: 7")
CHANGES = (
    ("  seeds: [7]\n", "  seeds: [7]\n  primary_metric: benchmark_accuracy\n"),
    ("truncation_rate", "benchmark_truncation_rate"),
    *(
        (
            f"    kind: evaluate\n    inputs: {{model: {model}, items: heldout}}\n"
            "    parameters: {max_new_tokens: 32, seed: 7}\n",
            f"    kind: inspect\n    inputs: {{model: {model}, items: heldout}}\n    {ARM}",
        )
        for model in ("model", "train.checkpoint")
    ),
)


def arm_rows(order: JobOrder) -> list[Raw]:
    """Return the rows of an arm: of the baseline none is right. A sampled row has one call, which is drawn."""
    rows = greedy_rows(order.grant.stage != "base")
    if (epochs := order.parameters.get("samples_per_item", 1)) == 1:
        return rows
    return [
        row | {"sample": epoch, "calls": [row["calls"][-1] | {"draw": epoch}]}
        for row in rows
        for epoch in range(epochs)
    ]


def greedy_rows(right: bool) -> list[Raw]:
    return [
        {
            "item": item.id,
            "calls": [call([item.prompt], f"a draft {place}"), call([item.prompt], f"{text} {place}")],
            "output": f"{text} {place}",
            "target": [f"well {place}"],
            "scores": {"match": "C" if right else "I"},
            "correct": right,
        }
        for place, item in enumerate(heldout_items())
        for text in ["well" if right else "badly"]
    ]


class Benchmarks(QuickLauncher):
    """Also leaves the log of a task, which the rows of the row file follow from unless they were edited."""

    def __init__(self, scorer: str = "match", edited: bool = False) -> None:
        super().__init__(rows=self._rows)
        self._scorer, self._edited = scorer, edited

    def _rows(self, order: JobOrder) -> list[dict[str, Any]]:
        if order.kind != "inspect":
            return healthy_rows(order)
        raw_rows = arm_rows(order)
        if self._edited and order.grant.stage == "base":
            raw_rows[0] = raw_rows[0] | {"scores": {"match": "C"}, "correct": True}
        return raw_rows

    def start(self, folder: Path) -> None:
        """Write what a job leaves, and its log."""
        super().start(folder)
        order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
        if order.kind != "inspect" or order.challenge is not None:
            return
        log = folder / "out" / "log"
        log.mkdir()
        scores = {"scores": [{"name": "match", "scorer": self._scorer, "params": {}}]}
        named = {"task": "lines", "task_args_passed": {"data": "/inputs/items.jsonl"}}
        rows = arm_rows(order)
        write_log(log / NAME, header(eval=named, results=scores), samples(rows))
        manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
        facts = {
            "library": {"name": "inspect_ai", "version": "1", "environment": ENVIRONMENT, "sandbox": "bubblewrap 0.8.0"}
        }
        changes = {
            "outputs": manifest.outputs | {"log": digest_path(log)},
            "facts": manifest.facts | facts,
            "tokens": sum(item["output_tokens"] for row in rows for item in row["calls"]),
        }
        (folder / "manifest.json").write_bytes(manifest.model_copy(update=changes).canonical())


def opened(folder: Path, arm: str = ARM) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "task.py").write_text(TASK, encoding="utf-8")
    test = (("  alpha: 0.05\n", "  test: sign_flip\n  alpha: 0.05\n"),) if arm is SAMPLED else ()
    return open_quick(folder, *((old, new.replace(ARM, arm)) for old, new in CHANGES), *test)


def closing(run: Path) -> dict[str, Any]:
    return read_entries(run / "trail.sqlite")[-1].raw


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = opened(tmp_path_factory.mktemp("benchmarks"))
    drive(quick_session(run, launcher=Benchmarks()))
    return run


@needs_sandbox
def test_the_arms_of_a_benchmark_are_compared_and_accepted(accepted: Path) -> None:
    headline = called("report", accepted).stdout
    assert f"held-out benchmark accuracy 0.000 -> 1.000 on {N} items, gain +1.000" in headline
    assert f"{N} of {N} answers of 'base' recomputed" in headline and "scorer's claim" not in headline
    order = JobOrder.model_validate_json((accepted / "jobs/small.base.1/order.json").read_bytes())
    assert (accepted / "jobs/small.base.1/recipe.py").read_text(encoding="utf-8") == TASK
    assert order.parameters["code"] and order.inputs["items"].digest
    code, report = verify(accepted)
    assert code == 0, report


@needs_sandbox
def test_the_epochs_of_a_task_are_compared_by_items(tmp_path: Path) -> None:
    run = opened(tmp_path / "epochs", SAMPLED)
    drive(quick_session(run, launcher=Benchmarks()))
    headline = called("report", run).stdout
    assert f"held-out benchmark accuracy 0.000 -> 1.000 on {N} items, gain +1.000" in headline
    assert "exact sign-flip p = 0.00049" in headline and "accepted" in headline
    done = called("export", "inspect", run, "--out", tmp_path / "out")
    assert len(read_log(tmp_path / "out" / "tuned.1.eval").samples) == EPOCHS * N, done.stderr
    code, message = verify(run)
    assert code == 0, message


@needs_sandbox
def test_its_logs_are_exported_as_they_are(accepted: Path, tmp_path: Path) -> None:
    done = called("export", "inspect", accepted, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for stage in ("base", "tuned"):
        exported = tmp_path / "out" / f"{stage}.1.eval"
        assert exported.read_bytes() == (accepted / f"jobs/small.{stage}.1/out/log" / NAME).read_bytes()
        assert len(read_log(exported).samples) == N


@needs_sandbox
def test_a_log_that_was_edited_afterwards_is_found_by_the_audit(accepted: Path, tmp_path: Path) -> None:
    run = shutil.copytree(accepted.parent, tmp_path / "runs") / "small"
    log = run / "jobs/small.tuned.1/out/log" / NAME
    data = log.read_bytes()
    log.unlink()
    log.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert verify(run)[0] == 1
    done = called("export", "inspect", run, "--out", tmp_path / "out")
    assert "tuned.1 is left out" in done.stdout and not (tmp_path / "out" / "tuned.1.eval").exists()


@needs_sandbox
def test_a_scorer_of_their_own_is_named_a_claim_in_the_headline(tmp_path: Path) -> None:
    run = opened(tmp_path / "claims")
    drive(quick_session(run, launcher=Benchmarks("their_own")))
    headline = called("report", run).stdout
    assert f"{N} scores of 'base' are its scorer's claim; {N} scores of 'tuned' are its scorer's claim" in headline
    assert verify(run)[0] == 0


@needs_sandbox
def test_rows_that_are_not_the_logs_end_the_session(tmp_path: Path) -> None:
    run = opened(tmp_path / "edited")
    drive(quick_session(run, launcher=Benchmarks(edited=True)))
    assert closing(run)["decision"] == "reject"
    assert "benchmark.log" in called("report", run).stdout


def test_without_a_sandbox_no_task_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(tmp_path / "bare")

    def without(_: object) -> str:
        return "bubblewrap is not here"

    monkeypatch.setattr(sandbox, "why_not", without)
    monkeypatch.setattr(code_admission.sandbox, "why_not", without)
    with pytest.raises(BlockedError, match="the task would run without a sandbox: bubblewrap is not here"):
        drive(quick_session(run, launcher=Benchmarks()))
    assert not list(run.glob("jobs/*/recipe.py"))


@needs_sandbox
def test_a_job_gets_the_registered_text_even_if_the_file_has_changed(tmp_path: Path) -> None:
    run = opened(tmp_path / "changed")
    (tmp_path / "changed" / "task.py").write_text("TASK = 'another'\n", encoding="utf-8")
    drive(quick_session(run, launcher=Benchmarks()))
    selected = [path.read_text(encoding="utf-8") for path in run.glob("jobs/*/recipe.py")]
    assert selected == [TASK, TASK]
    assert json.loads((run / "spec.resolved.json").read_bytes())["scripts"]
