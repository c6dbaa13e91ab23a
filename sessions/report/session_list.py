"""Many sessions at a glance: those of a workspace, or all of one Postgres.

What was told of a session is kept in ``.peergate/list.sqlite`` until its trail has changed, so that only those that did
are read again. It is a copy for display: it can be deleted, and nothing is decided from it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from reviews.trail.envelope import recorded
from reviews.trail.tables.pointer import Pointer, database_of, pointer_of
from reviews.trail.tables.trail_file import holds_trail, reading
from sessions.report.overview import OPEN, TOLD_BY, Overview, damaged, find_runs, overview, summary
from sessions.run import lease, lease_rows
from sessions.run.run_layout import TRAIL, why_unreadable
from specs.errors import AuditDamage, Blocked, PeergateError, UserError

INDEX = Path(".peergate") / "list.sqlite"
_SCHEMA = "CREATE TABLE IF NOT EXISTS told (run TEXT PRIMARY KEY, stamp TEXT NOT NULL, told TEXT NOT NULL) STRICT"
AT_ONCE = 500
"""Sessions whose entries are asked of a database in one question."""


class Known(NamedTuple):
    """What was told of a session, and of which state of its trail that was."""

    stamp: str
    told: str


def listed(runs: Path) -> list[Overview]:
    """Tell where the sessions of a workspace stand, by name."""
    folders = find_runs(runs)
    known = _index(runs)
    new: dict[str, Known] = {}
    found: dict[Path, Overview] = {}
    pointers: dict[Path, Pointer] = {}
    for run in folders:
        try:
            pointer = pointer_of(run / TRAIL)
        except AuditDamage as error:
            found[run] = damaged(run.name, run, error)
        else:
            pointers |= {run: pointer} if pointer else {}
    found |= dict(_in_databases(runs, pointers, known, new))
    for run in folders:
        if run in found:
            continue
        stamp = _stamp(run)
        before = known.get(run.name)
        told = _restored(before.told) if before is not None and before.stamp == stamp else None
        if told is None:
            told = glance(run)
            if told.state != "damaged":
                # Modes may change and leave the stamp as it is.
                new[run.name] = Known(stamp, _kept(told))
        found[run] = replace(told, path=run, state="running") if _runs(run, told) else replace(told, path=run)
    _keep(runs, new)
    return [found[run] for run in folders]


def everywhere(runs: Path) -> list[Overview]:
    """Tell where all sessions of the workspace's database stand, wherever their run folders are, by name.

    Raises:
        UserError: the workspace has no database.
        DatabaseUnreachable: it cannot be reached.
    """
    from reviews.trail.tables.postgres_connection import connected

    address = database_of(runs / "any" / TRAIL)
    if address is None:
        raise UserError("this workspace has no database", where=str(runs), hint="set PEERGATE_DATABASE")
    database = connected(address)
    try:
        rows = lease_rows.every_log(database)
    finally:
        database.close()
    known, new = _index(runs), dict[str, Known]()
    found = [told for _, told in _told_of(address, rows, known, new)]
    _keep(runs, new)
    return sorted(found, key=lambda one: (one.name, str(one.path)))


def _runs(run: Path, told: Overview) -> bool:
    return told.state in OPEN and lease.is_running(run)


def glance(run: Path) -> Overview:
    """Read what says where a session stands. Its pages are not checked, as `audit verify` does."""
    chosen = f"SELECT payload, signatures FROM entry WHERE {_KIND} IN ({', '.join('?' * len(TOLD_BY))}) ORDER BY seq"
    try:
        with reading(run / TRAIL) as connection:
            if not holds_trail(connection):
                return overview(run)
            count = connection.execute("SELECT count(*) FROM entry").fetchone()[0]
            entries = [recorded(*row) for row in connection.execute(chosen, TOLD_BY)]
        return summary(run.name, run, entries, count)
    except (sqlite3.DatabaseError, ValueError, TypeError, KeyError, AttributeError, PeergateError, OSError) as error:
        why = why_unreadable(run)
        return damaged(run.name, run, Blocked(f"cannot be read: {why}") if why else error)


_KIND = "json_extract(payload, '$.predicate.kind')"


def _in_databases(
    runs: Path, pointers: Mapping[Path, Pointer], known: Mapping[str, Known], new: dict[str, Known]
) -> Iterator[tuple[Path, Overview]]:
    if not pointers:
        return
    from reviews.trail.tables.postgres_connection import connected

    by_log = {str(pointer.log): run for run, pointer in pointers.items()}
    try:
        address = database_of(next(iter(pointers)) / TRAIL)
        if address is None:
            raise UserError("nobody says how to connect to the database", where=str(runs))
        database = connected(address)
        try:
            rows = [row for row in lease_rows.every_log(database) if row.log in by_log]
        finally:
            database.close()
        for log, told in _told_of(address, rows, known, new):
            run = by_log.pop(log)
            yield run, replace(told, name=run.name, path=run)
    except PeergateError as error:
        for run in pointers:
            yield run, damaged(run.name, run, error)
        return
    for run in by_log.values():
        yield run, damaged(run.name, run, UserError("its trail is not in the workspace's database"))


def _told_of(
    address: str, rows: Sequence[lease_rows.LogRow], known: Mapping[str, Known], new: dict[str, Known]
) -> Iterator[tuple[str, Overview]]:
    """Tell of sessions in a database, each with the number of its log."""
    from reviews.trail.tables.postgres_connection import connected

    told: dict[str, Overview] = {}
    for row in rows:
        before = known.get(row.log)
        restored = _restored(before.told) if before is not None and before.stamp == str(row.size) else None
        if restored is not None:
            told[row.log] = restored
    database = connected(address)
    try:
        missing = [row for row in rows if row.log not in told]
        for start in range(0, len(missing), AT_ONCE):
            some = missing[start : start + AT_ONCE]
            entries = lease_rows.entries_of(database, [row.log for row in some], TOLD_BY)
            for row in some:
                try:
                    own = [recorded(*one) for one in entries.get(row.log, [])]
                    told[row.log] = summary(row.name, Path(row.log), own, row.size)
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    told[row.log] = damaged(row.name, Path(row.log), error)
                new[row.log] = Known(str(row.size), _kept(told[row.log]))
    finally:
        database.close()
    for row in rows:
        one = replace(told[row.log], path=Path(row.place))
        yield row.log, replace(one, state="running") if one.state in OPEN and row.is_held else one


def _stamp(run: Path) -> str:
    """Return what changes when the trail does: times and sizes of its file and of the log beside it."""
    told: list[str] = []
    for path in (run / TRAIL, run / f"{TRAIL}-wal"):
        with suppress(OSError):
            status = path.stat()
            told.append(f"{status.st_mtime_ns}.{status.st_size}")
    return " ".join(told)


def _kept(told: Overview) -> str:
    return json.dumps(told.as_json())


def _restored(text: str) -> Overview | None:
    try:
        told: dict[str, Any] = json.loads(text)
        whole: dict[str, Any] = {**told, "path": Path(told["path"]), "reasons": tuple(told["reasons"])}
        return Overview(**whole)
    except (ValueError, TypeError, KeyError):
        return None


def _index(runs: Path) -> dict[str, Known]:
    try:
        with closing(sqlite3.connect(f"{(runs / INDEX).resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return {run: Known(stamp, told) for run, stamp, told in connection.execute("SELECT * FROM told")}
    except (sqlite3.DatabaseError, OSError):
        return {}


def _keep(runs: Path, new: Mapping[str, Known]) -> None:
    """Keep what was told; where it cannot be kept, it is read again the next time."""
    if not new:
        return
    path = runs / INDEX
    with suppress(OSError, sqlite3.OperationalError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _write(path, new)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            path.unlink()
            _write(path, new)


def _write(path: Path, new: Mapping[str, Known]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute(_SCHEMA)
        connection.executemany(
            "INSERT OR REPLACE INTO told VALUES (?, ?, ?)", [(run, one.stamp, one.told) for run, one in new.items()]
        )
