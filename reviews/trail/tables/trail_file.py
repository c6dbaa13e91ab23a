"""The rows of a trail, and a trail file as rows, read without writing anything next to it; nothing is verified here."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from reviews.trail.chain import envelope
from specs.system.text import plain

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
"""Searches use indexes over the signed bytes: no second copy could differ."""


class StoredEntry(NamedTuple):
    """One entry as stored: its number, the signed bytes, and the signatures."""

    seq: Any
    payload: bytes
    signatures: bytes

    @property
    def envelope(self) -> bytes:
        """The bytes the tree hashes."""
        return envelope.seal(self.payload, self.signatures)


Row = tuple[int, str, str]
"""Number, signed bytes and signatures of an entry, as they are stored."""

HeadRow = tuple[int, bytes, str]
"""Size, frontier and signed note of the newest head."""


HeadBytes = tuple[int, bytes, bytes]
"""The same as bytes."""


class TrailFile(NamedTuple):
    """Everything in a trail file."""

    rows: list[StoredEntry]
    head: HeadBytes | None
    """Size, frontier and note of the newest head."""


@contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """Open a trail file for reading. A trail at rest is opened as immutable, so SQLite makes no side files."""
    live = path.with_name(path.name + "-wal").exists()
    uri = f"{path.absolute().as_uri()}?mode=ro{'' if live else '&immutable=1'}"
    with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
        connection.text_factory = bytes
        try:
            yield connection
        except UnicodeDecodeError as error:
            # SQLite's message about a damaged schema may not be text.
            raise sqlite3.DatabaseError(f"its schema is not text: {error}") from error


def holds_trail(connection: sqlite3.Connection) -> bool:
    """Return whether an open file holds a trail, in tables: a view of that name may have no end.

    Raises sqlite3.DatabaseError for a trail with what no trail has, such as a trigger that changes what is appended.
    """
    query = "SELECT count(*) FROM sqlite_schema WHERE name IN ('entry', 'head') AND type != 'table'"
    if connection.execute(query).fetchone()[0]:
        return False
    columns = connection.execute("PRAGMA table_info(entry)").fetchall()
    if not any(row[1] in (b"payload", "payload") for row in columns):
        return False
    for name in _objects(connection).keys() - _own_objects().keys():
        raise sqlite3.DatabaseError(f"it holds '{plain(name, 60)}', which no trail has")
    for name, text in _objects(connection).items():
        if text != _own_objects()[name]:
            raise sqlite3.DatabaseError(f"its '{name}' is not that of a trail")
    return True


def _objects(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the statements that made the tables, indexes, triggers and views of a file, by name."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    texts = ([part.decode() if isinstance(part, bytes) else str(part) for part in row] for row in rows)
    return {name: " ".join(text.split()) for name, text in texts}


@cache
def _own_objects() -> dict[str, str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return _objects(connection)
