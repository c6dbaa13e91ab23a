"""`peergate report` at a terminal is text that fits it; into a pipe it is Markdown."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from sessions.pages.report.terminal_report import without_html
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.quick_session import drive, open_quick, quick_session
from testing.fixtures.terminal import at_a_terminal

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = open_quick(tmp_path_factory.mktemp("terminal"))
    drive(quick_session(run))
    return run


@pytest.mark.integration
@pytest.mark.parametrize(("columns", "widest"), [(80, 80), (120, 100)])
def test_the_report_fits_the_terminal(run: Path, columns: int, widest: int) -> None:
    command = [sys.executable, "-m", "sessions.commands.cli", "report", str(run)]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    code, output = at_a_terminal(command, "", environment | {"TERM": "xterm-256color"}, columns)
    lines = [_ANSI.sub("", line).rstrip() for line in output.splitlines()]
    assert code == 0 and max(map(len, lines)) <= widest
    text = "\n".join(lines)
    assert not re.search(r"</?(details|summary|b|br)>|&(lt|gt|amp);|!\[", text)
    for words in ("Failures and warnings", "Scorecard: 5 shown", "design.seeds"):
        assert words in text


def test_a_pipe_gets_markdown(run: Path) -> None:
    assert peergate("report", run).stdout == (run / "report" / "report.md").read_text(encoding="utf-8")


def test_what_was_folded_is_a_list_and_markup_in_it_has_no_effect() -> None:
    folded = "<details><summary>Gate: <b>approve</b></summary> a &lt;b&gt; *c*.<br> second</details>"
    assert without_html(folded) == "\n**Gate: approve**\n\n- a \\<b> \\*c\\*.\n- second\n"
    assert without_html("![plot](effect.svg)\n[entry](../trail.html#3) and <https://a.example>") == (
        "entry and <https://a.example>"
    )
