"""Deterministic checks: the floor that no reviewer can lift. One small function each, by family.

Other distributions add checks with an entry point of the group ``peergate.checks`` that names a list of
:class:`reviews.checks.definition.Check`. They can close a gate, never open one. One that cannot be loaded is an error:
a check that is silently missing would be an open gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from reviews.checks import (
    claim_checks,
    job_checks,
    leakage_checks,
    nonempty_output,
    pilot_check,
    provenance_check,
    registration_checks,
)
from reviews.checks.definition import Check, apply
from reviews.comparison import (
    control_checks,
    drift_checks,
    headroom_check,
    paired_checks,
    parity_checks,
    power_checks,
    subgroup_checks,
)
from reviews.evidence.evidence import Evidence
from reviews.gate import measurer
from reviews.gate.design_checks import DESIGN_CHECKS, DesignCheck, design_checks
from reviews.stages.critique import critic_checks, pair_checks
from reviews.stages.evaluation import (
    answer_checks,
    item_checks,
    judge_checks,
    scorer_checks,
)
from reviews.stages.finetuning import (
    checks as training,
)
from reviews.stages.finetuning import (
    optimizer_checks,
    preference_checks,
)
from reviews.stages.generation import (
    checks as text,
)
from reviews.stages.generation import (
    residue_checks,
    sample_checks,
    variety_checks,
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
    *registration_checks.CHECKS,
    *job_checks.CHECKS,
    *measurer.CHECKS,
    *provenance_check.CHECKS,
    *claim_checks.CHECKS,
    *leakage_checks.CHECKS,
    *pilot_check.CHECKS,
    *power_checks.CHECKS,
    *parity_checks.CHECKS,
    *scorer_checks.CHECKS,
    *headroom_check.CHECKS,
    *drift_checks.CHECKS,
    *paired_checks.CHECKS,
    *judge_checks.CHECKS,
    *subgroup_checks.CHECKS,
    *control_checks.CHECKS,
    *item_checks.CHECKS,
    *answer_checks.CHECKS,
    *sample_checks.CHECKS,
    *nonempty_output.CHECKS,
    *residue_checks.CHECKS,
    *variety_checks.CHECKS,
    *training.CHECKS,
    *optimizer_checks.CHECKS,
    *preference_checks.CHECKS,
    *text.CHECKS,
    *critic_checks.CHECKS,
    *pair_checks.CHECKS,
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
