"""The job of an ``lm_eval`` stage with the real library, in the real sandbox, and the witness of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessions.jobs.benchmarks.lm_eval_job import lm_eval
from specs.benchmarks.lm_eval_file import as_script
from specs.stages.evaluation.rows import BenchmarkRow
from specs.system.digests import digest_bytes
from specs.system.errors import SpecError
from specs.system.home import HOME
from testing.fixtures.inspect_library import needs_inspect, read_by_library
from testing.fixtures.sandbox import needs_sandbox
from testing.fixtures.small_text import small_model
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.tiny_training import tiny_checkpoint, write_lines
from testing.fixtures.witnessed_jobs import unwritten
from training.jobs.job import Job
from training.jobs.row_files import read_rows
from training.rules.evaluation.benchmark_scores import scored_again
from training.rules.evaluation.inspect_log import NAME, read_log

library: Any = pytest.importorskip("lm_eval", reason="lm-eval is not installed (the extra 'lm-eval')")
pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_sandbox]

# As in the library's own gsm8k.yaml, its data and its filters included.
SUMS = """
task: sums
dataset_path: openai/gsm8k
dataset_name: main
output_type: generate_until
training_split: train
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
    ignore_punctuation: false
    regexes_to_ignore: [",", "\\\\$", "(?s).*#### ", "\\\\.$"]
generation_kwargs:
  until: ["Question:", "</s>"]
  do_sample: false
  temperature: 0.0
repeats: 1
num_fewshot: 0
filter_list:
  - name: strict-match
    filter:
      - {function: regex, regex_pattern: "#### (\\\\-?[0-9\\\\.\\\\,]+)"}
      - {function: take_first}
  - name: flexible-extract
    filter:
      - {function: regex, group_select: -1, regex_pattern: "(-?[$0-9.,]{2,})|(-?[0-9]+)"}
      - {function: take_first}
metadata: {version: 3.0}
"""
# As in the library's own humaneval.yaml: the answer is run, with the item's test after it.
PROGRAMS = """
task: programs
dataset_path: openai/openai_humaneval
unsafe_code: true
output_type: generate_until
test_split: test
doc_to_text: "{{prompt}}"
doc_to_target: "{{test}}"
process_results: !function running.process_results
metric_list:
  - metric: passes
    aggregation: mean
    higher_is_better: true
generation_kwargs: {until: ["\\ndef"], max_gen_toks: 6, do_sample: false}
num_fewshot: 0
"""
RUNNING = """
import os, socket, subprocess, sys

def process_results(doc, results):
    reached = []
    try:
        socket.create_connection(("127.0.0.1", 80), timeout=1)
        reached.append("the machine")
    except OSError:
        pass
    reached += [path for path in ("HERE",) if os.path.isdir(path + "/reviews") and os.listdir(path + "/reviews")]
    program = f"answer = {results[0]!r}\\n{doc['test']}"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, timeout=60)
    return {"passes": float(done.returncode == 0 and not reached)}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("asked") / "model")


