"""Deterministic checks: the floor that no reviewer can lift. One small function each, by family.

Other distributions add checks with an entry point of the group ``peergate.checks`` that names a list of
:class:`reviews.checks.definition.Check`. They can close a gate, never open one. One that cannot be loaded is an error:
a check that is silently missing would be an open gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from reviews.checks import (
    claim_checks as claimed,
)
from reviews.checks import (
    job_checks as jobs,
)
from reviews.checks import (
    leakage_checks as leakage,
)
from reviews.checks import (
    nonempty_output as kept,
)
from reviews.checks import (
    pilot_check as pilots,
)
from reviews.checks import (
    provenance_check as provenance,
)
from reviews.checks import (
    registration_checks as registration,
)
from reviews.checks.definition import Check, apply
from reviews.comparison import (
    control_checks as controls,
)
from reviews.comparison import (
    drift_checks as drift,
)
from reviews.comparison import (
    headroom_check as gap,
)
from reviews.comparison import (
    paired_checks as paired,
)
from reviews.comparison import (
    parity_checks as parity,
)
from reviews.comparison import (
    power_checks as power,
)
from reviews.comparison import (
    subgroup_checks as strata,
)
from reviews.evidence.evidence import Evidence
from reviews.gate import measured_check as measurable
from reviews.gate.design_checks import DESIGN_CHECKS, DesignCheck, design_checks
from reviews.stages.critique import critic_checks as critics
from reviews.stages.critique import pair_checks as pairs
from reviews.stages.evaluation import (
    answer_checks as health,
)
from reviews.stages.evaluation import (
    item_checks as items,
)
from reviews.stages.evaluation import (
    judge_checks as judges,
)
from reviews.stages.evaluation import (
    scorer_checks as scorer,
)
from reviews.stages.finetuning import (
    checks as training,
)
from reviews.stages.finetuning import (
    optimizer_checks as optimisation,
)
from reviews.stages.finetuning import (
    preference_checks as preference,
)
from reviews.stages.generation import (
    checks as text,
)
from reviews.stages.generation import (
    residue_checks as residue,
)
from reviews.stages.generation import (
    sample_checks as samples,
)
from reviews.stages.generation import (
    variety_checks as variety,
)
from reviews.stages.judge import judge_of
from reviews.stages.packaging import checks as package
from reviews.stages.recipes import checks as recipe
from specs import plugins
from specs.errors import UserError
from specs.masking import without_secrets
from specs.stages.metric import MetricSet
from specs.stages.registry import STAGE_KINDS, kind_of, known_names
from specs.text import plain
from specs.trail.verdict import CheckResult

__all__ = [
    "CHECKS",
    "DESIGN_CHECKS",
    "Check",
    "DesignCheck",
    "Offered",
    "all_checks",
    "design_checks",
    "offered_checks",
    "run_checks",
]

CHECKS: tuple[Check, ...] = (
    *registration.CHECKS,
    *jobs.CHECKS,
    *measurable.CHECKS,
    *provenance.CHECKS,
    *claimed.CHECKS,
    *leakage.CHECKS,
    *pilots.CHECKS,
    *power.CHECKS,
    *parity.CHECKS,
    *scorer.CHECKS,
    *gap.CHECKS,
    *drift.CHECKS,
    *paired.CHECKS,
    *judges.CHECKS,
    *strata.CHECKS,
    *controls.CHECKS,
    *items.CHECKS,
    *health.CHECKS,
    *samples.CHECKS,
    *kept.CHECKS,
    *residue.CHECKS,
    *variety.CHECKS,
    *training.CHECKS,
    *optimisation.CHECKS,
    *preference.CHECKS,
    *text.CHECKS,
    *critics.CHECKS,
    *pairs.CHECKS,
    *package.CHECKS,
    *recipe.CHECKS,
)


class Offered(NamedTuple):
    """A check of another distribution, and which one that is."""

    check: Check
    distribution: str


def offered_checks() -> tuple[Offered, ...]:
    """Load the checks that other distributions offer.

    Raises:
        PluginFault: one cannot be loaded.
        UserError: one is no check, or has an id that is taken.
    """
    taken = {check.id: "peergate" for check in (*CHECKS, *DESIGN_CHECKS)}
    found: list[Offered] = []
    for where, release, loaded in _brought():
        if not isinstance(loaded, (list, tuple)):
            raise UserError(f"is a {type(loaded).__name__}, not a list of checks", where=where)
        for check in loaded:
            if not isinstance(check, Check) or not (callable(check.kinds) or set(check.kinds) <= set(known_names())):
                raise UserError(f"holds {plain(repr(check), 80)}, which is no check of a known stage kind", where=where)
            if check.id in taken:
                raise UserError(f"check id '{plain(check.id, 80)}' is already that of {taken[check.id]}", where=where)
            taken[check.id] = release
            found.append(Offered(check, release))
    return tuple(found)


def _brought() -> Iterator[tuple[str, str, Any]]:
    """Yield the checks of each entry point, and those of the judge of each loaded kind of another distribution."""
    for point in plugins.installed("peergate.checks"):
        yield plugins.where(point), plugins.release(point), plugins.load(point)
    for kind in STAGE_KINDS.values():
        if kind.plugin:
            yield f"{kind.plugin}, the judge of stage kind '{kind.name}'", kind.plugin, judge_of(kind).checks


def all_checks() -> tuple[Check, ...]:
    """Return Peergate's own checks, then those of other distributions."""
    return (*CHECKS, *(one.check for one in offered_checks()))


def run_checks(evidence: Evidence, metrics: MetricSet | None) -> tuple[CheckResult, ...]:
    """Run every check that belongs to the stage's kind, in a fixed order."""
    kind = kind_of(evidence.stage)
    return tuple(without_secrets(apply(check, evidence, metrics)) for check in all_checks() if check.belongs_to(kind))
