"""Opens the table that a trail's rows are in, whichever it is."""

from __future__ import annotations

from pathlib import Path

from reviews.log.pointer import pointer_of
from reviews.log.sqlite_table import SqliteTable
from reviews.log.table import Table


def open_table(trail: Path) -> Table:
    """Open the rows of a trail for appending; without a pointer to a database they are in a file, which may be new.

    Raises:
        AuditDamage: the pointer or the file is damaged.
        DiskUnwritable: the file cannot be written.
        UserError: the trail is not in the workspace's database, or is of an older form.
        DatabaseUnreachable: the database cannot be reached.
    """
    pointer = pointer_of(trail)
    if pointer is None:
        return SqliteTable(trail)
    # Imported here: whoever uses a file needs no psycopg.
    from reviews.log.postgres_table import PostgresTable

    return PostgresTable(trail, pointer)
