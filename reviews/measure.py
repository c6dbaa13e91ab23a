"""The measurer: every metric, from raw rows only. What a job or a builder says about itself never enters here.

Outputs are judged again by the registered verifier; definitions stand in ``specs/metrics.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reviews import statistics
from reviews.evidence import Evidence
from reviews.measure_compared import beyond, ruled
from reviews.measure_critics import measure_critiques, measure_prefer, measure_revise
from reviews.measure_evaluation import held, in_order, items_of, measure_evaluation, task_of
from reviews.measure_sampled import COUNTED, measure_sampled
from reviews.measure_text import measure_guard, measure_instruct, measure_respond
from reviews.measure_training import measure_dpo, measure_sft
from reviews.measure_verified import measure_verified
from reviews.measured import Measured, metric_of, ratio
from reviews.measured import share as _share
from reviews.measuring_code import measuring_code
from reviews.rows import read_objects, read_rows
from reviews.strata import Pair, each_kind
from specs.digests import digest_file
from specs.errors import EvidenceMissing
from specs.evidence import EvaluationRow, GenerationRow, Item, PackageRow
from specs.exact import holds
from specs.metrics import MetricSet
from specs.stages import Kind
from specs.text import plain
from training.tasks import verifier


class Judged(NamedTuple):
    """One held-out item with what was answered and whether the verifier accepts it."""

    item: Item
    row: EvaluationRow
    passed: bool
    reason: str


def measure(evidence: Evidence) -> MetricSet:
    """Compute every metric of the attempt's stage kind, and the comparison at the treatment stage.

    Raises:
        EvidenceMissing: raw rows are absent, unreadable, or not one per registered item.
    """
    stage = evidence.stage
    rows = {stage.name: evidence.output_digests["rows"]} if "rows" in evidence.output_digests else {}
    try:
        values = _MEASURERS[stage.kind](evidence)
        values |= measure_sampled(evidence) if stage.kind in COUNTED else {}
        metrics = {id: metric_of(id, measured) for id, measured in values.items()}
    except EvidenceMissing:
        raise
    except Exception as error:
        # Whatever rows can do to the arithmetic, they are no evidence then; a gate closes, and no session breaks off.
        raise EvidenceMissing(f"they cannot be measured: {plain(str(error), 200)}", where="raw rows") from error
    if stage.name == evidence.resolved.spec.analysis.treatment and evidence.baseline_rows is not None:
        rows["baseline"] = digest_file(evidence.baseline_rows)
    return MetricSet(
        stage=stage.name,
        attempt=evidence.attempt,
        rows=rows,
        code=measuring_code(),
        metrics=metrics,
    )


def judged_rows(evidence: Evidence, path: Path | None, what: str = "evaluation rows") -> tuple[Judged, ...]:
    """Return every registered item of the stage with its answer, in the order of the items.

    Raises:
        EvidenceMissing: rows are absent or unreadable, do not answer each registered item exactly once, or an item
            is not one of the task.
    """
    judge = verifier(task_of(evidence))
    found: list[Judged] = []
    for item, row in in_order(items_of(evidence), read_rows(path, EvaluationRow, what), what):
        try:
            verdict = judge(item, row.output)
        except (ValueError, KeyError) as error:
            raise EvidenceMissing(f"item '{item.id}' cannot be judged: {error}", where=what) from error
        found.append(Judged(item, row, verdict.passed, verdict.reason))
    return tuple(found)


class Answered(NamedTuple):
    """One held-out item of an arm, whatever its kind: a conversation is one item, its answers one text."""

    item: Item
    passed: bool
    reason: str
    text: str
    truncated: bool


def answered(evidence: Evidence, path: Path | None, what: str = "evaluation rows") -> tuple[Answered, ...]:
    """Return every registered item of an ``evaluate`` or ``converse`` stage as it was answered and judged, in order.

    Raises:
        EvidenceMissing: as :func:`judged_rows` and :func:`reviews.measure_evaluation.held`.
    """
    if evidence.stage.kind == "converse":
        return tuple(
            Answered(
                one.item,
                one.passed,
                "; ".join(turn.reason for turn in one.turns if not turn.passed),
                "\n".join(turn.output for turn in one.row.turns),
                any(turn.truncated for turn in one.row.turns),
            )
            for one in held(evidence, path)
        )
    return tuple(
        Answered(one.item, one.passed, one.reason, one.row.output, one.row.truncated)
        for one in judged_rows(evidence, path, what)
    )


def pairs_of(evidence: Evidence) -> tuple[Pair, ...]:
    """Return every registered held-out item as both arms answered it, in the order of the split.

    Raises:
        EvidenceMissing: as :func:`answered`, for either arm.
    """
    return paired(evidence, evidence.baseline_rows, evidence.outputs.get("rows"))


def paired(evidence: Evidence, before: Path | None, after: Path | None) -> tuple[Pair, ...]:
    """Return every item of the stage as two files of rows answer it.

    Raises:
        EvidenceMissing: as :func:`answered`, for either file.
    """
    then, now = answered(evidence, before, "baseline rows"), answered(evidence, after, "treatment rows")
    return tuple(
        Pair(one.item.kind, one.item.group, was.passed, one.passed) for was, one in zip(then, now, strict=True)
    )


def accepted_rows(evidence: Evidence) -> tuple[tuple[GenerationRow, ...], tuple[GenerationRow, ...]]:
    """Return (all sampled rows, those that ended by themselves and that the verifier accepts).

    Raises:
        EvidenceMissing: rows are absent or unreadable, or name an item the prompts do not hold.
    """
    rows = read_rows(evidence.outputs.get("rows"), GenerationRow, "generation rows")
    _, _, name = evidence.stage.inputs["prompts"].partition(".")
    items = {item.id: item for item in evidence.data.get(name, ())}
    judge = verifier(evidence.resolved.spec.task)
    accepted: list[GenerationRow] = []
    for row in rows:
        item = items.get(row.item)
        if item is None or item.prompt != row.prompt:
            raise EvidenceMissing(
                f"row of item '{row.item}' does not belong to a registered prompt", where="generation rows"
            )
        if not row.truncated and judge(item, row.completion).passed:
            accepted.append(row)
    return rows, tuple(accepted)


def measure_generation(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics of a ``generate`` stage; errors as :func:`accepted_rows`."""
    rows, accepted = accepted_rows(evidence)
    distinct = {(row.prompt, row.completion.strip()): row.kind for row in accepted}
    kinds = Counter(distinct.values())
    total, kept = len(rows), len(accepted)
    return {
        "samples": Measured(total, total),
        "accepted": Measured(len(distinct), total),
        "acceptance_rate": _share(kept, total),
        "accepted_kinds": Measured(len(kinds), total),
        "accepted_min_kind": Measured(min(kinds[kind] for kind in {row.kind for row in rows}), total),
        "generate_truncation_rate": _share(sum(row.truncated for row in rows), total),
        "duplicate_rate": Measured(ratio(kept - len(distinct), kept), kept),
    }


