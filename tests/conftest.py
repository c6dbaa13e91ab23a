"""How the tests are shared between workers, and what all of them run with."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from reviews.trail.chain import keys
from reviews.trail.tables.sqlite_table import SqliteTable
from sessions.pages.report import plots
from testing.fixtures import postgres_server
from testing.fixtures.reviewer_here import key_here
from testing.fixtures.skip_reasons import MAY_BE_MISSING, lines_of_skipped

# Until all is collected: what modules define stays. Collecting 4,633 tests takes 12.8 s of processor instead of 18.1.
gc.disable()
# Which task files this user named is kept there (specs/system/confinement/task_file.py); not in the home of who runs
# the tests.
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / f"peergate-tests-{os.getuid()}")
# Several files build the same Go program; what was compiled is found there by its content.
os.environ["GOCACHE"] = f"{os.environ['XDG_STATE_HOME']}/go"

# How long an example takes says how busy the machine is: each of them has a limit of 0.2 seconds otherwise.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

MANY_MODULES = 200
"""So many new ones are a library."""
PASSED_OVER = {"modules": 0}
"""How many modules there were when the garbage collector was last told to pass over all that is there."""

REAL_PARTS = {"conformance", "e2e", "faults", "kill", "thirdparty"}
"""The folders whose every test has real parts."""


MORE = (
    *("tests/sessions/builder/test_agent_programs.py", "tests/sessions/management/test_management.py"),
    *("tests/thirdparty/test_extensions.py", "tests/kill/", "tests/conformance/test_launchers.py"),
    "tests/e2e/test_own_sessions.py",
    *(
        "tests/sessions/test_own_data.py",
        "tests/sessions/test_replication.py",
        "tests/sessions/test_check_is_start.py",
        "tests/sessions/pods/test_pod_session.py",
    ),
    *("tests/sessions/view/test_view_in_browser.py", "tests/sessions/report/test_page_in_browser.py"),
    *("tests/sessions/view/test_axe_in_browser.py", "tests/sessions/exports/test_mirrors.py"),
    *("tests/stages/recipes/test_attack_sandbox.py", "tests/stages/recipes/test_hostile_recipes.py"),
    "tests/stages/programs/test_cheating_programs.py",
    *(f"tests/stages/recipes/test_{name}.py" for name in ("recipe_training_job", "trainer_script", "own_script")),
    *("tests/sessions/shipping/test_ship_check.py", "tests/sessions/run/test_pruning.py"),
    *("tests/reviews/audit/test_two_verifiers.py", "tests/reviews/audit/test_go_verifier.py"),
    *("tests/reviews/audit/test_without_peergate.py", "tests/sessions/jobs/test_transfer.py"),
    *("tests/sessions/builder/test_mcp.py", "tests/sessions/view/test_answers_in_browser.py"),
    *(f"tests/sessions/pods/test_pod_{name}.py" for name in ("checks", "keeper", "ssh")),
    *("tests/faults/test_session.py", "tests/faults/test_jobs.py", "tests/sessions/shipping/test_push.py"),
    *("tests/sessions/test_inspect_session.py", "tests/sessions/jobs/test_inspect_environment.py"),
    *("tests/sessions/builder/test_unattended.py", "tests/sessions/test_postgres_session.py"),
    *("tests/sessions/commands/test_unwritable_places.py", "tests/reviews/trail/test_planted_checkpoints.py"),
    *("tests/stages/finetuning/test_planted_faults.py", "tests/training/engines/test_gguf_tokenizer.py"),
    *("tests/sessions/jobs/test_same_code.py", "tests/sessions/jobs/test_job_clocks.py"),
    *("tests/sessions/shipping/test_exported.py", "tests/sessions/test_planted_secrets.py"),
    *("tests/sessions/commands/test_locales.py", "tests/reviews/audit/test_required_evidence.py"),
)
"""Whole sessions and real parts that few changes touch, eight minutes of processor: `make test-more`, and in CI.

