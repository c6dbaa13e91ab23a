"""The pages of contracts: a spec, stage kinds with their metrics, declaring one, kinds of trail entries."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any, get_args

from pydantic import BaseModel

from reviews.checks.definition import GateCheck
from reviews.stages.judge import Judge
from sessions.commands.contract_fields import (
    contract_table,
    docstring,
    fields_of,
    nested_contracts,
    own_texts,
    table,
)
from specs.session.session_spec import SessionSpec
from specs.stages.base import metric as metric_forms
from specs.stages.base.artifacts import Item
from specs.stages.base.kind import ArmTraits, ConditionalPorts, RequiredOutput, StageKind
from specs.stages.base.metric import MetricDefinition
from specs.stages.base.stage import FOLDERS, ArtifactKind, DeviceParameters, StageBase
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import built_in_kinds
from specs.trail.bodies import FORMS
from specs.trail.entry import Entry
from specs.trail.key_policy import SIGNERS

_CLASSES = (RequiredOutput, ConditionalPorts, ArmTraits)
_VALUES = (metric_forms.where, metric_forms.mean, metric_forms.ratio, metric_forms.share)


def spec_page() -> str:
    """Return the page of the fields of a spec, without the parameters of its stages."""
    left_out = {kind.parameters for kind in built_in_kinds()}

    def is_shown(model: type[BaseModel]) -> bool:
        return model not in left_out and not issubclass(model, StageBase)

    results = nested_contracts((SessionSpec, StageBase), is_shown) | {"Stage": StageBase, "Item": Item}
    parts = [
        "# Fields of a spec",
        docstring(SessionSpec),
        "`peergate spec kinds KIND` lists the `parameters` of a stage. `profiles` is a mapping of names to "
        "what each changes.",
        contract_table(SessionSpec),
    ]
    for name, model in sorted(results.items()):
        text = docstring(model) or ("One line of a data file." if model is Item else "")
        parts += [f"## {'Every stage' if model is StageBase else name}", text, contract_table(model)]
    return _join_lines(parts)


def entry_page() -> str:
    """Return the page of the kinds of trail entries: who signs them and what their bodies hold."""
    parts = [
        "# Kinds of trail entries",
        "Each entry is a DSSE envelope around an in-toto statement ([the trail](../explanation/trail.md)). JSON "
        "Schemas of the bodies are in `specs/schema/bodies/`.",
        contract_table(Entry, "field of every entry"),
    ]
    for kind, form in FORMS.items():
        signers = " or ".join(SIGNERS.get(kind, SIGNERS["*"]))
        person = " (a person's own: human)" if f"{kind}:person" in SIGNERS else ""
        parts += [f"## {kind}", docstring(form), f"Signed by: {signers}{person}.", contract_table(form)]
    # Contracts of a spec have their own page.
    nested = nested_contracts(
        list(FORMS.values()), lambda base_model_class: not base_model_class.__module__.startswith("specs.session")
    )
    return _join_lines([*parts, *_sections(nested, "field")])


def stage_pages() -> dict[str, str]:
    """Return the page that lists all of Peergate's stage kinds, and a page for each family, by path."""
    families: dict[str, list[StageKind]] = {}
    for kind in built_in_kinds():
        families.setdefault(_family(kind), []).append(kind)
    pages = {f"stages/{family}.md": _family_page(family, members) for family, members in families.items()}
    return {"stages/README.md": _index_page()} | pages


def _index_page() -> str:
    rows = [
        (f"[`{kind.name}`]({_family(kind)}.md#{kind.name})", docstring(kind.parameters).split("\n\n")[0], *_ends(kind))
        for kind in built_in_kinds()
    ]
    scopes = {metric.scope for metric in METRICS.values()} - {kind.name for kind in built_in_kinds()}
    text = "\n\n".join(f"### {scope}\n\n{_metrics(_metrics_of(scope))}" for scope in sorted(scopes))
    return (
        "# Stage kinds\n\n"
        f"{table(('kind', 'what it does', 'reads', 'leaves'), rows)}\n\n"
        "## Metrics of the comparison\n\n"
        "Peergate measures them at the treatment stage, from the raw rows of both arms. `rule` holds what the rule on\n"
        "kinds and the controls of `analysis` ask.\n\n"
        f"{text}\n"
    )


