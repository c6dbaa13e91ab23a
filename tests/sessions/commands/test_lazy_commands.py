"""Commands are imported when they are called; what `--help` lists before that is what the commands say themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from sessions.commands.cli import app
from sessions.commands.lazy_group import commands_of


def listed(group: Any, above: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield the name of every command with its listed help line and the command itself."""
    for name, command in commands_of(group).items():
        yield f"{above}{name}", group.commands[name].help, command
        yield from listed(command, f"{above}{name} ")


COMMANDS = {name: (line, command) for name, line, command in listed(get_command(app))}


def test_every_command_is_reached() -> None:
    assert len(COMMANDS) == 70
    assert {"start", "audit show", "review import", "pod down", "check run", "spec kinds"} <= COMMANDS.keys()


def test_the_listed_line_is_the_first_line_of_the_help() -> None:
    for name, (line, command) in COMMANDS.items():
        assert command.help.split("\n")[0] == line.split("\n")[0], name
        assert CliRunner().invoke(app, [*name.split(), "--help"]).exit_code == 0, name


def loaded_by(*arguments: str) -> tuple[str, set[str]]:
    """Return what a command prints in a process of its own, and the modules that it loads."""
    code = "import sys\nfrom sessions.commands.cli import main\n"
    code += "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


def test_help_imports_no_command_and_no_contract() -> None:
    output, modules = loaded_by("--help")
    assert "seeds" in output
    loaded = sorted(name for name in modules if name.startswith(("pydantic", "rich", "sessions.commands.")))
    assert loaded == ["sessions.commands.cli", "sessions.commands.lazy_group"]


@pytest.mark.parametrize(
    "arguments", [("start", "--help"), ("audit",), ("no-such-command",), ("spec", "--no-such-option")]
)
def test_help_and_usage_errors_are_plain_text(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert result.output.startswith("Usage: "), result.output
    assert result.output.isascii(), result.output


def test_checking_a_small_spec_loads_no_library_of_numbers() -> None:
    output, modules = loaded_by("spec", "check", "demo")
    assert "design gate: approve" in output
    assert not {"numpy", "scipy", "statsmodels", "torch", "langgraph"} & modules
