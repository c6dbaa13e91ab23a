"""The rows of many trails in one Postgres: the same signed bytes as in a file, appends serialised by a row lock."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar
from uuid import UUID, uuid4

from reviews.trail.chain.envelope import restore_entry
from reviews.trail.chain.store import write_durably
from reviews.trail.tables.pointer import Pointer, database_of, pointer_path
from reviews.trail.tables.postgres_connection import BEGIN, Database, open_database
from reviews.trail.tables.trail_file import HeadRow, Row, StoredEntry, TrailFile
from specs.system.errors import AuditDamage, DatabaseUnreachable, UserError
from specs.trail.entry import EntryKind

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

_ROW: LiteralString = "SELECT seq, payload, signatures FROM peergate.entry WHERE log = %s"
_HEAD: LiteralString = "SELECT size, frontier, note FROM peergate.log WHERE id = %s"
DoneT = TypeVar("DoneT")


def begin_log(trail: Path, name: str, address: str, run: Path | None = None) -> None:
    """Give a new trail its place in a database, and write the pointer; ``run`` is the later place of its folder.

    Raises:
        DatabaseUnreachable: it cannot be reached.
        UserError: it is not usable for this.
    """
    log, database = uuid4(), open_database(address, making=True)
    place = f"{platform.node()}:{run or trail.parent.resolve()}"
    query = "INSERT INTO peergate.log (id, name, place) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING 1"
    try:
        database.rows(query, log, name, place)
        write_durably(pointer_path(trail), Pointer(log=log, database=database.place).canonical())
    finally:
        database.close()


def database_for(trail: Path, pointer: Pointer) -> Database:
    """Return the database that a trail is in.

    Raises:
        UserError: no address is configured.
        DatabaseUnreachable: it cannot be reached.
    """
    address = database_of(trail)
    if address is None:
        raise UserError(
            f"the trail is in {pointer.database}, and no address says how to connect to it",
            where=str(pointer_path(trail)),
            hint="set PEERGATE_DATABASE, or `peergate start --database` in this workspace",
        )
    return open_database(address)


class PostgresTable:
    """The rows of one trail, open for appending; every method is that of ``SqliteTable``."""

    def __init__(self, trail: Path, pointer: Pointer) -> None:
        """Connect; errors as in :func:`database_for`, and a UserError if the database does not hold the trail."""
        self._where = str(pointer_path(trail))
        self._log = pointer.log
        self.database: Database | None = database_for(trail, pointer)
        self._held: Connection[TupleRow] | None = None
        self._own: int | None = None
        """The size that this wrote last."""
        self._version = 0
        try:
            if self._fetch_row(_HEAD) is None:
                raise UserError(
                    f"this trail is not in {self.database.place}, it was begun in {pointer.database}",
                    where=self._where,
                    hint="set PEERGATE_DATABASE to the database it was begun in",
                )
        except BaseException:
            self.close()
            raise

    @property
    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        return self._held is not None

    def begin(self) -> None:
        """Begin a transaction and take the row that every append to this trail changes."""
        self._require_database().patiently(self._begin)

    def _begin(self) -> None:
        connection = self._require_database().take()
        try:
            connection.execute(BEGIN)
            connection.execute("SELECT 1 FROM peergate.log WHERE id = %s FOR UPDATE", (self._log,))
        except BaseException:
            self._put_back(connection, "ROLLBACK")
            raise
        self._held = connection

    def commit(self) -> None:
        """End the transaction; returns when the server's disk has it."""
        assert self._held is not None
        self._held.execute("COMMIT")
        connection, self._held = self._held, None
        self._put_back(connection, None)

    def rollback(self) -> None:
        """End the transaction without what was added in it."""
        connection, self._held = self._held, None
        self._own = None
        if connection is not None:
            self._put_back(connection, "ROLLBACK")

    def _put_back(self, connection: Connection[TupleRow], last: LiteralString | None) -> None:
        from psycopg import Error

        try:
            if last is not None and not connection.closed:
                connection.execute(last)
        except Error:
            connection.close()
        self._require_database().pool.putconn(connection)

    def again(self, append: Callable[[], DoneT]) -> DoneT:
        """Append, again after a lost connection: its key shows whether the first was recorded."""
        return self._require_database().patiently(append)

    def version(self) -> int:
        """Return a number that changes when others have appended."""
        row = self._fetch_row(_HEAD)
        size = row[0] if row else None
        if size != self._own:
            self._own, self._version = size, self._version + 1
        return self._version

    def head(self) -> HeadRow | None:
        """Return the newest head."""
        row = self._fetch_row(_HEAD)
        return (row[0], bytes(row[1]), row[2]) if row and row[0] else None

    def first(self) -> Row | None:
        """Return the first entry."""
        return self._fetch_row(f"{_ROW} AND seq = 0")

    def newest(self, kind: EntryKind | None = None) -> Row | None:
        """Return the newest entry, of a kind if one is given."""
        if kind is None:
            return self._fetch_row(f"{_ROW} ORDER BY seq DESC LIMIT 1")
        return self._fetch_row(f"{_ROW} AND kind = %s ORDER BY seq DESC LIMIT 1", kind)

    def with_key(self, key: str) -> Row | None:
        """Return the entry with this key."""
        return self._fetch_row(f"{_ROW} AND key = %s", key)

    def rows(self, *kinds: EntryKind) -> list[Row]:
        """Return all entries in order, or those of some kinds."""
        if kinds:
            return self._all(f"{_ROW} AND kind = ANY(%s) ORDER BY seq", list(kinds))
        return self._all(f"{_ROW} ORDER BY seq")

    def add(self, row: StoredEntry, kind: EntryKind, key: str) -> None:
        """Add an entry."""
        assert self._held is not None
        self._held.execute(
            "INSERT INTO peergate.entry (log, seq, kind, key, payload, signatures) VALUES (%s, %s, %s, %s, %s, %s)",
            (self._log, row.seq, kind, key, row.payload.decode(), row.signatures.decode()),
        )

    def put_head(self, size: int, frontier: bytes, note: str) -> None:
        """Replace the head."""
        assert self._held is not None
        self._held.execute(
            "UPDATE peergate.log SET size = %s, frontier = %s, note = %s WHERE id = %s",
            (size, frontier, note, self._log),
        )
        self._own = size

    def translate_error(self, error: BaseException, *, writing: bool) -> Exception | None:
        """Return the error to raise; None if the error did not come from the database."""
        if self.database is None:
            return error if isinstance(error, DatabaseUnreachable) else None
        return self.database.translate_error(error)

    def settle(self) -> None:
        """Do nothing: what is committed is in its place."""

    def file_digest(self) -> None:
        """Return None: a database has no file."""
        return None

    def close(self) -> None:
        """Let go of the database."""
        self.rollback()
        database, self.database = self.database, None
        if database is not None:
            database.close()

    def _require_database(self) -> Database:
        if self.database is None:
            raise DatabaseUnreachable("the trail was closed", where=self._where)
        return self.database

    def _fetch_row(self, query: LiteralString, *values: Any) -> Any:
        return next(iter(self._all(query, *values)), None)

    def _all(self, query: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        if self._held is not None:
            return self._held.execute(query, (self._log, *values)).fetchall()
        return self._require_database().rows(query, self._log, *values)


def read_postgres(trail: Path, pointer: Pointer) -> TrailFile:
    """Read a whole trail out of its database.

    Raises:
        AuditDamage: the database's own columns say something else than the entries.
        UserError: the trail is not in the workspace's database, or no address says how to connect to it.
        DatabaseUnreachable: it cannot be reached.
    """
    database = database_for(trail, pointer)
    try:
        pair = database.patiently(lambda: _read(database, pointer.log))
    finally:
        database.close()
    if pair is None:
        raise UserError(f"this trail is not in {database.place}", where=str(pointer_path(trail)))
    rows, (size, frontier, note) = pair
    stored: list[StoredEntry] = []
    for seq, kind, key, payload, signatures in rows:
        stored.append(StoredEntry(seq, payload.encode(), signatures.encode()))
        _compare(stored[-1], kind, key, trail)
    return TrailFile(stored, (size, bytes(frontier), note.encode()) if size or stored else None)


def _read(database: Database, log: UUID) -> tuple[list[tuple[Any, ...]], tuple[Any, ...]] | None:
    query = "SELECT seq, kind, key, payload, signatures FROM peergate.entry WHERE log = %s ORDER BY seq"
    with database.connection() as connection:
        # One snapshot: a head that is written meanwhile belongs to entries that are not read.
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            head = connection.execute(_HEAD, (log,)).fetchone()
            return (connection.execute(query, (log,)).fetchall(), head) if head else None
        finally:
            if not connection.closed:
                connection.execute("COMMIT")


def _compare(row: StoredEntry, kind: str, key: str, trail: Path) -> None:
    """Compare the indexed columns with the entry."""
    try:
        entry = restore_entry(row.payload, row.signatures).entry
    except (ValueError, AttributeError):
        return  # the check of the entries reports it
    if (entry.kind, entry.key) != (kind, key):
        what = f"entry {row.seq} is found as '{kind}' '{key}' and says it is '{entry.kind}' '{entry.key}'"
        raise AuditDamage(what, where=str(pointer_path(trail)))
