"""Whole sessions in Postgres: closed, verified, exported; the server goes away; the password shows up nowhere."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

import pytest

from reviews.audit.export import export_run, verify_export
from reviews.audit.verify import verify_run
from reviews.reviewers.process.confinement import environment
from reviews.trail.tables import postgres_connection
from reviews.trail.tables.open_table import read_entries
from reviews.trail.tables.pointer import database_file
from sessions.jobs.job_environment import job_environment
from sessions.jobs.launcher import JobState
from sessions.pages.overview import overview
from sessions.pages.report.live_display import Terminal
from sessions.pages.report.trail_page import trail_page
from sessions.run import pause
from sessions.runtime import registration, runtime
from sessions.session import CancelSignal, PauseSignal, Session
from specs.session_words import session_words
from specs.system.errors import DatabaseUnreachable, UserError
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.postgres_server import CANARY, Server
from testing.fixtures.quick_session import QuickLauncher, Silent, drive, open_quick, quick_session
from training.running_code import code_state

pytestmark = pytest.mark.integration


class Watched(QuickLauncher):
    """Counts what is started, and does something when a job is looked at for the first time."""

    def __init__(self, what: Any, at: str = "small.sample.1") -> None:
        super().__init__()
        self.started: Counter[str] = Counter()
        self._what, self._at = what, at

    def start(self, folder: Path) -> None:
        # Asked again, as after a kill between an entry and the start: a claim lets a job begin once.
        if not (folder / "manifest.json").exists():
            self.started[folder.name] += 1
            super().start(folder)

    def poll(self, folder: Path) -> JobState:
        if folder.name == self._at and self._what is not None:
            what, self._what = self._what, None
            what()
        return super().poll(folder)


def sql(postgres: Server, address: str, statement: str) -> str:
    return postgres.sql(urlsplit(address).path.strip("/"), statement)


def leaks(folder: Path) -> list[str]:
    """Return the files in which the password stands, as it is or as an address spells it."""
    secrets = {CANARY.encode(), quote(CANARY, safe="").encode()}
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(file) for file in files if any(secret in file.read_bytes() for secret in secrets)]


def test_a_session_in_postgres_is_what_it_is_in_a_file(tmp_path: Path, database: str, postgres: Server) -> None:
    run = open_quick(tmp_path)
    launcher = Watched(None)
    drive(quick_session(run, launcher=launcher))
    assert not (run / "trail.sqlite").exists()
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.exit_code == 0, audit.damage
    assert audit.rederived and not audit.notes
    state = overview(run)
    assert (state.state, state.decision, state.entries) == ("closed", "approve", audit.entries)
    export_run(run, "trail.sqlite", "store", tmp_path / "export", trail_page)
    assert verify_export(tmp_path / "export").exit_code == 0
    assert set(launcher.started.values()) == {1}
    assert leaks(tmp_path) == []
    everything = "SELECT string_agg(l::text || e::text, '') FROM peergate.log l, peergate.entry e"
    assert CANARY not in sql(postgres, database, everything)


def test_jobs_and_the_reviewer_do_not_learn_how_to_connect(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", CANARY)
    for row in (job_environment(), environment([], dict(job_environment()) | {"PEERGATE_DATABASE": database})):
        assert not [name for name, value in row.items() if CANARY in value or value == database]


@pytest.mark.slow
def test_a_server_that_stays_away_pauses_the_session_and_it_goes_on(
    tmp_path: Path, database: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_quick(tmp_path)
    monkeypatch.setattr(postgres_connection, "PATIENCE_S", 0.2)
    monkeypatch.setattr(postgres_connection, "CONNECT_S", 1)
    launcher = Watched(postgres.stop)
    try:
        with pytest.raises(
            DatabaseUnreachable, match=r"(?s)nothing is half-written or lost.*`peergate resume` continues"
        ):
            drive(quick_session(run, launcher=launcher))
    finally:
        postgres.start()
    monkeypatch.undo()
    monkeypatch.setenv("PEERGATE_DATABASE", database)
    before = [entry.digest for entry in read_entries(run / "trail.sqlite")]
    drive(quick_session(run, launcher=launcher))
    after = read_entries(run / "trail.sqlite")
    assert [entry.digest for entry in after[: len(before)]] == before
    assert after[-1].raw["decision"] == "approve" and set(launcher.started.values()) == {1}
    assert verify_run(run, "trail.sqlite", "store").exit_code == 0
    assert leaks(tmp_path) == []


@pytest.mark.slow
def test_a_server_that_restarts_does_not_stop_the_session(tmp_path: Path, database: str, postgres: Server) -> None:
    run = open_quick(tmp_path)
    back = threading.Timer(1.0, postgres.start)

    def restart() -> None:
        postgres.stop()
        back.start()

    launcher = Watched(restart)
    drive(quick_session(run, launcher=launcher))
    assert read_entries(run / "trail.sqlite")[-1].raw["decision"] == "approve"
    assert set(launcher.started.values()) == {1}
    assert verify_run(run, "trail.sqlite", "store").exit_code == 0


def test_a_session_in_postgres_is_paused_and_ended_like_any_other(tmp_path: Path, database: str) -> None:
    run = open_quick(tmp_path)
    pause.ask_for(run, pause.PAUSE)
    session = quick_session(run, launcher=Watched(lambda: pause.ask_for(run, pause.PAUSE)))
    with pytest.raises((PauseSignal, CancelSignal)):
        drive(session)
    assert overview(run).state == "paused"

    def wired(run: Path, display: Terminal) -> Session:
        return quick_session(run, display=display)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runtime, "make_session", wired)
        runtime.cancel(run, cast(Terminal, Silent()))
    assert overview(run).decision == "cancelled"
    assert verify_run(run, "trail.sqlite", "store").exit_code == 0


@pytest.mark.parametrize("where", ["file", "database"])
def test_a_refusal_before_anything_ran_leaves_nothing_but_a_registration_in_a_database(
    where: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "database":
        request.getfixturevalue("database")
    resolved, run, display = resolved_spec(tmp_path), tmp_path / "runs" / "small", Silent()

    def wired(run: Path, display: Terminal, _: Any) -> Session:
        return quick_session(run, display=display)

    def refuse(_: Session) -> None:
        raise UserError("no client")

    monkeypatch.setattr(runtime, "make_session", wired)
    material = registration.material_of(tmp_path / "spec.yaml", resolved)
    with pytest.raises(UserError, match="no client"):
        runtime.begin(run, resolved, material, code_state(), cast(Terminal, display), refuse)
    lines = [line for line in display.lines if "its registration stays in the database" in line]
    assert (run.exists(), len(lines)) == ((True, 1) if where == "database" else (False, 0))
    if lines:
        assert f"`peergate resume {session_words(run)}`" in lines[0]
        assert [entry.kind for entry in read_entries(run / "trail.sqlite")] == ["open"]
        assert overview(run).state == "paused"


def test_start_writes_down_which_database_a_workspace_uses(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sessions.commands.run import use_database

    monkeypatch.delenv("PEERGATE_DATABASE", raising=False)
    address = postgres.new_database()
    use_database(tmp_path / "runs", address)
    run = open_quick(tmp_path)
    assert (run / "trail.postgres").exists() and overview(run).entries == 2
    path = database_file(tmp_path / "runs")
    assert leaks(tmp_path) == [str(path)] and path.stat().st_mode & 0o077 == 0
    wrong = address.replace("/t", "/no_such_database_t", 1)
    with pytest.raises(UserError, match=r"refused the connection.*does not exist"):
        use_database(tmp_path / "elsewhere", wrong)
    assert not (tmp_path / "elsewhere").exists()
