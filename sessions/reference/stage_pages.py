"""Pages of the stage kinds, one a family. What is declared of a kind is read by the functions at the top alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from sessions.reference.contract_fields import contracts_in, docstring, fields_of, table
from specs.stages.metric import MetricDefinition
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import STAGE_KINDS

_FIELDS = ("field", "type", "default", "what it is")


def kinds() -> tuple[str, ...]:
    """Return the names of all stage kinds, in the registry's order."""
    return tuple(STAGE_KINDS)


def parameters_of(kind: str) -> type[BaseModel]:
    """Return the parameters of a kind."""
    return STAGE_KINDS[kind].parameters


def ends_of(kind: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return what a kind reads and what it leaves, each by role."""
    found = STAGE_KINDS[kind]
    return found.inputs, found.outputs


def family_of(kind: str) -> str:
    """Return the family of a kind: the folder its parameters are in."""
    return parameters_of(kind).__module__.split(".")[2]


def metrics_of(scope: str) -> tuple[MetricDefinition, ...]:
    """Return the metrics that are measured of a kind, or of a comparison."""
    return tuple(one for one in METRICS.values() if one.scope == scope)


def families() -> dict[str, list[str]]:
    """Return the kinds of each family."""
    found: dict[str, list[str]] = {}
    for kind in kinds():
        found.setdefault(family_of(kind), []).append(kind)
    return found


def index_page() -> str:
    """Return the page that lists all kinds, and the metrics of the comparison."""
    rows = [
        (f"[`{kind}`]({family_of(kind)}.md#{kind})", docstring(parameters_of(kind)).split("\n\n")[0], *_ends(kind))
        for kind in kinds()
    ]
    other = sorted({one.scope for one in METRICS.values()} - set(kinds()))
    shown = "\n\n".join(f"### {scope}\n\n{metric_table(metrics_of(scope))}" for scope in other)
    return (
        "# Stage kinds\n\n"
        f"{table(('kind', 'what it does', 'reads', 'leaves'), rows)}\n\n"
        "## Metrics of the comparison\n\n"
        "Peergate measures them at the treatment stage, from the raw rows of both arms. `rule` holds what the rule on\n"
        "kinds and the controls of `analysis` ask.\n\n"
        f"{shown}\n"
    )


def family_page(family: str, members: Iterable[str]) -> str:
    """Return the page of a family."""
    parts = [f"# {family.capitalize()}: parameters and metrics"]
    seen: dict[str, type[BaseModel]] = {}
    for kind in members:
        model = parameters_of(kind)
        reads, leaves = _ends(kind)
        parts += [f"## {kind}", docstring(model), f"Reads {reads}. Leaves {leaves}.", _parameters(model)]
        found = metrics_of(kind)
        parts.append(metric_table(found) if found else "No metric is measured of this kind.")
        seen |= {one.__name__: one for one in _nested(model)}
    for name in sorted(seen):
        parts += [f"## {name}", docstring(seen[name]), _parameters(seen[name])]
    return "\n\n".join(parts) + "\n"


def metric_table(metrics: Iterable[MetricDefinition]) -> str:
    """Return definitions as a table."""
    rows = [(f"`{one.id}`", one.unit, one.definition, one.population, one.direction) for one in metrics]
    return table(("metric", "unit", "definition", "population", "better"), rows)


def _parameters(model: type[BaseModel]) -> str:
    rows = [(f"`{one.name}`", one.type, one.default or "required", one.text) for one in fields_of(model)]
    return table(("parameter", *_FIELDS[1:]), rows)


def _nested(model: type[BaseModel]) -> Iterable[type[BaseModel]]:
    for one in contracts_in(model):
        yield one
        yield from _nested(one)


def _ends(kind: str) -> tuple[str, str]:
    reads, leaves = (", ".join(f"`{role}` ({what})" for role, what in one.items()) for one in ends_of(kind))
    return reads or "what its stage names", leaves
