"""The trail: signed entries in a hash tree, kept in SQLite, one entry per hand-over.

The interface is narrow on purpose (append, iterate, find, head); what is below it lies in ``reviews/log``.

Guarantees: an acknowledged entry survives a kill (WAL, synchronous=FULL); the same key appended twice leaves one
entry; an edit, deletion, reordering or replay of entries, and an entry signed by the wrong role, is found. Does not
guarantee: that the newest entries were not cut off, or that all of it was not written anew, by someone who has the
keys of the workspace. That takes an anchor kept elsewhere (`peergate audit anchor`).
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from reviews.log import merkle
from reviews.log.envelope import (
    MAX_ENTRY_BYTES,
    EnvelopeSignature,
    Recorded,
    canonical_body,
    pae,
    payload_of,
    read_statement,
    recorded,
    seal,
    signatures_text,
)
from reviews.log.keys import APART, KeyFolder, Signer, key_id
from reviews.log.note import LOG_KEY, Checkpoint, NoteKey, sign_text
from reviews.log.rows import FORMAT, SCHEMA, Stored, format_of, read_entries
from reviews.log.walk import Walk
from reviews.store import write_durably
from specs.bodies import FORMS, misfit
from specs.digests import canonical_bytes, digest_bytes, digest_file
from specs.errors import AuditDamage, DiskUnwritable, PeergateError, UserError
from specs.policy import ROLES, SIGNERS, Policy, PolicyKey, Role
from specs.trail import GENESIS, Entry, EntryKind, Head

__all__ = ["MAX_ENTRY_BYTES", "Recorded", "Trail", "origin_of", "read_entries", "seal_path"]


class _Edge(NamedTuple):
    """Where the next entry goes."""

    version: int
    """SQLite's number for what other connections have committed: as long as it stays, so does the rest."""
    tree: merkle.Frontier
    root: bytes
    newest: Recorded | None
    policy: Policy | None
    signers: dict[str, Signer]
    """Who signs which kind of entry, as far as that was looked up."""


MOST_READ = 10_000
"""Entries that are kept decoded: more than a session has, fewer than would fill the memory."""


class SignerApart(Signer, Protocol):
    """The process that holds the reviewer's key."""

    def close(self) -> None:
        """End it."""
        ...


