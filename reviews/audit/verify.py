"""`peergate audit verify`: is this trail whole, and does everything decided in it follow from its evidence?

Four questions, in this order: do entries, signatures and tree hold, and agree with the anchors given; does every file
still have the digest that was recorded; was every job granted by a decision and run once; do the metrics, checks and
decisions come out the same when they are computed again from the raw rows.

Read-only and offline. Not covered, and said in the result: a trail cut back or rewritten as a whole by someone
who has its keys (that takes an anchor kept elsewhere), events that were never recorded, and rows that were false
when the job wrote them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from reviews.audit.audit_files import Compared, Tree, tree_of
from reviews.audit.event_order import code_damage, launch_damage, order_damage, people_damage, sequence_damage
from reviews.audit.recompute import FORMLESS, formless, rederive
from reviews.evidence.gather import find
from reviews.requests.request_audit import requests_damage
from reviews.trail.anchors import Anchor, check_anchors, check_policy
from reviews.trail.envelope import Recorded
from reviews.trail.integrity import Walk, walk_trail
from reviews.trail.recorded_code import unknown_code
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_trail
from reviews.trail.tables.pointer import pointer_path
from reviews.trail.trail import seal_path
from specs.digests import canonical_bytes, digest_file
from specs.errors import AuditDamage, DatabaseUnreachable, UserError
from specs.plugins import GROUPS, installed
from specs.regular_files import read_regular
from specs.text import plain
from specs.trail.entry import EMPTY_ROOT, GENESIS
from specs.trail.key_policy import Policy

SIDE_FILES = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside a file that is open."""


@dataclass
class Audit:
    """What the verification found. ``damage`` is empty exactly when everything agreed."""

    path: Path
    readable: bool = True
    closed: bool = False
    decision: str | None = None
    holds: Literal["session", "reviews"] = "session"
    """``reviews``: a trail of requested reviews, which belongs to no session and is never closed."""
    entries: int = 0
    head: str = GENESIS
    root: str = EMPTY_ROOT
    origin: str = ""
    """The name of the log in its checkpoint notes."""
    policy: str = ""
    """Digest of the policy in force at the end."""
    signed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Which key of which role signed how many entries, and how many of those are verdicts."""
    anchored: int | None = None
    """How many entries the newest anchor covers; None when none was given."""
    anchors: list[str] = field(default_factory=list[str])
    not_proven: list[str] = field(default_factory=list[str])
    damage: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    rederived: int = 0
    """Attempts whose metrics, checks and decision were computed again."""
    files: int = 0
    """Files whose digest was compared."""
    not_covered: dict[str, str] = field(default_factory=dict[str, str])
    """By path, every file that no digest of an entry covers, and why."""
    integrity: Literal["holds", "damaged", ""] = ""
    """Of an export: the part of the answer that ``verify/`` gives too (docs/explanation/trail.md)."""

    @property
    def exit_code(self) -> int:
        """0 verified and closed, 1 tampered, 2 valid but open or not covered by the anchors given, 3 unreadable."""
        if not self.readable:
            return 3
        if self.damage:
            return 1
        return 2 if self.is_open or self.is_unanchored else 0

    @property
    def is_open(self) -> bool:
        """Whether entries may still follow; a trail of requested reviews is never closed and not called open."""
        return not self.closed and self.holds == "session"

    @property
    def is_unanchored(self) -> bool:
        """Whether anchors were given and none of them covers the newest entries."""
        return self.anchored is not None and self.anchored < self.entries

    @property
    def verdict(self) -> str:
        """The result in one word."""
        return {0: "verified", 1: "tampered", 2: "open" if self.is_open else "unanchored", 3: "unreadable"}[
            self.exit_code
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the form of `audit verify --json`."""
        return {
            "path": str(self.path),
            "holds": self.holds,
            "verdict": self.verdict,
            "closed": self.closed,
            "decision": self.decision,
            "entries": self.entries,
            "head": self.head,
            "root": self.root,
            "origin": self.origin,
            "policy": self.policy,
            "signed": self.signed,
            "anchored_entries": self.anchored,
            "anchors": self.anchors,
            "damage": self.damage,
            "notes": self.notes,
            "rederived_attempts": self.rederived,
            "files": self.files,
            "not_covered": self.not_covered,
            **({"integrity": self.integrity} if self.integrity else {}),
            "not_proven": self.not_proven,
        }


