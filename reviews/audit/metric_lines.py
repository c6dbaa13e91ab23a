"""From a metric to the raw rows it was computed from: computed again, and the lines that made it up.

Lines count from 1 in the file of rows, which the content store keeps under its digest. The first part is what the
metric counts, or what its mean, median or sum is over; where only some rows are its population, the last part says
which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import BASELINE, ROWS, Part, chosen, every, part
from reviews.evidence.row_reader import read_rows
from reviews.stages.critique.trace import compared_responses, critiques, revisions, verified_samples
from reviews.stages.evaluation.judged_answers import Answered, answered
from reviews.stages.evaluation.trace import choices, conversations, judgements, texts
from reviews.stages.finetuning.trace import preference_training, supervised_training
from reviews.stages.generation.measure import accepted_rows
from reviews.stages.generation.trace import calls, responses, sentinels
from reviews.stages.sampled_rows import COUNTED, lines_of
from specs.stages.evaluation.rows import ConversationRow, EvaluationRow
from specs.stages.generation.rows import GenerationRow
from specs.stages.metric_catalog import METRICS
from specs.stages.packaging.rows import PackageRow

__all__ = ["BASELINE", "ROWS", "Part", "parts_of", "ranges"]


def parts_of(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the lines that a metric counts; for a mean or a sum those it is over.

    Raises:
        EvidenceMissing: the rows are absent or unreadable.
    """
    if metric in COUNTED.get(evidence.stage.kind, {}):
        lines, found = lines_of(evidence, metric)
        rows = range(found.of)
        return (chosen("what the metric counts", rows, lines), chosen("what was sampled", rows, found.lines))
    find = _BY_KIND.get(evidence.stage.kind)
    return find(evidence, metric) if find else ()


def _generated(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    rows = read_rows(evidence.outputs.get("rows"), GenerationRow, "generation rows")
    if metric == "generate_truncation_rate":
        return (part("hit the token limit", rows, lambda row: row.truncated),)
    if metric == "samples":
        return (every("every sample", rows),)
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
        return (part("hit the token limit", rows, lambda row: row.truncated),)
    if metric == "empty_rate":
        return (part("have no visible character", rows, lambda row: not row.output.strip()),)
    if metric in ("items", "mean_output_tokens"):
        return (every("every answer", rows),)
    if metric == "accuracy":
        after = _passed(answered(evidence, evidence.outputs.get("rows")))
        return (part("are accepted by the verifier", rows, lambda row: after[row.item]),)
    return _compared(evidence, metric, EvaluationRow)


def _held(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    if METRICS[metric].scope in ("comparison", "rule"):
        return _compared(evidence, metric, ConversationRow)
    return conversations(evidence, metric)


def _compared(evidence: Evidence, metric: str, form: type[EvaluationRow | ConversationRow]) -> tuple[Part, ...]:
    """Return the items that were gained and lost, in the rows of both arms."""
    rows = read_rows(evidence.outputs.get("rows"), form, "treatment rows")
    other = read_rows(evidence.baseline_rows, form, "baseline rows")
    after = _passed(answered(evidence, evidence.outputs.get("rows"), "treatment rows"))
    before = _passed(answered(evidence, evidence.baseline_rows, "baseline rows"))
    pairs: tuple[tuple[str, Callable[[EvaluationRow | ConversationRow], bool]], ...] = (
        ("gained: wrong before, right after", lambda row: after[row.item] and not before[row.item]),
        ("lost: right before, wrong after", lambda row: before[row.item] and not after[row.item]),
    )
    wanted = [pair for pair in pairs if metric not in ("gained", "lost") or pair[0].startswith(metric)]
    return tuple(
        part(what, arm, fits, file) for what, fits in wanted for file, arm in ((ROWS, rows), (BASELINE, other))
    )


def _passed(judged: Iterable[Answered]) -> dict[str, bool]:
    return {one.item.id: one.passed for one in judged}


def _packaged(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    if metric == "identical_outputs":
        return (part("give the same tokens from the package", rows, lambda row: row.expected == row.reloaded),)
    return (every("every probe", rows),)


def ranges(lines: Iterable[int]) -> str:
    """Write line numbers for people: ``1-3, 7``."""
    found: list[list[int]] = []
    for line in lines:
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


_BY_KIND: dict[str, Callable[[Evidence, str], tuple[Part, ...]]] = {
    "guard": sentinels,
    "instruct": calls,
    "respond": responses,
    "critique_instructions": lambda evidence, metric: critiques(evidence, metric.removeprefix("instructions_")),
    "critique_responses": lambda evidence, metric: critiques(evidence, metric.removeprefix("responses_")),
    "revise": revisions,
    "prefer": compared_responses,
    "prefer_verified": verified_samples,
    "generate": _generated,
    "sft": supervised_training,
    "dpo": preference_training,
    "evaluate": _evaluated,
    "perplexity": texts,
    "choose": choices,
    "compare": judgements,
    "converse": _held,
    "package": _packaged,
}
"""A recipe has no metrics."""
