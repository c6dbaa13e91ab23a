"""Search a trail without reading all of it: the filters become SQL over the signed bytes.

For display: entries are decoded, not verified. An export or another database is first put into a table in memory.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from reviews.trail.chain import envelope
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.signed_head import parse_note
from reviews.trail.chain.tiles import CHECKPOINT, is_export, read_bundles
from reviews.trail.tables.open_table import read_trail
from reviews.trail.tables.pointer import pointer_of
from reviews.trail.tables.trail_file import SCHEMA, holds_trail, reading
from specs.system.digests import canonical_bytes
from specs.system.errors import AuditDamage, PeergateError
from specs.system.regular_files import read_regular


class TrailQuery(NamedTuple):
    """The entries to find; None does not filter."""

    kinds: tuple[str, ...] = ()
    stage: str | None = None
    attempt: int | None = None
    outcome: str | None = None
    reviewer: str | None = None
    min_usd: float | None = None
    text: str | None = None
    """Text anywhere in the entry, in any letter case."""
    seqs: tuple[int, ...] | None = None


class QueryResult(NamedTuple):
    """The newest entries that fit, oldest first, and how many fit in all."""

    entries: list[RecordedEntry]
    total: int


def select(place: Path, wanted: TrailQuery, limit: int | None = None) -> QueryResult:
    """Return the newest ``limit`` entries that fit; raises AuditDamage if the place or one of them cannot be read."""
    try:
        with _open_entries(place) as connection:
            if not holds_trail(connection):
                raise sqlite3.DatabaseError("no such table: entry")
            clauses, values = _conditions(wanted)
            where = " AND ".join(clauses) or "TRUE"
            numbers = connection.execute(f"SELECT seq FROM entry WHERE {where} ORDER BY seq", values).fetchall()
            query = "SELECT payload, signatures FROM entry WHERE seq = ?"
            newest = [connection.execute(query, seq).fetchone() for seq in (numbers[-limit:] if limit else numbers)]
            return QueryResult([envelope.restore_entry(*row) for row in newest], len(numbers))
    except (sqlite3.DatabaseError, ValueError, TypeError, AttributeError) as error:
        raise AuditDamage(f"cannot be read as a trail: {str(error).splitlines()[0]}", where=str(place)) from error


def _open_entries(place: Path) -> AbstractContextManager[sqlite3.Connection]:
    if is_export(place):
        return _in_memory(_read_export(place))
    return reading(place) if pointer_of(place) is None else _in_memory(row.envelope for row in read_trail(place).rows)


def _read_export(folder: Path) -> list[bytes]:
    try:
        return read_bundles(folder, parse_note(read_regular(folder / CHECKPOINT), CHECKPOINT).size)
    except (PeergateError, OSError) as error:
        raise AuditDamage(f"cannot be read as an export: {str(error).splitlines()[0]}", where=str(folder)) from error


@contextmanager
def _in_memory(envelopes: Iterable[bytes]) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.text_factory = bytes
        connection.executescript(SCHEMA.partition("CREATE UNIQUE INDEX")[0])
        connection.executemany("INSERT INTO entry VALUES (?, ?, ?)", _rows(envelopes))
        yield connection


def _rows(envelopes: Iterable[bytes]) -> Generator[tuple[int, str, str]]:
    for seq, data in enumerate(envelopes):
        try:
            opened = envelope.open_envelope(data)
        except ValueError as error:
            raise ValueError(f"entry {seq}: {error}") from error
        yield seq, opened.payload.decode(), envelope.signatures_text(*opened.signatures).decode()


def _conditions(wanted: TrailQuery) -> tuple[list[str], list[Any]]:
    """Return the filters as SQL.

    A value is searched as text first: payloads are canonical, so they spell it in one way, and finding text takes a
    third of the time of reading JSON.
    """
    clauses: list[str] = []
    values: list[Any] = []

    def holds(*texts: bytes) -> None:
        text = " OR ".join(["payload LIKE ? ESCAPE '!'"] * len(texts))
        clauses.append(f"({text})")
        values.extend(f"%{re.sub('[%_!]', lambda sign: f'!{sign[0]}', text.decode())}%" for text in texts)

    if wanted.seqs is not None:
        clauses.append(f"seq IN ({', '.join('?' * len(wanted.seqs))})")
        values += wanted.seqs
    if wanted.text is not None:
        # JSON escapes quotation marks and line ends.
        holds(json.dumps(wanted.text, ensure_ascii=False)[1:-1].encode())
    if wanted.kinds:
        holds(*(b'"kind":%s' % canonical_bytes(kind) for kind in wanted.kinds))
        clauses.append(f"json_extract(payload, '$.predicate.kind') IN ({', '.join('?' * len(wanted.kinds))})")
        values += wanted.kinds
    for name in ("stage", "attempt", "outcome", "reviewer"):
        value = getattr(wanted, name)
        if value is not None:
            holds(b'"%s":%s' % (name.encode(), canonical_bytes(value)))
            clauses.append(f"json_extract(payload, '$.predicate.body.{name}') = ?")
            values.append(value)
    if wanted.min_usd is not None:
        holds(b'"usd":')
        clauses.append("json_extract(payload, '$.predicate.body.usd') >= ?")
        values.append(wanted.min_usd)
    return clauses, values