def ordered(folder: Path, model: Path, written: str, form: Any = "instruct", beside: str = "", **arguments: Any) -> Job:
    items = [
        {
            "id": f"s/{n}",
            "group": f"g{n}",
            "kind": "sum",
            "prompt": f"{n}+{n}?",
            "constraint": {"answer": f"Twice {n} is {2 * n}.\n#### {2 * n}", "test": f"assert {n} != 3"},
        }
        for n in range(5)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "task.yaml"
    path.write_text(written, encoding="utf-8")
    (folder / "running.py").write_text(beside, encoding="utf-8")
    parameters: dict[str, Any] = {"task": "sums", "score": "exact_match,strict-match", "max_new_tokens": 8}
    parameters |= {"batch_size": 4} | arguments
    text = as_script(path, path.read_bytes(), parameters["task"], parameters["max_new_tokens"])
    inputs = {"model": model, "items": write_lines(folder / "items.jsonl", items)}
    parameters |= {"code": digest_bytes(text.encode())}
    job = stage_job(folder / "run" / "jobs" / "job", "lm_eval", inputs, form, **parameters)
    (job.folder / "recipe.py").write_text(text, encoding="utf-8")
    return job


def test_questions_are_asked_with_the_filters_of_the_task(tmp_path: Path) -> None:
    job = ordered(tmp_path, small_model(tmp_path / "small", chat=True), SUMS)
    done = lm_eval(job)
    rows = read_rows(job.out / "rows.jsonl", BenchmarkRow)
    assert [row.item for row in rows] == [f"s/{n}" for n in range(5)]
    for n, row in enumerate(rows):
        (call,) = row.calls
        assert [(message.role, message.content) for message in call.messages] == [
            ("user", f"Question: {n}+{n}?\nAnswer:")
        ]
        assert call.stops == ("Question:", "</s>") and call.max_new_tokens == 8 and row.output == call.output
        assert row.target == (f"Twice {n} is {2 * n}.\n#### {2 * n}",)
        assert set(row.scores) == {"exact_match,strict-match", "exact_match,flexible-extract"}
    log = read_log(job.out / "log" / NAME)
    scorer, options = log.scorers["exact_match,strict-match"]
    assert [scored_again(scorer, options, row.output, row.target) for row in rows] == [row.correct for row in rows]
    assert sorted(path.name for path in job.out.rglob("*") if path.is_file()) == [NAME, "rows.jsonl"]
    stated = done.facts["library"]
    assert stated["name"] == "lm-eval" and stated["sandbox"].startswith("bubblewrap")
    assert unwritten(job) == set(), "a witness reads every answer again"
    other = small_model(tmp_path / "other", chat=True, seed=5)
    assert unwritten(job, other, "others"), "another model did not write them"


def test_a_base_model_continues_the_text_itself(tmp_path: Path, model: Path) -> None:
    job = ordered(tmp_path, model, SUMS, "base")
    lm_eval(job)
    (row, *_) = read_rows(job.out / "rows.jsonl", BenchmarkRow)
    # One token a byte.
    assert row.calls[0].prompt_tokens == len("Question: 0+0?\nAnswer:")
    assert unwritten(job) == set()


@needs_inspect
def test_inspect_reads_the_log(tmp_path: Path, model: Path) -> None:
    job = ordered(tmp_path, model, SUMS)
    lm_eval(job)
    report = read_by_library(job.out / "log" / NAME)
    rows = read_rows(job.out / "rows.jsonl", BenchmarkRow)
    assert report["status"] == "success" and report["task"] == "sums" and report["summaries"] == 5
    assert {sample["id"]: (sample["output"], sample["scores"]) for sample in report["samples"]} == {
        row.item: (row.output, row.scores) for row in rows
    }


def test_programs_run_in_the_sandbox_and_reach_nothing(tmp_path: Path, model: Path) -> None:
    beside = RUNNING.replace("HERE", str(HOME))
    job = ordered(tmp_path, model, PROGRAMS, beside=beside, task="programs", score="passes")
    lm_eval(job)
    rows = read_rows(job.out / "rows.jsonl", BenchmarkRow)
    assert [row.correct for row in rows] == [True, True, True, False, True]
    assert read_log(job.out / "log" / NAME).scorers["passes"] == ("lm_eval_task/passes", {}), "a claim"


FILTERED = "process_docs: !function running.process_docs\n"


@pytest.mark.parametrize(
    ("task", "beside", "value", "why"),
    [
        (SUMS, "", {"score": "exact_match"}, "has no score 'exact_match'; it has exact_match,strict-match"),
        (SUMS.replace("temperature: 0.0", "temperature: 0.9").replace("do_sample: false", "do_sample: true"), "", {},
         "temperature is 0.9, the stage grants greedy decoding"),
        (SUMS.replace("temperature: 0.0", "top_k: 3"), "", {}, "'top_k' is not supported here"),
        (SUMS + FILTERED, "def process_docs(docs):\n    return docs.select(range(3))\n", {},
         "the task has 3 samples, the stage 5 items"),
        (SUMS + FILTERED, "def process_docs(docs):\n    raise KeyError('no such thing')\n", {}, "no such thing"),
        (SUMS.replace("exact_match\n", "their_own\n"), "", {}, "their_own"),
    ],
    ids=["no score", "temperature", "setting", "items left out", "an error", "no metric"],
)  # fmt: skip
def test_a_task_that_does_not_fit_ends_the_job(
    tmp_path: Path, model: Path, capfd: pytest.CaptureFixture[str], task: str, beside: str, value: Any, why: str
) -> None:
    job = ordered(tmp_path, model, task, beside=beside, **value)
    with pytest.raises(SystemExit) as ended:
        lm_eval(job)
    assert ended.value.code not in (0, None)
    captured = capfd.readouterr()
    assert why in f"{captured.out}{captured.err}{ended.value.code}"
    assert not (job.out / "rows.jsonl").exists() or not (job.out / "rows.jsonl").read_bytes()


def test_another_script_than_the_granted_one_is_refused(tmp_path: Path, model: Path) -> None:
    job = ordered(tmp_path, model, SUMS)
    (job.folder / "recipe.py").write_text("MAIN = 1\n", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        lm_eval(job)
    assert ended.value.code == 4


def test_the_librarys_own_files_become_tasks() -> None:
    """GSM8K and HumanEval as shipped: what has to be changed in each is named with its line."""
    shipped = Path(library.__file__).parent / "tasks"
    path = shipped / "gsm8k" / "gsm8k.yaml"
    with pytest.raises(SpecError, match=r"gsm8k\.yaml:31:.*worked examples would come from the held-out items"):
        as_script(path, path.read_bytes(), "gsm8k", 256)
    assert as_script(path, path.read_bytes().replace(b"num_fewshot: 5", b"num_fewshot: 0"), "gsm8k", 256)
    path = shipped / "humaneval" / "humaneval.yaml"
    with pytest.raises(SpecError, match="asks for 1024 tokens, the stage grants max_new_tokens 256"):
        as_script(path, path.read_bytes(), "humaneval", 256)
    assert "utils.py" in as_script(path, path.read_bytes(), "humaneval", 1024)