def verify_run(
    run: Path,
    trail_name: str,
    store_name: str,
    say: Callable[[str], None] = lambda _: None,
    *,
    policy: Policy | None = None,
    anchors: Sequence[Anchor] = (),
) -> Audit:
    """Verify the session in a run folder, against a policy and heads that were kept elsewhere if there are any."""
    audit = Audit(run)
    path = run / trail_name
    tree = tree_of(run) if run.is_dir() else Tree(set(), set(), {})
    own = {path.name, seal_path(path).name, pointer_path(path).name, *(path.name + end for end in SIDE_FILES)}
    no_files = dict.fromkeys(tree.folders, "a folder") | tree.others
    audit.damage.extend(f"{name}: is {no_files[name]}" for name in sorted(own & no_files.keys()))
    if audit.damage:
        # None of these is opened: a FIFO would block.
        return audit
    in_database = pointer_path(path).is_file()
    if not in_database and (not path.is_file() or path.stat().st_size == 0):
        audit.readable = False
        audit.notes.append(f"{path} is not there: this is no run folder of a session")
        return audit
    try:
        trail = read_trail(path)
    except sqlite3.DatabaseError as error:
        code: int = getattr(error, "sqlite_errorcode", 0)
        no_room = code & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
        if no_room and code != sqlite3.SQLITE_IOERR_SHORT_READ:
            # A trail that is open elsewhere is read through a file beside it, which takes room on the disk.
            audit.readable = False
            audit.notes.append(f"{path} cannot be read: {error}; is the disk full?")
        elif path.read_bytes()[:16] != b"SQLite format 3\x00" and not seal_path(path).exists():
            audit.readable = False
            audit.notes.append(f"{path} is not a trail: {error}")
        else:
            audit.damage.append(f"trail: the database is damaged: {error}")
        return audit
    except AuditDamage as error:
        audit.damage.append(f"trail: {error.message}")
        return audit
    except (DatabaseUnreachable, UserError) as error:
        audit.readable = False
        audit.notes.append(str(error))
        return audit
    walk = walk_trail(trail)
    read_walk(audit, walk, policy, anchors)
    audit.damage.extend(walk.misfits)
    audit.damage.extend(_check_seal(path, walk, audit.notes))
    if audit.damage:
        # What follows would only repeat the same damage in other words.
        return audit
    entries = walk.entries
    store = Store(run / store_name)
    if missing := _not_installed(entries, store):
        audit.readable = False
        audit.notes.append(missing)
        return audit
    say("comparing files with their recorded digests")
    _compare_files(audit, Compared(run, tree, store_name, entries), trail_name)
    check_meaning(audit, entries, store)
    if not audit.damage:
        if audit.holds == "session" and (unknown := unknown_code(entries, store)):
            audit.not_proven.append(unknown)
        say("computing metrics, checks and decisions again from the raw rows")
        audit.rederived = rederive(run, entries, store, audit.damage, audit.notes)
    return audit


def _not_installed(entries: list[Recorded], store: Store) -> str:
    """Return which registered plug-ins are missing here: without them the spec cannot even be read."""
    try:
        opened = find(entries, "open")
        registered = json.loads(store.get(opened.body["spec"])).get("plugins", {}) if opened else {}
        brought = {f"{group} {one.name}" for group in GROUPS for one in installed(group)}
        missing = [f"{what} ({registered[what]})" for what in registered if what not in brought]
    except FORMLESS:
        return ""  # That is damage, and told as such where it is read.
    told = plain("; ".join(missing), 400)
    return f"not installed here, so nothing can be computed again: {told}; install what was registered" if told else ""


