"""The page of the fields of a spec, without the parameters of its stages."""

from __future__ import annotations

from pydantic import BaseModel

from sessions.reference.contract_fields import DocumentedField, contracts_in, docstring, fields_of, table
from sessions.reference.stage_pages import kinds, parameters_of
from specs.session.session_spec import SessionSpec
from specs.stages.artifacts import Item
from specs.stages.stage import StageBase


def spec_page() -> str:
    """Return the page."""
    left_out = {parameters_of(kind) for kind in kinds()}
    found: dict[str, type[BaseModel]] = {}

    def collect(model: type[BaseModel]) -> None:
        for one in contracts_in(model):
            if one not in left_out and not issubclass(one, StageBase) and one.__name__ not in found:
                found[one.__name__] = one
                collect(one)

    collect(SessionSpec)
    found["Stage"] = StageBase
    collect(StageBase)
    found["Item"] = Item
    parts = [
        "# Fields of a spec",
        docstring(SessionSpec),
        "`parameters` of a stage are on the page of its [kind](stages/README.md). `profiles` is a mapping of names to "
        "what each changes.",
        _fields(SessionSpec),
    ]
    for name in sorted(found):
        title = "Every stage" if found[name] is StageBase else name
        text = "One line of a data file." if found[name] is Item and not docstring(Item) else docstring(found[name])
        parts += [f"## {title}", text, _fields(found[name])]
    return "\n\n".join(parts) + "\n"


def _fields(model: type[BaseModel]) -> str:
    rows = [(f"`{one.name}`", _type(one), one.default or "required", one.text) for one in fields_of(model)]
    return table(("field", "type", "default", "what it is"), rows)


def _type(field: DocumentedField) -> str:
    """Return a field's type; the union of all kinds of stages in two words."""
    return "list of stages" if field.name == "stages" else field.type
