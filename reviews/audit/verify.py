"""`peergate audit verify`: is this trail whole, and does everything decided in it follow from its evidence?

Read-only and offline. Not covered, as the result says: a trail cut back or rewritten by someone with its keys, events
that were never recorded, and rows that were false when the job wrote them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from reviews.audit.audit_files import FileComparison, FileTree, tree_of
from reviews.audit.canary_check import canary_damage
from reviews.audit.event_order import code_damage, launch_damage, order_damage, people_damage, sequence_damage
from reviews.audit.pruning import not_witnessed_again, prune_damage, pruned_weights
from reviews.audit.recompute import FORMLESS, formless, rederive, spec_at_hand
from reviews.audit.replication import replication_damage
from reviews.audit.request_audit import requests_damage
from reviews.audit.spec_signature import signature_damage
from reviews.history.history import History
from reviews.history.recorded_code import unknown_code
from reviews.trail.anchors import Anchor, Findings, check_anchors, check_policy
from reviews.trail.chain.store import Store
from reviews.trail.file_seal import seal_damage, seal_path
from reviews.trail.integrity import TrailVerification, walk_trail
from reviews.trail.tables.open_table import stream_trail
from reviews.trail.tables.pointer import pointer_path
from specs.loading.stored_spec import missing_plugins
from specs.system.errors import AuditDamage, DatabaseUnreachable, PeergateError, UserError
from specs.system.regular_files import open_regular
from specs.trail.entry import EMPTY_ROOT, GENESIS
from specs.trail.key_policy import Policy

TRIES = 3
"""How often a run is verified whose trail grows."""
SIDE_FILES = ("-wal", "-shm", "-journal")
"""SQLite's files next to an open database."""


