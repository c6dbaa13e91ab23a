"""Postgres for this process: shared connections that are renewed, the tables, errors. psycopg is an extra."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar
from urllib.parse import unquote, urlsplit

from reviews.trail.tables.pointer import redact_address
from specs.system.errors import AuditDamage, DatabaseUnreachable, PeergateError, UserError
from specs.system.extras import install_hint

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow
    from psycopg_pool import ConnectionPool

PATIENCE_S = 60.0
"""How long to wait for a database: longer than a restart takes."""
CONNECT_S = 10
"""For one try to connect."""
MOST_CONNECTIONS = 4
"""The connections of one process, which mostly needs one."""
FORMAT = 1
_LOCK = 0x7065_6572
"""Held while the tables are made."""
BEGIN = """BEGIN;
SET LOCAL synchronous_commit = on;
SET LOCAL lock_timeout = '30s';
SET LOCAL idle_in_transaction_session_timeout = '300s'
"""
"""Whatever the server's configuration: a commit waits for the disk, and a process that hangs loses its transaction."""
_PASSING = ("starting up", "shutting down", "in recovery", "recovery mode", "too many", "remaining connection slots")
"""A server that refuses for now says one of these."""
_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS peergate;
CREATE TABLE peergate.format (version integer NOT NULL);
CREATE TABLE peergate.log (
  id uuid PRIMARY KEY, name text NOT NULL, place text NOT NULL, begun timestamptz NOT NULL DEFAULT now(),
  size bigint NOT NULL DEFAULT 0, frontier bytea NOT NULL DEFAULT '', note text NOT NULL DEFAULT '',
  lease jsonb, beat timestamptz);
CREATE TABLE peergate.entry (
  log uuid NOT NULL REFERENCES peergate.log, seq bigint NOT NULL, kind text NOT NULL, key text NOT NULL,
  payload text NOT NULL, signatures text NOT NULL, PRIMARY KEY (log, seq), UNIQUE (log, key));
CREATE INDEX entry_kind ON peergate.entry (log, kind, seq);
CREATE FUNCTION peergate.is_final() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN RAISE EXCEPTION 'entries are final and stay'; END $$;
CREATE TRIGGER entry_is_final BEFORE UPDATE OR DELETE ON peergate.entry
  FOR EACH ROW EXECUTE FUNCTION peergate.is_final();
CREATE TRIGGER entry_stays BEFORE TRUNCATE ON peergate.entry
  FOR EACH STATEMENT EXECUTE FUNCTION peergate.is_final();
INSERT INTO peergate.format VALUES (1);
"""
"""``kind`` and ``key`` repeat the signed bytes for the indexes; readers of a whole trail compare them."""
DoneT = TypeVar("DoneT")


class Database:
    """The connections of this process to one database. Use :func:`open_database`; every user closes it once."""

    def __init__(self, address: str, pool: ConnectionPool[Connection[TupleRow]]) -> None:
        self.address = address
        self.place = redact_address(address)
        self.pool = pool
        self.users = 1
        self._is_gone = False

    def connection(self) -> AbstractContextManager[Connection[TupleRow]]:
        """Lend a connection, on which each statement is a transaction; raises psycopg.OperationalError."""
        return self.pool.connection(CONNECT_S)

    def take(self) -> Connection[TupleRow]:
        """Take a connection for a transaction; it goes back to the pool."""
        return self.pool.getconn(CONNECT_S)

    def rows(self, query: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that may be run twice; errors as in :meth:`patiently`."""

        def ask() -> list[tuple[Any, ...]]:
            with self.connection() as connection:
                return connection.execute(query, values).fetchall()

        return self.patiently(ask)

    def patiently(self, action: Callable[[], DoneT]) -> DoneT:
        """Do something that may be done twice; while the database is gone, wait for it and do it again.

        Raises:
            DatabaseUnreachable: it was gone or not writable for longer than :data:`PATIENCE_S`.
            AuditDamage: it reports damaged pages.
            PeergateError: it refuses, or another process holds a lock.
        """
        from psycopg import Error

        until = time.monotonic() + (0 if self._is_gone else PATIENCE_S)
        pause = 0.0
        while True:
            try:
                done = action()
                self._is_gone = False
                return done
            except Exception as error:
                failure = self.translate_error(error)
                if failure is None:
                    raise
                if not isinstance(failure, DatabaseUnreachable):
                    raise failure from error
                if time.monotonic() >= until:
                    # Closing things afterwards does not wait again.
                    self._is_gone = True
                    raise failure from error
            time.sleep(min(pause, 1.0))
            pause = pause * 2 or 0.05
            with suppress(Error):
                # Throws away the connections that were lost.
                self.pool.check()

    def translate_error(self, error: BaseException) -> Exception | None:
        """Return the error to raise for one of the database, without the password; None for any other error."""
        if isinstance(error, DatabaseUnreachable):
            return error
        # Without importing psycopg for it.
        modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
        if modules.isdisjoint(("psycopg", "psycopg_pool")):
            return None
        from psycopg import InterfaceError, OperationalError, errors

        text = _text(error, self.address)
        busy = (errors.LockNotAvailable, errors.QueryCanceled, errors.DeadlockDetected)
        full = (errors.DiskFull, errors.InsufficientResources)
        damaged = (errors.DataCorrupted, errors.IndexCorrupted)
        refused = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification, errors.InvalidCatalogName)
        if isinstance(error, busy):
            hint = "another process holds it for long; `peergate status` says which one runs the session"
            return PeergateError(f"the trail is locked: {text}; nothing was recorded", where=self.place, hint=hint)
        if isinstance(error, damaged):
            hint = "nothing can be appended to an unreadable trail; restore it from the server's backup or an export"
            return AuditDamage(f"the database is damaged: {text}; nothing was recorded", where=self.place, hint=hint)
        # After a failover the connection may lead to a read-only replica.
        locked = isinstance(error, errors.ReadOnlySqlTransaction)
        if locked or (isinstance(error, (OperationalError, InterfaceError)) and not isinstance(error, refused)):
            what = "cannot be written" if locked else "has no room" if isinstance(error, full) else "cannot be reached"
            return DatabaseUnreachable(
                f"the database {what}: {text}; nothing is half-written or lost",
                where=self.place,
                hint="when it is back, `peergate resume` continues",
            )
        return PeergateError(f"the database refuses: {text}; nothing was recorded", where=self.place)

    def close(self) -> None:
        """Let go of it; the last one closes the connections."""
        with _LOCKED:
            self.users -= 1
            if self.users:
                return
            _OPEN.pop(self.address, None)
        self.pool.close()


