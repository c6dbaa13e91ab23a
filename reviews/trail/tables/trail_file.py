"""A trail file as rows, read without writing anything beside it.

Nothing is believed here: ``reviews/trail/integrity.py`` checks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from reviews.trail.tables.table import Stored

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


class TrailFile(NamedTuple):
    """Everything in a trail file."""

    rows: list[Stored]
    head: tuple[int, bytes, bytes] | None
    """Size, frontier and note of the newest head."""

    @property
    def size(self) -> int:
        """How many entries there are."""
        return len(self.rows)


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


def holds_trail(connection: sqlite3.Connection) -> bool:
    """Say whether an open file holds a trail.

    A view that is called like the table holds none: it may have no end.
    """
    query = "SELECT count(*) FROM sqlite_schema WHERE name IN ('entry', 'head') AND type != 'table'"
    if connection.execute(query).fetchone()[0]:
        return False
    columns = connection.execute("PRAGMA table_info(entry)").fetchall()
    return any(row[1] in (b"payload", "payload") for row in columns)
