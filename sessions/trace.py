"""From a metric to the raw rows it was computed from: computed again, and the lines that made it up.

Lines count from 1 in the file of rows, which the content store keeps under its digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from reviews.evidence import Evidence
from reviews.measure import Judged, accepted_rows, judged_rows
from reviews.rows import read_rows
from specs.evidence import EvaluationRow, GenerationRow, PackageRow, TrainingRow

RowT = TypeVar("RowT")
ROWS, BASELINE = "rows", "baseline"


class Part(NamedTuple):
    """Some lines of a file of rows, and what they have in common."""

    what: str
    file: str
    """``rows`` of the attempt itself, or ``baseline``: those of the other arm."""
    lines: tuple[int, ...]
    of: int
    """How many lines the file has."""


def parts_of(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the lines that a metric counts; for a mean or a sum those it is over.

    Raises:
        EvidenceMissing: the rows are absent or unreadable.
    """
    by_kind = {"generate": _generated, "evaluate": _evaluated, "sft": _trained, "package": _packaged}
    find = by_kind.get(evidence.stage.kind)
    return find(evidence, metric) if find else ()


def _generated(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    rows = read_rows(evidence.outputs.get("rows"), GenerationRow, "generation rows")
    if metric == "generate_truncation_rate":
        return (_part("hit the token limit", rows, lambda row: row.truncated),)
    if metric == "samples":
        return (_part("every sample", rows, lambda _: True),)
    # Both are in the order of the file, so the next accepted row is the next one that equals it.
    accepted = list(accepted_rows(evidence)[1])
    lines: list[int] = []
    repeated: list[int] = []
    seen: set[tuple[str, str]] = set()
    for number, row in enumerate(rows, 1):
        if not accepted or row != accepted[0]:
            continue
        accepted.pop(0)
        lines.append(number)
        answer = row.prompt, row.completion.strip()
        if answer in seen:
            repeated.append(number)
        seen.add(answer)
    found = [Part("end by themselves and are accepted by the verifier", ROWS, tuple(lines), len(rows))]
    if metric != "acceptance_rate":
        found.append(Part("of these, say what an earlier one says", ROWS, tuple(repeated), len(rows)))
    return tuple(found)


def _evaluated(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    rows = read_rows(evidence.outputs.get("rows"), EvaluationRow, "evaluation rows")
    if metric == "truncation_rate":
        return (_part("hit the token limit", rows, lambda row: row.truncated),)
    if metric == "empty_rate":
        return (_part("have no visible character", rows, lambda row: not row.output.strip()),)
    if metric in ("items", "mean_output_tokens"):
        return (_part("every answer", rows, lambda _: True),)
    after = _passed(judged_rows(evidence, evidence.outputs.get("rows")))
    if metric == "accuracy":
        return (_part("are accepted by the verifier", rows, lambda row: after[row.item]),)
    before = _passed(judged_rows(evidence, evidence.baseline_rows, "baseline rows"))
    other = read_rows(evidence.baseline_rows, EvaluationRow, "baseline rows")
    pairs: tuple[tuple[str, Callable[[EvaluationRow], bool]], ...] = (
        ("gained: wrong before, right after", lambda row: after[row.item] and not before[row.item]),
        ("lost: right before, wrong after", lambda row: before[row.item] and not after[row.item]),
    )
    wanted = [pair for pair in pairs if metric not in ("gained", "lost") or pair[0].startswith(metric)]
    return tuple(
        _part(what, arm, fits, file) for what, fits in wanted for file, arm in ((ROWS, rows), (BASELINE, other))
    )


def _passed(judged: Iterable[Judged]) -> dict[str, bool]:
    return {one.item.id: one.passed for one in judged}


def _trained(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    rows = read_rows(evidence.outputs.get("rows"), TrainingRow, "training rows")
    n = len(rows)
    fifth = max(1, n // 5)
    first = Part("the first fifth of the steps", ROWS, tuple(range(1, fifth + 1)), n)
    last = Part("the last fifth of the steps", ROWS, tuple(range(n - fifth + 1, n + 1)), n)
    largest = max(row.grad_norm for row in rows)
    chosen = {
        "first_loss": (first,),
        "last_loss": (last,),
        "loss_drop": (first, last),
        "max_grad_norm": (_part("have the largest gradient norm", rows, lambda row: row.grad_norm == largest),),
    }
    return chosen.get(metric) or (_part("every step", rows, lambda _: True),)


def _packaged(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    if metric == "identical_outputs":
        return (_part("give the same tokens from the package", rows, lambda row: row.expected == row.reloaded),)
    return (_part("every probe", rows, lambda _: True),)


def _part(what: str, rows: tuple[RowT, ...], fits: Callable[[RowT], bool], file: str = ROWS) -> Part:
    return Part(what, file, tuple(number for number, row in enumerate(rows, 1) if fits(row)), len(rows))


def ranges(lines: Iterable[int]) -> str:
    """Write line numbers for people: ``1-3, 7``."""
    found: list[list[int]] = []
    for line in lines:
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