def check_meaning(audit: Audit, entries: list[Recorded], store: Store) -> None:
    """Compare the entries, and the evidence they name, with what may follow what."""
    try:
        audit.damage.extend(order_damage(entries))
        audit.damage.extend(launch_damage(entries, store))
        audit.damage.extend(people_damage(entries, store))
        audit.damage.extend(code_damage(entries))
        audit.damage.extend(requests_damage(entries, store, audit.notes))
    except FORMLESS as error:
        audit.damage.append(formless(error))


def _compare_files(audit: Audit, compared: Compared, trail_name: str) -> None:
    try:
        audit.damage.extend(compared.store_damage(export=False))
        audit.damage.extend(compared.file_damage())
    except FORMLESS as error:
        audit.damage.append(formless(error))
    # The pointer to a database only says where the rows are, and what SQLite keeps beside its file is in no seal.
    compared.list_not_covered((trail_name, seal_path(Path(trail_name)).name))
    audit.files, audit.not_covered = compared.files, compared.not_covered
    audit.notes.extend(compared.notes)


def read_walk(audit: Audit, walk: Walk, policy: Policy | None, anchors: Sequence[Anchor]) -> None:
    """Take over what the walk found but misfits, and what anchors, a policy and the entries' places have against it."""
    audit.entries, audit.root = walk.tree.size, walk.root
    audit.head = walk.digests[-1] if walk.digests else GENESIS
    misfits = set(walk.misfits)
    audit.damage.extend(one for one in walk.damage if one not in misfits)
    audit.notes.extend(walk.notes)
    audit.signed = [
        {"role": role, "key": key, "entries": count, "verdicts": walk.verdicts[role, key]}
        for (role, key), count in sorted(walk.signed.items())
    ]
    if walk.policy is not None:
        audit.origin, audit.policy = walk.policy.origin, walk.policy.content_digest()
    check_policy(walk, policy, audit)
    check_anchors(walk, anchors, policy, audit)
    entries = walk.entries
    if not entries or entries[0].entry.kind not in ("open", "workspace"):
        audit.damage.append("trail: does not begin with an 'open' entry")
        return
    audit.holds = "reviews" if entries[0].entry.kind == "workspace" else "session"
    closing = next((one for one in entries if one.entry.kind == "close"), None)
    audit.closed = closing is not None
    audit.decision = closing.body.get("decision") if closing else None
    if len({one.entry.session for one in entries}) > 1:
        audit.damage.append("trail: holds entries of more than one session")
    audit.damage.extend(sequence_damage(entries))


def _check_seal(path: Path, walk: Walk, notes: list[str]) -> Iterator[str]:
    """Compare the trail file with the digest taken when it was last closed.

    While it is open in another process, what is newer lies beside the file, which stays as it was sealed.
    """
    closed = any(one.entry.kind == "close" for one in walk.entries)
    try:
        written = read_regular(seal_path(path))
        seal = json.loads(written)
        size, digest, file = int(seal["size"]), str(seal["digest"]), seal["file"]
        if canonical_bytes(seal) != written:
            raise ValueError("not in the one spelling it is written in")
    except FileNotFoundError:
        notes.append("the trail file has no seal: it was never closed cleanly")
        if closed:
            yield "seal: the session is closed but its seal is gone"
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        yield "seal: unreadable"
        return
    if size > walk.tree.size:
        yield f"seal: was taken over {size} entries, the trail has {walk.tree.size}: entries were cut off"
    elif size and walk.digests[size - 1] != digest:
        yield f"seal: entry {size - 1} is not the one that was sealed"
    elif size < walk.tree.size and closed:
        yield (
            f"seal: covers {size} of the {walk.tree.size} entries of a closed session; if its process was killed as it "
            "closed, `peergate resume` seals it"
        )
    elif size < walk.tree.size:
        notes.append(f"{walk.tree.size - size} entries are newer than the seal: the orchestrator runs, or was killed")
    elif pointer_path(path).is_file():
        return  # in a database there is no file around the entries
    elif digest_file(path) != file:
        yield "seal: bytes of the trail file were changed outside of its entries"
    elif closed and (beside := path.with_name(path.name + "-wal")).exists() and beside.stat().st_size:
        yield f"seal: {beside.name} holds what was written after the closed session was sealed"
