"""Reads the entries of an open trail: decoded once, not verified."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import overload

from reviews.trail.chain import tree as merkle
from reviews.trail.chain.envelope import FormT, RecordedEntry, as_entry_of, restore_entry, seal
from reviews.trail.tables.open_table import open_table
from reviews.trail.tables.trail_file import Row
from specs.system.digests import digest_bytes
from specs.system.errors import AuditDamage
from specs.trail.entry import GENESIS, Body, EntryKind, Head
from specs.trail.key_policy import Policy

MOST_READ = 10_000
"""Entries that are kept decoded: more than a session has, fewer than would fill the memory."""


class TrailReader:
    """The entries of one trail; every method raises AuditDamage when the table or an entry cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._in_force: tuple[str, Policy] | None = None
        self._read: dict[int, tuple[str, str, RecordedEntry]] = {}
        self._whole: tuple[int, tuple[RecordedEntry, ...]] | None = None
        # One connection has one transaction, so threads take turns as processes do.
        self._lock = threading.RLock()
        self._table = open_table(path)

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Report a damaged trail as damage: a database may return anything.

        A thread that only reads takes its turn too: inside another one's transaction it would see what may be rolled
        back, and fail with an unrelated error when that connection is lost.
        """
        with self._lock:
            try:
                yield
            except Exception as error:
                failure = self._table.translate_error(error, writing=False)
                if failure is not None:
                    raise failure from error
                if isinstance(error, (ValueError, TypeError, KeyError, AttributeError)):
                    hint = "nothing can be appended to an unreadable trail; `peergate audit verify` lists its damage"
                    what = f"the trail file is damaged: {error}"
                    raise AuditDamage(what, where=str(self.path), hint=hint) from error
                raise

    def _decode_row(self, row: Row) -> RecordedEntry:
        """Decode a row, once for as long as its text stays the same: a gate reads the whole trail many times."""
        seq, payload, signatures = row
        before = self._read.get(seq)
        if before is not None and before[:2] == (payload, signatures):
            return before[2]
        try:
            result = restore_entry(payload.encode(), signatures.encode())
        except (ValueError, AttributeError) as error:
            raise AuditDamage(f"entry {seq} is no longer a trail entry: {error}", where=str(self.path)) from error
        if len(self._read) < MOST_READ:
            self._read[seq] = payload, signatures, result
        return result

    @overload
    def find(self, key: str) -> RecordedEntry | None: ...
    @overload
    def find(self, key: str, form: type[FormT]) -> RecordedEntry[FormT] | None: ...
    def find(self, key: str, form: type[Body] = Body) -> RecordedEntry | None:
        """Return the entry with this key, if there is one; raises AuditDamage if it is not of the kind of ``form``."""
        with self._reading():
            row = self._table.with_key(key)
        entry = self._decode_row(row) if row else None
        return entry if entry is None or form is Body else as_entry_of(entry, form)

    def envelope(self, key: str) -> tuple[str, str]:
        """Return the signed text and the signatures of the entry with this key; raises KeyError without one."""
        with self._reading():
            row = self._table.with_key(key)
        if row is None:
            raise KeyError(key)
        return row[1], row[2]

    @overload
    def iterate(self, *kinds: EntryKind) -> Iterator[RecordedEntry]: ...
    @overload
    def iterate(self, *kinds: type[FormT]) -> Iterator[RecordedEntry[FormT]]: ...
    def iterate(self, *kinds: EntryKind | type[Body]) -> Iterator[RecordedEntry]:
        """Yield the entries in order, all or those of some kinds."""
        names: list[EntryKind] = [kind if isinstance(kind, str) else kind.KIND for kind in kinds]
        with self._reading():
            rows = self._table.rows(*names)
        for row in rows:
            yield self._decode_row(row)

    def entries(self) -> tuple[RecordedEntry, ...]:
        """Return all entries in order: the same object until an entry is added, here or by others."""
        with self._reading():
            version = self._table.version()
            if self._whole is None or self._whole[0] != version:
                self._whole = version, tuple(map(self._decode_row, self._table.rows()))
            return self._whole[1]

    def newest_of(self, kind: EntryKind) -> RecordedEntry | None:
        """Return the newest entry of a kind; without one, the first entry of the trail."""
        with self._reading():
            row = self._table.newest(kind) or self._table.first()
        return self._decode_row(row) if row else None

    def policy(self) -> Policy | None:
        """Return the policy in force: that of the first entry, or of the newest change; None before the first entry."""
        with self._reading():
            row = self._table.newest("keys") or self._table.first()
        if row is None:
            return None
        if self._in_force is None or self._in_force[0] != row[1]:
            try:
                self._in_force = row[1], Policy.model_validate(json.loads(row[1])["predicate"].get("policy"))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise AuditDamage("the trail no longer has a key policy", where=str(self.path)) from error
        return self._in_force[1]

    def head(self) -> Head:
        """Return the size, the digest of the last entry and the root of the tree."""
        with self._reading():
            head = self._table.head()
            if head is None or not head[0]:
                return Head(size=0, digest=GENESIS)
            _, payload, signatures = self._table.newest() or (0, "", "")
            root = merkle.Frontier.of_bytes(*head[:2]).root().hex()
            digest = digest_bytes(seal(payload.encode(), signatures.encode()))
            return Head(size=head[0], digest=digest, root=f"sha256:{root}")
