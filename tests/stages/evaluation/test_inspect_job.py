"""The job of an ``inspect`` stage with the real library, in the real sandbox, and the witness of its rows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sessions.jobs.benchmarks.inspect_job import inspect
from specs.stages.evaluation.rows import BenchmarkRow
from specs.system.digests import digest_bytes
from specs.system.errors import ExitCode
from specs.system.home import HOME
from testing.fixtures.inspect_library import library, needs_inspect, read_by_library
from testing.fixtures.sandbox import needs_sandbox
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.tiny_training import tiny_checkpoint, write_lines
from testing.fixtures.witnessed_jobs import unwritten
from training.jobs.job import Job
from training.jobs.row_files import read_rows
from training.rules.evaluation.inspect_log import NAME, read_log

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_inspect, needs_sandbox]

HEAD = """
import os, socket, sys
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample, json_dataset
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import Score, accuracy, includes, match, scorer
from inspect_ai.solver import generate, prompt_template, solver, system_message
"""
TWICE = """
@task
def sums(data: str, digits: int = 1):
    return Task(
        dataset=json_dataset(data),
        solver=[system_message("Be short."), generate(max_tokens=5), generate(stop_seqs=["zz"])],
        scorer=[match(numeric=True), includes()],
    )
"""
OUT = """
@scorer(metrics=[accuracy()])
def reached():
    async def score(state, target):
        found = []
        for where in (("127.0.0.1", 80), ("10.0.0.1", 80), ("1.1.1.1", 53)):
            try:
                socket.create_connection(where, timeout=1)
                found.append(str(where))
            except OSError:
                pass
        for path in ("/root", "/home", "HERE"):
            # The interpreter may lie in a home; nothing else of it is there.
            if os.path.isdir(path) and not sys.base_prefix.startswith(path) and not sys.prefix.startswith(path):
                found.append(path)
        found += [name for name in os.environ if "KEY" in name]
        return Score(value="I" if found else "C", explanation=" ".join(found))
    return score

@task
def sums(data: str):
    return Task(dataset=json_dataset(data), solver=generate(), scorer=reached())
"""
WARM = """
@task
def sums(data: str):
    return Task(dataset=json_dataset(data), solver=generate(temperature=0.9), scorer=match())
"""
OTHER_DATA = """
@task
def sums(data: str):
    return Task(dataset=MemoryDataset([Sample(input="1+1?", target="2", id=7)]), solver=generate(), scorer=match())
"""
BROKEN = """
@task
def sums(data: str):
    raise ValueError("no such thing")
"""
SILENT = """
@solver
def nothing():
    async def solve(state, generate):
        state.output.completion = "2"
        return state
    return solve

@task
def sums(data: str):
    return Task(dataset=json_dataset(data), solver=nothing(), scorer=match())
"""

PACKAGE = {
    "acme_evals/__init__.py": "",
    "acme_evals/_registry.py": "from .sums import sums\n",
    "acme_evals/sums.py": HEAD
    + """
@task
def sums(data: str):
    return Task(dataset=json_dataset(data), solver=generate(), scorer=match(numeric=True))
""",
    "acme_evals-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme-evals\nVersion: 1.2\n",
    "acme_evals-1.2.dist-info/entry_points.txt": "[inspect_ai]\nacme_evals = acme_evals._registry\n",
    "acme_evals-1.2.dist-info/RECORD": "acme_evals/sums.py,,\n",
}
"""A distribution as inspect_evals is one: an entry point names the module that imports its tasks."""
PROBLEMS = """
def problem(row):
    return Sample(id=row["id"], input=row["input"], target=row["target"][0].split("####")[-1].strip())

@task
def sums(data: str):
    return Task(dataset=json_dataset(data, problem), solver=generate(), scorer=match(numeric=True))
"""
PROGRAMS = """
import subprocess

@scorer(metrics=[accuracy()])
def runs():
    async def score(state, target):
        program = f"print({target.text} == {target.text})"
        done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60)
        return Score(value=1 if done.stdout.strip() == "True" else 0)
    return score

@task
def sums(data: str):
    return Task(dataset=json_dataset(data), solver=generate(), scorer=runs())
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("inspected") / "model")


def ordered(folder: Path, model: Path, written: str, answers: str = "{due}", **arguments: Any) -> Job:
    items = [
        {
            "id": f"s/{n}",
            "group": f"g{n}",
            "kind": "sum",
            "prompt": f"{n}+{n}?",
            "constraint": {"answer": answers.format(n=n, due=2 * n)},
        }
        for n in range(5)
    ]
    text = (HEAD + written).encode()
    inputs = {"model": model, "items": write_lines(folder / "items.jsonl", items)}
    parameters = {"task": "sums", "args": {"data": "{items}"}, "score": "match", "max_new_tokens": 8, "batch_size": 4}
    parameters |= {"code": digest_bytes(text)} | arguments
    job = stage_job(folder / "run" / "jobs" / "job", "inspect", inputs, "instruct", **parameters)
    (job.folder / "recipe.py").write_bytes(text)
    return job


