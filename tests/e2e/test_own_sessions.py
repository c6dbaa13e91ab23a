"""What the page on one's own agent sessions shows, typed as it is written; ``SESSIONS`` names invented ones."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from specs.loading.loading import load_spec
from specs.system.home import HOME
from testing.fixtures.command_sessions import typed, verify
from testing.fixtures.sandbox import needs_sandbox

PAGE = HOME / "docs" / "tutorials" / "your-own-sessions.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
SHIPPED = HOME / "specs" / "library" / "data" / "composer_sessions"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(SHIPPED, tmp_path / "project")
    return tmp_path


@needs_sandbox
def test_the_page_looks_plans_and_writes_a_spec_that_registers_the_sessions(folder: Path) -> None:
    looked = typed(BLOCKS[0], folder, SESSIONS=str(folder / "project"))
    assert looked.returncode == 0 and "18 states" in looked.stdout, looked
    before_start = BLOCKS[1].partition("peergate start")[0]
    planned = typed(before_start, folder, SESSIONS=str(folder / "project"))
    assert planned.returncode == 0 and "design gate: approve" in planned.stdout, planned
    spec = load_spec(folder / "mine" / "experiment.yaml").spec
    assert [stage.kind for stage in spec.stages] == ["evaluate", "replay_traces", "composer", "evaluate"]
    assert spec.data["sessions"].row_kind == "transcripts"


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(3600)
def test_the_page_leads_to_a_gate_on_measured_facts(folder: Path) -> None:
    for block in BLOCKS[:2]:
        ended = typed(block, folder, SESSIONS=str(folder / "project"))
        assert ended.returncode in (0, 3, 4), ended
    code, report = verify(folder / "runs" / "mine")
    assert code in (0, 4) and not report["damage"], report
    read = typed(BLOCKS[2], folder, SESSIONS=str(folder / "project"))
    assert "## Scorecard" in read.stdout and "contradicted" in read.stdout, read