_OPEN: dict[str, Database] = {}
_LOCKED = threading.Lock()


def open_database(address: str, *, making: bool = False) -> Database:
    """Return the connections of this process to a database; ``making``: its tables are made if they are missing.

    Raises:
        UserError: psycopg is not installed, the database is not one for this, or it has no tables.
        DatabaseUnreachable: it cannot be reached.
    """
    try:
        from psycopg_pool import ConnectionPool
    except ImportError as error:
        raise UserError(
            f"psycopg is not installed ({error})", where=redact_address(address), hint=install_hint("postgres")
        ) from error
    with _LOCKED:
        database = _OPEN.get(address)
        if database is None:
            # It logs every try to connect; the caller that wanted a connection reports the error.
            logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
            own = application_name(platform.node(), os.getpid())
            options: dict[str, Any] = {"autocommit": True, "connect_timeout": CONNECT_S, "application_name": own}
            pool: ConnectionPool[Connection[TupleRow]] = ConnectionPool(
                address,
                min_size=1,
                max_size=MOST_CONNECTIONS,
                kwargs=options,
                num_workers=1,
                open=False,
                max_idle=120.0,
            )
            pool.open()
            database = _OPEN[address] = Database(address, pool)
        else:
            database.users += 1
            if not making:
                return database
    try:
        database.patiently(lambda: _look(address))
        database.patiently(lambda: _prepare(database, making))
    except BaseException:
        database.close()
        raise
    return database


def _look(address: str) -> None:
    """Connect once, to get the reason if that fails: a pool only says that it has no connection.

    Raises:
        UserError: the server is there and refuses: no such database or user, another password.
        psycopg.OperationalError: it cannot be reached.
    """
    from psycopg import OperationalError, connect

    try:
        connect(address, connect_timeout=CONNECT_S).close()
    except OperationalError as error:
        text = _text(error, address)
        if "FATAL" not in text or any(passing in text for passing in _PASSING):
            raise
        hint = "PEERGATE_DATABASE or the workspace's file names the database and who connects"
        raise UserError(
            f"the database refused the connection: {text}", where=redact_address(address), hint=hint
        ) from error


def _text(error: BaseException, address: str) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return without_password("; ".join(line.strip() for line in lines)[:300], address)


def _prepare(database: Database, making: bool) -> None:
    """Make missing tables, if that is wanted.

    Raises:
        UserError: there are none, those there are of a newer Peergate, or text is not kept as UTF-8.
    """
    with database.connection() as connection:
        tuple_row = connection.execute("SELECT to_regclass('peergate.format') IS NOT NULL").fetchone()
        if (not tuple_row or not tuple_row[0]) and not making:
            raise UserError("the database holds no trails", where=database.place)
        if not tuple_row or not tuple_row[0]:
            encoding = connection.execute("SHOW server_encoding").fetchone()
            if encoding is None or encoding[0] != "UTF8":
                what = f"the database keeps text as {encoding and encoding[0]}, not as UTF8"
                raise UserError(what, where=database.place)
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                made = connection.execute("SELECT to_regclass('peergate.format') IS NOT NULL").fetchone()
                if not made or not made[0]:
                    connection.execute(_SCHEMA)
        version = connection.execute("SELECT max(version) FROM peergate.format").fetchone()
        if version is None or version[0] != FORMAT:
            what = f"its tables have format {version and version[0]}, this Peergate knows {FORMAT}"
            raise UserError(what, where=database.place)


def application_name(host: str, pid: int) -> str:
    """Return the name that the connections of a process have in ``pg_stat_activity``."""
    return f"peergate {pid} {host}"[:63]


def without_password(text: str, address: str) -> str:
    """Return a text without the password of an address."""
    password = urlsplit(address).password
    for secret in filter(None, (password, unquote(password or ""))):
        text = text.replace(secret, "***")
    return text
