"""Where LangGraph's checkpoints are kept: beside the trail, in a file of the run folder or in its database.

Nothing is decided from them. They are fenced all the same: an orchestrator that was taken over leaves none, so the next
``resume`` does not go on from where somebody else stood.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.sqlite import SqliteSaver

from reviews.log.pointer import Pointer, pointer_of
from reviews.log.postgres import is_postgres
from reviews.trail import Trail
from specs.errors import Blocked, PeergateError
from specs.text import plain

if TYPE_CHECKING:
    from reviews.log.postgres import Database

STATE = "state.sqlite"
_LOCK = 0x7065_6573
"""Of those who make the tables at the same time."""


_PARTS = {"v": int, "id": str, "channel_values": dict, "channel_versions": dict, "versions_seen": dict}
"""What LangGraph goes on from without looking."""


class _Unreadable(Exception):
    """A checkpoint is there, and is none."""


class Place(NamedTuple):
    """A saver, and the thread in it that is this session's."""

    saver: BaseCheckpointSaver[Any]
    thread: str


class FencedSqlite(SqliteSaver):
    """LangGraph's saver for SQLite, which keeps nothing of an orchestrator that was taken over."""

    def __init__(self, connection: sqlite3.Connection, trail: Trail) -> None:
        super().__init__(connection)
        self._trail = trail

    def put(self, *arguments: Any, **named: Any) -> Any:
        """Keep a checkpoint; errors as in :meth:`reviews.trail.Trail.guard`."""
        self._trail.guard()
        return super().put(*arguments, **named)

    def put_writes(self, *arguments: Any, **named: Any) -> None:
        """Keep what a node has written; errors as in :meth:`reviews.trail.Trail.guard`."""
        self._trail.guard()
        super().put_writes(*arguments, **named)

    def get_tuple(self, *arguments: Any, **named: Any) -> CheckpointTuple | None:
        """Return a checkpoint; what is none is told to whoever opened the checkpoints."""
        return _whole(lambda: SqliteSaver.get_tuple(self, *arguments, **named))


