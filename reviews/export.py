"""A session's trail as a folder that anyone can verify, with Peergate or without: written here, and verified here.

It holds the signed head, entries and hash tiles (C2SP tlog-tiles), the policy and the public keys, a proof for every
verdict, and the content store. It does not hold the weights, nor anything else outside the store, so an audit of an
export compares evidence with its digests but does not derive numbers and decisions again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from reviews.audit import Audit, check_evidence, read_walk
from reviews.log import merkle
from reviews.log.anchors import Anchor
from reviews.log.keys import public_pem
from reviews.log.note import parse_note, who_signed
from reviews.log.rows import TrailFile, read_trail
from reviews.log.tiles import CHECKPOINT, Proof, bundles_of, parse_proof, read_bundles, tiles_of
from reviews.log.walk import Walk, log_keys
from reviews.store import Store
from reviews.trail import Recorded
from specs.errors import AuditDamage, PeergateError, UserError
from specs.policy import Policy

STORE = "store"
POLICY = "policy.json"
LOG_KEY_FILE = "log.vkey"
PROOFS = "proofs"
PAGE = "report.html"
NOT_REDERIVED = "the numbers: an export holds no jobs, so metrics, checks and decisions were not derived again"


def export_run(
    run: Path, trail_name: str, store_name: str, target: Path, page: Callable[[list[Recorded], Store], str]
) -> tuple[Walk, int]:
    """Write the export of a run folder; returns the walk through its trail and how many files there are.

    Args:
        run: the run folder.
        trail_name: name of its trail.
        store_name: name of its content store.
        target: a folder that is not there yet.
        page: makes the page for people out of the entries and the exported store.

    Raises:
        UserError: the target exists, the trail is of format 1, or it has no entries.
        AuditDamage: the trail does not hold, so there is nothing worth exporting.
        OSError: the target cannot be written.
    """
    if target.exists():
        raise UserError(f"{target} exists already", hint="name a folder that is not there yet")
    trail = read_trail(run / trail_name)
    if trail.format == 1:
        raise UserError("a trail of format 1 has no signatures to export", where=str(run))
    walk = Walk().go(trail.rows)
    if walk.damage or walk.policy is None or trail.head is None:
        first = walk.damage[0] if walk.damage else "the trail has no entries"
        raise AuditDamage(first, where=str(run), hint="run `peergate audit verify` for the whole list")
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        store = Store(partial / STORE)
        count = sum(_write(partial / name, data) for name, data in _files(trail, walk))
        count += _copy_store(run, Store(run / store_name), store, walk.entries)
        text = page(walk.entries, store)
        count += _write(partial / PAGE, text.encode())
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return walk, count


def _files(trail: TrailFile, walk: Walk) -> Iterator[tuple[str, bytes]]:
    """Yield everything in an export but the store and the page: all of it follows from the entries and the head."""
    note = trail.head[2] if trail.head else b""
    yield CHECKPOINT, note
    yield from bundles_of([row.envelope for row in trail.rows])
    yield from derived_files(walk, note)


def derived_files(walk: Walk, note: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what follows from the entries and the head: tiles, policy, keys, proofs."""
    yield from tiles_of(walk.leaves)
    policy = walk.policy
    assert policy is not None
    yield POLICY, policy.canonical()
    yield LOG_KEY_FILE, f"{log_keys(walk.policies, walk.tree.size)[-1]}\n".encode()
    for key in policy.keys:
        yield f"keys/{key.role}-{key.id[:16]}.pem", public_pem(bytes.fromhex(key.public)).encode()
    head = parse_note(note)
    tree = merkle.Tree(walk.leaves)
    for recorded in walk.entries:
        if recorded.entry.kind == "verdict":
            seq = recorded.entry.seq
            proof = Proof(seq, tuple(merkle.prove_inclusion(tree, seq)), head)
            yield proof_name(recorded), str(proof).encode()


def proof_name(recorded: Recorded) -> str:
    """Return where the proof of a verdict lies."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", recorded.entry.key)[:80]
    return f"{PROOFS}/{recorded.entry.seq:06}-{name}.tlog-proof"


def _write(path: Path, data: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return 1


def _copy_store(run: Path, source: Store, target: Store, entries: Sequence[Recorded]) -> int:
    """Copy the content store, and into it the report's files, which lie beside it in a run folder."""
    count = 0
    for path in sorted(source.root.glob("*/*")):
        copy = target.root / path.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        count += 1
    for recorded in entries:
        for relative, digest in recorded.body.get("files", {}).items() if recorded.entry.kind == "report" else ():
            path = run / relative
            if path.is_file() and target.put(path.read_bytes()) != digest:
                raise AuditDamage(f"{relative} is not the recorded {digest}", where=str(run))
            count += 1
    return count


def verify_export(folder: Path, *, policy: Policy | None = None, anchors: Sequence[Anchor] = ()) -> Audit:
    """Verify an export: every entry, the head, every tile and proof, the policy, and the content store."""
    audit = Audit(folder)
    audit.not_proven.append(NOT_REDERIVED)
    walk = Walk()
    try:
        note = (folder / CHECKPOINT).read_bytes()
        size = parse_note(note, CHECKPOINT).size
        walk.go_through(enumerate(read_bundles(folder, size)))
        walk.check_head(note, CHECKPOINT)
    except (PeergateError, OSError) as error:
        audit.damage.append(f"export: {str(error).splitlines()[0]}")
        return audit
    read_walk(audit, walk, policy, anchors)
    if not audit.damage:
        audit.damage.extend(_other_files(folder, walk, note, size))
    if not audit.damage:
        check_evidence(audit, walk.entries, Store(folder / STORE), None)
    return audit


def _other_files(folder: Path, walk: Walk, note: bytes, size: int) -> Iterator[str]:
    """Compare tiles, policy, keys and proofs with what follows from the entries."""
    expected = dict(derived_files(walk, note))
    bundles = {name for name, _ in bundles_of([b""] * size)}
    for name, data in expected.items():
        try:
            found = (folder / name).read_bytes()
        except OSError as error:
            yield f"{name}: cannot be read: {error.strerror or error}"
            continue
        if found != data:
            yield f"{name}: is not what follows from the entries"
    known = {CHECKPOINT, PAGE, *expected, *bundles}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in known and not name.startswith(f"{STORE}/"):
            yield f"{name}: is no part of the export"


def verify_proof(proof: bytes, envelope: bytes, policy: Policy) -> bool:
    """Say whether a tlog-proof shows that an entry is in a tree the log of a policy signed.

    Raises:
        UserError: it is not a proof.
    """
    read = parse_proof(proof)
    keys = log_keys([policy], read.head.size)
    return read.head.origin == policy.origin and bool(who_signed(read.head, keys)) and read.proves(envelope)
