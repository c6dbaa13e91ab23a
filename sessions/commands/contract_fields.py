"""The fields of a contract for a reader: name, type, default, limits, and the text below each."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from specs.session.defaults import MAY_BE_LEFT_OUT

LONGEST_DEFAULT = 60
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
_SIMPLE: dict[Any, str] = {
    int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "null", Any: "any value"
}  # fmt: skip


class DocumentedField(NamedTuple):
    """One field of a contract in words; the default of a required field is empty."""

    name: str
    type: str
    default: str
    text: str


def fields_of(model: type[BaseModel]) -> tuple[DocumentedField, ...]:
    """Return the fields of a contract by the keys that a file uses, in order and with inherited fields."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            texts |= own_texts(base)
    return tuple(
        DocumentedField(info.alias or name, type_of(info), _default(info), texts.get(name, ""))
        for name, info in model.model_fields.items()
    )


def nested_contracts(
    models: Iterable[type[BaseModel]], is_shown: Callable[[type[BaseModel]], bool]
) -> dict[str, type[BaseModel]]:
    """Return by name the contracts that the fields of contracts name, directly or through another that is shown."""
    nested: dict[str, type[BaseModel]] = {}
    waiting = list(models)
    while waiting:
        for info in waiting.pop().model_fields.values():
            for contract in _contracts(info.annotation):
                if contract.__name__ not in nested and is_shown(contract):
                    nested[contract.__name__] = contract
                    waiting.append(contract)
    return nested


def contract_table(model: type[BaseModel], head: str = "field") -> str:
    """Return the fields of a contract as a Markdown table."""
    rows = [
        (
            f"`{field.name}`",
            field.type.replace("StageBase", "stages"),
            field.default or MAY_BE_LEFT_OUT.get(model.__name__, {}).get(field.name, "required"),
            field.text,
        )
        for field in fields_of(model)
    ]
    return table((head, "type", "default", "what it is"), rows)


def docstring(thing: Any) -> str:
    """Return the docstring of a class or function, a line for each paragraph; never an inherited one."""
    own = thing.__doc__ if isinstance(thing, type) else inspect.getdoc(thing)
    return _plain_text(own or "")


def type_of(info: FieldInfo) -> str:
    """Return a field's type and limits in words."""
    limits = list(_limits(info.metadata))
    return ", ".join((_words(info.annotation), *dict.fromkeys((*limits, *_inner_limits(info.annotation)))))


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table; bars and line ends inside of a cell are escaped."""
    cells = ((" ".join(cell.split()).replace("|", "\\|") for cell in row) for row in rows)
    return "\n".join(
        [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {' | '.join(row)} |" for row in cells)]
    )


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return ""
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        changed = {name: getattr(value, name) for name, info in fields if getattr(value, name) != info.default}
        return ", ".join(f"`{name}: {setting}`" for name, setting in changed.items()) or "its defaults"
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        listed = ", ".join(repr(item) for item in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return "empty" if not value else f"`[{listed}]`" if len(listed) <= LONGEST_DEFAULT else "a list (`spec show`)"
    text = str(value) or "empty"
    if isinstance(value, dict):
        return "empty" if not value else f"`{text}`"
    return f"`{text}`" if len(text) <= LONGEST_DEFAULT and "\n" not in text else "a longer text (`spec show`)"


def _words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(argument) for argument in arguments if argument is not type(None))
    if origin in (tuple, list, set, frozenset):
        return f"list of {_words(arguments[0])}" if arguments else "list"
    if origin is dict:
        return f"mapping of {_words(arguments[0])} to {_words(arguments[1])}"
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    return str(getattr(annotation, "__name__", annotation))


def _limits(metadata: Any) -> Iterator[str]:
    for entry in metadata:
        for name, sign in _SIGNS.items():
            limit = getattr(entry, name, None)
            if limit is not None:
                yield f"{sign} {limit:.15g}"
        yield from _limits(getattr(entry, "metadata", ()))


def _inner_limits(annotation: Any) -> Iterator[str]:
    for argument in (annotation, *get_args(annotation)):
        yield from _limits(getattr(argument, "__metadata__", ()))


def _contracts(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _contracts(argument)


@cache
def own_texts(model: type[Any]) -> dict[str, str]:
    """Return the string below each field in a class's source: pydantic keeps it only where a model asks for it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    body: list[ast.stmt] = getattr(tree, "body", [])
    texts: dict[str, str] = {}
    for line, below in zip(body, body[1:], strict=False):
        if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            texts[line.target.id] = _plain_text(below.value.value)
    return texts


def _plain_text(text: str) -> str:
    clean = re.sub(r":\w+:(?=`)", "", inspect.cleandoc(text).replace("``", "`"))
    return "\n\n".join(" ".join(part.split()) for part in clean.split("\n\n"))
