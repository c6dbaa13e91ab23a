"""What the page on benchmarks shows, typed as it is written, with the real library and the real model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from specs.home import HOME
from tests.e2e.sessions import verify
from tests.fixtures.inspect_library import needs_inspect, read_by_library

PAGE = HOME / "docs" / "how-to" / "benchmarks.md"
(BLOCK,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
@pytest.mark.model
@needs_inspect
@pytest.mark.timeout(3000)
def test_the_page_is_typed_and_its_session_ends(tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(HOME / "docs")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    typed = subprocess.run(
        ["bash", "-e", "-c", BLOCK],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert typed.returncode == 0, typed.stderr
    assert "accepted: held-out benchmark accuracy" in typed.stdout, typed.stdout
    assert "answers of 'before' read again" in typed.stdout and "scorer's claim" not in typed.stdout
    code, told = verify(tmp_path / "runs" / "opposites")
    assert code == 0, told
    for stage in ("before", "after"):
        log = read_by_library(tmp_path / "logs" / f"{stage}.1.eval")
        assert log["status"] == "success" and len(log["samples"]) == 48
