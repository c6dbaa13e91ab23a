"""How commands name a session: one RUN argument, one --runs, the shell's completion, and names that are refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from reviews.trail.trail import Trail
from sessions.commands.cli import app
from sessions.commands.lazy_group import commands_of
from sessions.commands.options import NEWEST, chosen
from sessions.pages.overview import Overview
from sessions.pages.report import session_list
from specs.loading.loading import list_shipped_specs
from specs.system.errors import UserError
from testing.factories.bodies import append_json, body_of
from testing.fixtures.command_sessions import called as peergate

WITHOUT_RUN = {
    "init",
    "start",
    "list",
    "graph",
    "mcp",
    "spec",
    "check list",
    "check explain",
    "pod",
    "audit rotate",
    "traces",
}
"""Commands that name no existing session, or none of this machine's; of groups all."""


def begun(runs: Path, name: str) -> Path:
    path = runs / name / "trail.sqlite"
    path.parent.mkdir(parents=True)
    with_open = Trail(path, name)
    append_json(with_open, "open", "open", body_of("open"))
    with_open.close()
    return path.parent


def leaves(group: Any, above: str = "") -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, command in commands_of(group).items():
        below = leaves(command, f"{above}{name} ")
        results |= below or {f"{above}{name}": command}
    return results


def test_every_command_that_names_a_session_takes_runs() -> None:
    requests = {name: command for name, command in leaves(get_command(app)).items() if not name.startswith("pod ")}
    without = {
        name
        for name, command in requests.items()
        if not any("--runs" in parameter.opts for parameter in command.params)
    }
    assert without == {
        "init",
        "graph",
        "spec check",
        "spec kinds",
        "spec pin",
        "spec schema",
        "spec show",
        "check list",
        "check explain",
        "review import",
        "ship check",
        "traces ingest",
        "traces stats",
        "traces show",
        "traces replay",
    }
    variables = {
        parameter.envvar for command in requests.values() for parameter in command.params if "--runs" in parameter.opts
    }
    assert variables == {"PEERGATE_RUNS"}


def test_the_first_argument_of_every_command_on_a_session_is_the_same() -> None:
    first = {
        name: next((parameter for parameter in command.params if parameter.param_type_name == "argument"), None)
        for name, command in leaves(get_command(app)).items()
        if name.split()[0] not in WITHOUT_RUN and name not in WITHOUT_RUN
    }
    named = {name: (item.metavar, item.required) for name, item in first.items() if item is not None and item.metavar}
    requests = ("review ask", "review request", "review adversarial", "review draft-spec", "review import")
    requests += ("seeds", "export", "ship check")
    runs = {name: pair for name, pair in named.items() if name not in requests}
    assert set(runs.values()) == {("RUN", False), ("RUN", True), ("RUN|EXPORT", False), ("RUN|EXPORT", True)}
    # What ends or deletes something never picks its session; and an argument after RUN needs one before it.
    assert {name for name, (_, required) in runs.items() if required} == {
        *("cancel", "prune", "retract", "amend", "audit search", "audit show", "audit diff", "audit export"),
        "ship push",
    }


def test_a_session_is_named_by_name_by_path_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "kept"
    first, second = begun(runs, "b"), begun(runs, "a")
    report = {overview.name: overview for overview in session_list.list_overviews(runs)}
    assert chosen(Path("b"), runs) == first and chosen(second, runs) == second
    monkeypatch.chdir(first)
    assert chosen(Path(), runs) == Path()
    monkeypatch.chdir(runs)
    assert chosen(Path("a"), Path("elsewhere")) == Path("a")
    begun(tmp_path / "elsewhere", "a")
    assert chosen(Path("a"), tmp_path / "elsewhere") == tmp_path / "elsewhere" / "a", "the folder of --runs goes first"
    # The one that began last, whatever its name is.
    later = {"a": "2026-01-01T00:00:00+00:00", "b": "2026-01-02T00:00:00+00:00"}
    overviews = [replace(report[name], started=began) for name, began in later.items()]

    def listed(_: Path) -> list[Overview]:
        return overviews

    monkeypatch.setattr(session_list, "list_overviews", listed)
    capsys.readouterr()
    assert chosen(None, runs) == chosen(NEWEST, runs) == first
    assert capsys.readouterr().err == f"session b, the newest in {runs}\n" * 2


