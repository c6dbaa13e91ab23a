"""The judge of a stage kind: a module in which each part is found by its name (:class:`Judge`); all are optional."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from reviews.checks.definition import GateCheck
from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import MeasuredValue
from reviews.evidence.row_lines import Subjects
from specs.session.evaluation_plan import Outcome
from specs.stages.base.kind import StageKind
from specs.system import plugins
from specs.system.errors import PluginFault

Rows = list[dict[str, Any]]


class EffectEstimate(NamedTuple):
    """After minus before, turned so that more is better, with its 95 % interval."""

    value: float
    interval: tuple[float, float]
    description: str


class Judge(NamedTuple):
    """The parts of a kind's judge; None or empty where it has none."""

    read: Callable[[Evidence, str], Subjects | None] | None
    """Return what the metrics over an output are computed from, checked and computed again; None where this attempt
    has no such metrics. Without it the rows are taken as they are written."""
    measure: Callable[[Evidence], dict[str, MeasuredValue]] | None
    """Return the metrics whose declared value is a ``judged_value``; errors as those of reading rows."""
    summarise_rows: Callable[[Evidence], Rows] | None
    """Return the rows in the short form a packet shows."""
    outcomes: Callable[[Evidence, Path | None, Outcome], list[float]] | None
    """Return one number an item from a file of rows, in the order of the items; more is better."""
    change: Callable[[Evidence, str], EffectEstimate] | None
    """Return the change since an earlier stage of the same kind, where it is not one of items passed."""
    checks: tuple[GateCheck, ...]


@cache
def judge_of(kind: StageKind) -> Judge:
    """Return the judge of a kind.

    Raises:
        PluginFault: it is that of another distribution, and cannot be loaded or is not a judge.
    """
    message = f"{kind.plugin}, the judge of stage kind '{kind.name}'"
    module = (
        plugins.run_bounded(lambda: import_module(kind.judge), message) if kind.plugin else import_module(kind.judge)
    )
    return _parts(module, message)


def _parts(module: ModuleType, text: str) -> Judge:
    parts: dict[str, Any] = {name: getattr(module, name, None) for name in Judge._fields if name != "checks"}
    checks: Any = getattr(module, "CHECKS", ())
    for name, part in parts.items():
        if part is not None and not callable(part):
            raise PluginFault(f"its {name} is a {type(part).__name__}, not a function", where=text)
    if not isinstance(checks, tuple | list) or not all(isinstance(check, GateCheck) for check in checks):
        raise PluginFault("its CHECKS is not a list of checks", where=text)
    return Judge(checks=tuple(checks), **parts)
