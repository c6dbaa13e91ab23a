"""Search a trail without reading all of it: the filters become SQL over the signed bytes.

For display: what is found is decoded, not verified.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from reviews.log import envelope
from reviews.log.chain import first_format
from reviews.log.envelope import Recorded
from reviews.log.rows import format_of, reading
from specs.errors import AuditDamage


class Wanted(NamedTuple):
    """What entries to find; what is None does not matter."""

    kinds: tuple[str, ...] = ()
    stage: str | None = None
    attempt: int | None = None
    outcome: str | None = None
    reviewer: str | None = None
    min_usd: float | None = None
    text: str | None = None
    """Text that stands somewhere in the entry, letter case aside."""
    seqs: tuple[int, ...] | None = None


class Found(NamedTuple):
    """The newest entries that fit, oldest first, and how many fit in all."""

    entries: list[Recorded]
    total: int


_BODY = "json_extract(payload, '$.predicate.body.{}') = ?"


def select(path: Path, wanted: Wanted, limit: int | None = None) -> Found:
    """Return the newest ``limit`` entries that fit.

    Raises:
        AuditDamage: the file or an entry that fits cannot be read.
    """
    try:
        with reading(path) as connection:
            if format_of(connection) != 1:
                return _signed(connection, wanted, limit)
            rows = connection.execute("SELECT data FROM entry ORDER BY seq").fetchall()
        fitting = [one for one in (first_format(row[0]) for row in rows) if fits(one, wanted)]
        return Found(fitting[-limit:] if limit else fitting, len(fitting))
    except (sqlite3.DatabaseError, ValueError) as error:
        raise AuditDamage(f"cannot be read as a trail: {str(error).splitlines()[0]}", where=str(path)) from error


def _signed(connection: sqlite3.Connection, wanted: Wanted, limit: int | None) -> Found:
    clauses: list[str] = []
    values: list[Any] = []
    if wanted.kinds:
        clauses.append(f"json_extract(payload, '$.predicate.kind') IN ({', '.join('?' * len(wanted.kinds))})")
        values += wanted.kinds
    if wanted.seqs is not None:
        clauses.append(f"seq IN ({', '.join('?' * len(wanted.seqs))})")
        values += wanted.seqs
    if wanted.text is not None:
        # As the text stands in JSON: a quotation mark or a line end is written as an escape there.
        clauses.append("payload LIKE ? ESCAPE '!'")
        text = envelope.as_json(wanted.text)
        values.append(f"%{re.sub('[%_!]', lambda sign: f'!{sign[0]}', text)}%")
    for name in ("stage", "attempt", "outcome", "reviewer"):
        if getattr(wanted, name) is not None:
            clauses.append(_BODY.format(name))
            values.append(getattr(wanted, name))
    if wanted.min_usd is not None:
        clauses.append("json_extract(payload, '$.predicate.body.usd') >= ?")
        values.append(wanted.min_usd)
    where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
    numbers = [row[0] for row in connection.execute(f"SELECT seq FROM entry {where} ORDER BY seq", values)]
    newest = numbers[-limit:] if limit else numbers
    found: list[Recorded] = []
    for seq in newest:
        row = connection.execute("SELECT payload, signatures FROM entry WHERE seq = ?", (seq,)).fetchone()
        found.append(envelope.recorded(*row))
    return Found(found, len(numbers))


def fits(one: Recorded, wanted: Wanted) -> bool:
    """Say whether an entry is among those wanted."""
    body = one.body
    usd = body.get("usd")
    return (
        (not wanted.kinds or one.entry.kind in wanted.kinds)
        and (wanted.seqs is None or one.entry.seq in wanted.seqs)
        and all(getattr(wanted, name) in (None, body.get(name)) for name in ("stage", "attempt", "outcome", "reviewer"))
        and (wanted.min_usd is None or (isinstance(usd, int | float) and usd >= wanted.min_usd))
        and (wanted.text is None or wanted.text.lower() in one.entry.model_dump_json().lower())
    )