def test_without_a_session_the_newest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no session yet"):
        chosen(None, tmp_path)


@pytest.mark.parametrize("command", [("status",), ("cost",), ("transcript",), ("audit", "list"), ("audit", "log")])
def test_the_folder_of_runs_may_come_from_the_environment(tmp_path: Path, command: tuple[str, ...]) -> None:
    begun(tmp_path / "kept", "only")
    env = os.environ | {"PEERGATE_RUNS": str(tmp_path / "kept")}
    runs = ("--runs", tmp_path / "kept")
    for arguments in (("only",), (), ("-",)):
        by_option, by_variable = peergate(*command, *arguments, *runs), peergate(*command, *arguments, env=env)
        assert (by_variable.returncode, by_variable.stdout) == (by_option.returncode, by_option.stdout)
        assert not re.search(r"\b(no|unknown) (session|trail)\b|does not exist", by_option.stderr), by_option.stderr


def test_what_to_type_next_leaves_out_what_the_environment_says(tmp_path: Path) -> None:
    begun(tmp_path / "kept", "only")
    env = os.environ | {"PEERGATE_RUNS": str(tmp_path / "kept")}
    process = peergate("report", "only", env=env)
    assert "`peergate status only`" in process.stderr
    assert f"`peergate status only --runs {tmp_path}/kept`" in peergate("report", tmp_path / "kept" / "only").stderr


def test_a_folder_that_is_missing_is_said(tmp_path: Path) -> None:
    done = peergate("list", "--runs", tmp_path / "missing", "--json")
    assert (done.returncode, done.stdout) == (2, "") and "missing: no such folder" in done.stderr
    assert peergate("list", cwd=tmp_path).returncode == 0, "nothing was started here yet"


@pytest.mark.parametrize("name", ["", "reviews", "Reviews", "a/b", ".hidden"])
def test_a_name_that_no_session_can_have_is_refused_once(tmp_path: Path, name: str) -> None:
    for command in (("start", "demo_leaky"), ("pod", "plan", "demo_leaky", "--host", "me@there")):
        runs = ("--runs", tmp_path / "runs") if command[0] == "start" else ()
        done = peergate(*command, "--name", name, *runs)
        assert done.returncode == 2 and done.stderr.startswith(f"peergate: invalid session name '{name}'"), done.stderr
        assert done.stderr.count("\n") == 2, "one line for what is wrong, one for what to do"
    assert not (tmp_path / "runs").exists()


def test_version_and_short_help() -> None:
    assert peergate("--version").stdout.startswith("peergate 0.")
    for command in ((), ("audit",), ("audit", "show"), ("start",), ("status",)):
        short, long = (CliRunner().invoke(app, [*command, name]).output for name in ("-h", "--help"))
        assert short == long and "Usage:" in short and "[[" not in short


def test_the_help_of_start_lists_every_shipped_spec() -> None:
    output = CliRunner().invoke(app, ["start", "--help"], terminal_width=200).output
    assert all(name in output for name in list_shipped_specs()) and "demo_null" in list_shipped_specs()


def completed(words: str, env: dict[str, str]) -> list[str]:
    requests = {"_PEERGATE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    code = "import sys; sys.argv = ['peergate']; from sessions.commands.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env | requests, capture_output=True, text=True, check=False
    )
    return done.stdout.split()


def test_the_shell_completes_commands_and_sessions(tmp_path: Path) -> None:
    for name in ("demo", "demo_two", "other"):
        begun(tmp_path / "kept", name)
    env = {"PEERGATE_RUNS": str(tmp_path / "kept")}
    assert completed("peergate aud", env) == ["audit"]
    assert completed("peergate status de", env) == ["demo", "demo_two"]
    assert completed("peergate audit show oth", env) == ["other"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "mine.csv").touch()
    assert completed(f"peergate start {tmp_path}/mi", env) == [f"{tmp_path}/mine.yaml", f"{tmp_path}/mine/"]
    assert completed("peergate spec check demo_n", env) == ["demo_null"]


def test_the_newest_is_said_on_stderr_alone(tmp_path: Path) -> None:
    begun(tmp_path, "only")
    done = peergate("audit", "list", "--runs", tmp_path, "--json")
    assert json.loads(done.stdout)["count"] == 1 and "session only, the newest in" in done.stderr
