"""The judge of ``code_eval`` stages: it runs every program again, whatever a job says of it."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from reviews.checks.definition import CheckOutcome, CheckRegistry, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import MeasuredValue
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import ROW_CHARACTERS, read_rows
from reviews.statistics.pass_at_k import over_problems
from specs.session.design import ResolvedDesign
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.stages.programs.parameters import CodeEvalParameters
from specs.stages.programs.rows import CodeRow
from specs.system.confinement.program_process import Program, ProgramEnding, ProgramLimits, require_sandbox, run_all
from specs.system.confinement.task_file import is_trusted
from specs.system.confinement.verifier_command import NoSandbox
from specs.system.errors import EvidenceMissing
from specs.system.text import plain
from training.rules.programs.answer_program import program_in

CHECKS = CheckRegistry(("code_eval",))


class ProgramResult(NamedTuple):
    """An answer, and what came of its program."""

    row: CodeRow
    ended: ProgramEnding

    @property
    def valid(self) -> bool:
        """Return whether it is a program with the function asked for."""
        return self.ended.valid

    @property
    def passed(self) -> bool:
        """Return whether its tests pass."""
        return self.ended.step == "passed"

    @property
    def overtime(self) -> bool:
        """Return whether it took too long."""
        return self.ended.step == "overtime"


def problems_of(evidence: Evidence) -> tuple[Item, ...]:
    """Return the problems that were to be solved.

    Raises:
        EvidenceMissing: they cannot be read, or one has no tests.
    """
    items = read_rows(evidence.inputs.get("items"), Item, "problems")
    matching_items = items[: evidence.parse_parameters(CodeEvalParameters).max_problems]
    for item in matching_items:
        if not all(isinstance(item.constraint.get(name), str) for name in ("entry_point", "tests")):
            message = f"problem '{plain(item.id, 60)}' has no constraint.entry_point or constraint.tests"
            raise EvidenceMissing(message, where="problems")
    return matching_items


def run_programs(evidence: Evidence) -> list[ProgramResult]:
    """Return every answer with what came of its program.

    Raises:
        EvidenceMissing: rows or problems cannot be read, a row answers none of them, or no sandbox works here.
    """
    problems = {item.id: item for item in problems_of(evidence)}
    rows = read_rows(evidence.outputs.get("rows"), CodeRow, "code rows")
    programs: list[Program] = []
    for row in rows:
        item = problems.get(row.item)
        if item is None:
            raise EvidenceMissing(f"a row answers '{plain(row.item, 60)}', which is not a problem", where="code rows")
        entry = str(item.constraint["entry_point"])
        text = program_in(row.output, item.prompt, row.form, entry)
        programs.append(Program(text, entry, str(item.constraint["tests"]), item.prompt))
    return [ProgramResult(row, value) for row, value in zip(rows, _run_in_sandbox(evidence, programs), strict=True)]


def why_not_run(resolved: ResolvedDesign) -> str:
    """Return why this process may not run a session's programs; empty if it may, in a sandbox."""
    if not is_trusted(resolved.programs()):
        return "no one has started or checked its spec here (`peergate spec check`)"
    try:
        require_sandbox()
    except NoSandbox as error:
        return str(error)
    return ""


