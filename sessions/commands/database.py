"""`peergate start --database`: which Postgres the sessions of a workspace are recorded in."""

from __future__ import annotations

from pathlib import Path


def use_database(runs: Path, address: str) -> None:
    """Connect to a database, and write it down for the sessions that are begun in this workspace from now on.

    Raises:
        UserError: this is no address, or the database refuses; nothing was written down.
        DatabaseUnreachable: it cannot be reached.
    """
    from reviews.trail.tables.pointer import checked, keep_database
    from reviews.trail.tables.postgres_connection import connected

    connected(checked(address, "--database")).close()
    keep_database(runs, address)
