"""Claims of commits and a changelog against their patches: what is named is there, what is closed has a test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sessions.requests.git_claims import git_texts
from specs.system.errors import UserError
from testing.fixtures.command_sessions import called as peergate

pytestmark = pytest.mark.integration
NAMES = ("-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *NAMES, *arguments], cwd=folder, env=clean, check=True, capture_output=True)


def commit(folder: Path, message: str, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "Begin", a_py="x = 1\n")
    commit(folder, "Fix the sum\n\nFixes #7, shown by `tests/test_a.py::test_sum`.", a_py="x = 2\n",
           tests__test_a_py="def test_sum():\n    pass\n")  # fmt: skip
    commit(folder, "Close #8", a_py="x = 3\n", CHANGELOG_md="- Reports have a page (`guide/pages.md`)\n")
    return folder


def scorecard(repository: Path, commits: str = "HEAD~2..") -> str:
    done = peergate("review", "adversarial", "--git", commits, repository, "--runs", repository.parent / "runs")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_closure_and_each_named_file_has_evidence_and_a_status(repository: Path) -> None:
    page = scorecard(repository)
    assert page.startswith("# ❌ Claims contradicted. Claims against evidence")
    assert "**supported**: #7 is closed" in page and "**unsupported**: #8 is closed" in page
    assert "**supported**: tests/test_a.py::test_sum is there" in page
    assert "**contradicted**: guide/pages.md is there" in page and "no file of that name is in the tree" in page
    verified = peergate("audit", "verify", repository.parent / "runs" / "reviews")
    assert "DAMAGE" not in verified.stdout, verified.stdout


def test_a_claim_that_is_true_of_an_earlier_tree_alone_is_contradicted(repository: Path) -> None:
    (repository / "tests" / "test_a.py").unlink()
    commit(repository, "Tidy", a_py="x = 4\n")
    assert "**contradicted**: tests/test_a.py::test_sum is there" in scorecard(repository, "HEAD~3..")


@pytest.mark.parametrize("commits", ["HEAD..HEAD", "nothing..HEAD", "--output=/tmp/x", "HEAD; touch x", ""])
def test_a_range_that_is_none_is_refused_before_anything_is_recorded(repository: Path, commits: str) -> None:
    runs = repository.parent / "runs"
    done = peergate("review", "adversarial", f"--git={commits}", repository, "--runs", runs)
    assert done.returncode == 2 and not runs.exists(), done.stderr


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="git cannot read it"):
        list(git_texts(tmp_path, "HEAD~1.."))
    assert peergate("review", "adversarial").returncode == 2


def test_a_strangers_repository_runs_nothing(repository: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    for setting in ("core.fsmonitor", "diff.external", "core.pager", "diff.x.textconv", "filter.x.smudge"):
        git(repository, "config", setting, str(program))
    (repository / ".gitattributes").write_text("*.py diff=x filter=x\n")
    commit(repository, "Close #9", a_py="x = 5\n")
    mark.unlink(missing_ok=True)
    scorecard(repository)
    assert not mark.exists()
