"""Sessions of real processes for hours, killed at drawn moments: none leaves a process, a handle or a row behind."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from reviews.trail.tables.pointer import database_of
from sessions.run.run_layout import TRAIL
from tests.kill.conftest import Ground, opened
from tests.kill.house import POSTGRES_LOCAL, SQLITE_LOCAL
from tests.kill.runs import describe, drawn, problems, run
from tests.kill.site import Site

GONE_WITHIN_S = 30.0
"""How long what a session started may outlive it, on a machine that is busy."""
WARM_UP = 4
"""Sessions after which this process has loaded what it verifies with."""


class ResourceCount(NamedTuple):
    """What is held between two sessions: by this process, and next to it."""

    handles: int
    processes: int


def count_held() -> ResourceCount:
    """Count it."""
    process = psutil.Process()
    return ResourceCount(handles=process.num_fds(), processes=len(process.children(recursive=True)))


def of(ground: Ground, place: Path) -> list[str]:
    """Return the processes of a session: the forked ones, and whatever works below its folder or names it."""
    results = [f"{role} {pid}" for role, pids in ground.site.living(place, ground.house).items() for pid in pids]
    return results + below(place)


def below(place: Path) -> list[str]:
    """Return the processes that work below a folder or name it, anyone who is their parent."""
    results: list[str] = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd", "status"]):
        info = process.info
        words = [*(info["cmdline"] or ()), info["cwd"] or ""]
        if info["status"] != psutil.STATUS_ZOMBIE and any(str(place) in word for word in words):
            results.append(f"{info['pid']}: {' '.join(words)[:300]}")
    return results


def left_behind(look: Callable[[], list[str]]) -> list[str]:
    """Return what still lives of a session after some time."""
    until = time.monotonic() + GONE_WITHIN_S
    while (results := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return results


def test_a_process_that_stays_is_seen(tmp_path: Path) -> None:
    """The control: anyone who looks nowhere finds nothing."""
    with psutil.Popen(["sleep", "60"], cwd=tmp_path) as process:
        assert len(below(tmp_path)) == 1
        process.kill()
    assert below(tmp_path) == []


def connections_left(address: str) -> int:
    """Return the connections of a database no session uses, but this one."""
    import psycopg

    def count(what: str) -> int:
        row = connection.execute(f"SELECT count(*) FROM {what}".encode()).fetchone()
        assert row is not None
        return int(row[0])

    with psycopg.connect(address) as connection:
        until = time.monotonic() + GONE_WITHIN_S
        # The tests' own connection to read trails with is held open.
        busy = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        while (connections := count(busy)) > 1 and time.monotonic() < until:
            connection.rollback()
            time.sleep(0.1)
        return connections


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_real_sessions_for_hours_leave_nothing_behind(
    site: Site, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if missing := POSTGRES_LOCAL.missing():
        pytest.skip(missing)
    until = time.monotonic() + 60 * float(str(request.config.getoption("--soak-minutes")))
    with opened(site, SQLITE_LOCAL) as files, opened(site, POSTGRES_LOCAL) as database:
        before, began = count_held(), 0
        done, killed, address = 0, 0, ""
        for seed, ground in zip(itertools.count(10_000), itertools.cycle((files, database)), strict=False):
            if time.monotonic() >= until and done >= 6:
                break
            kills = drawn(seed, ground.house.jobs)
            ran = run(
                ground.site, ground.house, f"{ground.house.name}.{seed}", kills, ground.whole_s, TMPDIR=str(tmp_path)
            )
            results = problems(ground.house, ran, ground.undisturbed) + left_behind(partial(of, ground, ran.ground))
            assert not results, f"{describe(seed, kills, ran)}\n" + "\n".join(results)
            address = database_of(ran.run / TRAIL) or address
            ground.site.forget(ran.ground)
            done, killed = done + 1, killed + len(ran.landed)
            began = began if done > WARM_UP else psutil.Process().memory_info().rss
        connections = connections_left(address)
        now, grown = count_held(), (psutil.Process().memory_info().rss - began) / 2**20
    print(f"{done} sessions, {killed} kills that hit; before {before}, after {now}; memory +{grown:.1f} MB")
    assert now.handles <= before.handles and now.processes <= before.processes, (before, now)
    assert connections == 1
    assert list(tmp_path.iterdir()) == []
