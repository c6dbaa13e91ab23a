"""Deterministic checks: the floor that no reviewer can lift.

Other distributions add checks with an entry point of the group ``peergate.checks``, which names a list of
:class:`reviews.checks.definition.GateCheck`. They can close a gate, never open one. One that cannot be loaded is an
error: a check that is silently missing would be an open gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from reviews.checks import (
    claim_lookup,
    complete_rows,
    job_checks,
    leakage_checks,
    pilot_check,
    registration_checks,
    score_checks,
    witness_checks,
)
from reviews.checks.definition import GateCheck, apply
from reviews.checks.measuring_code import judge_modules
from reviews.comparison import (
    learning_curve,
    paired_checks,
    parity_checks,
    power_checks,
    principle_checks,
    subgroup_checks,
    transfer,
)
from reviews.evidence.defect_waves import family_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import gate_cache
from reviews.gate import measurer
from reviews.gate.design_checks import DESIGN_CHECKS
from reviews.stages.judge import judge_of
from specs.session.design import ResolvedDesign
from specs.stages.base.metric import MetricSet
from specs.stages.registry import STAGE_KINDS, kind_of, known_names
from specs.system import plugins
from specs.system.errors import UserError
from specs.system.masking import forms_only, without_secrets
from specs.system.text import plain
from specs.trail.verdict import CheckResult

_OF_MANY_KINDS = (
    *(registration_checks, job_checks, witness_checks, score_checks, measurer, claim_lookup, leakage_checks),
    *(pilot_check, power_checks, parity_checks, learning_curve, paired_checks, subgroup_checks, principle_checks),
    *(transfer, complete_rows),
)
CHECKS: tuple[GateCheck, ...] = tuple(
    check
    for module in (*_OF_MANY_KINDS, *map(import_module, judge_modules()))
    for check in getattr(module, "CHECKS", ())
)
"""In the order of the packet: those of many kinds, then those next to the judge of each kind."""


class CheckOffer(NamedTuple):
    """A check of another distribution, and its name and version."""

    check: GateCheck
    distribution: str


def offered_checks(resolved: ResolvedDesign | None = None) -> tuple[CheckOffer, ...]:
    """Load the checks of other distributions that a session registered; all that are installed without a session.

    Raises:
        PluginFault: one cannot be loaded.
        UserError: one is not a check, or has an id that is taken.
    """
    used = {check.id: "peergate" for check in (*CHECKS, *DESIGN_CHECKS)}
    results: list[CheckOffer] = []
    for where, release, loaded in _load_plugin_checks(resolved):
        if not isinstance(loaded, (list, tuple)):
            raise UserError(f"is a {type(loaded).__name__}, not a list of checks", where=where)
        for check in loaded:
            if not isinstance(check, GateCheck) or not (
                callable(check.kinds) or set(check.kinds) <= set(known_names())
            ):
                what = f"holds {plain(repr(check), 80)}, which is not a check of a known stage kind"
                raise UserError(what, where=where)
            if check.id in used:
                raise UserError(f"check id '{plain(check.id, 80)}' is already used by {used[check.id]}", where=where)
            used[check.id] = release
            results.append(CheckOffer(check, release))
    return tuple(results)


def _load_plugin_checks(resolved: ResolvedDesign | None) -> Iterator[tuple[str, str, Any]]:
    """Yield the checks of each entry point, and those of the judge of each kind of another distribution."""
    for point in plugins.find_entry_points("peergate.checks"):
        if resolved is None or plugins.key_of(point) in resolved.plugins:
            yield plugins.where(point), plugins.release(point), plugins.load(point)
    used = [kind_of(stage) for stage in resolved.spec.stages] if resolved else STAGE_KINDS.values()
    for kind in {stage_kind.name: stage_kind for stage_kind in used if stage_kind.plugin}.values():
        yield f"{kind.plugin}, the judge of stage kind '{kind.name}'", kind.plugin, judge_of(kind).checks


def all_checks(resolved: ResolvedDesign) -> tuple[GateCheck, ...]:
    """Return Peergate's own checks, then those of other distributions that the session registered."""
    return (*CHECKS, *(offered_check.check for offered_check in offered_checks(resolved)))


def run_checks(evidence: Evidence, metrics: MetricSet | None) -> tuple[CheckResult, ...]:
    """Run every check that belongs to the stage's kind, in a fixed order."""
    kind = kind_of(evidence.stage)
    checks = [check for check in all_checks(evidence.resolved) if check.belongs_to(kind)]
    with gate_cache():
        check_results = tuple(_add_due_defect(apply(check, evidence, metrics), evidence) for check in checks)
    # Looked through together, and one by one only where there is something to mask.
    every = [check_result.model_dump(mode="json") for check_result in check_results]
    return check_results if forms_only().value(every) is every else tuple(map(without_secrets, check_results))


def _add_due_defect(check_result: CheckResult, evidence: Evidence) -> CheckResult:
    """Return a result that says which defect of its family it has to pass for; advice stays advice."""
    by = evidence.required_families.get(family_of(check_result.id)) if check_result.blocking else None
    return check_result.model_copy(update={"scheduled_by": by}) if by else check_result
