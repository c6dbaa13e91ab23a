"""Writes and verifies a session's trail as a folder that anyone can verify, with Peergate or without.

Weights and everything else outside the content store are missing, so an audit of an export compares evidence with its
digests but does not derive numbers and decisions again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from reviews.audit.audit_files import FileComparison, FileTree, format_path, tree_of
from reviews.audit.verify import Audit, check_meaning, read_walk
from reviews.history.history import History
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.anchors import Anchor
from reviews.trail.chain import tree as merkle
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.keys import public_pem
from reviews.trail.chain.signed_head import parse_note
from reviews.trail.chain.store import Store
from reviews.trail.chain.tiles import CHECKPOINT, InclusionProof, bundles_of, read_bundles, tiles_of
from reviews.trail.integrity import TrailVerification, log_keys
from reviews.trail.tables.open_table import read_trail
from reviews.trail.tables.trail_file import TrailFile
from specs.system.digests import digest_file
from specs.system.errors import AuditDamage, PeergateError, UserError
from specs.system.new_folder import new_folder
from specs.system.regular_files import read_regular
from specs.trail.key_policy import Policy
from specs.trail.session_bodies import ReportEntry

STORE = "store"
POLICY = "policy.json"
LOG_KEY_FILE = "log.vkey"
PROOFS = "proofs"
PAGE = "report.html"
NOT_REDERIVED = "the numbers: an export holds no jobs, so metrics, checks and decisions were not derived again"


def export_run(
    run: Path, trail_name: str, store_name: str, target: Path, page: Callable[[History], str]
) -> tuple[TrailVerification, int]:
    """Write the export of a run folder; returns the walk through its trail and the number of files.

    ``page`` makes the page for people from the entries and the exported store.

    Raises:
        UserError: the target exists.
        AuditDamage: the trail does not hold, or evidence that it names is missing or another: nothing is written.
        OSError: the target cannot be written.
    """
    if target.exists():
        raise _target_error(target)
    trail = read_trail(run / trail_name)
    walk = TrailVerification().go(trail.rows)
    if walk.damage or walk.policy is None or trail.head is None:
        first = walk.damage[0] if walk.damage else "the trail has no entries"
        raise AuditDamage(first, where=str(run), hint="run `peergate audit verify` for the whole list")
    evidence = FileComparison(run, tree_of(run), store_name, History(walk.entries))
    if damage := [*evidence.store_damage(export=False), *_report_damage(run, evidence.history)]:
        raise AuditDamage(damage[0], where=str(run), hint="run `peergate audit verify` for the whole list")
    try:
        with new_folder(target) as partial:
            store = Store(partial / STORE)
            count = sum(_write(partial / name, data) for name, data in _files(trail, walk))
            count += _copy_store(run, evidence, store)
            text = page(History(walk.entries, store))
            count += _write(partial / PAGE, text.encode())
    except FileExistsError as error:
        raise _target_error(target) from error
    return walk, count


def _target_error(target: Path) -> UserError:
    return UserError(f"{target} exists already", hint="name a folder that does not exist")


def _report_damage(run: Path, history: RecordedHistory) -> Iterator[str]:
    """Compare the files of the report, which an export holds in its store."""
    for relative, digest in _report_files(history):
        try:
            if digest_file(run / relative) != digest:
                yield f"{relative} is not the recorded {digest}"
        except OSError as error:
            yield f"{relative} cannot be read: {error.strerror or error}"


def _report_files(history: RecordedHistory) -> Iterator[tuple[str, str]]:
    for report in history.of(ReportEntry):
        yield from report.body.files.items()


def _files(trail: TrailFile, walk: TrailVerification) -> Iterator[tuple[str, bytes]]:
    """Yield everything in an export but the store and the page: it all follows from the entries and the head."""
    note = trail.head[2] if trail.head else b""
    yield CHECKPOINT, note
    yield from bundles_of([row.envelope for row in trail.rows])
    yield from derived_files(walk, note)


def derived_files(walk: TrailVerification, note: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what follows from the entries and the head: tiles, policy, keys, proofs."""
    yield from tiles_of(walk.leaves)
    policy = walk.policy
    assert policy is not None
    yield POLICY, policy.canonical()
    yield LOG_KEY_FILE, f"{log_keys(walk.policies, walk.tree.size)[-1]}\n".encode()
    for key in policy.keys:
        yield f"keys/{key.role}-{key.id[:16]}.pem", public_pem(bytes.fromhex(key.public)).encode()
    head = parse_note(note)
    tree = merkle.MerkleTree(walk.leaves)
    for recorded in walk.entries:
        if recorded.kind == "verdict":
            seq = recorded.seq
            proof = InclusionProof(seq, tuple(merkle.prove_inclusion(tree, seq)), head)
            yield proof_name(recorded), str(proof).encode()


