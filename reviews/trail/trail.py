"""The trail: signed entries in a hash tree, kept in SQLite or Postgres, one entry per hand-over.

An acknowledged entry survives a kill (a commit waits for the disk); the same key appended twice leaves one entry; an
orchestrator that lost the session appends nothing more (:attr:`Trail.fence`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from reviews.trail.chain import tree as merkle
from reviews.trail.chain.envelope import FormT, RecordedEntry, as_entry_of
from reviews.trail.chain.keys import KeyFolder
from reviews.trail.file_seal import write_seal
from reviews.trail.integrity import TrailVerification
from reviews.trail.reader import TrailReader
from reviews.trail.signing import New, SignerApart, TrailEnd, new_policy, signed_entry, signed_note, signer_of
from reviews.trail.tables.trail_file import StoredEntry
from specs.system.errors import AuditDamage, DiskUnwritable, LeaseLost, PeergateError
from specs.system.steady_clock import SteadyClock
from specs.system.text import plain
from specs.trail.key_policy import Policy
from specs.trail.session_bodies import OpenEntry, ResumeEntry

DoneT = TypeVar("DoneT")


class Trail(TrailReader):
    """The trail of one session, open for appending."""

    def __init__(self, path: Path, session: str) -> None:
        super().__init__(path)
        self.session = session
        self.keys = KeyFolder.of_trail(path)
        self.reviewer: SignerApart | None = None
        """The reviewer's process; without it no entry of the reviewer can be appended."""
        self.fence: int | None = None
        """The epoch of the lease this appends under; None for a person next to an orchestrator.

        Nothing is appended once the trail says that the session was taken up under another epoch.
        """
        self.clock = SteadyClock()
        self._walk = TrailVerification(session=session)
        self._edge: TrailEnd | None = None
        self._epoch: tuple[int, int] | None = None

    def append(self, body: FormT, key: str | None = None, policy: Policy | None = None) -> RecordedEntry[FormT]:
        """Add one entry, without secrets, and return it; if its key is already there, return the entry that is.

        ``key`` is that of the body, unless its kind leaves it to the writer. The first append of a key wins, so a
        repeated step must use the returned body, not its own. Whatever is raised, nothing was recorded. A ``keys``
        entry says with its ``policy`` which keys sign from the next entry on.

        Raises:
            PeergateError: the key exists with another kind, or the entry is too large.
            DiskUnwritable: the disk is full or not writable.
            DatabaseUnreachable: the database stayed away for too long.
            LeaseLost: another orchestrator has taken the session up since.
            UserError: the workspace does not have the keys of this trail.
            ReviewerUnavailable: the reviewer's process does not sign the entry.
            ValueError: the body is not canonical JSON, or does not have the form of its kind.
            AuditDamage: the newest entry cannot be read, so nothing may follow it.
        """
        # What no one set is left out, so that an entry holds what its writer knew.
        written = body.model_dump(mode="json", exclude_unset=True)
        new = New(body.KIND, key or body.entry_key(), written, policy)

        def add() -> RecordedEntry:
            self._keep_out_the_fenced()
            return self.find(new.key) or self._add(new)

        result = self.together(add)
        if result.kind != new.kind:
            raise PeergateError(f"trail key '{new.key}' is already a '{result.kind}' entry, not '{new.kind}'")
        return as_entry_of(result, type(body))

    @contextmanager
    def alone(self) -> Generator[None]:
        """Keep other processes from appending meanwhile: what is read inside still holds when it is appended.

        Everything appended inside is recorded at the end, or nothing is. Nested, it does nothing.
        """
        with self._lock:
            if self._table.in_transaction:
                yield
                return
            try:
                self._table.begin()
                yield
                self._table.commit()
            except BaseException as error:
                # The database may have rolled back on its own, so drop the cached state too.
                self._edge = self._epoch = self._whole = None
                self._table.rollback()
                failure = self._table.translate_error(error, writing=True)
                if failure is not None:
                    raise failure from error
                raise

    def together(self, step: Callable[[], DoneT]) -> DoneT:
        """Do a step as in :meth:`alone`; after a lost connection to the database, do it again from its beginning.

        It is unknown then whether the first time was recorded: a step finds by its keys what it did.
        """

        def once() -> DoneT:
            with self.alone():
                return step()

        with self._lock:
            return once() if self._table.in_transaction else self._table.again(once)

    def epoch(self) -> int:
        """Return the epoch under which the session was taken up last; 0 when no entry says."""
        newest = self.newest_of("resume")
        return newest.body.lease.epoch if newest and isinstance(newest.body, (OpenEntry, ResumeEntry)) else 0

    def guard(self) -> None:
        """Return if this process still has the session, before it acts outside of the trail; raises LeaseLost."""
        if self.fence is not None and self.epoch() != self.fence:
            raise self._make_lease_lost()

    def _keep_out_the_fenced(self) -> None:
        if self.fence is None:
            return
        version = self._table.version()
        if self._epoch is None or self._epoch[0] != version:
            self._epoch = version, self.epoch()
        if self._epoch[1] != self.fence:
            raise self._make_lease_lost()

    def _make_lease_lost(self) -> LeaseLost:
        newest = self.newest_of("resume")
        owner = "another process"
        if newest and isinstance(newest.body, (OpenEntry, ResumeEntry)):
            by, lease = newest.body.by, newest.body.lease
            owner = f"{plain(by, 60)} (process {lease.pid} on {plain(lease.host, 60)}, epoch {lease.epoch}; "
            owner += f"this is epoch {self.fence})"
        return LeaseLost(
            f"the session was taken over by {owner}; nothing was recorded",
            where=self.session,
            hint="this process stops; `peergate status` shows the session's state",
        )

    def _add(self, new: New) -> RecordedEntry:
        """Append the entry and its head."""
        version = self._table.version()
        edge = self._edge if self._edge is not None and self._edge.version == version else self._read_edge(version)
        self._edge = None
        tree, policy = edge.tree, edge.policy
        if policy is None:
            self.keys.create()
            policy = new_policy(self.session, self.keys)
            new = new._replace(policy=policy)
        what = policy.signed_as(new.kind, new.body)
        signer = edge.signers.get(what) or signer_of(policy, what, tree.size, self.keys, self.reviewer)
        result, row = signed_entry(edge, self.session, new, signer, self.clock)
        tree.append(merkle.leaf_hash(row.envelope))
        root = tree.root()
        note = signed_note(policy, tree.size, root, self.keys)
        self._table.add(row, new.kind, new.key)
        self._table.put_head(tree.size, b"".join(tree.hashes), note)
        if self._whole is not None:
            self._whole = (version, (*self._whole[1], result)) if self._whole[0] == version else None
        if new.kind == "resume":
            self._epoch = None
        if new.kind != "keys":
            # The same keys sign until a `keys` entry says otherwise.
            self._edge = TrailEnd(version, tree, root, result, policy, edge.signers | {what: signer})
        return result

    def _read_edge(self, version: int) -> TrailEnd:
        with self._reading():
            head, last = self._table.head(), self._table.newest()
            size, (stored_size, frontier) = last[0] + 1 if last else 0, head[:2] if head else (0, b"")
            if stored_size != size or len(frontier) != 32 * size.bit_count():
                raise AuditDamage(f"the trail has {size} entries, its head is of {stored_size}", where=str(self.path))
            tree = merkle.Frontier.of_bytes(size, frontier)
            newest = self._decode_row(last) if last else None
        return TrailEnd(version, tree, tree.root(), newest, self.policy(), {})

    def verify_chain(self) -> None:
        """Check every entry and the head before anything is decided from them; raises AuditDamage with what is first.

        Signatures that this object has checked are not checked again while the tree over them is the same.
        """
        with self._lock:
            with self._reading():
                read, head = self.together(lambda: (self._table.rows(), self._table.head()))
                rows = [StoredEntry(seq, payload.encode(), signatures.encode()) for seq, payload, signatures in read]
            known = self._walk.tree.size
            before = merkle.root_of(merkle.leaf_hash(row.envelope) for row in rows[:known])
            if known > len(rows) or before != self._walk.tree.root():
                self._walk, known = TrailVerification(session=self.session), 0
            walk = self._walk.go(rows[known:])
            if head is not None or rows:
                walk.check_head(str(head[2]).encode() if head else b"", "head")
            if walk.damage:
                self._walk = TrailVerification(session=self.session)
                hint = "`peergate audit verify` lists all of it"
                raise AuditDamage(walk.damage[0], where=str(self.path), hint=hint)

    def close(self) -> None:
        """Close the database and seal the trail (:mod:`reviews.trail.file_seal`).

        Raises:
            DiskUnwritable: the disk is full or not writable; no entry is lost, and closing again later seals.
        """
        if self.reviewer is not None:
            self.reviewer.close()
        try:
            # The orchestrator that took over seals the trail.
            self.guard()
            self._table.settle()
            head = self.head()
            self._table.close()
            write_seal(self.path, head, self._table.file_digest())
        except Exception as error:
            failure = self._table.translate_error(error, writing=True)
            if not isinstance(error, OSError) and not isinstance(failure, DiskUnwritable):
                if failure is None and not isinstance(error, PeergateError):
                    raise
                return  # damaged: `audit verify` says how, and a seal would only agree with it; or out of reach
            # What was acknowledged is in the log next to the file, and stays.
            raise DiskUnwritable(
                f"the trail cannot be sealed: {error}; its entries are all there",
                where=str(self.path),
                hint="make room or make it writable, then `peergate resume` seals it",
            ) from error
        finally:
            self._table.close()
