"""Checks a trail entry by entry: signatures, roles, numbers, times, the tree."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from reviews.trail.chain import tree as merkle
from reviews.trail.chain.envelope import (
    OpenedEnvelope,
    RecordedEntry,
    entry_and_body,
    open_envelope,
    open_sealed,
    pae,
)
from reviews.trail.chain.keys import is_signed, key_id
from reviews.trail.chain.signed_head import LOG_KEY, Checkpoint, NoteKey, parse_key, parse_note, who_signed
from reviews.trail.tables.trail_file import HeadBytes, StoredEntry, TrailFile
from specs.system.digests import canonical_bytes, digest_bytes
from specs.system.errors import UserError
from specs.system.text import plain
from specs.trail.bodies import misfit
from specs.trail.entry import Entry
from specs.trail.key_policy import Policy


@dataclass
class TrailVerification:
    """The result of checking a trail so far; it continues with the entries that follow."""

    damage: list[str] = field(default_factory=list[str])
    misfits: list[str] = field(default_factory=list[str])
    """Damage that ``verify/`` does not find: bodies without the form of their kind."""
    notes: list[str] = field(default_factory=list[str])
    entries: list[RecordedEntry] = field(default_factory=list[RecordedEntry])
    digests: list[str] = field(default_factory=list[str])
    """The digest of every entry, whether it can be read or not."""
    leaves: list[bytes] = field(default_factory=list[bytes])
    policies: list[Policy] = field(default_factory=list[Policy])
    """The policy the trail began with, and all later ones."""
    signed: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How many entries each ``(role, key id)`` signed."""
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How many of them are verdicts."""
    tree: merkle.Frontier = field(default_factory=merkle.Frontier)
    session: str | None = None
    clock: int = 0
    other_tree: list[int] = field(default_factory=list[int])

    @property
    def policy(self) -> Policy | None:
        """The policy in force at the end."""
        return self.policies[-1] if self.policies else None

    @property
    def root(self) -> str:
        """The root over everything that was read."""
        return f"sha256:{self.tree.root().hex()}"

    def go(self, rows: Iterable[StoredEntry]) -> TrailVerification:
        """Check the rows that follow what was checked."""
        for row in rows:
            data = row.envelope
            self._check(row.seq, data, lambda data=data, row=row: open_sealed(data, row.payload, row.signatures))
        return self._end()

    def go_through(self, envelopes: Iterable[tuple[Any, bytes]]) -> TrailVerification:
        """Check the envelopes, each with the number it is stored under, that follow what was checked."""
        for stored, data in envelopes:
            self._check(stored, data, lambda data=data: open_envelope(data))
        return self._end()

    def _end(self) -> TrailVerification:
        if self.other_tree:
            first, count = self.other_tree[0], len(self.other_tree)
            more = f", and so do {count - 1} entries after it" if count > 1 else ""
            self.damage.append(f"entry {first}: names a different tree before it than the recorded tree{more}")
            self.other_tree = []
        return self

    def _check(self, stored: Any, data: bytes, read: Callable[[], OpenedEnvelope]) -> None:
        number = self.tree.size
        before = self.root
        leaf = merkle.leaf_hash(data)
        self.leaves.append(leaf)
        self.tree.append(leaf)
        digest = digest_bytes(data)
        self.digests.append(digest)
        try:
            opened = read()
            entry, body = entry_and_body(opened.payload)
        except ValueError as error:
            self.damage.append(f"entry {number}: unreadable ({error})")
            return
        self.entries.append(RecordedEntry.decoded_later(entry, opened.payload, digest))
        if entry.seq != stored or entry.seq != number:
            self.damage.append(f"entry {number}: says it is entry {entry.seq} '{entry.key}', stored as {stored}")
        if entry.previous != before:
            self.other_tree.append(number)
        if self.session is not None and entry.session != self.session:
            self.damage.append(f"entry {number}: belongs to session '{entry.session}', not '{self.session}'")
        self.session = self.session or entry.session
        if int(entry.time_ns) < self.clock:
            self.damage.append(f"entry {number}: is dated before the entry before it")
        self.clock = int(entry.time_ns)
        self._check_policy_and_signatures(number, entry, opened)
        self.check_body(number, entry, body)

    def check_body(self, number: int, entry: Entry, body: bytes) -> None:
        """Compare a body with the form of its kind; a newer kind or version cannot be checked."""
        problem = misfit(entry.kind, entry.version, body)
        if problem is None:
            self.notes.append(
                f"entry {number}: kind '{plain(entry.kind, 60)}', version {entry.version}, is newer than this "
                "Peergate: its signature and place were checked, what it says was not"
            )
        elif problem:
            self.misfits.append(f"entry {number} ({entry.kind}): does not have its form: {plain(problem, 400)}")
            self.damage.append(self.misfits[-1])

    def _check_policy_and_signatures(self, number: int, entry: Entry, opened: OpenedEnvelope) -> None:
        if number == 0 and (first := _policy(entry.policy)) is not None:
            self.policies.append(first)
        elif number == 0:
            self.damage.append("entry 0: holds no policy: nothing says whose keys may sign")
        self._check_signatures(number, entry, opened)
        if number and (entry.policy is not None or entry.kind == "keys"):
            changed = _policy(entry.policy)
            why = "it cannot be read" if changed is None else unlawful_change(self.policy, changed, number)
            if entry.kind != "keys":
                why = f"a '{entry.kind}' entry changes no keys"
            if changed is None or why:
                self.damage.append(f"entry {number}: changes the policy, which cannot be: {why}")
            else:
                self.policies.append(changed)

    def _check_signatures(self, number: int, entry: Entry, opened: OpenedEnvelope) -> None:
        policy = self.policy
        if policy is None:
            return
        if not opened.signatures:
            self.damage.append(f"entry {number}: is not signed")
        allowed = policy.roles_of(policy.signed_as(entry.kind, entry.body))
        for signature in opened.signatures:
            key = policy.key(signature.key_id, number)
            if key is None:
                self.damage.append(
                    f"entry {number} ({entry.kind}): signed with the unknown key {signature.key_id[:16]}"
                )
            elif key.role not in allowed:
                self.damage.append(
                    f"entry {number} ({entry.kind}): signed by '{key.role}', may be signed by {' or '.join(allowed)}"
                )
            elif not is_signed(bytes.fromhex(key.public), signature.data, pae(opened.payload)):
                self.damage.append(f"entry {number} ({entry.kind}): the signature of '{key.role}' does not hold")
            else:
                self.signed[key.role, key.id] += 1
                if entry.kind == "verdict":
                    self.verdicts[key.role, key.id] += 1

    def check_head(self, note: bytes, what: str) -> None:
        """Compare the trail's own note with the tree: it must be signed and of all entries."""
        try:
            head = parse_note(note)
        except UserError as error:
            self.damage.append(f"{what}: {error.message}")
            return
        self.damage.extend(f"{what}: {problem}" for problem in self.against(head))
        if head.size != self.tree.size:
            self.damage.append(f"{what}: is of {head.size} entries, the trail has {self.tree.size}")

    def against(self, head: Checkpoint) -> list[str]:
        """Return the contradictions between a signed head, kept here or elsewhere, and this trail."""
        policy = self.policy
        if policy is None:
            return []
        if head.origin != policy.origin:
            return [f"is of the log '{head.origin}', this is '{policy.origin}'"]
        texts: list[str] = []
        if not who_signed(head, log_keys(self.policies, head.size)):
            texts.append("is not signed with the key of this log")
        if head.size > self.tree.size:
            texts.append(f"is of {head.size} entries, the trail has {self.tree.size}: entries were cut off")
        elif head.root != (
            self.tree.root() if head.size == self.tree.size else merkle.root_of(self.leaves[: head.size])
        ):
            texts.append(f"the first {head.size} entries have another root: this is another history")
        return texts


