"""Opens the table that holds a trail's rows: a SQLite file of the run folder, or Postgres for many sessions."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from reviews.trail.chain import envelope
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.tables.pointer import pointer_of
from reviews.trail.tables.sqlite_table import SqliteTable
from reviews.trail.tables.trail_file import StoredEntry, TrailFile, holds_trail, reading
from specs.system.errors import AuditDamage

if TYPE_CHECKING:
    from reviews.trail.tables.postgres_table import PostgresTable

    Table = SqliteTable | PostgresTable
    """Both have the same methods; what an entry means is left to ``reviews/trail/trail.py``."""


def read_trail(path: Path) -> TrailFile:
    """Read a whole trail: a file, after SQLite has checked its own pages and indexes, or what a pointer names.

    Raises:
        sqlite3.DatabaseError: the file is not a readable trail.
        PeergateError: it is in a database that cannot be reached, or is damaged there.
    """
    if (pointer := pointer_of(path)) is not None:
        # Imported here: a file needs no psycopg.
        from reviews.trail.tables.postgres_table import read_postgres

        return read_postgres(path, pointer)
    with reading(path) as connection:
        # One transaction: a head that is written meanwhile belongs to entries that are not read.
        connection.execute("BEGIN")
        verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if verdict not in ("ok", b"ok"):
            text = verdict.decode(errors="replace") if isinstance(verdict, bytes) else str(verdict)
            raise sqlite3.DatabaseError(text.splitlines()[0])
        if not holds_trail(connection):
            raise sqlite3.DatabaseError("no such table: entry")
        stored = [
            StoredEntry(*row) for row in connection.execute("SELECT seq, payload, signatures FROM entry ORDER BY seq")
        ]
        for place, row in enumerate(stored):
            if type(row.payload) is not bytes or type(row.signatures) is not bytes:
                raise sqlite3.DatabaseError(f"entry {place} is not text")
        head = connection.execute("SELECT size, frontier, note FROM head").fetchone()
        if head is not None and [type(value) for value in head] != [int, bytes, bytes]:
            raise sqlite3.DatabaseError("the head is not a number and bytes")
        return TrailFile(stored, head)


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
