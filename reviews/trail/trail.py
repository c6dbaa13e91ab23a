"""The trail: signed entries in a hash tree, kept in SQLite or Postgres, one entry per hand-over.

The interface is narrow on purpose (append, iterate, find, head); what is below it lies beside it.

Guarantees: an acknowledged entry survives a kill (a commit waits for the disk); the same key appended twice leaves one
entry; who lost the session to another orchestrator appends nothing more (:attr:`Trail.fence`); an edit, deletion,
reordering or replay of entries, and an entry signed by the wrong role, is found. Does not
guarantee: that the newest entries were not cut off, or that all of it was not written anew, by someone who has the
keys of the workspace. That takes an anchor kept elsewhere (`peergate audit anchor`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from reviews.trail import tree as merkle
from reviews.trail.envelope import (
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
from reviews.trail.integrity import Walk
from reviews.trail.keys import APART, KeyFolder, Signer, key_id
from reviews.trail.signed_head import LOG_KEY, Checkpoint, NoteKey, sign_text
from reviews.trail.store import write_durably
from reviews.trail.tables.open_table import open_table, read_entries
from reviews.trail.tables.table import HeadRow, Row, Stored, Table
from specs.digests import canonical_bytes, digest_bytes
from specs.errors import AuditDamage, DiskUnwritable, LeaseLost, PeergateError, UserError
from specs.masking import current
from specs.text import plain
from specs.trail.bodies import FORMS, misfit
from specs.trail.entry import GENESIS, Entry, EntryKind, Head
from specs.trail.key_policy import ROLES, SIGNERS, Policy, PolicyKey, Role

DoneT = TypeVar("DoneT")

__all__ = ["MAX_ENTRY_BYTES", "Recorded", "Trail", "origin_of", "read_entries", "seal_path"]


class _Edge(NamedTuple):
    """Where the next entry goes."""

    version: int
    """The table's number for what others have appended: as long as it stays, so does the rest."""
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
        self.fence: int | None = None
        """The epoch of the lease this is appended under; None for who appends beside an orchestrator, as people do.

        Nothing is appended once the trail says that the session was taken up under another epoch.
        """
        self._walk = Walk(session=session)
        self._in_force: tuple[str, Policy] | None = None
        self._left: _Edge | None = None
        self._epoch: tuple[int, int] | None = None
        self._read: dict[int, tuple[str, str, Recorded]] = {}
        # One connection has one transaction, so threads take turns as processes do.
        self._lock = threading.RLock()
        self._table: Table = open_table(path)

    def append(self, kind: EntryKind, key: str, body: dict[str, Any]) -> Recorded:
        """Add one entry, without secrets, and return it; if ``key`` is already there, return the entry that is.

        The first append of a key wins, so a repeated step must use the body that is returned, not its own.

        Raises:
            PeergateError: the key exists with another kind, or the entry is too large; nothing was recorded.
            DiskUnwritable: the disk is full or not writable; nothing was recorded.
            DatabaseUnreachable: the database is gone for longer than is waited for it; nothing was recorded.
            LeaseLost: another orchestrator has taken the session up since; nothing was recorded.
            UserError: the workspace does not have the keys of this trail; nothing was recorded.
            ReviewerUnavailable: the reviewer's process does not sign the entry; nothing was recorded.
            ValueError: the body is not canonical JSON, could not be read back as written, or does not have the form of
                its kind (``specs/trail/bodies.py``); nothing was recorded.
            AuditDamage: the newest entry cannot be read, so nothing may follow it.
        """
        return self._append(kind, key, body, None)

    def change_policy(self, key: str, body: dict[str, Any], policy: Policy) -> Recorded:
        """Record that other keys sign from the next entry on; errors as in :meth:`append`."""
        return self._append("keys", key, body, policy)

    def _append(self, kind: EntryKind, key: str, body: dict[str, Any], policy: Policy | None) -> Recorded:
        def add() -> Recorded:
            self._keep_out_the_fenced()
            found = self.find(key)
            return self._add(kind, key, body, policy) if found is None else found

        found = self.together(add)
        if found.entry.kind != kind:
            raise PeergateError(f"trail key '{key}' is already a '{found.entry.kind}' entry, not '{kind}'")
        return found

    @contextmanager
    def alone(self) -> Generator[None]:
        """Keep other processes from appending meanwhile: what is read inside still holds when it is appended.

        Everything appended inside is recorded at its end, or nothing of it. Inside another one it adds nothing.
        """
        with self._lock:
            if self._table.in_transaction:
                yield
                return
            with self._writing():
                self._table.begin()
                yield
                self._table.commit()

    def together(self, step: Callable[[], DoneT]) -> DoneT:
        """Do a step as in :meth:`alone`, and from its beginning again if the connection to the database was lost.

        Whether the first time was recorded is not known then: a step finds by its keys what it did.
        """

        def once() -> DoneT:
            with self.alone():
                return step()

        with self._lock:
            return once() if self._table.in_transaction else self._table.again(once)

    def epoch(self) -> int:
        """Return the epoch under which the session was taken up last; 0 when no entry says."""
        with self._reading():
            row = self._table.newest_of("resume") or self._table.numbered(0)
        lease = self._decoded(row).body.get("lease") if row else None
        return int(lease["epoch"]) if lease else 0

    def guard(self) -> None:
        """Return if what this process does to the session still counts, before it does something outside the trail.

        Raises:
            LeaseLost: another orchestrator has taken the session up since.
        """
        if self.fence is not None and self.epoch() != self.fence:
            raise self._fenced()

    def _keep_out_the_fenced(self) -> None:
        if self.fence is None:
            return
        version = self._table.version()
        if self._epoch is None or self._epoch[0] != version:
            self._epoch = version, self.epoch()
        if self._epoch[1] != self.fence:
            raise self._fenced()

    def _fenced(self) -> LeaseLost:
        with self._reading():
            row = self._table.newest_of("resume")
        body = self._decoded(row).body if row else {}
        lease = body.get("lease") or {"host": "?", "pid": "?", "epoch": "?"}
        return LeaseLost(
            f"the session was taken over by {plain(str(body.get('by')), 60)} (process {lease['pid']} on "
            f"{plain(str(lease['host']), 60)}, epoch {lease['epoch']}; this is epoch {self.fence}); "
            "nothing was recorded",
            where=self.session,
            hint="this process stops; `peergate status` says how the session stands",
        )

    @contextmanager
    def _writing(self) -> Generator[None]:
        """Leave nothing half-written, and say what the disk says."""
        try:
            yield
        except BaseException as error:
            # Also when the database has rolled back by itself: what was left is not there.
            self._left = self._epoch = None
            self._table.rollback()
            told = self._table.told(error, writing=True)
            if told is not None:
                raise told from error
            raise

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Tell a damaged trail as damage: what a database returns may be anything.

        A thread that only reads takes its turn too. Inside the transaction of another one it would see what may be
        taken back, and end with an error of its own when that connection is lost.
        """
        with self._lock:
            try:
                yield
            except Exception as error:
                told = self._table.told(error, writing=False)
                if told is not None:
                    raise told from error
                if isinstance(error, (ValueError, TypeError, KeyError, AttributeError)):
                    raise self._damaged(error) from error
                raise

    def _damaged(self, error: Exception) -> AuditDamage:
        hint = "nothing can follow what cannot be read; `peergate audit verify` tells what is there"
        return AuditDamage(f"the trail file is damaged: {error}", where=str(self.path), hint=hint)

    def _add(self, kind: EntryKind, key: str, body: dict[str, Any], policy: Policy | None) -> Recorded:
        """Write the entry and the head that follow what is there."""
        version = self._table.version()
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
        self._table.add(row, kind, key)
        self._table.put_head(tree.size, b"".join(tree.hashes), note)
        if kind == "resume":
            self._epoch = None
        if kind != "keys":
            # The same keys sign until a `keys` entry says otherwise.
            self._left = _Edge(version, tree, root, found, in_force, edge.signers | {what: signer})
        return found

    def _edge(self, version: int) -> _Edge:
        """Read where the next entry goes."""
        with self._reading():
            head, last = self._table.head(), self._table.newest()
            newest = self._decoded(last) if last else None
            size = last[0] + 1 if last else 0
            told, frontier = head[:2] if head else (0, b"")
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
            if (masked := current().value(said)) is not said:
                written, said = canonical_body(masked)
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
            row = self._table.newest_of("keys") or self._table.numbered(0)
        if row is None:
            return None
        if self._in_force is None or self._in_force[0] != row[1]:
            try:
                self._in_force = row[1], Policy.model_validate(json.loads(row[1])["predicate"].get("policy"))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise AuditDamage("the trail holds no policy of keys any more", where=str(self.path)) from error
        return self._in_force[1]

    def _decoded(self, row: Row) -> Recorded:
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
            row = self._table.with_key(key)
        return self._decoded(row) if row else None

    def envelope(self, key: str) -> tuple[str, str]:
        """Return what of the entry with this key is signed, and the signatures, both as text.

        Raises:
            KeyError: there is none.
        """
        with self._reading():
            row = self._table.with_key(key)
        if row is None:
            raise KeyError(key)
        return row[1], row[2]

    def iterate(self, *kinds: EntryKind) -> Iterator[Recorded]:
        """Yield the entries in order, all or those of some kinds."""
        with self._reading():
            rows = self._table.rows(*kinds)
        for row in rows:
            yield self._decoded(row)

    def head(self) -> Head:
        """Return the size, the digest of the last entry and the root of the tree."""
        with self._reading():
            head: HeadRow | None = self._table.head()
            if head is None or not head[0]:
                return Head(size=0, digest=GENESIS)
            _, payload, signatures = self._table.newest() or (0, "", "")
            root = merkle.Frontier(head[0], _hashes(head[1])).root().hex()
            digest = digest_bytes(seal(payload.encode(), signatures.encode()))
            return Head(size=head[0], digest=digest, root=f"sha256:{root}")

    def checkpoint(self) -> bytes:
        """Return the signed note of the newest head; empty when there are no entries."""
        with self._reading():
            head = self._table.head()
            return head[2].encode() if head else b""

    def verify_chain(self) -> None:
        """Check every entry and the head before anything is decided from them.

        Signatures that this object has checked are not checked again as long as the tree over them is the same.

        Raises:
            AuditDamage: something does not hold; the message names the first.
        """
        with self._lock:
            self._verify()

    def _verify(self) -> None:
        with self._reading():
            read, head = self.together(self._table.whole)
            rows = [Stored(seq, payload.encode(), signatures.encode()) for seq, payload, signatures in read]
        known = self._walk.tree.size
        if (
            known > len(rows)
            or merkle.root_of(merkle.leaf_hash(row.envelope) for row in rows[:known]) != self._walk.tree.root()
        ):
            self._walk, known = Walk(session=self.session), 0
        walk = self._walk.go(rows[known:])
        if head is not None or rows:
            walk.check_head(str(head[2]).encode() if head else b"", "head")
        if walk.damage:
            self._walk = Walk(session=self.session)
            raise AuditDamage(
                walk.damage[0], where=str(self.path), hint="run `peergate audit verify` for the whole list"
            )

    def close(self) -> None:
        """Close the database and seal the trail: record its newest entry, and the digest of a file's bytes, beside it.

        The tree covers entries only; the seal lets the audit notice a changed byte in SQLite's own slack too.

        Raises:
            DiskUnwritable: the disk is full or not writable; no entry is lost, and closing again later seals.
        """
        if self.reviewer is not None:
            self.reviewer.close()
        try:
            # Who was taken over leaves the seal to who goes on.
            self.guard()
            self._table.settle()
            head = self.head()
            self._table.close()
            mark = {"size": head.size, "digest": head.digest, "file": self._table.file_digest()}
            write_durably(seal_path(self.path), canonical_bytes(mark))
        except Exception as error:
            told = self._table.told(error, writing=True)
            if not isinstance(error, OSError) and not isinstance(told, DiskUnwritable):
                if told is None and not isinstance(error, PeergateError):
                    raise
                return  # damaged: `audit verify` tells how, and a seal would only agree with it; or out of reach
            # What was acknowledged is in the log beside the file, and stays.
            raise DiskUnwritable(
                f"the trail cannot be sealed: {error}; its entries are all there",
                where=str(self.path),
                hint="make room or make it writable, then `peergate resume` seals it",
            ) from error
        finally:
            self._table.close()


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
