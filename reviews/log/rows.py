"""A trail file as rows, read without writing anything beside it. Nothing is believed here: ``walk.py`` checks."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from reviews.log import envelope
from reviews.log.chain import Row as FirstRow
from reviews.log.chain import first_format
from reviews.log.envelope import Recorded
from reviews.log.pointer import pointer_of
from specs.errors import AuditDamage

FORMAT = 2
SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (seq INTEGER PRIMARY KEY, payload TEXT NOT NULL, signatures TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS entry_key ON entry (json_extract(payload, '$.predicate.key'));
CREATE INDEX IF NOT EXISTS entry_keys ON entry (seq) WHERE json_extract(payload, '$.predicate.kind') = 'keys';
CREATE INDEX IF NOT EXISTS entry_resumes ON entry (seq) WHERE json_extract(payload, '$.predicate.kind') = 'resume';
CREATE TABLE IF NOT EXISTS head (id INTEGER PRIMARY KEY CHECK (id = 0), size INTEGER NOT NULL, frontier BLOB NOT NULL,
  note TEXT NOT NULL) STRICT;
CREATE TRIGGER IF NOT EXISTS entry_is_final BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'entries are final'); END;
CREATE TRIGGER IF NOT EXISTS entry_stays BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'entries stay'); END;
"""
"""What is searched are indexes over the signed bytes themselves: there is no second copy that could say otherwise."""


class Stored(NamedTuple):
    """One entry as stored: its number, the signed bytes, and the signatures."""

    seq: Any
    payload: bytes
    signatures: bytes

    @property
    def envelope(self) -> bytes:
        """The bytes the tree hashes."""
        return envelope.seal(self.payload, self.signatures)


class TrailFile(NamedTuple):
    """Everything in a trail file. Of format 1 only ``chain`` is filled."""

    format: int
    rows: list[Stored]
    head: tuple[int, bytes, bytes] | None
    """Size, frontier and note of the newest head."""
    chain: list[FirstRow]

    @property
    def size(self) -> int:
        """How many entries there are."""
        return len(self.rows) + len(self.chain)


@contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """Open a trail file for reading. A trail at rest is opened as immutable, so SQLite makes no side files."""
    live = path.with_name(path.name + "-wal").exists()
    uri = f"{path.resolve().as_uri()}?mode=ro{'' if live else '&immutable=1'}"
    with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
        connection.text_factory = bytes
        try:
            yield connection
        except UnicodeDecodeError as error:
            # What SQLite says about a damaged schema need not be text.
            raise sqlite3.DatabaseError(f"its schema is no text: {error}") from error


def format_of(connection: sqlite3.Connection) -> int:
    """Return the format of an open trail file; 0 when it holds no trail.

    A view that is called like the table holds none: it may have no end.
    """
    query = "SELECT count(*) FROM sqlite_schema WHERE name IN ('entry', 'head') AND type != 'table'"
    if connection.execute(query).fetchone()[0]:
        return 0
    columns = connection.execute("PRAGMA table_info(entry)").fetchall()
    names = {bytes(row[1]) if isinstance(row[1], bytes) else row[1].encode() for row in columns}
    return 2 if b"payload" in names else 1 if b"data" in names else 0


def read_trail(path: Path) -> TrailFile:
    """Read a whole trail: a file, after SQLite has checked its own pages and indexes, or what a pointer names.

    Raises:
        sqlite3.DatabaseError: the file is not a readable trail.
        PeergateError: it is in a database that cannot be reached, or is damaged there.
    """
    if (pointer := pointer_of(path)) is not None:
        # Imported here: whoever uses a file needs no psycopg.
        from reviews.log.postgres_table import read_postgres

        return read_postgres(path, pointer)
    with reading(path) as connection:
        # One transaction: a head that is written meanwhile belongs to entries that are not read.
        connection.execute("BEGIN")
        verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if verdict not in ("ok", b"ok"):
            text = verdict.decode(errors="replace") if isinstance(verdict, bytes) else str(verdict)
            raise sqlite3.DatabaseError(text.splitlines()[0])
        form = format_of(connection)
        if form == 0:
            raise sqlite3.DatabaseError("no such table: entry")
        if form == 1:
            connection.text_factory = str
            rows = connection.execute("SELECT seq, key, data FROM entry ORDER BY seq").fetchall()
            return TrailFile(1, [], None, rows)
        stored = [Stored(*row) for row in connection.execute("SELECT seq, payload, signatures FROM entry ORDER BY seq")]
        for place, row in enumerate(stored):
            if type(row.payload) is not bytes or type(row.signatures) is not bytes:
                raise sqlite3.DatabaseError(f"entry {place} is not text")
        head = connection.execute("SELECT size, frontier, note FROM head").fetchone()
        if head is not None and [type(one) for one in head] != [int, bytes, bytes]:
            raise sqlite3.DatabaseError("the head is not a number and bytes")
        return TrailFile(2, stored, head, [])


def read_entries(path: Path) -> list[Recorded]:
    """Read every entry of a trail file for display; ``audit verify`` says whether to believe them.

    Raises:
        AuditDamage: the file or an entry cannot be read.
    """
    try:
        trail = read_trail(path)
        return [first_format(data) for _, _, data in trail.chain] + [
            envelope.recorded(row.payload, row.signatures) for row in trail.rows
        ]
    except (sqlite3.DatabaseError, ValueError) as error:
        raise AuditDamage(f"cannot be read as a trail: {str(error).splitlines()[0]}", where=str(path)) from error