@contextmanager
def checkpoints(run: Path, name: str, trail: Trail) -> Generator[Place]:
    """Open the checkpoints of a session.

    Raises:
        DatabaseUnreachable: its database cannot be reached.
        Blocked: they are damaged. They were put aside, and the next ``resume`` goes on from what the trail says.
    """
    pointer = pointer_of(trail.path)
    if pointer is not None:
        with _in_postgres(trail, pointer) as place:
            yield place
        return
    connection = sqlite3.connect(run / STATE, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        yield Place(FencedSqlite(connection, trail), name)
    except (sqlite3.DatabaseError, _Unreadable) as error:
        # A full disk and the like are told elsewhere.
        if isinstance(error, sqlite3.OperationalError):
            raise
        connection.close()
        raise _damaged(error, str(run / STATE), _put_aside(run)) from error
    finally:
        connection.close()


def _whole(read: Callable[[], CheckpointTuple | None]) -> CheckpointTuple | None:
    """Read a checkpoint, and look whether it has the parts of one.

    Raises:
        _Unreadable: what is there is no checkpoint.
    """
    try:
        found = read()
        held: dict[str, Any] = dict(found.checkpoint) if found is not None else {}
        for name, kind in _PARTS.items() if found is not None else ():
            if not isinstance(held[name], kind):
                raise TypeError(f"'{name}' is of type '{type(held[name]).__name__}', not '{kind.__name__}'")
    except Exception as error:
        if isinstance(error, (sqlite3.Error, PeergateError)) or is_postgres(error):
            raise
        # What a decoder says of bytes that are none of its own may be anything.
        raise _Unreadable(f"{type(error).__name__}: {plain(str(error), 200)}") from error
    return found


def _damaged(error: Exception, where: str, aside: str) -> Blocked:
    return Blocked(
        f"the checkpoints of the graph are damaged: {error}",
        where=where,
        hint=f"they are kept as {aside}; `peergate resume` goes on from the trail, which says all that was done",
    )


def _put_aside(run: Path) -> str:
    """Give the file and its log another name, so that the next orchestrator begins new ones; return the name."""
    number = 1 + sum(1 for _ in run.glob(f"{STATE}.damaged.*[0-9]"))
    name = f"{STATE}.damaged.{number}"
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            (run / f"{STATE}{end}").rename(run / f"{name}{end}")
    return name


@contextmanager
def _in_postgres(trail: Trail, pointer: Pointer) -> Generator[Place]:
    from reviews.log.postgres_table import database_for

    database = database_for(trail.path, pointer)
    try:
        saver = fenced_postgres(database, trail)
        make_tables(database, saver)
        # Names are only unique in one workspace.
        thread = str(pointer.log)
        try:
            yield Place(saver, thread)
        except _Unreadable as error:
            raise _damaged(error, f"{database.place}, thread {thread}", _rename(database, thread)) from error
        except Exception as error:
            told = database.told(error) if is_postgres(error) else None
            if told is not None:
                raise told from error
            raise
        if trail.find("close") is not None:
            # The trail says everything that a closed session is.
            database.patiently(lambda: saver.delete_thread(thread))
    finally:
        database.close()


def _rename(database: Database, thread: str) -> str:
    """Give the rows of a thread another one, so that the next orchestrator begins new ones; return that one's name.

    Raises:
        DatabaseUnreachable: the database cannot be reached.
    """

    def rename() -> str:
        with database.connection() as connection, connection.transaction():
            like = f"{thread}.damaged.%"
            query: LiteralString = "SELECT count(DISTINCT thread_id) FROM checkpoints WHERE thread_id LIKE %s"
            counted = connection.execute(query, (like,)).fetchone()
            name = f"{thread}.damaged.{1 + (counted[0] if counted else 0)}"
            connection.execute("UPDATE checkpoints SET thread_id = %s WHERE thread_id = %s", (name, thread))
            connection.execute("UPDATE checkpoint_blobs SET thread_id = %s WHERE thread_id = %s", (name, thread))
            connection.execute("UPDATE checkpoint_writes SET thread_id = %s WHERE thread_id = %s", (name, thread))
            return name

    return f"thread {database.patiently(rename)}"


def fenced_postgres(database: Database, trail: Trail) -> Any:
    """Return LangGraph's saver for Postgres, fenced, and patient while the database is gone.

    Every write it makes may be made twice: the same checkpoint has the same key.
    """
    from langgraph.checkpoint.postgres import PostgresSaver

    class FencedPostgres(PostgresSaver):
        def put(self, *arguments: Any, **named: Any) -> Any:
            trail.guard()
            return database.patiently(lambda: PostgresSaver.put(self, *arguments, **named))

        def put_writes(self, *arguments: Any, **named: Any) -> None:
            trail.guard()
            database.patiently(lambda: PostgresSaver.put_writes(self, *arguments, **named))

        def get_tuple(self, *arguments: Any, **named: Any) -> CheckpointTuple | None:
            return _whole(lambda: database.patiently(lambda: PostgresSaver.get_tuple(self, *arguments, **named)))

    pool: Any = database.pool
    saver = FencedPostgres(pool)
    # A pipeline cannot be tried again, and poolers between here and the server break it.
    saver.supports_pipeline = False
    return saver


def make_tables(database: Database, saver: Any) -> None:
    """Make or renew the tables of the checkpoints; many processes may come at once.

    Raises:
        DatabaseUnreachable: the database cannot be reached.
    """
    migrations: Sequence[str] = saver.MIGRATIONS

    def is_done() -> bool:
        with database.connection() as connection:
            there = connection.execute("SELECT to_regclass('checkpoint_migrations') IS NOT NULL").fetchone()
            if not there or not there[0]:
                return False
            newest = connection.execute("SELECT max(v) FROM checkpoint_migrations").fetchone()
            return bool(newest) and newest[0] == len(migrations) - 1

    def make() -> None:
        with database.connection() as connection:
            # Asked again and again: an index that is made concurrently waits for statements that wait for a lock.
            while not is_done():
                mine = connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchone()
                if not mine or not mine[0]:
                    time.sleep(0.05)
                    continue
                try:
                    saver.setup()
                finally:
                    connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))

    database.patiently(make)