def _family_page(family: str, members: Iterable[StageKind]) -> str:
    parts = [f"# {family.capitalize()}: parameters and metrics"]
    for kind in members:
        reads, leaves = _ends(kind)
        metric_definitions = _metrics_of(kind.name)
        parts += [f"## {kind.name}", docstring(kind.parameters), f"Reads {reads}. Leaves {leaves}."]
        parts.append(contract_table(kind.parameters, "parameter"))
        parts.append(_metrics(metric_definitions) if metric_definitions else "No metric is measured of this kind.")
    nested = nested_contracts([kind.parameters for kind in members], lambda _: True)
    return _join_lines([*parts, *_sections(nested, "parameter")])


def _family(kind: StageKind) -> str:
    """Return the folder that declares the parameters of a kind."""
    return kind.parameters.__module__.split(".")[2]


def _metrics_of(scope: str) -> list[MetricDefinition]:
    return [metric for metric in METRICS.values() if metric.scope == scope]


def _metrics(metrics: Iterable[MetricDefinition]) -> str:
    rows = [
        (f"`{metric.id}`", metric.unit, metric.definition, metric.population, metric.direction) for metric in metrics
    ]
    return table(("metric", "unit", "definition", "population", "better"), rows)


def _ends(kind: StageKind) -> tuple[str, str]:
    ends = kind.inputs, kind.outputs
    reads, leaves = (
        ", ".join(f"`{role}` ({what})" for role, what in artifact_kinds.items()) for artifact_kinds in ends
    )
    return reads or "what its stage names", leaves


def _sections(models: dict[str, type[BaseModel]], head: str) -> Iterable[str]:
    for name, model in sorted(models.items()):
        yield from (f"## {name}", docstring(model), contract_table(model, head))


def _join_lines(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def kind_page() -> str:
    """Return the page of what the author of a stage kind declares: traits, parameters, metrics, a judge's parts."""
    parameters = [
        (
            f"`{documented_field.name}`",
            documented_field.type,
            documented_field.default or "required",
            documented_field.text,
        )
        for documented_field in fields_of(DeviceParameters)
    ]
    defined = [
        (f"`{documented_field.name}`", documented_field.type, documented_field.text)
        for documented_field in fields_of(MetricDefinition)
    ]
    parts = inspect.get_annotations(Judge)
    judge = [(f"`{name}`", f"`{parts[name].__forward_arg__}`", text) for name, text in own_texts(Judge).items()]
    classes = "\n\n".join(f"### {value.__name__}\n\n{docstring(value)}\n\n{_fields(value)}" for value in _CLASSES)
    values = [(f"`{value.__name__}{_signature(value)}`", docstring(value)) for value in _VALUES]
    values += [
        ("`every`", f"The population: {metric_forms.every.description}."),
        ("`count`", f"The {metric_forms.count.definition}."),
    ]
    return (
        "# Declaring a stage kind\n\n"
        "[Extending](../extending.md#a-stage-kind-contract-job-and-judge) shows a whole kind. Artifact kinds are\n"
        f"{', '.join(f'`{arg}`' for arg in get_args(ArtifactKind))}; {' and '.join(FOLDERS)} are folders.\n\n"
        f"## StageKind\n\n{docstring(StageKind)}\n\n{_fields(StageKind)}\n\n{classes}\n\n"
        "## Parameters\n\n"
        "A contract with `seed`. Those of a job that loads a model are a subclass of "
        "`specs.stages.base.stage.DeviceParameters`:\n\n"
        f"{table(('parameter', 'type', 'default', 'what it is'), parameters)}\n\n"
        "## Metrics\n\n"
        f"`metric{_signature(metric_forms.metric)}` of `specs.stages.base.metric` declares one over rows.\n\n"
        f"{docstring(metric_forms.metric)}\n\n"
        f"{table(('population or value', 'what it is'), values)}\n\n"
        "A metric that the judge measures is a `MetricDefinition`:\n\n"
        f"{table(('field', 'type', 'what it is'), defined)}\n\n"
        f"## The judge\n\n{docstring(inspect.getmodule(Judge))}\n\n"
        f"{table(('name in the module', 'form', 'what it is'), judge)}\n\n"
        f"## Check\n\n{docstring(GateCheck)}\n\n{_fields(GateCheck)}\n"
    )


def _fields(declared: type[Any]) -> str:
    texts = own_texts(declared)
    fields = [field for field in dataclasses.fields(declared) if not field.name.startswith("_")]
    rows = [(f"`{field.name}`", f"`{field.type}`", _default(field), texts.get(field.name, "")) for field in fields]
    return table(("field", "type", "default", "what it is"), rows)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "empty"
    if field.default is dataclasses.MISSING:
        return "required"
    return f"`{field.default!r}`" if field.default not in ("", ()) else "empty"


def _signature(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    return str(signature.replace(return_annotation=inspect.Signature.empty)).replace("'", "").replace('"', "")
