"""docs/how-to/requested-reviews.md says what is so: options, efforts, limits, kinds, codes; the Python example runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from reviews.requests.ask_policy import MUST_ASK, SURE
from reviews.requests.file_reading import FOR_MODEL, FOR_RULES
from sessions.commands.cli import app
from sessions.commands.lazy_group import commands_of
from specs.system.masking import SHORTEST_VALUE
from specs.system.vendors.parties import Efforts, ReviewLimits
from specs.trail.requested_review import MAX_WORDS

HOME = Path(__file__).parents[2]
TEXT = (HOME / "docs" / "how-to" / "requested-reviews.md").read_text(encoding="utf-8")


def test_every_option_in_the_docs_exists_and_every_option_is_in_the_docs() -> None:
    group: Any = typer.main.get_command(app)
    commands = [commands_of(group.load("review"))[name] for name in ("ask", "request", "adversarial", "draft-spec")]
    known = {option for one in commands for given in one.params for option in given.opts if option.startswith("--")}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) == known - {"--help"}


@pytest.mark.parametrize("tier", list(Efforts.model_fields))
def test_efforts_are_those_of_the_docs(tier: str) -> None:
    effort: ReviewLimits = getattr(Efforts(), tier)
    (row,) = re.findall(rf"^\| {tier} \|.*\| (\d+) s, (\d\.\d\d) USD \|$", TEXT, re.MULTILINE)
    assert (float(row[0]), float(row[1])) == (effort.timeout_s, effort.max_cost_usd)


def test_limits_are_those_of_the_docs() -> None:
    assert (
        f"at most {MAX_WORDS} words" in TEXT and f"below {SURE:g}" in TEXT and f"({SHORTEST_VALUE} characters" in TEXT
    )
    words = " ".join(TEXT.split())
    assert f"{FOR_MODEL.file_bytes // 1024} KiB a file and {FOR_MODEL.total_bytes // 1024} KiB in all" in words
    assert f"for rules {FOR_RULES.file_bytes // 2**20} MiB and {FOR_RULES.total_bytes // 2**20} MiB" in words


def test_every_kind_that_must_be_asked_is_named() -> None:
    assert all(f"`{kind}`" in TEXT for kind in MUST_ASK)


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n", encoding="utf-8")
    exec(TEXT.split("```python\n")[1].split("```")[0], {})
    assert "No rule found a fault" in capsys.readouterr().out
