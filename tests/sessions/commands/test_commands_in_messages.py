"""Every command that a message, a hint, a template or a page names can be typed: it exists, with these options."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from sessions.commands.cli import app
from sessions.commands.lazy_group import commands_of
from specs.system.home import HOME, PACKAGES

NAMED = re.compile(r"`peergate ([^`]+)`|^(?:next: |to continue: |verify: )?peergate ([a-z][^`]*)$")
COMMAND = typer.main.get_command(app)
PLACEHOLDER = "X"
SOURCES = [path for package in PACKAGES for path in sorted((HOME / package).rglob("*.py"))]
PAGES = [HOME / "README.md", *sorted((HOME / "docs").glob("[!d]*/*.md"))]


def texts(path: Path) -> Iterator[str]:
    """Yield the strings of a module; what is filled in is a placeholder."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def commands(text: str) -> Iterator[str]:
    """Yield the commands that a text names."""
    for match in NAMED.finditer(" ".join(text.split())):
        first, *others = (match[1] or match[2]).removesuffix(" ...").split(" | ")
        yield first
        yield from (" ".join([*first.split()[:-1], other]) for other in others)


@cache
def subcommands(command: Any) -> dict[str, Any]:
    """Return the commands of a group by name; nothing for a single command."""
    return commands_of(command)


def problem(line: str) -> str:
    """Return what keeps a command from being typed, or an empty string."""
    command: Any = COMMAND
    words = shlex.split(re.sub(r"[\[\]]|\s>.*", "", line), comments=True)
    while words and (below := subcommands(command)):
        if words[0] not in below:
            return f"there is no command '{words[0]}'"
        command, words = below[words[0]], words[1:]
    if subcommands(command):
        return ""  # A group, named as a whole.
    options = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}
    positional = 0
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            positional += word != PLACEHOLDER  # What is filled in may be an option.
        elif (option := options.get(word.partition("=")[0])) is None:
            return f"`{command.name}` has no option {word}"
        elif "=" not in word and not getattr(option, "is_flag", False) and words:
            words.pop(0)
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    if positional > len(arguments) and not any(param.nargs == -1 for param in arguments):
        return f"`{command.name}` takes {len(arguments)} arguments"
    return ""


def test_commands_in_messages_can_be_typed() -> None:
    named = [(path, line) for path in SOURCES for text in texts(path) for line in commands(text)]
    assert len(named) > 100
    assert [f"{path}: {line}: {why}" for path, line in named if (why := problem(line))] == []


def test_commands_in_pages_can_be_typed() -> None:
    in_backticks = re.compile(r"`peergate ([a-z][^`\n]*)`")
    named = [(path, line) for path in PAGES for line in in_backticks.findall(path.read_text(encoding="utf-8"))]
    assert len(named) > 100
    assert [f"{path}: {line}: {why}" for path, line in named if (why := problem(line))] == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("resume X --answer retry --reason WHY", ""),
        ("resume X --anwser retry", "has no option --anwser"),
        ("retrct X 3", "no command 'retrct'"),
        ("cost small large", "takes 1 arguments"),
    ],
)
def test_a_command_that_cannot_be_typed_is_noticed(line: str, why: str) -> None:
    assert why in problem(line) and bool(problem(line)) == bool(why)
