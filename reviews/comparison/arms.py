"""The two arms of the registered comparison, item by item."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from reviews.comparison.kind_rules import beyond, ruled
from reviews.comparison.subgroups import Pair, counted, each_kind
from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured, ratio
from reviews.stages.evaluation.judged_answers import answered
from reviews.statistics import mcnemar
from specs.errors import EvidenceMissing
from specs.exact import holds


def pairs_of(evidence: Evidence) -> tuple[Pair, ...]:
    """Return every registered held-out item as both arms answered it, in the order of the split.

    Raises:
        EvidenceMissing: as :func:`answered`, for either arm.
    """
    return paired(evidence, evidence.baseline_rows, evidence.outputs.get("rows"))


def paired(evidence: Evidence, before: Path | None, after: Path | None) -> tuple[Pair, ...]:
    """Return every item of the stage as two files of rows answer it; errors as :func:`answered`, for either file."""
    then, now = answered(evidence, before, "baseline rows"), answered(evidence, after, "treatment rows")
    return tuple(
        Pair(one.item.kind, one.item.group, was.passed, one.passed) for was, one in zip(then, now, strict=True)
    )


def measure_comparison(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics of the registered comparison; errors as :func:`pairs_of`."""
    pairs = pairs_of(evidence)
    _, n, gained, lost = counted(pairs)
    p_before, p_after = sum(pair.before for pair in pairs) / n, sum(pair.after for pair in pairs) / n
    kinds, analysis = each_kind(pairs), evidence.resolved.spec.analysis
    certain = [kind.part.gain for kind in kinds if holds(kind.adjusted, "<", analysis.alpha)]
    return {
        "accuracy_gain": Measured(ratio(gained - lost, n), n, mcnemar.paired_difference_interval(gained, lost, n)),
        "mcnemar_p": Measured(mcnemar.exact_mcnemar(gained, lost), n),
        "gained": Measured(gained, n),
        "lost": Measured(lost, n),
        "cohens_h": Measured(mcnemar.cohens_h(p_after, p_before), n),
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
