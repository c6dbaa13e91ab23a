"""What a check is: one deterministic question to the evidence, answered with a status, a figure and rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from reviews.checks.limit import Limit, told
from reviews.evidence.evidence import Evidence
from specs.errors import EvidenceMissing
from specs.stages.kind import StageKind
from specs.stages.metric import Metric, MetricSet
from specs.stages.registry import STAGE_KINDS
from specs.text import plain
from specs.trail.verdict import CheckResult, RequiredChange, Status

SHOWN_ROWS = 10
SHOWN_CHARACTERS = 240


@dataclass(frozen=True)
class Found:
    """What a check's function returns."""

    status: Status
    detail: str
    figure: float | None = None
    shown: tuple[dict[str, Any], ...] = ()
    change: RequiredChange | None = None
    repairable: bool = True


Kinds = tuple[str, ...] | Callable[[StageKind], object]


def ALL(kind: StageKind) -> bool:  # noqa: N802 - read as a constant where checks are declared
    """Belong to every kind."""
    return True


@dataclass(frozen=True)
class Check:
    """A check with its place and weight. ``source`` says which paper or post-mortem it comes from."""

    id: str
    title: str
    kinds: Kinds
    """The kinds it belongs to: by name, or those that have a trait."""
    run: Callable[[Evidence, MetricSet | None], Found]
    source: str
    blocking: bool = True
    threshold: str | None = None
    """In words, for checks of other distributions; Peergate's own name what the spec registers in ``limits``."""
    only_treatment: bool = field(default=False)
    limits: tuple[Limit, ...] = ()
    reads_weights: bool = False
    """Whether it compares weights. Where these are gone an audit takes what was found then, and says so."""

    def belongs_to(self, kind: StageKind) -> bool:
        """Say whether stages of a kind are checked by it."""
        return bool(self.kinds(kind)) if callable(self.kinds) else kind.name in self.kinds

    def kind_names(self) -> tuple[str, ...]:
        """Return the names of the known kinds it belongs to."""
        return tuple(kind.name for kind in STAGE_KINDS.values() if self.belongs_to(kind))


def apply(check: Check, evidence: Evidence, metrics: MetricSet | None) -> CheckResult:
    """Run one check. Missing evidence is BLOCKED and a check that breaks is ERROR; neither is ever a pass."""
    if check.only_treatment and evidence.stage.name != evidence.resolved.spec.analysis.treatment:
        found = Found("NOT_APPLICABLE", "only the treatment arm is compared")
    else:
        found = guarded(lambda: check.run(evidence, metrics))
    evidence_of = tuple(sorted(evidence.output_digests.values()))
    threshold = told(check.limits, evidence.resolved.spec) or check.threshold
    return result(check.id, check.title, found, blocking=check.blocking, threshold=threshold, evidence=evidence_of)


def guarded(run: Callable[[], Found]) -> Found:
    """Turn what goes wrong inside a check into a status that closes the gate."""
    try:
        return run()
    except EvidenceMissing as error:
        return Found("BLOCKED", f"evidence is missing: {f'{error.where}: ' if error.where else ''}{error.message}")
    except Exception as error:
        return Found("ERROR", f"the check broke: {type(error).__name__}: {plain(str(error), 200)}")


def result(
    id: str,
    title: str,
    found: Found,
    *,
    blocking: bool,
    threshold: str | None = None,
    evidence: tuple[str, ...] = (),
) -> CheckResult:
    """Put what was found into the form the packet carries, with untrusted text made plain."""
    return CheckResult(
        id=id,
        title=title,
        status=found.status,
        blocking=blocking,
        detail=plain(found.detail, 1000),
        figure=found.figure if found.figure is None or math.isfinite(found.figure) else None,
        threshold=threshold,
        shown=tuple(_plain_row(row) for row in found.shown[:SHOWN_ROWS]),
        evidence=evidence,
        required_change=found.change,
        repairable=found.repairable,
    )


def need(metrics: MetricSet | None, id: str) -> float:
    """Return a measured value, to tell and to calculate with.

    Raises:
        EvidenceMissing: it was not measured.
    """
    return _measured(metrics, id).value


def need_exact(metrics: MetricSet | None, id: str) -> Fraction:
    """Return a measured value, to compare with a threshold (:func:`specs.exact.holds`).

    Raises:
        EvidenceMissing: it was not measured.
    """
    return _measured(metrics, id).exact()


def _measured(metrics: MetricSet | None, id: str) -> Metric:
    if metrics is None or id not in metrics.metrics:
        raise EvidenceMissing(f"'{id}' was not measured")
    return metrics.metrics[id]


def listed(names: Iterable[str], limit: int = 5) -> str:
    """Return the first names of a list and how many more there are."""
    every = list(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more


def _plain_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value, SHOWN_CHARACTERS) if isinstance(value, str) else value for name, value in row.items()}
