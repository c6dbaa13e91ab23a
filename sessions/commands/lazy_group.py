"""Groups of commands that import a command's module only when the command is called, so that `--help` is quick."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

Commands = Mapping[str, Mapping[str, str]]
"""The module of each command in this folder, by panel of `--help` and name."""

_COMMAND = re.compile(
    r'^@app\.command\(\s*(?:"(?P<name>[\w-]+)")?.*?^def (?P<function>\w+)\(.*?^    """(?P<summary>.+?)(?:"""|$)',
    re.MULTILINE | re.DOTALL,
)
_GROUP_HELP = re.compile(r'^app = .*?\bhelp="(?P<help>[^"]+)"', re.MULTILINE | re.DOTALL)


@cache
def _read_summaries(module: str) -> dict[str, str]:
    """Return the first help line of each command that a module declares, from its text; under "" that of its app."""
    path = Path(__file__).parent / module.replace(".", "/")
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    summaries = {match["name"] or match["function"]: match["summary"] for match in _COMMAND.finditer(text)}
    group = _GROUP_HELP.search(text)
    return summaries | ({"": group["help"]} if group else {})


class CommandGroup(TyperGroup):
    """A group of commands whose help is plain text: to import what draws boxes takes longer than all else of it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        without_boxes(self)

    def panels(self) -> Mapping[str, Iterable[str]]:
        """Return the names of the commands by the heading they are listed under."""
        return {"Commands": self.commands}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and the whole first paragraph of each command."""
        for panel, names in self.panels().items():
            summaries = [(name, (self.commands[name].help or "").partition("\n\n")[0]) for name in names]
            with formatter.section(panel):
                formatter.write_dl(summaries)


def without_boxes(command: Any) -> Any:
    """Return a command, and its own commands, changed to write help and errors as plain text."""
    command.rich_markup_mode = None
    for below in getattr(command, "commands", {}).values():
        without_boxes(below)
    return command


class LazyGroup(CommandGroup):
    """A group of commands, each in the ``app`` of a module of this folder; a name that the app lacks is the app."""

    listed: ClassVar[Commands]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.modules: dict[str, str] = {}
        for commands in self.listed.values():
            for name, module in commands.items():
                self.modules[name] = module
                summaries = _read_summaries(module)
                summary = summaries[name] if name in summaries else summaries[""]
                self.add_command(without_boxes(TyperCommand(name, help=summary)))

    def panels(self) -> Mapping[str, Iterable[str]]:
        """Return the names of the commands by panel."""
        return self.listed

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name of the command that was called, the command, and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.load(name), rest

    def load(self, name: str) -> Any:
        """Import the module of a command and return the command."""
        group = get_group(import_module(f"sessions.commands.{self.modules[name]}").app)
        return without_boxes(group.commands.get(name, group))


def lazy_app(listed: Commands, **settings: Any) -> typer.Typer:
    """Return the app of a group of commands."""
    group = type("Listed", (LazyGroup,), {"listed": listed})
    return typer.Typer(cls=group, callback=lambda: None, no_args_is_help=True, **settings)


def commands_of(group: Any) -> dict[str, Any]:
    """Return the commands of a group by name, imported; nothing for a single command."""
    if isinstance(group, LazyGroup):
        return {name: group.load(name) for name in group.modules}
    return getattr(group, "commands", {})
