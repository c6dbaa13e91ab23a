"""What a trail asks of the table that its rows are in. What an entry means is known only in ``reviews/trail/trail.py``.

Two of them: :class:`reviews.trail.tables.sqlite_table.SqliteTable`, a file in the run folder, and
:class:`reviews.trail.tables.postgres_table.PostgresTable`, one table for many sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from reviews.trail import envelope
from specs.trail.entry import EntryKind


class Stored(NamedTuple):
    """One entry as stored: its number, the signed bytes, and the signatures."""

    seq: Any
    payload: bytes
    signatures: bytes

    @property
    def envelope(self) -> bytes:
        """The bytes the tree hashes."""
        return envelope.seal(self.payload, self.signatures)


Row = tuple[int, str, str]
"""Number, signed bytes and signatures of an entry, as they are stored."""

HeadRow = tuple[int, bytes, str]
"""Size, frontier and signed note of the newest head."""

DoneT = TypeVar("DoneT")


class Table(Protocol):
    """The rows of one trail, open for appending."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def begin(self) -> None:
        """Begin a transaction, and keep everybody else from appending to this trail until it ends."""
        ...

    def commit(self) -> None:
        """End the transaction: what was added survives a loss of power from here on."""
        ...

    def rollback(self) -> None:
        """End the transaction; nothing that was added in it is there."""
        ...

    def again(self, append: Callable[[], DoneT]) -> DoneT:
        """Append in a transaction of its own, and anew while the connection is lost: entries have keys."""
        ...

    def version(self) -> int:
        """Return a number that changes when somebody else has appended; asked inside a transaction."""
        ...

    def head(self) -> HeadRow | None:
        """Return the newest head; None before the first entry."""
        ...

    def newest(self) -> Row | None:
        """Return the newest entry."""
        ...

    def numbered(self, seq: int) -> Row | None:
        """Return the entry with this number."""
        ...

    def with_key(self, key: str) -> Row | None:
        """Return the entry with this key."""
        ...

    def newest_of(self, *kinds: EntryKind) -> Row | None:
        """Return the newest entry of some kinds."""
        ...

    def rows(self, *kinds: EntryKind) -> list[Row]:
        """Return all entries in order, or those of some kinds."""
        ...

    def whole(self) -> tuple[list[Row], HeadRow | None]:
        """Return all entries and the head that belongs to them."""
        ...

    def add(self, row: Stored, kind: EntryKind, key: str) -> None:
        """Add an entry."""
        ...

    def put_head(self, size: int, frontier: bytes, note: str) -> None:
        """Replace the head."""
        ...

    def told(self, error: BaseException, *, writing: bool) -> Exception | None:
        """Return the error to raise for one of the database; None when this is none of the database's."""
        ...

    def settle(self) -> None:
        """Bring everything to where it stays."""
        ...

    def file_digest(self) -> str | None:
        """Return the digest of the file's bytes, once it is closed; None when there is no file."""
        ...

    def close(self) -> None:
        """Let go of the database; closing twice is harmless."""
        ...
