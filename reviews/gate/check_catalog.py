"""Every check as one listing: what it asks, where it comes from, and what its code reads. Nothing is run.

What a check needs is read from its source text: the evidence it names and the metrics it asks for, followed through
the functions it hands its evidence to. A check that hides its reads (``getattr``) shows fewer than it has.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from reviews.checks.definition import Check
from reviews.checks.limit import Limit
from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import CHECKS, offered_checks
from reviews.gate.design_checks import DESIGN_CHECKS, Design, DesignCheck
from specs.errors import UserError

_METRIC_READS = ("need", "need_exact")
_READABLE = {field.name for field in fields(Evidence)} | set(Design._fields)


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

    def as_json(self) -> dict[str, Any]:
        """Return everything but the function."""
        shown = {name: value for name, value in vars(self).items() if name != "run"}
        limits = [
            {"key": one.key, "sign": one.sign, "default": one.default(), "meaning": one.meaning()}
            for one in self.limits
        ]
        return shown | {"stage_kinds": list(self.stage_kinds), "limits": limits}


@dataclass(frozen=True)
class Explained:
    """What the source text of a check says."""

    what: str
    """The docstring of its function, or of the module it stands in."""
    evidence: tuple[str, ...]
    metrics: tuple[str, ...]
    thresholds: tuple[str, ...]
    """The thresholds of the spec that the code reads."""
    code: str


def listing() -> tuple[Listed, ...]:
    """Return the design checks, then Peergate's own checks, then those of other distributions.

    Raises:
        UserError: the checks of another distribution are refused.
    """
    design = [_listed(check, "peergate") for check in DESIGN_CHECKS]
    own = [_listed(check, "peergate") for check in CHECKS]
    return (*design, *own, *(_listed(one.check, one.distribution) for one in offered_checks()))


def find_check(id: str) -> Listed:
    """Return the check with this id.

    Raises:
        UserError: there is none.
    """
    every = listing()
    found = next((one for one in every if one.id == id), None)
    if found is None:
        near = [one.id for one in every if id and (id in one.id or one.id.split(".")[0] == id.split(".")[0])]
        hint = f"did you mean: {', '.join(near)}" if near else "`peergate check list` shows every check"
        raise UserError(f"no check '{id}'", hint=hint)
    return found


def explain(check: Listed) -> Explained:
    """Read what a check does and needs from its source text."""
    evidence: set[str] = set()
    metrics: set[str] = set()
    thresholds: set[str] = set()
    for tree in _functions(check.run, set()):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in ("evidence", "design") and node.attr in _READABLE:
                    evidence.add(node.attr)
                elif node.value.id == "thresholds":
                    thresholds.add(node.attr)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
                if node.value.attr == "thresholds":
                    thresholds.add(node.attr)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _METRIC_READS:
                metrics |= {str(one.value) for one in node.args if isinstance(one, ast.Constant)}
    module = inspect.getmodule(check.run)
    what = inspect.getdoc(check.run) or (inspect.getdoc(module) if module else None) or ""
    code = _source(check.run)
    return Explained(what, tuple(sorted(evidence)), tuple(sorted(metrics)), tuple(sorted(thresholds)), code)


def _listed(check: Check | DesignCheck, distribution: str) -> Listed:
    staged = isinstance(check, Check)
    return Listed(
        id=check.id,
        title=check.title,
        stage_kinds=check.kind_names() if staged else ("design",),
        blocking=check.blocking,
        threshold="; ".join(_told(limit) for limit in check.limits) or check.threshold,
        source=check.source,
        only_treatment=staged and check.only_treatment,
        distribution=distribution,
        limits=check.limits,
        run=check.run,
    )


def _told(limit: Limit) -> str:
    default = limit.default()
    return f"{limit.sign} {limit.key}" if default is None else f"{limit.told(default)} ({limit.key})"


def _functions(function: Callable[..., Any], seen: set[str]) -> Iterator[ast.AST]:
    """Yield the syntax tree of a function and of those it passes its evidence to."""
    source = _source(function)
    if not source or source in seen:
        return
    seen.add(source)
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return
    yield tree
    names: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        passed = {one.id for one in node.args if isinstance(one, ast.Name)}
        called = names.get(node.func.id)
        if passed & {"evidence", "design"} and inspect.isfunction(called):
            yield from _functions(called, seen)


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""
