"""Every check as a listing: what it asks, where it comes from, and the source of its function. Nothing is run."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any

from reviews.checks.definition import CheckLimit, GateCheck
from reviews.gate.check_list import CHECKS, CheckOffer, offered_checks
from reviews.gate.design_checks import DESIGN_CHECKS, DESIGN_GATE
from reviews.gate.loosening_check import AMENDMENT_GATE
from reviews.gate.loosening_check import CHECKS as AMENDMENT_CHECKS
from specs.stages.registry import STAGE_KINDS, known_names
from specs.system.errors import UserError


@dataclass(frozen=True)
class CatalogCheck(GateCheck):
    """One check as it is shown; its threshold names the limit of a spec that does not set it, and the key that does."""

    distribution: str = "peergate"

    @property
    def stage_kinds(self) -> tuple[str, ...]:
        """The kinds it belongs to; ``design`` before anything is spent, ``amendment`` for what an amended spec gets."""
        return next((gate for gate in (DESIGN_GATE, AMENDMENT_GATE) if self.kinds == gate), self.kind_names())

    @property
    def weight(self) -> str:
        """Return whether it closes a gate, in a word."""
        return "blocking" if self.blocking else "advice"

    def as_json(self) -> dict[str, Any]:
        """Return everything but the function."""
        limits = [
            {"key": limit.key, "sign": limit.sign, "default": limit.default(), "meaning": limit.meaning()}
            for limit in self.limits
        ]
        names = ("id", "title", "stage_kinds", "blocking", "threshold", "source", "only_treatment", "distribution")
        return {name: getattr(self, name) for name in names} | {"limits": limits}

    def what(self) -> str:
        """Return the docstring of its function, or of the module it is in."""
        module = inspect.getmodule(self.run)
        return inspect.getdoc(self.run) or (inspect.getdoc(module) if module else None) or ""

    def code(self) -> str:
        """Return the source text of its function; empty if it has none."""
        try:
            return inspect.getsource(self.run)
        except (OSError, TypeError):
            return ""


def listing() -> tuple[CatalogCheck, ...]:
    """Return the checks of designs and amendments, Peergate's own of attempts, and those of installed distributions.

    Raises:
        PluginFault: a distribution's stage kind or its checks cannot be loaded.
        UserError: as :func:`reviews.gate.check_list.offered_checks`.
    """
    for name in known_names():
        _ = STAGE_KINDS[name]  # Loads the kind, whose judge may bring checks.
    own = [CheckOffer(check, "peergate") for check in (*DESIGN_CHECKS, *AMENDMENT_CHECKS, *CHECKS)]
    return tuple(_make_catalog_check(*offered_check) for offered_check in (*own, *offered_checks()))


def find_check(id: str) -> CatalogCheck:
    """Return the check with this id.

    Raises:
        UserError: there is no such check.
    """
    every = listing()
    result = next((value for value in every if value.id == id), None)
    if result is None:
        near = [value.id for value in every if id and (id in value.id or value.id.split(".")[0] == id.split(".")[0])]
        hint = f"did you mean: {', '.join(near)}" if near else "`peergate check list` shows every check"
        raise UserError(f"no check '{id}'", hint=hint)
    return result


def _make_catalog_check(check: GateCheck, distribution: str) -> CatalogCheck:
    facts: dict[str, Any] = {field.name: getattr(check, field.name) for field in fields(GateCheck)}
    facts["threshold"] = "; ".join(_format_limit(limit) for limit in check.limits) or check.threshold
    return CatalogCheck(**facts, distribution=distribution)


def _format_limit(limit: CheckLimit) -> str:
    default = limit.default()
    return f"{limit.sign} {limit.key}" if default is None else f"{limit.format_value(default)} ({limit.key})"
