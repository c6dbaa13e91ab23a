"""Opens the table that holds a trail's rows: a SQLite file of the run folder, or Postgres for many sessions."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from reviews.trail.chain import envelope
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.tables.pointer import pointer_of
from reviews.trail.tables.sqlite_table import SqliteTable
from reviews.trail.tables.trail_file import HeadBytes, StoredEntry, TrailFile, holds_trail, reading
from specs.system.errors import AuditDamage

if TYPE_CHECKING:
    from reviews.trail.tables.postgres_table import PostgresTable

    Table = SqliteTable | PostgresTable
    """Both have the same methods; what an entry means is left to ``reviews/trail/trail.py``."""

_AT_ONCE = 256
"""Rows that are read together."""


def read_trail(path: Path) -> TrailFile:
    """Read a whole trail; raises what :func:`stream_trail` raises."""
    with stream_trail(path) as (rows, head):
        return TrailFile(list(rows), head)


@contextmanager
def stream_trail(path: Path) -> Generator[tuple[Iterable[StoredEntry], HeadBytes | None]]:
    """Return rows and head of a trail: a file, after SQLite has checked its own pages and indexes, or of a pointer.

    The rows of a file are read as they are asked for, inside, without the rows that are appended meanwhile.

    Raises:
        sqlite3.DatabaseError: the file is not a readable trail; the rows raise it too.
        PeergateError: it is in a database that cannot be reached, or is damaged there.
    """
    if (pointer := pointer_of(path)) is not None:
        # Imported here: a file needs no psycopg.
        from reviews.trail.tables.postgres_table import read_postgres

        yield read_postgres(path, pointer)
        return
    with reading(path) as connection:
        # One transaction: a head that is written meanwhile belongs to entries that are not read.
        connection.execute("BEGIN")
        verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if verdict not in ("ok", b"ok"):
            text = verdict.decode(errors="replace") if isinstance(verdict, bytes) else str(verdict)
            raise sqlite3.DatabaseError(text.splitlines()[0])
        if not holds_trail(connection):
            raise sqlite3.DatabaseError("no such table: entry")
        head = connection.execute("SELECT size, frontier, note FROM head").fetchone()
        if head is not None and [type(value) for value in head] != [int, bytes, bytes]:
            raise sqlite3.DatabaseError("the head is not a number and bytes")
        ends = connection.execute("SELECT min(seq), max(seq) FROM entry").fetchone()
        # Entries are final: no transaction has to keep the log of a writer from being emptied meanwhile.
        connection.execute("COMMIT")
        yield _stream_rows(connection, *ends), head


def _stream_rows(connection: sqlite3.Connection, first: int | None, last: int) -> Iterator[StoredEntry]:
    """Yield the rows between two numbers in order."""
    query = f"SELECT seq, payload, signatures FROM entry WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT {_AT_ONCE}"
    while first is not None:
        rows = connection.execute(query, (first, last)).fetchall()
        for row in map(StoredEntry._make, rows):
            if type(row.payload) is not bytes or type(row.signatures) is not bytes:
                raise sqlite3.DatabaseError(f"entry {row.seq} is not text")
            yield row
        first = rows[-1][0] + 1 if rows and rows[-1][0] < last else None


def read_entries(path: Path) -> list[RecordedEntry]:
    """Read every entry of a trail for display, unverified; raises AuditDamage if it or one of them cannot be read."""
    try:
        return [envelope.restore_entry(row.payload, row.signatures) for row in read_trail(path).rows]
    except (sqlite3.DatabaseError, ValueError) as error:
        raise AuditDamage(f"cannot be read as a trail: {str(error).splitlines()[0]}", where=str(path)) from error


def open_table(trail: Path) -> Table:
    """Open the rows of a trail for appending; without a pointer to a database they are in a file, which may be new.

    Raises:
        AuditDamage: the pointer or the file is damaged.
        DiskUnwritable: the file cannot be written.
        UserError: the trail is not in the workspace's database.
        DatabaseUnreachable: the database cannot be reached.
    """
    pointer = pointer_of(trail)
    if pointer is None:
        return SqliteTable(trail)
    from reviews.trail.tables.postgres_table import PostgresTable

    return PostgresTable(trail, pointer)