@dataclass(kw_only=True)
class Audit(Findings):
    """What the verification found."""

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
    """For each key and role, how many entries it signed, and how many of those are verdicts."""
    rederived: int = 0
    """Attempts whose metrics, checks and decision were computed again."""
    files: int = 0
    """Files whose digest was compared."""
    not_covered: dict[str, str] = field(default_factory=dict[str, str])
    """The files that no digest of an entry covers, by path, and why."""
    integrity: Literal["holds", "damaged", ""] = ""
    """For an export: the part of the answer that ``verify/`` gives too (docs/explanation/trail.md)."""

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
        """Return whether entries may still follow; a trail of requested reviews is never closed and not called open."""
        return not self.closed and self.holds == "session"

    @property
    def is_unanchored(self) -> bool:
        """Return whether anchors were given and none of them covers the newest entries."""
        return self.anchored is not None and self.anchored < self.entries

    @property
    def verdict(self) -> str:
        """The result in one word."""
        return {0: "verified", 1: "tampered", 2: "open" if self.is_open else "unanchored", 3: "unreadable"}[
            self.exit_code
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the form of `audit verify --json`."""
        first = ("holds", "verdict", "closed", "decision", "entries", "head", "root", "origin", "policy", "signed")
        then = ("anchors", "damage", "notes", "files", "not_covered", "not_proven")
        return {
            "path": str(self.path),
            **{name: getattr(self, name) for name in (*first, *then)},
            "anchored_entries": self.anchored,
            "rederived_attempts": self.rederived,
            **({"integrity": self.integrity} if self.integrity else {}),
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
    """Verify the session in a run folder, against a policy and heads that were kept elsewhere if there are any.

    Damage that is found while the trail grows, as in a prune, counts only if it is found again.
    """
    tries = 0
    while True:
        tries += 1
        audit = _verify_once(run, trail_name, store_name, say, policy=policy, anchors=anchors)
        if not audit.damage or tries == TRIES or not _has_grown(run / trail_name, audit.entries):
            return audit
        say("the trail has grown meanwhile: once more")


def _has_grown(trail: Path, entries: int) -> bool:
    try:
        with stream_trail(trail) as (rows, _):
            return sum(1 for _ in rows) > entries
    except (sqlite3.DatabaseError, PeergateError):
        return False


def _verify_once(
    run: Path,
    trail_name: str,
    store_name: str,
    say: Callable[[str], None],
    *,
    policy: Policy | None,
    anchors: Sequence[Anchor],
) -> Audit:
    audit, walk, tree = verify_trail(run, trail_name, policy=policy, anchors=anchors)
    if walk is None or audit.damage:
        # What follows would only repeat the same damage in other words.
        return audit
    history = History(walk.entries, Store(run / store_name))
    if missing := _not_installed(history):
        audit.readable = False
        audit.notes.append(missing)
        return audit
    say("comparing files with their recorded digests")
    _compare_files(audit, FileComparison(run, tree, store_name, history), trail_name)
    check_meaning(audit, history)
    if not audit.damage:
        if audit.holds == "session" and (unknown := unknown_code(history)):
            audit.not_proven.append(unknown)
        say("computing metrics, checks and decisions again from the raw rows")
        audit.rederived = rederive(run, history, audit.damage, audit.notes)
        audit.damage.extend(replication_damage(run, history, trail_name, store_name, audit.notes))
    return audit


def verify_trail(
    run: Path, trail_name: str, *, policy: Policy | None = None, anchors: Sequence[Anchor] = ()
) -> tuple[Audit, TrailVerification | None, FileTree]:
    """Check signatures, order, tree and head of the trail in a run folder, without its evidence.

    Returns what was found, the walk through the entries (None if the trail cannot be read), and the folder's files.
    """
    audit = Audit(path=run)
    path = run / trail_name
    tree = tree_of(run) if run.is_dir() else FileTree(set(), set(), {})
    own = {path.name, seal_path(path).name, pointer_path(path).name, *(path.name + end for end in SIDE_FILES)}
    no_files = dict.fromkeys(tree.folders, "a folder") | tree.others
    audit.damage.extend(f"{name}: is {no_files[name]}" for name in sorted(own & no_files.keys()))
    if audit.damage:
        # None of these is opened: a FIFO would block.
        return audit, None, tree
    in_database = pointer_path(path).is_file()
    if not in_database and (not path.is_file() or path.stat().st_size == 0):
        audit.readable = False
        audit.notes.append(f"{path} is missing: this is not the run folder of a session")
        return audit, None, tree
    try:
        with stream_trail(path) as trail:
            walk = walk_trail(trail)
    except sqlite3.DatabaseError as error:
        code: int = getattr(error, "sqlite_errorcode", 0)
        no_room = code & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
        if no_room and code != sqlite3.SQLITE_IOERR_SHORT_READ:
            # Reading a trail that is open elsewhere makes a file next to it, which takes room on the disk.
            audit.readable = False
            audit.notes.append(f"{path} cannot be read: {error}; is the disk full?")
        elif _first_bytes(path) != b"SQLite format 3\x00" and not seal_path(path).exists():
            audit.readable = False
            audit.notes.append(f"{path} is not a trail: {error}")
        else:
            audit.damage.append(f"trail: the database is damaged: {error}")
        return audit, None, tree
    except AuditDamage as error:
        audit.damage.append(f"trail: {error.message}")
        return audit, None, tree
    except (DatabaseUnreachable, UserError) as error:
        audit.readable = False
        audit.notes.append(str(error))
        return audit, None, tree
    read_walk(audit, walk, policy, anchors)
    audit.damage.extend(walk.misfits)
    audit.damage.extend(seal_damage(path, walk, audit.notes))
    return audit, walk, tree


def _first_bytes(path: Path) -> bytes:
    with open_regular(path) as handle:
        return handle.read(16)


def _not_installed(history: History) -> str:
    """Return which registered plug-ins are missing here: without them the spec cannot even be read."""
    try:
        missing = missing_plugins(history.store.get(history.opening.spec))
    except FORMLESS:
        return ""  # That is damage, reported where it is read.
    message = f"not installed here, so nothing can be computed again: {missing}; install what was registered"
    return message if missing else ""


def check_meaning(audit: Audit, history: History) -> None:
    """Compare the entries, and the evidence they name, with what may follow what.

    Evidence that other code recorded, with the digest that its entry names, may have a form unknown here: not proven.
    """
    parts: tuple[Callable[[], Iterable[str]], ...] = (
        lambda: order_damage(history),
        lambda: launch_damage(history),
        lambda: people_damage(history),
        lambda: signature_damage(history),
        lambda: code_damage(history),
        lambda: canary_damage(history),
        lambda: requests_damage(history, audit.notes),
        lambda: prune_damage(history),
        lambda: audit.not_proven.extend(not_witnessed_again(history, pruned_weights(history).values())) or (),
    )
    for part in parts:
        try:
            audit.damage.extend(part())
        except FORMLESS as error:
            message = f"what evidence of other code means: this version cannot read it ({formless(error)})"
            if not _is_of_other_code(history):
                audit.damage.append(formless(error))
            elif message not in audit.not_proven:
                audit.not_proven.append(message)


def _is_of_other_code(history: History) -> bool:
    try:
        return spec_at_hand(history, history.measured_by) is None
    except FORMLESS:
        return False


def _compare_files(audit: Audit, compared: FileComparison, trail_name: str) -> None:
    try:
        audit.damage.extend(compared.store_damage(export=False))
        audit.damage.extend(compared.file_damage())
    except FORMLESS as error:
        audit.damage.append(formless(error))
    # The pointer to a database only says where the rows are, and what SQLite keeps next to its file is in no seal.
    compared.list_not_covered((trail_name, seal_path(Path(trail_name)).name))
    audit.files, audit.not_covered = compared.files, compared.not_covered
    audit.notes.extend(compared.notes)


def read_walk(audit: Audit, walk: TrailVerification, policy: Policy | None, anchors: Sequence[Anchor]) -> None:
    """Take over what the walk found except misfits, and compare it with anchors, a policy and the entries' order."""
    audit.entries, audit.root = walk.tree.size, walk.root
    audit.head = walk.digests[-1] if walk.digests else GENESIS
    misfits = set(walk.misfits)
    audit.damage.extend(text for text in walk.damage if text not in misfits)
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
    if not entries or entries[0].kind not in ("open", "workspace"):
        audit.damage.append("trail: does not begin with an 'open' entry")
        return
    audit.holds = "reviews" if entries[0].kind == "workspace" else "session"
    closing = next((entry for entry in entries if entry.kind == "close"), None)
    audit.closed = closing is not None
    # Read before misfits are reported, and shown although they are.
    audit.decision = closing.raw.get("decision") if closing else None
    if len({entry.session for entry in entries}) > 1:
        audit.damage.append("trail: holds entries of more than one session")
    audit.damage.extend(sequence_damage(entries))
