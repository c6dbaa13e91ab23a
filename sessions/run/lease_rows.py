"""The record of a session's lease in its database: two columns of the row that every append locks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

from reviews.trail.tables.pointer import Pointer
from reviews.trail.tables.postgres_connection import Database, application_name
from reviews.trail.tables.postgres_table import database_for
from sessions.run import lease_record
from sessions.run.lease_record import LeaseRecord


class LogRow(NamedTuple):
    """A session of a database: its log's number, its name, its run folder, the length of its trail."""

    log: str
    name: str
    place: str
    size: int
    is_held: bool
    """Whether its owner showed a recent sign of life."""


def every_log(database: Database) -> list[LogRow]:
    """Return all sessions of a database, or raise DatabaseUnreachable."""
    query: LiteralString = (
        "SELECT id::text, name, place, size, lease IS NOT NULL AND NOT (lease->>'released')::boolean"
        " AND clock_timestamp() - beat < make_interval(secs => %s) FROM peergate.log"
    )
    return [LogRow(*row) for row in database.rows(query, lease_record.LEASE_S)]


def entries_of(database: Database, logs: Sequence[str], kinds: Sequence[str]) -> dict[str, list[tuple[bytes, bytes]]]:
    """Return signed bytes and signatures of the entries of some kinds, by log, in order; or DatabaseUnreachable."""
    query: LiteralString = (
        "SELECT log::text, payload, signatures FROM peergate.entry"
        " WHERE log = ANY(%s::uuid[]) AND kind = ANY(%s) ORDER BY log, seq"
    )
    pairs: dict[str, list[tuple[bytes, bytes]]] = {}
    for log, payload, signatures in database.rows(query, list(logs), list(kinds)):
        pairs.setdefault(log, []).append((payload.encode(), signatures.encode()))
    return pairs


class PostgresRecords:
    """A :class:`sessions.run.lease.Records` in Postgres. Times are the server's, so clocks of machines may differ."""

    def __init__(self, trail: Path, pointer: Pointer) -> None:
        self._log = pointer.log
        self._database = database_for(trail, pointer)

    def read(self) -> LeaseRecord | None:
        """Return the newest record."""
        results = self._fetch_row("SELECT lease FROM peergate.log WHERE id = %s", self._log)
        return LeaseRecord.model_validate(results[0]) if results and results[0] else None

    def replace(self, old: LeaseRecord | None, new: LeaseRecord) -> bool:
        """Replace a record, if it is still the newest."""
        number, released = (old.number, old.released) if old else (None, None)
        query: LiteralString = (
            "UPDATE peergate.log SET lease = %s::jsonb, beat = clock_timestamp() WHERE id = %s"
            " AND (lease->>'number')::bigint IS NOT DISTINCT FROM %s"
            " AND (lease->>'released')::boolean IS NOT DISTINCT FROM %s RETURNING 1"
        )
        done = self._fetch_row(query, json.dumps(new.model_dump(mode="json")), self._log, number, released)
        # If the answer to the first try was lost, the second finds what the first wrote.
        return done is not None or self.read() == new

    def beat(self, own: LeaseRecord) -> bool:
        """Write the server's time, if the newest record is this process's own."""
        query: LiteralString = (
            "UPDATE peergate.log SET beat = clock_timestamp() WHERE id = %s"
            " AND (lease->>'number')::bigint = %s RETURNING 1"
        )
        return self._fetch_row(query, self._log, own.number) is not None

    def silent_s(self) -> float:
        """Return how long ago the newest sign of life was, by the server's clock."""
        query: LiteralString = (
            "SELECT extract(epoch FROM clock_timestamp() - beat)::float8 FROM peergate.log WHERE id = %s"
        )
        results = self._fetch_row(query, self._log)
        return float(results[0]) if results and results[0] is not None else 0.0

    def mark(self) -> object:
        """Return the time of the newest sign of life."""
        return self._fetch_row("SELECT beat FROM peergate.log WHERE id = %s", self._log)

    def end_connections(self, of: LeaseRecord) -> None:
        """End open transactions of a process that was taken over, which would block this one."""
        query: LiteralString = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name = %s AND state LIKE 'idle in transaction%%' AND datname = current_database()"
        )
        self._fetch_row(query, application_name(of.host, of.pid))

    def close(self) -> None:
        """Disconnect."""
        self._database.close()

    def _fetch_row(self, query: LiteralString, *values: Any) -> tuple[Any, ...] | None:
        return next(iter(self._database.rows(query, *values)), None)
