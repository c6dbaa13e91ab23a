"""The page of what the author of a stage kind declares: traits, parameters, metrics, and the parts of a judge."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from inspect import get_annotations
from typing import Any, get_args

from reviews.checks.definition import Check
from reviews.stages.judge import Judge
from sessions.reference.contract_fields import docstring, fields_of, own_texts, table
from specs.stages import row_metric
from specs.stages.kind import Added, Arm, Kept, StageKind
from specs.stages.metric import MetricDefinition
from specs.stages.stage import FOLDERS, ArtifactKind, Placed

_CLASSES = (Kept, Added, Arm)
_VALUES = (row_metric.where, row_metric.mean, row_metric.ratio, row_metric.share)


def kind_page() -> str:
    """Return the page."""
    parameters = [(f"`{one.name}`", one.type, one.default or "required", one.text) for one in fields_of(Placed)]
    defined = [(f"`{one.name}`", one.type, one.text) for one in fields_of(MetricDefinition)]
    parts = get_annotations(Judge)
    judge = [(f"`{name}`", f"`{parts[name].__forward_arg__}`", text) for name, text in own_texts(Judge).items()]
    classes = "\n\n".join(f"### {one.__name__}\n\n{docstring(one)}\n\n{_fields(one)}" for one in _CLASSES)
    values = [(f"`{one.__name__}{_signature(one)}`", docstring(one)) for one in _VALUES]
    values += [("`every`", f"The population: {row_metric.every.told}."), ("`count`", f"The {row_metric.count.told}.")]
    return (
        "# Declaring a stage kind\n\n"
        "[Extending](../extending.md#a-stage-kind-contract-job-and-judge) shows a whole kind. Artifact kinds are\n"
        f"{', '.join(f'`{one}`' for one in get_args(ArtifactKind))}; {' and '.join(FOLDERS)} are folders.\n\n"
        f"## StageKind\n\n{docstring(StageKind)}\n\n{_fields(StageKind)}\n\n{classes}\n\n"
        "## Parameters\n\n"
        "A contract with `seed`. Those of a job that loads a model are a subclass of `specs.stages.stage.Placed`:\n\n"
        f"{table(('parameter', 'type', 'default', 'what it is'), parameters)}\n\n"
        "## Metrics\n\n"
        f"`metric{_signature(row_metric.metric)}` of `specs.stages.row_metric` declares one over rows.\n\n"
        f"{docstring(row_metric.metric)}\n\n"
        f"{table(('population or value', 'what it is'), values)}\n\n"
        "A metric that the judge measures is a `MetricDefinition`:\n\n"
        f"{table(('field', 'type', 'what it is'), defined)}\n\n"
        f"## The judge\n\n{docstring(inspect.getmodule(Judge))}\n\n"
        f"{table(('name in the module', 'form', 'what it is'), judge)}\n\n"
        f"## Check\n\n{docstring(Check)}\n\n{_fields(Check)}\n"
    )


def _fields(declared: type[Any]) -> str:
    texts = own_texts(declared)
    fields = [one for one in dataclasses.fields(declared) if not one.name.startswith("_")]
    rows = [(f"`{one.name}`", f"`{one.type}`", _default(one), texts.get(one.name, "")) for one in fields]
    return table(("field", "type", "default", "what it is"), rows)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "empty"
    if field.default is dataclasses.MISSING:
        return "required"
    return f"`{field.default!r}`" if field.default not in ("", ()) else "empty"


def _signature(function: Callable[..., Any]) -> str:
    given = inspect.signature(function)
    return str(given.replace(return_annotation=inspect.Signature.empty)).replace("'", "").replace('"', "")