def proof_name(recorded: RecordedEntry) -> str:
    """Return the path of a verdict's proof."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", recorded.key)[:80]
    return f"{PROOFS}/{recorded.seq:06}-{name}.tlog-proof"


def _write(path: Path, data: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return 1


def _copy_store(run: Path, evidence: FileComparison, target: Store) -> int:
    """Copy the content store, and into it the report's files, which a run folder has next to it."""
    names = evidence.list_stored_files()
    for name in names:
        copy = target.root / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / evidence.store / name, copy)
    report = [target.put(read_regular(run / relative)) for relative, _ in _report_files(evidence.history)]
    return len(names) + len(report)


def verify_export(folder: Path, *, policy: Policy | None = None, anchors: Sequence[Anchor] = ()) -> Audit:
    """Verify an export: its integrity, as ``verify/`` does too, and then what its entries mean."""
    audit = Audit(path=folder)
    audit.not_proven.append(NOT_REDERIVED)
    walk = _check_integrity(audit, folder, policy, anchors)
    audit.integrity = "damaged" if audit.damage else "holds"
    audit.damage.extend(walk.misfits)
    if not audit.damage:
        check_meaning(audit, History(walk.entries, Store(folder / STORE)))
    return audit


def _check_integrity(audit: Audit, folder: Path, policy: Policy | None, anchors: Sequence[Anchor]) -> TrailVerification:
    """Check the head, every entry, tile and proof, the policy, and that exactly the files are there that belong."""
    walk = TrailVerification()
    tree = tree_of(folder)
    audit.damage.extend(f"{format_path(name)}: is {what}" for name, what in sorted(tree.others.items()))
    if audit.damage:
        return walk
    try:
        note = read_regular(folder / CHECKPOINT)
        size = parse_note(note, CHECKPOINT).size
        walk.go_through(enumerate(read_bundles(folder, size)))
        walk.check_head(note, CHECKPOINT)
    except (PeergateError, OSError) as error:
        audit.damage.append(f"export: {str(error).splitlines()[0]}")
        return walk
    read_walk(audit, walk, policy, anchors)
    if not audit.damage:
        audit.damage.extend(_other_files(folder, tree, walk, note, size))
    if not audit.damage:
        compared = FileComparison(folder, tree, STORE, History(walk.entries))
        audit.damage.extend(compared.store_damage(export=True))
        audit.files, audit.not_covered = compared.files, compared.not_covered
    return walk


def _other_files(folder: Path, tree: FileTree, walk: TrailVerification, note: bytes, size: int) -> Iterator[str]:
    """Compare tiles, policy, keys and proofs with what follows from the entries, and find what does not belong."""
    expected = dict(derived_files(walk, note))
    for name, data in expected.items():
        try:
            regular = read_regular(folder / name)
        except OSError as error:
            yield f"{name}: cannot be read: {error.strerror or error}"
            continue
        if regular != data:
            yield f"{name}: is not what follows from the entries"
    bundles = {name for name, _ in bundles_of([b""] * size)}
    if PAGE not in tree.files:
        yield f"{PAGE}: is missing"
    known = {CHECKPOINT, PAGE, *expected, *bundles}
    for name in sorted(tree.files):
        if name not in known and not name.startswith(f"{STORE}/"):
            yield f"{format_path(name)}: is not part of the export"
    filled = {parent.as_posix() for name in tree.files for parent in Path(name).parents}
    for name in sorted(tree.folders - filled):
        yield f"{format_path(name)}: is a folder without a file of the export"
