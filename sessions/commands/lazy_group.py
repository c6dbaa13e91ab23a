"""Groups of commands that import a command's module only when the command is called, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

Listed = Mapping[str, Mapping[str, tuple[str, str]]]
"""By panel of `--help`, then by name: the module, and the first line of the command's help."""


class LazyGroup(TyperGroup):
    """A group of commands, each in the ``app`` of a module of this folder; a name that the app lacks is the app."""

    listed: ClassVar[Listed]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.modules: dict[str, str] = {}
        for panel, commands in self.listed.items():
            for name, (module, line) in commands.items():
                self.modules[name] = f"sessions.commands.{module}"
                self.add_command(TyperCommand(name, help=line, rich_help_panel=panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name of the command that was called, the command, and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.load(name), rest

    def load(self, name: str) -> Any:
        """Import the module of a command and return the command."""
        group = get_group(import_module(self.modules[name]).app)
        return group.commands.get(name, group)


def lazy_app(listed: Listed, **settings: Any) -> typer.Typer:
    """Return the app of a group of commands."""
    group = type("Listed", (LazyGroup,), {"listed": listed})
    return typer.Typer(cls=group, callback=lambda: None, no_args_is_help=True, **settings)


def commands_of(group: Any) -> dict[str, Any]:
    """Return the commands of a group by name, imported; nothing for a single command."""
    if isinstance(group, LazyGroup):
        return {name: group.load(name) for name in group.modules}
    return getattr(group, "commands", {})