Single tests of other files say so themselves (``more``): variants of what a neighbour shows.
"""


LONGEST = ("e2e", "thirdparty", "torch", "kill")
"""What takes longest, in the order in which it begins."""
TOGETHER = {
    "e2e": ("tests/e2e/",),
    "kill": ("tests/kill/",),
    "thirdparty": ("tests/thirdparty/",),
    "torch": (
        *(
            f"tests/stages/{name}"
            for name in ("critique/", "evaluation/", "finetuning/", "generation/", "traces/", "test_")
        ),
        *("tests/training/engines/", "tests/training/jobs/", "tests/conformance/test_engines.py"),
        "tests/sessions/starters/test_generated_rows.py",
        *("tests/stages/recipes/test_recipe_training",),
    ),
}
"""What one worker runs: files that share sessions, and what imports torch and trl, for 15 seconds."""


def together(nodeid: str) -> str:
    """Return the name of the tests of :data:`TOGETHER` that a test belongs to, or its file."""
    return next((name for name, prefixes in TOGETHER.items() if nodeid.startswith(prefixes)), nodeid.partition("::")[0])


class ByFile(LoadScopeScheduling):
    """Gives whole files to workers, and all of each of :data:`TOGETHER` to one."""

    def _split_scope(self, nodeid: str) -> str:
        return together(nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the soak of tests/sessions/test_soak.py takes."""
    parser.addoption("--soak-minutes", type=float, default=120.0, help="minutes of the nightly soak of short sessions")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return three workers for two cores: a fifth of what a test takes is waiting."""
    cores = os.cpu_count() or 1
    return cores + cores // 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Schedule by file."""
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole folders of real parts, and run what takes longest first: the quick tests fill the cores at the end."""
    for item in items:
        if REAL_PARTS & set(item.path.parts):
            item.add_marker("integration")
        if item.nodeid.startswith(MORE):
            item.add_marker("more")
        # Where its file gives a limit, that one holds: a marker of the test itself would come before it.
        if item.get_closest_marker("model") and item.get_closest_marker("timeout") is None:
            # The first of them waits for a session of two minutes of processor: 14 next to twenty other processes.
            item.add_marker(pytest.mark.timeout(2500))
    items.sort(key=lambda item: (_turn(item.nodeid), item.get_closest_marker("integration") is None))


def _turn(nodeid: str) -> int:
    """Return when a test begins: first those that take longest."""
    name = together(nodeid)
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what the imports left.

    They stay to the end, and training calls ``gc.collect()`` three times: the tests of
    ``tests/stages/finetuning/test_training_proof.py`` take 12.9 s of processor with this and 22.5 without.
    """
    _pass_over_imports()
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Have it pass over what a test imported too: torch and trl are, where the first training asks for them."""
    if len(sys.modules) > MANY_MODULES + PASSED_OVER["modules"]:
        _pass_over_imports()


def _pass_over_imports() -> None:
    gc.collect()
    gc.freeze()
    PASSED_OVER["modules"] = len(sys.modules)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where everything is said to be installed (``PEERGATE_NO_SKIPS``), fail tests that skip for want of anything else.

    A skipped test of a wall looks like a tested one. What may be missing is what `make setup` does not install.
    """
    report = yield
    if report.skipped and os.environ.get("PEERGATE_NO_SKIPS") and isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2])
        if not any(word in reason for word in MAY_BE_MISSING):
            report.outcome, report.longrepr = "failed", f"skipped where nothing should be: {reason}"
    return report


@pytest.fixture(autouse=True)
def keys_are_made_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no process for every reviewer's key, except where the test is about that."""
    if request.node.get_closest_marker("apart") is None:
        monkeypatch.setattr(keys, "key_apart", key_here)


_DRAW, _FSYNC, _OPEN = plots.draw, os.fsync, SqliteTable.__init__


def _drawn_nothing(*_: object) -> list[str]:
    """Stand for the plots of a report."""
    return []


def _synced_nothing(_: object) -> None:
    """Stand for ``os.fsync``."""


def _open_unsynced(table: SqliteTable, path: Path) -> None:
    _OPEN(table, path)
    table.connection.execute("PRAGMA synchronous=OFF")


@pytest.fixture(scope="session", autouse=True)
def nothing_is_drawn_or_synced() -> Iterator[None]:
    """Draw no plots in this process, and wait for no disk: most of what a session with quick jobs takes.

    Without a wait for the disk nothing is lost but where the machine loses power, which no test makes it do.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plots, "draw", _drawn_nothing)
        patched.setattr(os, "fsync", _synced_nothing)
        patched.setattr(SqliteTable, "__init__", _open_unsynced)
        yield


@pytest.fixture(autouse=True)
def drawn_and_synced_where_asked_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the plots of the tests that are about them, and wait for the disk in those about that."""
    if request.node.get_closest_marker("drawn") is not None:
        monkeypatch.setattr(plots, "draw", _DRAW)
    if request.node.get_closest_marker("synced") is not None:
        monkeypatch.setattr(os, "fsync", _FSYNC)
        monkeypatch.setattr(SqliteTable, "__init__", _OPEN)


@pytest.fixture(scope="session")
def closed_quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a quick session that was accepted, alone in its workspace: only to be read or copied."""
    # Here: tests without sessions need not wait for these imports.
    from testing.fixtures.quick_session import drive, open_quick, quick_session

    run = open_quick(tmp_path_factory.mktemp("closed"))
    drive(quick_session(run))
    return run


@pytest.fixture
def run(closed_quick: Path, tmp_path: Path) -> Path:
    """The run folder of a copy of that session, which a test may change."""
    return shutil.copytree(closed_quick.parent, tmp_path / "runs") / "small"


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Compute on one thread: models of two layers gain nothing from a second, which waits for them in a loop."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_server.Server]:
    """A running Postgres, started by the first test of a worker that needs one."""
    if postgres_server.programs() is None:
        pytest.skip(postgres_server.MISSING)
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed: pip install 'peergate[postgres]'")
    with postgres_server.running() as server:
        yield server


@pytest.fixture
def database(postgres: postgres_server.Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty database, in which new trails are begun."""
    address = postgres.new_database()
    monkeypatch.setenv("PEERGATE_DATABASE", address)
    return address


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each reason why tests were skipped, with how many were and how to run them."""
    for line in lines_of_skipped(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)