def test_a_task_is_run_and_its_rows_are_those_of_log_and_server(tmp_path: Path, model: Path) -> None:
    job = ordered(tmp_path, model, TWICE, args={"data": "{items}", "digits": 2})
    done = inspect(job)
    rows = read_rows(job.out / "rows.jsonl", BenchmarkRow)
    assert [row.item for row in rows] == [f"s/{n}" for n in range(5)]
    assert [row.target for row in rows] == [(str(2 * n),) for n in range(5)]
    for row in rows:
        first, second = row.calls
        assert [message.role for message in first.messages] == ["system", "user"]
        assert second.messages[-1].content == first.output and row.output == second.output
        assert (first.max_new_tokens, second.max_new_tokens, second.stops) == (5, 8, ("zz",))
        assert set(row.scores) == {"match", "includes"}
    assert done.tokens == sum(row.output_tokens for row in rows)
    assert sorted(path.name for path in job.out.rglob("*") if path.is_file()) == [NAME, "rows.jsonl"]
    log = read_log(job.out / "log" / NAME)
    assert log.scorers["match"] == ("match", {"numeric": True}) and log.arguments["digits"] == 2
    report = read_by_library(job.out / "log" / NAME)
    assert report["status"] == "success" and {sample["id"]: sample["output"] for sample in report["samples"]} == {
        row.item: row.output for row in rows
    }
    stated = done.facts["library"]
    assert stated["version"] == stated["packages"]["inspect-ai"] and stated["sandbox"].startswith("bubblewrap")


def with_package(folder: Path) -> Path:
    """Return the interpreter of a copy of the library's environment, in which a distribution brings a task."""
    own = Path(library("import sys\nresult = sys.prefix"))
    shutil.copytree(own, folder, symlinks=True, copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__"))
    (packages,) = folder.glob("lib/python*/site-packages")
    for name, text in PACKAGE.items():
        (packages / name).parent.mkdir(exist_ok=True)
        (packages / name).write_text(text, encoding="utf-8")
    return folder / "bin" / "python"


def test_every_epoch_of_a_sampled_task_is_a_row_with_a_draw_of_its_own(tmp_path: Path, model: Path) -> None:
    job = ordered(tmp_path, model, PROBLEMS, samples_per_item=3, temperature=1.0)
    inspect(job)
    rows = read_rows(job.out / "rows.jsonl", BenchmarkRow)
    assert [(row.item, row.sample) for row in rows] == [(f"s/{n}", epoch) for n in range(5) for epoch in range(3)]
    assert all(sorted(row.calls[0].draw for row in rows[at : at + 3]) == [0, 1, 2] for at in range(0, 15, 3))
    assert len({row.output for row in rows}) > 5 and unwritten(job) == set()


def test_a_task_of_an_installed_package_is_run(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    job = ordered(tmp_path, model, "", code=None, task="acme_evals/sums")
    with pytest.raises(SystemExit):
        inspect(job)
    assert "acme_evals" in "".join(capfd.readouterr()), "the library's own environment lacks the package"
    monkeypatch.setenv("PEERGATE_INSPECT_PYTHON", str(with_package(tmp_path / "env")))
    job = ordered(tmp_path / "again", model, "", code=None, task="acme_evals/sums")
    done = inspect(job)
    rows = read_rows(job.out / "rows.jsonl", BenchmarkRow)
    assert [row.target for row in rows] == [(str(2 * n),) for n in range(5)]
    assert read_log(job.out / "log" / NAME).task == "acme_evals/sums"
    assert done.facts["library"]["packages"]["acme-evals"] == "1.2"


def test_questions_with_worked_answers_are_asked_and_their_last_number_is_due(tmp_path: Path, model: Path) -> None:
    job = ordered(tmp_path, model, PROBLEMS, answers="Twice {n} is {due}.\n#### {due}")
    inspect(job)
    assert [row.target for row in read_rows(job.out / "rows.jsonl", BenchmarkRow)] == [(str(2 * n),) for n in range(5)]


def test_programs_of_a_scorer_run_in_the_sandbox(tmp_path: Path, model: Path) -> None:
    job = ordered(tmp_path, model, PROGRAMS, score="runs")
    inspect(job)
    rows = read_rows(job.out / "rows.jsonl", BenchmarkRow)
    assert [(row.scores["runs"], row.correct) for row in rows] == [(1.0, True)] * 5


def test_from_the_sandbox_only_the_model_is_reached(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    job = ordered(tmp_path, model, OUT.replace("HERE", str(HOME)), score="reached")
    inspect(job)
    rows = read_rows(job.out / "rows.jsonl", BenchmarkRow)
    assert [row.scores["reached"] for row in rows] == ["C"] * 5


@pytest.mark.parametrize(
    ("task", "arguments", "why"),
    [
        (WARM, {}, "temperature is 0.9, the stage grants greedy decoding"),
        (OTHER_DATA, {}, "each item has to be one sample, with its id"),
        (SILENT, {}, "the model was asked nothing for 's/0'"),
        (TWICE, {"score": "exact"}, "has no score 'exact'; it has match, includes"),
        (TWICE, {"task": "products"}, "products"),
        (BROKEN, {}, "no such thing"),
        (TWICE, {"memory_mb": 512, "output_mb": 16, "args": {"data": "/etc/passwd"}}, "/etc/passwd"),
    ],
    ids=["temperature", "other data", "no request", "no score", "no task", "an error", "another file"],
)
def test_a_task_that_does_not_fit_ends_the_job(
    tmp_path: Path, model: Path, capfd: pytest.CaptureFixture[str], task: str, arguments: dict[str, Any], why: str
) -> None:
    job = ordered(tmp_path, model, task, **arguments)
    with pytest.raises(SystemExit) as ended:
        inspect(job)
    assert ended.value.code not in (0, None)
    captured = capfd.readouterr()
    assert why in f"{captured.out}{captured.err}{ended.value.code}"
    assert not (job.out / "rows.jsonl").exists() or not (job.out / "rows.jsonl").read_bytes()


def test_another_script_than_the_granted_one_is_refused(tmp_path: Path, model: Path) -> None:
    job = ordered(tmp_path, model, TWICE)
    (job.folder / "recipe.py").write_text(HEAD + OUT, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        inspect(job)
    assert ended.value.code == ExitCode.BLOCKED
