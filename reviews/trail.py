"""The trail: an append-only hash chain in SQLite, one entry per hand-over.

The interface is narrow on purpose (append, iterate, find, head): what is below it may become a signed Merkle
tree without a caller noticing.

Guarantees: an acknowledged entry survives a kill (WAL, synchronous=FULL); the same key appended twice leaves
one entry; any edit, deletion or reordering of entries breaks the chain. Does not guarantee: that the newest
entries were not cut off, or that all of it was not rewritten by someone who can write the file. That takes
signatures and an anchor elsewhere.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from reviews.store import write_durably
from specs.digests import canonical_bytes, digest_bytes, digest_file
from specs.errors import AuditDamage, PeergateError
from specs.trail import GENESIS, Entry, EntryKind, Head

MAX_ENTRY_BYTES = 65_535
"""Evidence goes into the content store; an entry holds digests."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (seq INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, data BLOB NOT NULL) STRICT;
CREATE TRIGGER IF NOT EXISTS entry_is_final BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'entries are final'); END;
CREATE TRIGGER IF NOT EXISTS entry_stays BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'entries stay'); END;
"""


class Recorded(NamedTuple):
    """An entry as it stands in the trail, with its digest."""

    entry: Entry
    digest: str

    @property
    def body(self) -> dict[str, Any]:
        """The entry's body."""
        return self.entry.body


class Trail:
    """The trail of one session, open for appending."""

    def __init__(self, path: Path, session: str) -> None:
        self.path = path
        self.session = session
        path.parent.mkdir(parents=True, exist_ok=True)
        # One connection has one transaction, so threads take turns as processes do.
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_SCHEMA)

    def append(self, kind: EntryKind, key: str, body: dict[str, Any]) -> Recorded:
        """Add one entry and return it; if ``key`` is already there, return the entry that is.

        The first append of a key wins, so a repeated step must use the body that is returned, not its own.

        Raises:
            PeergateError: the key exists with another kind, or the entry is too large; nothing was recorded.
            ValueError: the body is not canonical JSON or could not be read back as written; nothing was recorded.
            AuditDamage: the newest entry cannot be read, so nothing may follow it.
            sqlite3.Error: the disk is full or not writable; nothing was recorded.
        """
        with self.alone():
            found = self.find(key)
            if found is None:
                last = self._connection.execute("SELECT seq, data FROM entry ORDER BY seq DESC LIMIT 1").fetchone()
                found, data = self._next(_recorded(last[1]) if last else None, kind, key, body)
                self._connection.execute("INSERT INTO entry VALUES (?, ?, ?)", (found.entry.seq, key, data))
        if found.entry.kind != kind:
            raise PeergateError(f"trail key '{key}' is already a '{found.entry.kind}' entry, not '{kind}'")
        return found

    @contextmanager
    def alone(self) -> Generator[None]:
        """Keep other processes from appending meanwhile: what is read inside still holds when it is appended.

        Everything appended inside is recorded at its end, or nothing of it. Inside another one it adds nothing.
        """
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _next(self, last: Recorded | None, kind: EntryKind, key: str, body: dict[str, Any]) -> tuple[Recorded, bytes]:
        """Return the entry that follows ``last`` and its bytes, or raise if they could not be kept and read again."""
        try:
            entry = Entry(
                seq=last.entry.seq + 1 if last else 0,
                kind=kind,
                session=self.session,
                key=key,
                # The chain wants times in order; a clock that was set back must not look like tampering.
                time_ns=str(max(time.time_ns(), int(last.entry.time_ns) if last else 0)),
                previous=last.digest if last else GENESIS,
                body=json.loads(canonical_bytes(body)),
            )
            data = entry.canonical()
            if len(data) > MAX_ENTRY_BYTES:
                raise PeergateError(
                    f"a trail entry has {len(data)} bytes, the limit is {MAX_ENTRY_BYTES}",
                    where=key,
                    hint="keep evidence in the content store and record its digest",
                )
            # Floats of 2**53 and beyond come back as integers JSON refuses, and readers stop at some depth.
            if Entry.model_validate_json(data).canonical() != data:
                raise ValueError("it reads back as something else")
        except (ValueError, RecursionError) as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise ValueError(f"trail entry '{key}' is refused, it could not be read back as written: {why}") from error
        return Recorded(entry, digest_bytes(data)), data

    def find(self, key: str) -> Recorded | None:
        """Return the entry with this key, if there is one."""
        row = self._connection.execute("SELECT data FROM entry WHERE key = ?", (key,)).fetchone()
        return _recorded(row[0]) if row else None

    def iterate(self, *kinds: EntryKind) -> Iterator[Recorded]:
        """Yield the entries in order, all or those of some kinds."""
        for (data,) in self._connection.execute("SELECT data FROM entry ORDER BY seq").fetchall():
            recorded = _recorded(data)
            if not kinds or recorded.entry.kind in kinds:
                yield recorded

    def head(self) -> Head:
        """Return the size and the digest of the last entry."""
        row = self._connection.execute("SELECT seq, data FROM entry ORDER BY seq DESC LIMIT 1").fetchone()
        return Head(size=row[0] + 1, digest=digest_bytes(row[1])) if row else Head(size=0, digest=GENESIS)

    def verify_chain(self) -> None:
        """Recompute the chain before anything is decided from it.

        Raises:
            AuditDamage: a link does not hold; the message names the first.
        """
        rows = self._connection.execute("SELECT seq, key, data FROM entry ORDER BY seq").fetchall()
        for damage in chain_damage(rows, self.session):
            raise AuditDamage(damage, where=str(self.path), hint="run `peergate audit verify` for the whole list")

    def close(self) -> None:
        """Close the database and seal the file: record the digest of its bytes beside it.

        The chain covers entries only; the seal lets the audit notice a changed byte in SQLite's own slack too.
        """
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        head = self.head()
        self._connection.close()
        seal = {"size": head.size, "digest": head.digest, "file": digest_file(self.path)}
        write_durably(seal_path(self.path), canonical_bytes(seal))


