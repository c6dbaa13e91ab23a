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

from reviews.code_states import unknown_code
from reviews.events import code_damage, launch_damage, order_damage, people_damage
from reviews.log.anchors import Anchor, check_anchors, check_policy
from reviews.log.pointer import pointer_path
from reviews.log.rows import read_trail
from reviews.log.walk import Walk, walk_trail
from reviews.rederive import rederive
from reviews.requests.audit import requests_damage
from reviews.store import Store
from reviews.trail import Recorded, seal_path
from specs.digests import canonical_bytes, digest_file, digest_path
from specs.errors import AuditDamage, DatabaseUnreachable, PeergateError, UserError
from specs.policy import Policy
from specs.trail import EMPTY_ROOT, GENESIS


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
    audit.damage.extend(_check_seal(path, walk, audit.notes))
    if audit.damage:
        # What follows would only repeat the same damage in other words.
        return audit
    entries = walk.entries
    store = Store(run / store_name)
    say("comparing files with their recorded digests")
    check_evidence(audit, entries, store, run)
    if audit.holds == "session" and (unknown := unknown_code(entries, store)):
        audit.not_proven.append(unknown)
    if not audit.damage:
        say("computing metrics, checks and decisions again from the raw rows")
        audit.rederived = rederive(run, entries, store, audit.damage, audit.notes)
    return audit


def check_evidence(audit: Audit, entries: list[Recorded], store: Store, run: Path | None) -> None:
    """Compare the evidence with its digests, and the entries with what may follow what.

    Args:
        audit: takes the findings.
        entries: the whole trail.
        store: the content store that came with it.
        run: the run folder, whose files outside the store are compared too; None for an export, which has none.
    """
    try:
        audit.damage.extend(_check_store(entries, store, audit))
        if run is not None:
            audit.damage.extend(_check_files(run, entries, audit))
        audit.damage.extend(order_damage(entries))
        audit.damage.extend(launch_damage(entries, store))
        audit.damage.extend(people_damage(entries, store))
        audit.damage.extend(code_damage(entries))
        audit.damage.extend(requests_damage(entries, store, audit.notes))
    except (PeergateError, ValueError, KeyError, TypeError, AttributeError) as error:
        audit.damage.append(
            f"entries do not have the form of their kind: {type(error).__name__}: {str(error).splitlines()[0]}"
        )


def read_walk(audit: Audit, walk: Walk, policy: Policy | None, anchors: Sequence[Anchor]) -> None:
    """Take over what the walk through the entries found, and what anchors and a policy have against it."""
    audit.entries, audit.root = walk.tree.size, walk.root
    audit.head = walk.digests[-1] if walk.digests else GENESIS
    audit.damage.extend(walk.damage)
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


def _check_seal(path: Path, walk: Walk, notes: list[str]) -> Iterator[str]:
    """Compare the trail file with the digest taken when it was last closed."""
    try:
        written = seal_path(path).read_bytes()
        seal = json.loads(written)
        size, digest, file = int(seal["size"]), str(seal["digest"]), seal["file"]
        if canonical_bytes(seal) != written:
            raise ValueError("not in the one spelling it is written in")
    except FileNotFoundError:
        notes.append("the trail file has no seal: it was never closed cleanly")
        if any(one.entry.kind == "close" for one in walk.entries):
            yield "seal: the session is closed but its seal is gone"
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        yield "seal: unreadable"
        return
    if size > walk.tree.size:
        yield f"seal: was taken over {size} entries, the trail has {walk.tree.size}: entries were cut off"
    elif size and walk.digests[size - 1] != digest:
        yield f"seal: entry {size - 1} is not the one that was sealed"
    elif size < walk.tree.size:
        notes.append(f"{walk.tree.size - size} entries are newer than the seal: the orchestrator runs, or was killed")
    elif pointer_path(path).is_file():
        return  # in a database there is no file around the entries
    elif path.with_name(path.name + "-wal").exists():
        notes.append("the trail is open in another process: its file was not compared with the seal")
    elif digest_file(path) != file:
        yield "seal: bytes of the trail file were changed outside of its entries"


def _check_store(entries: list[Recorded], store: Store, audit: Audit) -> Iterator[str]:
    """Compare every file of the store with its name, and find what the trail names in it."""
    for path in sorted(store.root.glob("*/*")):
        audit.files += 1
        name = f"sha256:{path.parent.name}{path.name}"
        if digest_file(path) != name:
            yield f"store: {path.relative_to(store.root.parent)} has other bytes than its name says"
    for recorded in entries:
        for what, digest in _named_in_store(recorded):
            if not store.path(digest).is_file():
                yield f"entry {recorded.entry.seq} ({recorded.entry.kind}): {what} {digest} is missing from the store"


def _check_files(run: Path, entries: list[Recorded], audit: Audit) -> Iterator[str]:
    """Compare every file outside the store that the trail names with its digest."""
    for recorded in entries:
        for relative, digest in named_files(recorded):
            audit.files += 1
            outside = Path(relative).is_absolute()
            try:
                found = digest_path(run / relative)
            except (OSError, ValueError) as error:
                found = f"unreadable ({error})"
            if found == digest:
                continue
            sentence = (
                f"entry {recorded.entry.seq} ({recorded.entry.kind}): {relative} is {found}, recorded as {digest}"
            )
            if outside:
                audit.notes.append(f"{sentence}; it lies outside the run folder")
            else:
                yield sentence


_STORED = {
    "open": ("spec", "source", "measured_by"),
    "launch": ("order",),
    "exit": ("exit", "manifest", "log"),
    "metrics": ("metrics",),
    "checks": ("checks",),
    "packet": ("packet",),
    "verdict": ("verdict", "request", "response"),
    "decision": ("decision",),
    "amendment": ("spec", "source", "packet", "verdict"),
    "asked": ("request", "read", "instructions"),
    "answered": ("answer", "request", "response"),
}


def _named_in_store(recorded: Recorded) -> Iterator[tuple[str, str]]:
    body = recorded.body
    for what in _STORED.get(recorded.entry.kind, ()):
        if body.get(what):
            yield what, body[what]
    if recorded.entry.kind == "open":
        for name, digest in body["data"].items():
            yield f"data {name}", digest
    if recorded.entry.kind == "exit":
        for name, artifact in body["outputs"].items():
            if artifact["stored"]:
                yield name, artifact["digest"]


def named_files(recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Yield ``(path, digest)`` of the files outside the store that an entry speaks of, from the run folder on."""
    body = recorded.body
    match recorded.entry.kind:
        case "open":
            yield "spec.yaml", body["source"]
            yield "spec.resolved.json", body["spec"]
        case "model":
            yield body["path"], body["digest"]
        case "launch":
            yield f"jobs/{body['key']}/order.json", body["order"]
        case "exit":
            yield f"jobs/{body['key']}/exit.json", body["exit"]
            yield f"jobs/{body['key']}/log.txt", body["log"]
            if body["manifest"]:
                yield f"jobs/{body['key']}/manifest.json", body["manifest"]
            for artifact in body["outputs"].values():
                yield artifact["path"], artifact["digest"]
        case "report":
            yield from body["files"].items()
        case _:
            return
