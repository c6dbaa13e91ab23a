"""Many sessions at a glance: those of a workspace, or all of one Postgres.

Overviews are kept in ``.peergate/list.json``, and only trails that have changed are reread. The file can be
deleted; nothing is decided from it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry, read_statement
from reviews.trail.chain.store import write_durably
from reviews.trail.file_seal import differs, seal_path
from reviews.trail.tables.pointer import Pointer, database_of, pointer_of
from reviews.trail.tables.trail_file import holds_trail, reading
from sessions.pages.overview import (
    OPEN,
    STATE_KINDS,
    Overview,
    find_runs,
    make_damaged_overview,
    overview,
    running,
    summary,
)
from sessions.run import lease, lease_rows
from sessions.run.heartbeat import mark_of
from sessions.run.run_layout import TRAIL, why_unreadable
from specs.system.errors import AuditDamage, BlockedError, PeergateError, UserError
from specs.system.regular_files import read_regular

INDEX = Path(".peergate") / "list.json"
_SEAL = seal_path(Path(TRAIL)).name
AT_ONCE = 500
"""Sessions in one query to a database."""
_NEWEST = {"plan", "decision", "packet"}
"""The newest of each decides the state: nothing before all of them does, if there also is one of the next."""
_ANSWERS_MONEY = {"budget", "human", "retraction", "close"}
"""The newest of these says whether the session waits for a budget."""


class _Index:
    """Overviews from before, each with the stamp of its trail at that time."""

    def __init__(self, runs: Path) -> None:
        self._path, self._has_new = runs / INDEX, False
        self._known: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            result = json.loads(read_regular(self._path))
            self._known = result if isinstance(result, dict) else {}

    def get(self, run: str, stamp: str) -> Overview | None:
        """Return the overview of a trail that has not changed since."""
        with suppress(ValueError, TypeError, KeyError):
            before, overview_of = self._known[run]
            whole: dict[str, Any] = {
                **overview_of,
                "path": Path(overview_of["path"]),
                "reasons": tuple(overview_of["reasons"]),
            }
            return Overview(**whole) if before == stamp else None
        return None

    def add(self, run: str, stamp: str, overview: Overview) -> Overview:
        """Take an overview in and return it."""
        self._known[run], self._has_new = (stamp, overview.as_json()), True
        return overview

    def keep(self) -> None:
        """Write what is new; if that fails, it is reread the next time."""
        if self._has_new:
            with suppress(OSError):
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_durably(self._path, json.dumps(self._known).encode())


def list_overviews(runs: Path) -> list[Overview]:
    """Return the overviews of the sessions of a workspace, by name."""
    folders = find_runs(runs)
    index = _Index(runs)
    overviews: dict[Path, Overview] = {}
    pointers: dict[Path, Pointer] = {}
    for run in folders:
        try:
            if (pointer := pointer_of(run / TRAIL)) is not None:
                pointers[run] = pointer
        except AuditDamage as error:
            overviews[run] = make_damaged_overview(run.name, run, error)
    overviews |= dict(_in_databases(runs, pointers, index))
    for run in (folder for folder in folders if folder not in overviews):
        stamp = str([mark_of(run / name) for name in (TRAIL, f"{TRAIL}-wal", _SEAL)])
        overview_of = index.get(run.name, stamp) or _read(run, stamp, index)
        runs_now = overview_of.state in OPEN and lease.is_running(run)
        overviews[run] = replace(running(overview_of) if runs_now else overview_of, path=run)
    index.keep()
    return [overviews[run] for run in folders]


def _read(run: Path, stamp: str, index: _Index) -> Overview:
    overview_of = glance(run)
    # Without a log of writes next to it, the file of a closed session is at rest.
    unsealed = overview_of.state == "closed" and not (run / f"{TRAIL}-wal").exists() and differs(run / TRAIL)
    if unsealed and not lease.is_running(run):
        why = "its file has changed since it was sealed: `peergate audit verify` shows more"
        return replace(overview_of, state="damaged", reasons=(why,))
    # A changed mode leaves the stamp as it is, and who closes a session seals it in a moment.
    return overview_of if unsealed or overview_of.state == "damaged" else index.add(run.name, stamp, overview_of)


def newest(runs: Path) -> Path:
    """Return the run folder of the session that began last.

    Raises:
        UserError: no session.
        Blocked: the folder cannot be read.
    """
    began = [(overview.started or "", str(overview.path)) for overview in list_overviews(runs)]
    if not began:
        raise UserError("no session yet", where=str(runs), hint="name a RUN, or its folder with --runs")
    return Path(max(began)[1])


def everywhere(runs: Path) -> list[Overview]:
    """Return the overviews of all sessions of the workspace's database, wherever their run folders are, by name.

    Raises:
        UserError: the workspace has no database.
        DatabaseUnreachable: it cannot be reached.
    """
    address = database_of(runs / "any" / TRAIL)
    if address is None:
        raise UserError("this workspace has no database", where=str(runs), hint="set PEERGATE_DATABASE")
    index = _Index(runs)
    with _open_database(address) as database:
        overviews = [
            overview_of for _, overview_of in _iterate_overviews(database, lease_rows.every_log(database), index)
        ]
    index.keep()
    return sorted(overviews, key=lambda overview: (overview.name, str(overview.path)))


def _open_database(address: str) -> closing[Any]:
    from reviews.trail.tables.postgres_connection import open_database

    return closing(open_database(address))


def glance(run: Path) -> Overview:
    """Return the overview of a trail by its head and its tail, unverified: `audit verify` verifies."""
    try:
        with reading(run / TRAIL) as connection:
            if not holds_trail(connection):
                return overview(run)
            count = connection.execute("SELECT count(*) FROM entry").fetchone()[0]
            entries = _read_state_entries(connection)
        return summary(run.name, run, History(entries), count)
    except (sqlite3.DatabaseError, ValueError, TypeError, KeyError, AttributeError, PeergateError, OSError) as error:
        why = why_unreadable(run)
        return make_damaged_overview(run.name, run, BlockedError(f"cannot be read: {why}") if why else error)


def _read_state_entries(connection: sqlite3.Connection) -> list[RecordedEntry]:
    """Return the entries that decide the state, in order: the first, the close, the newest as far as they matter."""
    kind, key = (f"json_extract(payload, '$.predicate.{name}')" for name in ("kind", "key"))
    message = f"SELECT seq, payload FROM entry WHERE {kind} IN ({', '.join('?' * len(STATE_KINDS))}) ORDER BY seq"
    results: dict[int, RecordedEntry] = {}
    seen_texts: set[str] = set()

    def take(query: str, values: Sequence[str] = ()) -> bool:
        for seq, payload in connection.execute(query, values):
            results[seq] = _read_unverified(payload)
            seen_texts.add(results[seq].kind)
            if seen_texts >= _NEWEST and seen_texts & _ANSWERS_MONEY:
                return True
        return False

    if take(f"{message} DESC", STATE_KINDS):
        take(f"{message} LIMIT 1", STATE_KINDS)
        if "close" not in seen_texts:
            take(f"SELECT seq, payload FROM entry WHERE {key} = 'close'")
    return [results[seq] for seq in sorted(results)]


def _read_unverified(payload: bytes) -> RecordedEntry:
    """Return what a list shows of an entry: without its digest, which nothing here needs."""
    return RecordedEntry(read_statement(payload), "")


def _in_databases(runs: Path, pointers: Mapping[Path, Pointer], index: _Index) -> Iterator[tuple[Path, Overview]]:
    if not pointers:
        return
    by_log = {str(pointer.log): run for run, pointer in pointers.items()}
    try:
        address = database_of(next(iter(pointers)) / TRAIL)
        if address is None:
            raise UserError("no address of the database is known", where=str(runs))
        with _open_database(address) as database:
            rows = [row for row in lease_rows.every_log(database) if row.log in by_log]
            for log, overview_of in _iterate_overviews(database, rows, index):
                run = by_log.pop(log)
                yield run, replace(overview_of, name=run.name, path=run)
    except PeergateError as error:
        for run in pointers:
            yield run, make_damaged_overview(run.name, run, error)
        return
    for run in by_log.values():
        yield run, make_damaged_overview(run.name, run, UserError("its trail is not in the workspace's database"))


def _iterate_overviews(
    database: Any, rows: Sequence[lease_rows.LogRow], index: _Index
) -> Iterator[tuple[str, Overview]]:
    """Yield the overviews of sessions in a database, each with the number of its log."""
    known = {row.log: index.get(row.log, str(row.size)) for row in rows}
    by_log = {log: overview for log, overview in known.items() if overview is not None}
    missing = [row for row in rows if row.log not in by_log]
    for start in range(0, len(missing), AT_ONCE):
        batch = missing[start : start + AT_ONCE]
        entries = lease_rows.entries_of(database, [row.log for row in batch], STATE_KINDS)
        for row in batch:
            try:
                own = [_read_unverified(payload) for payload, _ in entries.get(row.log, [])]
                overview = summary(row.name, Path(row.log), History(own), row.size)
            except (ValueError, TypeError, KeyError, AttributeError, PeergateError) as error:
                overview = make_damaged_overview(row.name, Path(row.log), error)
            by_log[row.log] = index.add(row.log, str(row.size), overview)
    for row in rows:
        current_overview = replace(by_log[row.log], path=Path(row.place))
        yield row.log, running(current_overview) if current_overview.state in OPEN and row.is_held else current_overview
