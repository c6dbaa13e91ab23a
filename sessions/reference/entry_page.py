"""The page of the kinds of trail entries: who signs them and what their bodies hold."""

from __future__ import annotations

from pydantic import BaseModel

from sessions.reference.contract_fields import contracts_in, docstring, fields_of, table
from specs.trail.bodies import FORMS
from specs.trail.entry import Entry
from specs.trail.key_policy import SIGNERS


def entry_page() -> str:
    """Return the page."""
    parts = [
        "# Kinds of trail entries",
        "Each entry is a DSSE envelope around an in-toto statement ([the trail](../explanation/trail.md)). JSON "
        "Schemas of the bodies are in `specs/schema/bodies/`.",
        table(("field of every entry", "type", "default", "what it is"), _rows(Entry)),
    ]
    nested: dict[str, type[BaseModel]] = {}
    for kind, form in FORMS.items():
        signers = " or ".join(SIGNERS.get(kind, SIGNERS["*"]))
        person = " (a person's own: human)" if f"{kind}:person" in SIGNERS else ""
        parts += [
            f"## {kind}",
            docstring(form.body),
            f"Version {form.version}. Signed by: {signers}{person}.",
            table(("field", "type", "default", "what it is"), _rows(form.body)),
        ]
        _collect(form.body, nested)
    for name in sorted(nested):
        parts += [f"## {name}", docstring(nested[name]), table(_HEADS, _rows(nested[name]))]
    return "\n\n".join(part for part in parts if part) + "\n"


_HEADS = ("field", "type", "default", "what it is")


def _collect(model: type[BaseModel], found: dict[str, type[BaseModel]]) -> None:
    """Follow contracts of the trail; those of a spec have their own page."""
    for one in contracts_in(model):
        if one.__name__ not in found and not one.__module__.startswith("specs.session"):
            found[one.__name__] = one
            _collect(one, found)


def _rows(model: type[BaseModel]) -> list[tuple[str, ...]]:
    return [(f"`{one.name}`", one.type, one.default or "required", one.text) for one in fields_of(model)]
