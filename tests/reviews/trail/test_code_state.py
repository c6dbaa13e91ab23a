"""Which code ran: a git checkout tells commit and changes, everything else says that it does not know."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.history.history import History
from reviews.history.recorded_code import code_lines, unknown_code
from sessions.runtime import preflight, runtime
from specs.jobs.job_records import CodeState
from specs.system.digests import digest_bytes
from specs.system.errors import UserError
from specs.system.home import HOME
from testing.factories.evidence_on_disk import clean_code, resolved_spec
from testing.fixtures.quick_session import Silent, drive, open_quick, quick_session
from training.jobs import job
from training.running_code import code_digest, code_state

USED = ("training/stage.py", "training/rules/prompts/rubric.yaml", "specs/form.py", "specs/stages/generation/form.py")


def git(folder: Path, *arguments: str) -> str:
    named = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | named).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a file of each sort that counts or does not."""
    home = tmp_path.resolve() / "home"
    for name in (*USED, "docs/page.md"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("one\n", encoding="utf-8")
    git(home.parent, "init", "-q", "-b", "trunk", "home")
    git(home, "add", ".")
    git(home, "commit", "-q", "-m", "first")
    return home


def test_a_checkout_says_its_commit_and_branch(checkout: Path) -> None:
    state = code_state(checkout)
    assert (state.commit, state.branch, state.changed, state.state) == (
        git(checkout, "rev-parse", "HEAD"),
        "trunk",
        0,
        "clean",
    )
    assert state.digest == code_digest(checkout) and state.unknown == ""
    git(checkout, "checkout", "-q", "--detach")
    assert (code_state(checkout).branch, code_state(checkout).state) == (None, "clean")


@pytest.mark.parametrize("name", USED)
def test_what_jobs_use_changes_state_and_digest(checkout: Path, name: str) -> None:
    before = code_state(checkout)
    (checkout / name).write_text("two\n", encoding="utf-8")
    after = code_state(checkout)
    assert (after.state, after.changed) == ("changed", 1) and after.digest != before.digest


def test_a_new_file_counts_and_a_page_of_documentation_does_not(checkout: Path) -> None:
    (checkout / "docs" / "page.md").write_text("two\n", encoding="utf-8")
    assert code_state(checkout).state == "clean"
    (checkout / "reviews").mkdir()
    (checkout / "reviews" / "new.py").write_text("", encoding="utf-8")
    state = code_state(checkout)
    assert (state.state, state.changed) == ("changed", 1)
    assert state.digest == code_digest(checkout), "jobs do not run the code of the reviews"


def test_what_is_no_checkout_is_unknown_and_says_why(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = checkout / ".venv" / "lib"
    for name in ("training", "specs"):
        (installed / name).mkdir(parents=True)
    inside = code_state(installed)
    assert (inside.state, inside.commit, inside.unknown) == ("unknown", None, "not a git checkout of Peergate")
    bare = tmp_path.resolve() / "bare"
    bare.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert code_state(bare).unknown == "not a git checkout of Peergate"
    monkeypatch.setenv("PATH", str(bare))
    assert code_state(checkout).unknown == "git is not installed"


def test_variables_of_another_repository_are_not_followed(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))
    monkeypatch.setenv("GIT_WORK_TREE", "/")
    assert code_state(checkout).state == "clean"


def test_a_session_records_it_when_it_opens_and_report_and_audit_state_what_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = clean_code(digest_bytes(b"code")).model_copy(update={"changed": 2})
    monkeypatch.setattr("testing.fixtures.quick_session.code_now", lambda: changed)
    run = open_quick(tmp_path)
    drive(quick_session(run))
    history = History.read(run / "trail.sqlite", run / "store")
    assert CodeState.model_validate(history[0].raw["code_state"]) == changed
    lines = code_lines(history)
    assert len(lines) == 2 and "with 2 changed files" in lines[0] and lines[0].endswith("(the session)")
    assert lines[1].endswith("(5 jobs)")
    report = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert f"| code | commit {'a' * 40} of main with 2 changed files" in report
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.damage == []
    (output,) = [text for text in audit.not_proven if text.startswith("which code ran")]
    assert output == "which code ran, beyond its digest: of 6 processes 1 ran code with changes that no commit holds"
    assert unknown_code(History([entry for entry in history if entry.kind == "exit"], history.store)) == ""


def test_a_spec_may_require_clean_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "spec"
    folder.mkdir()
    required = resolved_spec(folder, ("analysis:\n", "clean_code: required\nanalysis:\n"))
    other = tmp_path / "plain"
    other.mkdir()
    assert required.registration() != resolved_spec(other).registration()
    state = clean_code(digest_bytes(b"code"))
    monkeypatch.setattr(preflight, "code_state", lambda: state.model_copy(update={"changed": 1}))
    display: Any = Silent()
    with pytest.raises(UserError, match=r"requires clean code, and this is commit a+ of main with 1 changed files"):
        runtime.start(folder / "spec.yaml", tmp_path / "runs", "small", display)
    assert not (tmp_path / "runs").exists(), "nothing was registered"


def test_a_job_on_the_cpu_used_no_graphics_processor() -> None:
    use = job._machine_use("cpu", 3600.0)  # pyright: ignore[reportPrivateUsage]
    assert use.model_dump() == {"cuda": None, "gpus": 0, "gpu_memory_mb": None, "peak_gpu_mb": None, "gpu_hours": 0.0}


def test_the_state_of_the_code_that_is_tested_is_known_or_says_why() -> None:
    state = code_state()
    assert (state.commit is None) == bool(state.unknown) and state.digest == code_digest(HOME)
