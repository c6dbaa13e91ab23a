"""A stranger's verifier or program runs only where this user trusted it, and without a sandbox only in own sessions."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typer.main import get_command

from bench.attack.strangers import READING, UNCONFINED, canary_code, read_served, words_of
from reviews.audit.verify import verify_run
from reviews.gate.challenge import RepeatedChallenge
from reviews.history.history import History
from reviews.trail.tables.open_table import read_entries
from sessions.commands.cli import app
from sessions.jobs.repeated_witness import Repetition
from sessions.run.signed_specs import trust_spec
from specs.jobs.job_records import JobOrder
from specs.loading.loading import load_spec
from specs.system.confinement import bubblewrap, task_file, verifier_process
from specs.system.errors import UnconfinedTask
from testing.factories.task_files import GOOD, TASK, spec_with
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session
from tests.sessions.acceptance.test_programs_in_session import CHANGES, SHIPPED, rows
from tests.sessions.commands.test_run_argument import leaves

SERVING = ("mcp", "view")
ACTING = (
    *("amend", "audit rotate", "cancel", "override", "pause", "prune", "resume", "retract", "review give"),
    *("spec sign", "start"),
)
"""Commands that start or change a session, which is then this user's own."""
WITHOUT_RUN = (
    *("check explain", "check list", "graph", "init", "pod attach", "pod down", "pod start", "pod up"),
    *("review draft-spec", "review import", "spec kinds", "spec schema"),
    *("traces ingest", "traces replay", "traces show", "traces stats"),
)
"""Commands that read neither a spec nor a run."""


def no_host(*_: object) -> None:
    """Describe a machine without bubblewrap."""


@pytest.fixture
def new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A user who has trusted nothing yet; called, it begins another process of that user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def begin() -> None:
        verifier_process.end_all()
        monkeypatch.setattr(task_file, "_ALLOWED", set())

    begin()
    return begin