class Trail:
    """The trail of one session, open for appending."""

    def __init__(self, path: Path, session: str) -> None:
        self.path = path
        self.session = session
        self.keys = KeyFolder.of_trail(path)
        self.reviewer: SignerApart | None = None
        """The reviewer's process; without one no entry of the reviewer can be appended."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._walk = Walk(session=session)
        self._in_force: tuple[str, Policy] | None = None
        self._left: _Edge | None = None
        self._read: dict[int, tuple[str, str, Recorded]] = {}
        # One connection has one transaction, so threads take turns as processes do.
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            with self._writing():
                form = format_of(self._connection)
                if form == 1:
                    raise UserError(
                        "this trail was begun by an older Peergate, in a format without signatures",
                        where=str(path),
                        hint="it can be read and verified; to go on with it, use the version that began it",
                    )
                self._connection.execute("PRAGMA journal_mode=WAL")
                self._connection.execute("PRAGMA synchronous=FULL")
                if not form:
                    self._connection.executescript(f"{SCHEMA}PRAGMA user_version={FORMAT};")
        except BaseException:
            self._connection.close()
            raise

    def append(self, kind: EntryKind, key: str, body: dict[str, Any]) -> Recorded:
        """Add one entry and return it; if ``key`` is already there, return the entry that is.

        The first append of a key wins, so a repeated step must use the body that is returned, not its own.

        Raises:
            PeergateError: the key exists with another kind, or the entry is too large; nothing was recorded.
            DiskUnwritable: the disk is full or not writable; nothing was recorded.
            UserError: the workspace does not have the keys of this trail; nothing was recorded.
            ReviewerUnavailable: the reviewer's process does not sign the entry; nothing was recorded.
            ValueError: the body is not canonical JSON, could not be read back as written, or does not have the form of
                its kind (``specs/bodies.py``); nothing was recorded.
            AuditDamage: the newest entry cannot be read, so nothing may follow it.
        """
        return self._append(kind, key, body, None)

    def change_policy(self, key: str, body: dict[str, Any], policy: Policy) -> Recorded:
        """Record that other keys sign from the next entry on; errors as in :meth:`append`."""
        return self._append("keys", key, body, policy)

    def _append(self, kind: EntryKind, key: str, body: dict[str, Any], policy: Policy | None) -> Recorded:
        with self.alone():
            found = self.find(key)
            if found is None:
                found = self._add(kind, key, body, policy)
        if found.entry.kind != kind:
            raise PeergateError(f"trail key '{key}' is already a '{found.entry.kind}' entry, not '{kind}'")
        return found

    @contextmanager
    def alone(self) -> Generator[None]:
        """Keep other processes from appending meanwhile: what is read inside still holds when it is appended.

        Everything appended inside is recorded at its end, or nothing of it. Inside another one it adds nothing.
        """
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            with self._writing():
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")

    @contextmanager
    def _writing(self) -> Generator[None]:
        """Leave nothing half-written, and say what the disk says."""
        try:
            yield
        except BaseException as error:
            # Also when SQLite has rolled back by itself: what was left is not there.
            self._left = None
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise DiskUnwritable(
                    f"the trail cannot be written: {error}; nothing was recorded",
                    where=str(self.path),
                    hint="make room or make it writable, then `peergate resume` goes on",
                ) from error
            # Names in a damaged schema need not be text.
            if isinstance(error, (sqlite3.DatabaseError, UnicodeDecodeError)):
                raise self._damaged(error) from error
            raise

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Tell a damaged file as damage: SQLite finds out at any moment, and what it returns may be anything."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise PeergateError(f"the trail cannot be read: {error}", where=str(self.path)) from error
        except (sqlite3.DatabaseError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> AuditDamage:
        hint = "nothing can follow what cannot be read; `peergate audit verify` tells what is there"
        return AuditDamage(f"the trail file is damaged: {error}", where=str(self.path), hint=hint)

    def _add(self, kind: EntryKind, key: str, body: dict[str, Any], policy: Policy | None) -> Recorded:
        """Write the entry and the head that follow what is there."""
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        edge = self._left if self._left is not None and self._left.version == version else self._edge(version)
        self._left = None
        tree, in_force = edge.tree, edge.policy
        if in_force is None:
            self.keys.create()
            policy = in_force = new_policy(self.session, self.keys)
        what = in_force.signed_as(kind, body)
        signer = edge.signers.get(what) or self._signer(in_force, what, tree.size)
        found, row = self._next(edge, kind, key, body, policy, signer)
        tree.append(merkle.leaf_hash(row.envelope))
        root = tree.root()
        note = self._note(in_force, tree.size, root)
        values = (row.seq, row.payload.decode(), row.signatures.decode())
        self._connection.execute("INSERT INTO entry VALUES (?, ?, ?)", values)
        self._connection.execute(
            "INSERT OR REPLACE INTO head VALUES (0, ?, ?, ?)", (tree.size, b"".join(tree.hashes), note)
        )
        if kind != "keys":
            # The same keys sign until a `keys` entry says otherwise.
            self._left = _Edge(version, tree, root, found, in_force, edge.signers | {what: signer})
        return found

    def _edge(self, version: int) -> _Edge:
        """Read where the next entry goes."""
        with self._reading():
            head = self._connection.execute("SELECT size, frontier FROM head").fetchone()
            last = self._connection.execute(
                "SELECT seq, payload, signatures FROM entry ORDER BY seq DESC LIMIT 1"
            ).fetchone()
            newest = self._decoded(last) if last else None
            size = last[0] + 1 if last else 0
            told, frontier = head or (0, b"")
            if told != size or len(frontier) != 32 * size.bit_count():
                raise AuditDamage(f"the trail has {size} entries, its head is of {told}", where=str(self.path))
            tree = merkle.Frontier(size, _hashes(frontier))
        return _Edge(version, tree, tree.root(), newest, self.policy(), {})

    def _next(
        self,
        edge: _Edge,
        kind: EntryKind,
        key: str,
        body: dict[str, Any],
        policy: Policy | None,
        signer: Signer,
    ) -> tuple[Recorded, Stored]:
        """Return the entry that follows and its row, or raise if they could not be kept and read again."""
        newest, size = edge.newest, edge.tree.size
        try:
            written, said = canonical_body(body)
            entry = Entry(
                seq=size,
                kind=kind,
                version=FORMS[kind].version,
                session=self.session,
                key=key,
                # Verifiers want times in order; a clock that was set back must not look like tampering.
                time_ns=str(max(time.time_ns(), int(newest.entry.time_ns) if newest else 0)),
                previous=f"sha256:{edge.root.hex()}",
                body=said,
                policy=policy.model_dump(mode="json") if policy else None,
            )
            payload = payload_of(entry, written)
            # Readers stop at some depth.
            if read_statement(payload) != entry:
                raise ValueError("it reads back as something else")
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"trail entry '{key}' is refused, it could not be read back as written: {error}"
            ) from error
        if problem := misfit(kind, entry.version, written):
            raise ValueError(f"trail entry '{key}' is refused, it does not have the form of a '{kind}': {problem}")
        row = Stored(size, payload, signatures_text(EnvelopeSignature(signer.id, signer.sign(pae(payload)))))
        data = row.envelope
        if len(data) > MAX_ENTRY_BYTES:
            raise PeergateError(
                f"a trail entry has {len(data)} bytes, the limit is {MAX_ENTRY_BYTES}",
                where=key,
                hint="keep evidence in the content store and record its digest",
            )
        return Recorded(entry, digest_bytes(data)), row

    def _signer(self, policy: Policy, kind: str, seq: int) -> Signer:
        """Return the key that may sign this entry."""
        able = [policy.current(role, seq) for role in policy.roles_of(kind)]
        wanted = next((one for one in able if one is not None), None)
        if wanted is None:
            raise UserError(f"the policy of this trail lets nobody sign a '{kind}' entry", where=str(self.path))
        return self._own(wanted)

    def _own(self, wanted: PolicyKey) -> Signer:
        own = self._apart() if wanted.role in APART else self.keys.signer(wanted.role)
        if own.id != wanted.id:
            raise UserError(
                f"this workspace signs as '{wanted.role}' with the key {own.id[:16]}, the trail's is {wanted.id[:16]}",
                where=str(self.keys.path(wanted.role)),
                hint="a session goes on in the workspace it was begun in, or with that workspace's keys beside it",
            )
        return own

    def _apart(self) -> Signer:
        if self.reviewer is None:
            raise PeergateError("no reviewer's process is there to sign with", where=str(self.path))
        return self.reviewer

    def _note(self, policy: Policy, size: int, root: bytes) -> str:
        """Return the signed head of a tree."""
        wanted = policy.current("log", size - 1)
        if wanted is None:
            raise UserError("the policy of this trail names no key of the log", where=str(self.path))
        signer = self._own(wanted)
        head = Checkpoint(policy.origin, size, root)
        return str(head.signed(sign_text(NoteKey(policy.origin, LOG_KEY, signer.public), signer.sign, head.text)))

    def policy(self) -> Policy | None:
        """Return the policy in force: that of the first entry, or of the newest change; None before the first entry.

        Raises:
            AuditDamage: there are entries and no policy.
        """
        with self._reading():
            changed = self._connection.execute(
                "SELECT max(seq) FROM entry WHERE json_extract(payload, '$.predicate.kind') = 'keys'"
            ).fetchone()[0]
            row = self._connection.execute("SELECT payload FROM entry WHERE seq = ?", (changed or 0,)).fetchone()
        if row is None:
            return None
        if self._in_force is None or self._in_force[0] != row[0]:
            try:
                self._in_force = row[0], Policy.model_validate(json.loads(row[0])["predicate"].get("policy"))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise AuditDamage("the trail holds no policy of keys any more", where=str(self.path)) from error
        return self._in_force[1]

    def _decoded(self, row: tuple[int, str, str]) -> Recorded:
        """Decode a row, once for as long as its text stays the same: a gate reads the whole trail many times."""
        seq, payload, signatures = row
        before = self._read.get(seq)
        if before is not None and before[:2] == (payload, signatures):
            return before[2]
        try:
            found = recorded(payload.encode(), signatures.encode())
        except (ValueError, AttributeError) as error:
            raise AuditDamage(f"entry {seq} is not a trail entry any more: {error}", where=str(self.path)) from error
        if len(self._read) < MOST_READ:
            self._read[seq] = payload, signatures, found
        return found

    def find(self, key: str) -> Recorded | None:
        """Return the entry with this key, if there is one."""
        with self._reading():
            row = self._connection.execute(
                "SELECT seq, payload, signatures FROM entry WHERE json_extract(payload, '$.predicate.key') = ?", (key,)
            ).fetchone()
        return self._decoded(row) if row else None

    def envelope(self, key: str) -> tuple[str, str]:
        """Return what of the entry with this key is signed, and the signatures, both as text.

        Raises:
            KeyError: there is none.
        """
        with self._reading():
            row = self._connection.execute(
                "SELECT payload, signatures FROM entry WHERE json_extract(payload, '$.predicate.key') = ?", (key,)
            ).fetchone()
        if row is None:
            raise KeyError(key)
        return row[0], row[1]

    def iterate(self, *kinds: EntryKind) -> Iterator[Recorded]:
        """Yield the entries in order, all or those of some kinds."""
        chosen = f"WHERE json_extract(payload, '$.predicate.kind') IN ({', '.join('?' * len(kinds))})" if kinds else ""
        query = f"SELECT seq, payload, signatures FROM entry {chosen} ORDER BY seq"
        with self._reading():
            rows = self._connection.execute(query, kinds).fetchall()
        for row in rows:
            yield self._decoded(row)

    def head(self) -> Head:
        """Return the size, the digest of the last entry and the root of the tree."""
        with self._reading():
            found = self._connection.execute("SELECT size, frontier FROM head").fetchone()
            size, frontier = found or (0, b"")
            if not size:
                return Head(size=0, digest=GENESIS)
            row = self._connection.execute("SELECT payload, signatures FROM entry ORDER BY seq DESC LIMIT 1").fetchone()
            root = merkle.Frontier(size, _hashes(frontier)).root().hex()
            return Head(size=size, digest=digest_bytes(seal(row[0].encode(), row[1].encode())), root=f"sha256:{root}")

    def checkpoint(self) -> bytes:
        """Return the signed note of the newest head; empty when there are no entries."""
        with self._reading():
            row = self._connection.execute("SELECT note FROM head").fetchone()
            return row[0].encode() if row else b""

    def verify_chain(self) -> None:
        """Check every entry and the head before anything is decided from them.

        Signatures that this object has checked are not checked again as long as the tree over them is the same.

        Raises:
            AuditDamage: something does not hold; the message names the first.
        """
        with self._lock:
            self._verify()

    def _verify(self) -> None:
        with self.alone(), self._reading():
            read = self._connection.execute("SELECT seq, payload, signatures FROM entry ORDER BY seq")
            rows = [Stored(seq, payload.encode(), signatures.encode()) for seq, payload, signatures in read]
            note = self._connection.execute("SELECT note FROM head").fetchone()
        known = self._walk.tree.size
        if (
            known > len(rows)
            or merkle.root_of(merkle.leaf_hash(row.envelope) for row in rows[:known]) != self._walk.tree.root()
        ):
            self._walk, known = Walk(session=self.session), 0
        walk = self._walk.go(rows[known:])
        if note is not None or rows:
            walk.check_head(str(note[0]).encode() if note else b"", "head")
        if walk.damage:
            self._walk = Walk(session=self.session)
            raise AuditDamage(
                walk.damage[0], where=str(self.path), hint="run `peergate audit verify` for the whole list"
            )

    def close(self) -> None:
        """Close the database and seal the file: record the digest of its bytes beside it.

        The tree covers entries only; the seal lets the audit notice a changed byte in SQLite's own slack too.

        Raises:
            DiskUnwritable: the disk is full or not writable; no entry is lost, and closing again later seals.
        """
        if self.reviewer is not None:
            self.reviewer.close()
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            head = self.head()
            self._connection.close()
            mark = {"size": head.size, "digest": head.digest, "file": digest_file(self.path)}
            write_durably(seal_path(self.path), canonical_bytes(mark))
        except (sqlite3.OperationalError, OSError) as error:
            # What was acknowledged is in the log beside the file, and stays.
            raise DiskUnwritable(
                f"the trail cannot be sealed: {error}; its entries are all there",
                where=str(self.path),
                hint="make room or make it writable, then `peergate resume` seals it",
            ) from error
        except (sqlite3.DatabaseError, PeergateError):
            return  # damaged: `audit verify` tells how, and a seal would only agree with it
        finally:
            self._connection.close()


def seal_path(trail: Path) -> Path:
    """Return where the seal of a trail file lies."""
    return trail.with_suffix(".seal")


def origin_of(session: str) -> str:
    """Return the name of a session's log in its checkpoint notes."""
    return f"peergate/{session}"


def new_policy(session: str, keys: KeyFolder) -> Policy:
    """Return the policy of a new trail: the keys of its workspace, in their roles."""

    def listed(role: Role) -> PolicyKey:
        public = keys.public(role)
        return PolicyKey(id=key_id(public), role=role, public=public.hex())

    return Policy(origin=origin_of(session), keys=tuple(listed(role) for role in ROLES), roles=SIGNERS)


def _hashes(frontier: bytes) -> list[bytes]:
    return [frontier[start : start + 32] for start in range(0, len(frontier), 32)]
