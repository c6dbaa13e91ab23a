"""What the page on benchmarks shows, typed as it is written, with the real library and the real model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specs.system.home import HOME
from testing.fixtures.command_sessions import typed, verify
from testing.fixtures.inspect_library import needs_inspect, read_by_library

PAGE = HOME / "docs" / "how-to" / "benchmarks.md"
INSPECT, LM_EVAL = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(7200)]


def run(block: str, folder: Path) -> str:
    """Type a block in Peergate's folder; return what it printed."""
    (folder / "docs").symlink_to(HOME / "docs")
    done = typed(block, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answers of 'before' recomputed" in done.stdout and "scorer's claim" not in done.stdout, done.stdout
    return done.stdout


@needs_inspect
def test_the_page_is_typed_and_its_session_ends(tmp_path: Path) -> None:
    assert "accepted: held-out benchmark accuracy" in run(INSPECT, tmp_path)
    code, report = verify(tmp_path / "runs" / "opposites")
    assert code == 0, report
    for stage in ("before", "after"):
        log = read_by_library(tmp_path / "logs" / f"{stage}.1.eval")
        assert log["status"] == "success" and len(log["samples"]) == 48


def test_the_lines_for_lm_eval_are_typed_and_their_session_ends(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (the extra 'lm-eval')")
    install = "pip install 'peergate[lm-eval]'\n"
    assert install in LM_EVAL, "done by `make -f more.mk test-lm-eval`; a test installs nothing"
    assert "accepted: held-out lm eval accuracy" in run(LM_EVAL.replace(install, ""), tmp_path)
    code, report = verify(tmp_path / "runs" / "opposites-lm-eval")
    assert code == 0, report