def walk_trail(trail: TrailFile | tuple[Iterable[StoredEntry], HeadBytes | None]) -> TrailVerification:
    """Check a whole trail, whose rows may be read as they are checked."""
    rows, head = trail
    walk = TrailVerification()
    walk.go(rows)
    if head is None:
        if walk.tree.size:
            walk.damage.append("head: is gone")
        return walk
    size, frontier, note = head
    if (size, frontier) != (walk.tree.size, b"".join(walk.tree.hashes)):
        walk.damage.append(f"head: is of {size} entries or another tree; the trail has {walk.tree.size}")
    walk.check_head(note, "head")
    return walk


def log_keys(policies: list[Policy], size: int | None = None) -> list[NoteKey]:
    """Return the keys that may sign heads (of ``size`` entries)."""
    return [
        NoteKey(policy.origin, LOG_KEY, bytes.fromhex(key.public))
        for policy in policies[-1:]
        for key in policy.keys
        if key.role == "log" and (size is None or (key.since < size and (key.until is None or size <= key.until)))
    ]


def unlawful_change(before: Policy | None, after: Policy, seq: int) -> str:
    """Return why a policy may not follow another by entry ``seq``; empty when it may.

    The past of a key stays: a key can only end, and a new one only begin, after the entry.
    """
    if before is None:
        return "it follows no other"
    if (after.origin, after.roles, after.witnesses) != (before.origin, before.roles, before.witnesses):
        return "only keys can change"
    if len(after.keys) < len(before.keys):
        return "keys are missing"
    for old, new in zip(before.keys, after.keys, strict=False):
        ended = old.until is None and new.until == seq + 1
        lawful = old.model_copy(update={"until": new.until, "revoked": new.revoked}) if ended else old
        if new != lawful:
            return f"the past of key {old.id[:16]} is another"
    for new in after.keys[len(before.keys) :]:
        if new.since != seq + 1 or new.until is not None or new.revoked:
            return f"the new key {new.id[:16]} does not begin after the entry"
    return ""


def _policy(value: Any) -> Policy | None:
    """Return a policy if it is in canonical form and its keys and witnesses have their stated ids."""
    try:
        policy = Policy.model_validate_json(json.dumps(value), strict=True)
        exact = policy.canonical() == canonical_bytes(value)
        witnesses = [str(parse_key(witness)) for witness in policy.witnesses]
    except (ValueError, TypeError, RecursionError, UserError):
        return None
    ids = [key.id for key in policy.keys]
    own = all(key_id(bytes.fromhex(key.public)) == key.id for key in policy.keys)
    return policy if exact and own and len(set(ids)) == len(ids) and witnesses == list(policy.witnesses) else None
