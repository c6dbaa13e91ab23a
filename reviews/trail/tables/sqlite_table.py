"""The rows of a trail in a SQLite file of the run folder: WAL and ``synchronous=FULL``, one writer at a time."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from reviews.trail.tables.trail_file import FORMAT, SCHEMA, HeadRow, Row, StoredEntry, holds_trail
from specs.system.digests import digest_file
from specs.system.errors import AuditDamage, DiskUnwritable, PeergateError
from specs.trail.entry import EntryKind

DoneT = TypeVar("DoneT")
WAIT_S = 30
"""How long a writer waits for another."""
_ROW = "SELECT seq, payload, signatures FROM entry"
_KIND = "json_extract(payload, '$.predicate.kind')"
_KEY = "json_extract(payload, '$.predicate.key')"


class SqliteTable:
    """The rows of one trail, open for appending."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; raises sqlite3.DatabaseError if it is not a trail."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.connection = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            self._write_ahead()
            self.connection.execute("PRAGMA synchronous=FULL")
            if not holds_trail(self.connection):
                # All of it or nothing: a file with the first table counts as a trail.
                self.connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA}PRAGMA user_version={FORMAT}; COMMIT;")
        except BaseException as error:
            self.connection.close()
            failure = self.translate_error(error, writing=True)
            if failure is not None:
                raise failure from error
            raise

    def _write_ahead(self) -> None:
        """Turn the log on; of two processes that make the file at once SQLite refuses one without waiting."""
        until = time.monotonic() + WAIT_S
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    @property
    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        return self.connection.in_transaction

    def begin(self) -> None:
        """Begin a transaction; other writers wait."""
        self.connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """End the transaction."""
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        """End the transaction without what was added in it."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def again(self, append: Callable[[], DoneT]) -> DoneT:
        """Append: a file has no connection that could be lost."""
        return append()

    def version(self) -> int:
        """Return SQLite's number for what other connections have committed."""
        return self.connection.execute("PRAGMA data_version").fetchone()[0]

    def head(self) -> HeadRow | None:
        """Return the newest head."""
        return self.connection.execute("SELECT size, frontier, note FROM head").fetchone()

    def first(self) -> Row | None:
        """Return the first entry."""
        return self.connection.execute(f"{_ROW} WHERE seq = 0").fetchone()

    def newest(self, kind: EntryKind | None = None) -> Row | None:
        """Return the newest entry, of a kind if one is given."""
        # Written out: only so SQLite uses its partial indexes.
        where = f" WHERE {_KIND} = '{kind}'" if kind else ""
        return self.connection.execute(f"{_ROW}{where} ORDER BY seq DESC LIMIT 1").fetchone()

    def with_key(self, key: str) -> Row | None:
        """Return the entry with this key."""
        return self.connection.execute(f"{_ROW} WHERE {_KEY} = ?", (key,)).fetchone()

    def rows(self, *kinds: EntryKind) -> list[Row]:
        """Return all entries in order, or those of some kinds."""
        chosen = f" WHERE {_KIND} IN ({', '.join('?' * len(kinds))})" if kinds else ""
        return self.connection.execute(f"{_ROW}{chosen} ORDER BY seq", kinds).fetchall()

    def add(self, row: StoredEntry, kind: EntryKind, key: str) -> None:
        """Add an entry; kind and key are found in it by indexes over the signed bytes."""
        values = (row.seq, row.payload.decode(), row.signatures.decode())
        self.connection.execute("INSERT INTO entry VALUES (?, ?, ?)", values)

    def put_head(self, size: int, frontier: bytes, note: str) -> None:
        """Replace the head."""
        self.connection.execute("INSERT OR REPLACE INTO head VALUES (0, ?, ?, ?)", (size, frontier, note))

    def translate_error(self, error: BaseException, *, writing: bool) -> Exception | None:
        """Return the error to raise; None if the error did not come from SQLite, which finds damage at any moment."""
        if isinstance(error, sqlite3.OperationalError):
            if not writing:
                return PeergateError(f"the trail cannot be read: {error}", where=str(self._path))
            return DiskUnwritable(
                f"the trail cannot be written: {error}; nothing was recorded",
                where=str(self._path),
                hint="make room or make it writable, then `peergate resume` continues",
            )
        # Names in a damaged schema need not be text.
        if isinstance(error, (sqlite3.DatabaseError, UnicodeDecodeError)):
            hint = "nothing can be appended to an unreadable trail; `peergate audit verify` lists its damage"
            return AuditDamage(f"the trail file is damaged: {error}", where=str(self._path), hint=hint)
        return None

    def settle(self) -> None:
        """Move the log next to the file into it."""
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def file_digest(self) -> str:
        """Return the digest of the file's bytes."""
        return digest_file(self._path)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