def measure_answers(judged: tuple[Judged, ...]) -> dict[str, Measured]:
    """Return the metrics of one arm's judged answers."""
    n = len(judged)
    return {
        "accuracy": _share(sum(one.passed for one in judged), n),
        "items": Measured(n, n),
        "truncation_rate": _share(sum(one.row.truncated for one in judged), n),
        "empty_rate": _share(sum(not one.row.output.strip() for one in judged), n),
        "mean_output_tokens": Measured(ratio(sum(one.row.output_tokens for one in judged), n), n),
    }


def measure_comparison(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics of the registered comparison; errors as :func:`pairs_of`."""
    pairs = pairs_of(evidence)
    n = len(pairs)
    gained = sum(pair.after and not pair.before for pair in pairs)
    lost = sum(pair.before and not pair.after for pair in pairs)
    p_before, p_after = sum(pair.before for pair in pairs) / n, sum(pair.after for pair in pairs) / n
    kinds, analysis = each_kind(pairs), evidence.resolved.spec.analysis
    certain = [kind.part.gain for kind in kinds if holds(kind.adjusted, "<", analysis.alpha)]
    return {
        "accuracy_gain": Measured(ratio(gained - lost, n), n, statistics.paired_difference_interval(gained, lost, n)),
        "mcnemar_p": Measured(statistics.exact_mcnemar(gained, lost), n),
        "gained": Measured(gained, n),
        "lost": Measured(lost, n),
        "cohens_h": Measured(statistics.cohens_h(p_after, p_before), n),
        "kinds_gained": Measured(sum(gain > 0 for gain in certain), len(kinds)),
        "kinds_lost": Measured(sum(gain < 0 for gain in certain), len(kinds)),
        **(ruled(analysis.kinds, kinds) if analysis.kinds else {}),
        **(_beyond_controls(evidence, pairs) if analysis.controls else {}),
    }


def _beyond_controls(evidence: Evidence, pairs: tuple[Pair, ...]) -> dict[str, Measured]:
    return beyond(pairs, [one.pairs for one in controlled(evidence)])


class Controlled(NamedTuple):
    """A registered control as both models answered it."""

    name: str
    pairs: tuple[Pair, ...]


def controlled(evidence: Evidence) -> tuple[Controlled, ...]:
    """Return the items of every registered control, in the order of the split.

    Raises:
        EvidenceMissing: a control has no accepted attempt, or as :func:`paired`.
    """
    found: list[Controlled] = []
    for one in evidence.resolved.spec.analysis.controls:
        for name in (one.before, one.after):
            if name not in evidence.arms:
                raise EvidenceMissing(f"the control '{name}' has no accepted attempt")
        rows = evidence.arms[one.before].rows, evidence.arms[one.after].rows
        found.append(Controlled(f"{one.before} and {one.after}", paired(evidence, *rows)))
    return tuple(found)


def measure_package(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics of a packaged checkpoint; errors as :func:`reviews.rows.read_rows`."""
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    n = len(rows)
    return {
        "identical_outputs": _share(sum(row.expected == row.reloaded for row in rows), n),
        "probes": Measured(n, n),
    }


def _answers(evidence: Evidence) -> dict[str, Measured]:
    values = measure_answers(judged_rows(evidence, evidence.outputs.get("rows")))
    if evidence.stage.name == evidence.resolved.spec.analysis.treatment:
        values |= measure_comparison(evidence)
    return values


def _talks(evidence: Evidence) -> dict[str, Measured]:
    values = measure_evaluation(evidence)
    if evidence.stage.name == evidence.resolved.spec.analysis.treatment:
        values |= measure_comparison(evidence)
    return values


def measure_recipe(evidence: Evidence) -> dict[str, Measured]:
    """Return nothing: what a builder's code computes is a claim."""
    read_objects(evidence.outputs.get("rows"), "recipe rows")
    return {}


_MEASURERS: dict[Kind, Callable[[Evidence], dict[str, Measured]]] = {
    "guard": measure_guard,
    "instruct": measure_instruct,
    "respond": measure_respond,
    "critique_instructions": lambda evidence: measure_critiques(evidence, "instructions"),
    "critique_responses": lambda evidence: measure_critiques(evidence, "responses"),
    "revise": measure_revise,
    "prefer": measure_prefer,
    "prefer_verified": measure_verified,
    "generate": measure_generation,
    "sft": measure_sft,
    "dpo": measure_dpo,
    "evaluate": _answers,
    "perplexity": measure_evaluation,
    "choose": measure_evaluation,
    "compare": measure_evaluation,
    "converse": _talks,
    "package": measure_package,
    "recipe": measure_recipe,
}
