"""Every check as a listing: what it asks, where it comes from, and the source of its function. Nothing is run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reviews.checks.definition import Check
from reviews.checks.limit import Limit
from reviews.gate.check_list import CHECKS, offered_checks
from reviews.gate.design_checks import DESIGN_CHECKS, DesignCheck
from specs.errors import UserError
from specs.stages.registry import STAGE_KINDS, known_names


@dataclass(frozen=True)
class Listed:
    """One check as it is shown."""

    id: str
    title: str
    stage_kinds: tuple[str, ...]
    """``design`` for a check that runs before anything is spent."""
    blocking: bool
    threshold: str | None
    """In one line: the limit of a spec that does not set it, and the key that sets it."""
    source: str
    only_treatment: bool
    distribution: str
    limits: tuple[Limit, ...]
    run: Callable[..., Any]

    @property
    def weight(self) -> str:
        """Whether it closes a gate, in a word."""
        return "blocking" if self.blocking else "advice"

    def as_json(self) -> dict[str, Any]:
        """Return everything but the function."""
        limits = [
            {"key": one.key, "sign": one.sign, "default": one.default(), "meaning": one.meaning()}
            for one in self.limits
        ]
        shown = vars(self) | {"stage_kinds": list(self.stage_kinds), "limits": limits}
        return {name: value for name, value in shown.items() if name != "run"}

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


def listing() -> tuple[Listed, ...]:
    """Return the design checks, then Peergate's own checks, then those of every installed distribution.

    Raises:
        PluginFault: a distribution's stage kind or its checks cannot be loaded.
        UserError: the checks of another distribution are refused.
    """
    for name in known_names():
        _ = STAGE_KINDS[name]  # Loads the kind, whose judge may bring checks.
    design = [_listed(check, "peergate") for check in DESIGN_CHECKS]
    own = [_listed(check, "peergate") for check in CHECKS]
    return (*design, *own, *(_listed(one.check, one.distribution) for one in offered_checks()))


def find_check(id: str) -> Listed:
    """Return the check with this id.

    Raises:
        UserError: there is no such check.
    """
    every = listing()
    found = next((one for one in every if one.id == id), None)
    if found is None:
        near = [one.id for one in every if id and (id in one.id or one.id.split(".")[0] == id.split(".")[0])]
        hint = f"did you mean: {', '.join(near)}" if near else "`peergate check list` shows every check"
        raise UserError(f"no check '{id}'", hint=hint)
    return found


def _listed(check: Check | DesignCheck, distribution: str) -> Listed:
    staged = isinstance(check, Check)
    return Listed(
        id=check.id,
        title=check.title,
        stage_kinds=check.kind_names() if staged else ("design",),
        blocking=check.blocking,
        threshold="; ".join(_told(limit) for limit in check.limits) or (check.threshold if staged else None),
        source=check.source,
        only_treatment=staged and check.only_treatment,
        distribution=distribution,
        limits=check.limits,
        run=check.run,
    )


def _told(limit: Limit) -> str:
    default = limit.default()
    return f"{limit.sign} {limit.key}" if default is None else f"{limit.told(default)} ({limit.key})"