def seal_path(trail: Path) -> Path:
    """Return where the seal of a trail file lies."""
    return trail.with_suffix(".seal")


def _recorded(data: bytes) -> Recorded:
    try:
        return Recorded(Entry.model_validate_json(data), digest_bytes(data))
    except ValidationError as error:
        raise AuditDamage(f"an entry is not a trail entry any more: {error.errors()[0]['msg']}") from error


def chain_damage(rows: list[tuple[Any, Any, Any]], session: str | None = None) -> Iterator[str]:
    """Yield one sentence for every link of ``(seq, key, data)`` rows that does not hold."""
    previous = GENESIS
    clock = 0
    for position, (seq, key, data) in enumerate(rows):
        if not isinstance(data, bytes):
            yield f"entry {position}: is not bytes"
            continue
        try:
            entry = Entry.model_validate_json(data)
            moment = int(entry.time_ns)
            if entry.canonical() != data:
                yield f"entry {position}: bytes are not in canonical form"
        except ValueError as error:
            yield f"entry {position}: unreadable ({str(error).splitlines()[0]})"
            previous = digest_bytes(data)
            continue
        if (entry.seq, entry.key) != (seq, key) or entry.seq != position:
            yield f"entry {position}: says it is entry {entry.seq} '{entry.key}', stored as {seq} '{key}'"
        if entry.previous != previous:
            yield f"entry {position}: names {entry.previous} as the entry before it, which is {previous}"
        if session is not None and entry.session != session:
            yield f"entry {position}: belongs to session '{entry.session}', not '{session}'"
        if moment < clock:
            yield f"entry {position}: is dated before the entry before it"
        clock = moment
        previous = digest_bytes(data)


def read_rows(path: Path) -> list[tuple[Any, Any, Any]]:
    """Read ``(seq, key, data)`` of a trail file without writing anything beside it.

    Raises:
        sqlite3.DatabaseError: the file is not a readable trail.
    """
    # A trail at rest has no -wal file and is opened as immutable, so SQLite creates no side files.
    live = path.with_name(path.name + "-wal").exists()
    uri = f"{path.resolve().as_uri()}?mode=ro{'' if live else '&immutable=1'}"
    with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
        verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(str(verdict).splitlines()[0])
        return connection.execute("SELECT seq, key, data FROM entry ORDER BY seq").fetchall()


def read_entries(path: Path) -> list[Recorded]:
    """Read every entry of a trail file for display; :func:`chain_damage` says whether to believe them.

    Raises:
        AuditDamage: the file or an entry cannot be read.
    """
    try:
        return [_recorded(data) for _, _, data in read_rows(path)]
    except sqlite3.DatabaseError as error:
        raise AuditDamage(f"cannot be read as a trail: {error}", where=str(path)) from error
