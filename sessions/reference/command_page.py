"""The page of commands and options, from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from sessions.cli import app
from sessions.commands.lazy_group import commands_of
from sessions.reference.contract_fields import table


def command_page() -> str:
    """Return the page."""
    parts = [
        "# Commands",
        "Reading commands take `--json` (one object with a `schema_version`). Data goes to stdout, talk to stderr. "
        "[Exit codes](exit-codes.md) say how a command ended.",
    ]
    for name, command in _commands(typer.main.get_command(app), "peergate"):
        rows = [(_name(one), _kind(one), _default(one), one.help or "") for one in command.params if one.name != "help"]
        text = "\n\n".join(" ".join(part.split()) for part in str(command.help or "").split("\n\n"))
        shown = table(("argument or option", "value", "default", "what it does"), rows)
        parts += [f"## {name}", text, shown if rows else "No options."]
    return "\n\n".join(parts) + "\n"


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Typer's classes are private, so the tree is read by its attributes."""
    for name, command in commands_of(group).items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _name(one: Any) -> str:
    if one.param_type_name == "argument":
        return f"`{one.metavar or str(one.name).upper()}`" + (" (any number)" if one.nargs == -1 else "")
    return ", ".join(f"`{opt}`" for opt in one.opts) + (" (repeatable)" if one.multiple else "")


def _kind(one: Any) -> str:
    if getattr(one, "is_flag", False):
        return ""
    annotation = one.type_descriptor.annotation
    choices = getattr(annotation, "__args__", None)
    if choices:
        return " or ".join(f"`{value}`" for value in choices)
    return (
        one.metavar if one.metavar and one.param_type_name == "option" else getattr(annotation, "__name__", "").lower()
    )


def _default(one: Any) -> str:
    if one.required:
        return "required"
    if one.default in (None, False, "", (), []) or callable(one.default):
        return ""
    return f"`{one.default}`"