@pytest.fixture
def without_sandbox(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, it takes bubblewrap away."""
    return partial(monkeypatch.setattr, bubblewrap, "this_host", no_host)


@pytest.fixture
def stranger(tmp_path: Path, new_process: Callable[[], None]) -> tuple[Path, Path, Path]:
    """The spec and the run of someone whose spec says `sandbox: false`, and the mark that its task file leaves."""
    folder, canary = tmp_path / "stranger", tmp_path / "canary"
    folder.mkdir()
    (folder / "verify.py").write_text(canary_code(canary), encoding="utf-8")
    run = open_quick(folder, UNCONFINED)
    drive(quick_session(run))
    assert any(entry.kind == "decision" for entry in read_entries(run / "trail.sqlite"))
    new_process()
    return folder / "spec.yaml", run, canary


@pytest.mark.parametrize(
    ("sandbox", "known"),
    [
        pytest.param(False, False, id="bare"),
        pytest.param(False, True, id="bare, checked", marks=pytest.mark.more),
        pytest.param(True, True, id="checked", marks=pytest.mark.more),
    ],
)
def test_no_reading_command_runs_a_strangers_verifier_without_a_sandbox(
    stranger: tuple[Path, Path, Path],
    tmp_path: Path,
    new_process: Callable[[], None],
    without_sandbox: Callable[[], None],
    sandbox: bool,
    known: bool,
) -> None:
    spec, run, canary = stranger
    if known:
        (tmp_path / "own").mkdir()
        trust_spec(load_spec(spec_with(tmp_path / "own", canary_code(canary))), sandbox=True)
        new_process()
    if not sandbox:
        without_sandbox()
    for command in READING:
        done = called(*words_of(command, run, spec, tmp_path), cwd=tmp_path)
        assert not canary.exists(), command
        assert not re.search("Traceback|Usage:", done.stderr), (command, done.stderr)
        new_process()
    read_served(run)
    assert not canary.exists()
    # What they would have done.
    without_sandbox()
    load_spec(spec, unconfined="named")
    assert canary.exists()


def test_every_command_that_reads_a_spec_or_a_run_is_among_those() -> None:
    every = set(leaves(get_command(app)))
    reading = {name for name in every if any(f"{command} ".startswith(f"{name} ") for command in READING)}
    assert len(reading) == len({*READING}) - 3, "audit verify, list and spec check are there twice"
    assert sorted([*reading, *SERVING, *ACTING, *WITHOUT_RUN]) == sorted(every)


def test_without_a_sandbox_a_run_is_not_damaged_but_not_derived_again(
    stranger: tuple[Path, Path, Path], without_sandbox: Callable[[], None]
) -> None:
    spec, run, _ = stranger
    trust_spec(load_spec(spec), sandbox=True)
    assert verify_run(run, "trail.sqlite", "store").damage == []
    verifier_process.end_all()
    without_sandbox()
    audit = verify_run(run, "trail.sqlite", "store")
    assert not audit.damage and any("would run without a sandbox" in note for note in audit.notes)


def test_trust_is_a_pair_that_only_a_started_or_signed_spec_completes(
    stranger: tuple[Path, Path, Path], new_process: Callable[[], None], without_sandbox: Callable[[], None]
) -> None:
    spec, _, canary = stranger
    task = load_spec(spec).spec.task
    new_process()
    assert not task_file.is_trusted(task)
    called("spec", "check", spec.rename(spec.with_name("a.draft.yaml")))
    new_process()
    assert not task_file.is_trusted(task), "an unsigned draft"
    called("spec", "check", spec.with_name("a.draft.yaml").rename(spec))
    new_process()
    assert task_file.is_trusted(task)
    task_file.recall(task)
    assert not task_file.may_run_unconfined(task)
    trust_spec(load_spec(spec), sandbox=False)
    new_process()
    assert not task_file.may_run_unconfined(task), "a process that reads"
    without_sandbox()
    with pytest.raises(UnconfinedTask):
        load_spec(spec)
    load_spec(spec, unconfined="trusted")
    assert canary.exists()


@pytest.mark.more
def test_spec_check_says_what_start_says_without_a_sandbox(
    stranger: tuple[Path, Path, Path], new_process: Callable[[], None], without_sandbox: Callable[[], None]
) -> None:
    spec, _, canary = stranger
    confined = called("spec", "check", spec).returncode
    without_sandbox()
    new_process()
    done = called("spec", "check", spec)
    assert done.returncode == 4 and "`peergate spec check --unconfined`" in done.stderr and not canary.exists()
    new_process()
    assert called("spec", "check", spec, "--unconfined").returncode == confined == 0
    assert canary.exists()
    # Trying it once is not trust: the next command that reads runs nothing.
    canary.unlink()
    new_process()
    assert called("spec", "check", spec).returncode == 4 and not canary.exists()
    trust_spec(load_spec(spec, unconfined="named"), sandbox=False)
    canary.unlink()
    new_process()
    assert called("spec", "check", spec).returncode == 0 and canary.exists(), "one that this user started before"


def test_an_unsigned_draft_has_no_rights(
    stranger: tuple[Path, Path, Path], new_process: Callable[[], None], without_sandbox: Callable[[], None]
) -> None:
    spec, _, canary = stranger
    without_sandbox()
    draft = spec.rename(spec.with_name("a.draft.yaml"))
    assert called("spec", "check", draft, "--unconfined").returncode == 4 and not canary.exists()


def test_a_spec_with_problems_is_not_trusted(tmp_path: Path, new_process: Callable[[], None]) -> None:
    changes = (TASK, ("alpha: 0.05", "alpha: 5"))
    spec = spec_with(tmp_path, GOOD, *changes)
    assert called("spec", "check", spec).returncode == 2
    new_process()
    assert not task_file.is_trusted(task_file.pin_task("./verify.py", GOOD))


def test_a_witness_that_is_repeated_has_a_sandbox_and_a_task_that_is_trusted(
    stranger: tuple[Path, Path, Path], new_process: Callable[[], None]
) -> None:
    spec, run, _ = stranger
    orders: list[JobOrder] = []

    class Launcher(QuickLauncher):
        def start(self, folder: Path) -> None:
            orders.append(JobOrder.model_validate_json((folder / "order.json").read_bytes()))
            super().start(folder)

    def repeat() -> list[str]:
        history = History.read(run / "trail.sqlite", run / "store")
        repetition = Repetition(run, history, RepeatedChallenge("1", 2), {}, print)
        return [repeated.why for repeated in repetition.run(Launcher())]

    reasons = repeat()
    assert reasons and all("no spec checked here names" in why for why in reasons) and not orders
    trust_spec(load_spec(spec), sandbox=False)
    new_process()
    repeat()
    assert orders and all(order.verifier.sandbox for order in orders)


@pytest.mark.more
def test_programs_of_a_strangers_run_are_not_run(
    tmp_path: Path, new_process: Callable[[], None], without_sandbox: Callable[[], None]
) -> None:
    shutil.copy(SHIPPED, tmp_path / "problems.jsonl")
    run = open_quick(tmp_path, *CHANGES)
    session = quick_session(run, launcher=QuickLauncher(rows=rows))
    drive(session)

    def notes() -> str:
        audit = verify_run(run, "trail.sqlite", "store")
        assert audit.damage == []
        return "\n".join(audit.notes)

    assert "programs" not in notes()
    without_sandbox()
    assert "bubblewrap (bwrap) is not installed" in notes() and "and is not derived again" in notes()
    shutil.rmtree(tmp_path / "state")
    new_process()
    assert "no one has started or checked its spec here" in notes()


def test_only_what_starts_or_changes_a_session_honours_a_spec_without_a_sandbox() -> None:
    root = Path(__file__).parents[3]
    files = (
        file
        for package in ("specs", "reviews", "training", "agents", "sessions")
        for file in (root / package).rglob("*.py")
    )
    calls = (
        (file.relative_to(root).as_posix(), call)
        for file in files
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) == "load_spec"
    )
    honouring = {file for file, call in calls if any(word.arg == "unconfined" for word in call.keywords)}
    starting = {
        "sessions/runtime/runtime.py",
        "sessions/runtime/session_driver.py",
        "sessions/runtime/human_actions.py",
    }
    # `spec check` honours what was trusted before, or --unconfined.
    assert honouring == starting | {"sessions/commands/spec.py"}