def _run_in_sandbox(evidence: Evidence, programs: list[Program]) -> list[ProgramEnding]:
    if why := why_not_run(evidence.resolved):
        raise EvidenceMissing(f"programs are not run: {why}", where="code rows")
    eval_parameters = evidence.parse_parameters(CodeEvalParameters)
    try:
        return run_all(programs, ProgramLimits(eval_parameters.seconds, eval_parameters.memory_mb))
    except NoSandbox as error:
        raise EvidenceMissing(f"programs cannot be run here: {error}", where="code rows") from error


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the answers for the metrics; errors as :func:`run_programs`."""
    return as_written(run_programs(evidence), output)


def measure(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return pass@1 and pass@k over the problems; errors as :func:`run_programs`."""
    answers, right = Counter[str](), Counter[str]()
    for element in run_programs(evidence):
        answers[element.row.item] += 1
        right[element.row.item] += element.passed
    counts = [(answers[item.id], right[item.id]) for item in problems_of(evidence)]
    k = evidence.parse_parameters(CodeEvalParameters).k
    if least := [n for n, _ in counts if n < k]:
        raise EvidenceMissing(f"a problem has {least[0]} answers, pass_at_k needs {k}", where="code rows")
    results: dict[str, MeasuredValue] = {}
    for name, number in (("pass_at_1", 1), ("pass_at_k", k)):
        value, interval = over_problems(counts, number)
        results[name] = MeasuredValue(value, len(counts), interval)
    return results


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every answer with what came of it; errors as :func:`run_programs`."""
    return [
        {
            "item": value.row.item,
            "sample": value.row.sample,
            "output": plain(value.row.output, ROW_CHARACTERS),
            "ended": value.ended.step,
            "why": value.ended.why,
        }
        for value in run_programs(evidence)
    ]


@CHECKS.add(
    "code.answers",
    "Every problem has the registered number of answers",
    source="a score over the problems that were finished",
)
def _check_answers(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    eval_parameters = evidence.parse_parameters(CodeEvalParameters)
    rows = read_rows(evidence.outputs.get("rows"), CodeRow, "code rows")
    pairs = [(item.id, sample) for item in problems_of(evidence) for sample in range(eval_parameters.samples)]
    if [(row.item, row.sample) for row in rows] != pairs:
        return CheckOutcome(
            "FAIL",
            f"{len(rows)} answers, expected {eval_parameters.samples} to each problem, {len(pairs)} in all",
        )
    return CheckOutcome(
        "PASS",
        f"{eval_parameters.samples} to each of {len(pairs) // eval_parameters.samples} problems",
        float(len(rows)),
    )


@CHECKS.add(
    "code.harness",
    "The tests accept the problems' own solutions and no empty function",
    source="a harness that moved a score from 34 to 87 %, and tests that pass whatever is written",
)
def _check_harness(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Run the solution of each problem that brings one, and of every problem a function that only returns."""
    problems = problems_of(evidence)
    solved = [item for item in problems if isinstance(item.constraint.get("solution"), str)]
    right = [_program(item, str(item.constraint["solution"])) for item in solved]
    ended = _run_in_sandbox(
        evidence, [*right, *(_program(item, f"{item.prompt}\n    return None\n") for item in problems)]
    )
    refused = [item.id for item, value in zip(solved, ended, strict=False) if value.step != "passed"]
    let = [item.id for item, value in zip(problems, ended[len(solved) :], strict=True) if value.step == "passed"]
    visible = (*({"problem": id, "flaw": "its own solution is refused"} for id in refused),)
    visible += (*({"problem": id, "flaw": "a function that returns nothing passes"} for id in let),)
    if visible:
        first = visible[0]
        message = f"problem {plain(first['problem'], 60)}: {first['flaw']}; {len(visible)} in all"
        return CheckOutcome("FAIL", message, float(len(visible)), visible, repairable=False)
    if not solved:
        return CheckOutcome("WARN", "no problem has a solution: only empty functions were tested", 0.0)
    return CheckOutcome("PASS", f"{len(solved)} solutions pass, and no empty function of {len(problems)}", 0.0)


def _program(item: Item, text: str) -> Program:
    return Program(text, str(item.constraint["entry_point"]), str(item.constraint["tests"]), item.prompt)


@CHECKS.add(
    "code.programs",
    "Some of the answers are programs",
    source="a score of 0 that came from how programs were looked for in answers",
    blocking=False,
)
def _check_programs(_: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    valid = need(metrics, "python_validity")
    if valid == 0:
        return CheckOutcome("WARN", "no answer is a program: look at the answers before the score", valid)
    return CheckOutcome("PASS", f"{valid:.1%} of the answers are programs", valid)
