"""What reads an export or a trail, each with bytes it accepts: for tests that change those bytes.

A target takes changed bytes and says whether it was fooled: whether it believed something other than what was signed.
Refusing is right, and so is a spelling that says the same where the format allows one. Anything else that it raises is
a defect.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from reviews.audit import verify
from reviews.audit.export import PROOFS, verify_export
from reviews.audit.verify import verify_run
from reviews.trail.anchors import Anchor, check_anchors, check_policy, read_anchor, read_policy
from reviews.trail.chain.envelope import entry_of, open_envelope, payload_of
from reviews.trail.chain.keys import load_key
from reviews.trail.chain.signed_head import parse_key, parse_note, who_signed
from reviews.trail.chain.tiles import read_bundles
from reviews.trail.integrity import TrailVerification, log_keys, walk_trail
from reviews.trail.tables.open_table import read_entries, read_trail
from reviews.trail.tables.query import TrailQuery, select
from reviews.trail.trail import Trail
from sessions.pages.report.trail_page import page_damage
from specs.system.errors import PeergateError
from testing.fixtures.tlog_proofs import parse_proof, verify_proof

TRAIL, STORE = "trail.sqlite", "store"


class FuzzTarget(NamedTuple):
    """Something that reads bytes of others."""

    name: str
    seed: bytes
    """Bytes that it accepts."""
    is_fooled: Callable[[bytes], bool]
    share: int = 1
    """How often it is tried, compared with the others: what opens a database takes longer."""


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Change bytes in one or a few places: flipped, cut out, doubled, put in, or a number made extreme."""
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        place = chance.randrange(len(data) + 1)
        length = chance.choice([1, 1, 1, 2, 8, 100])
        match chance.randrange(7):
            case 0 if place < len(data):
                data = data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
            case 1:
                data = data[:place] + data[place + length :]
            case 2:
                data = data[:place] + data[place : place + length] + data[place:]
            case 3:
                data = data[:place] + chance.randbytes(length) + data[place:]
            case 4:
                data = data[:place]
            case 5:
                data = data[:place] + chance.choice(WORDS) + data[place:]
            case _:
                data = data[:place] + chance.choice(WORDS) + data[place + length :]
    return data


WORDS = (
    b"\x00", b"\n", b"\n\n", b"\xff\xff", b"\xe2\x80\x94", b"null", b"-1", b"1e400", b"NaN", b"9" * 30, b"[" * 2000,
    b'{"a":' * 500, b'"', b"\\ud800", b"\\u0000", b"\xed\xa0\x80", b"true", b"[]", b"{}", b'"seq":0,', b"=", b"A" * 44,
)  # fmt: skip


def targets(run: Path, exported: Path, work: Path) -> Iterator[FuzzTarget]:
    """Yield every parser of a run folder's trail and of its export; ``work`` is an empty folder to write in."""
    whole = walk_trail(read_trail(run / TRAIL))
    assert not whole.damage and whole.policy is not None
    yield from _parsers(run, exported, work, whole)
    yield from _exports(exported, work / "export", whole)
    yield from _trails(run, work / "runs")


def _parsers(run: Path, exported: Path, work: Path, whole: TrailVerification) -> Iterator[FuzzTarget]:
    policy = whole.policy
    assert policy is not None
    envelopes = read_bundles(exported, whole.tree.size)
    verdict = next(entry.seq for entry in whole.entries if entry.kind == "verdict")

    def entry(data: bytes) -> bool:
        changed = [*envelopes[:verdict], data, *envelopes[verdict + 1 :]]
        return not TrailVerification().go_through(enumerate(changed)).damage

    def statement(data: bytes) -> bool:
        with suppress(ValueError):
            return payload_of(entry_of(data)) != data
        return False

    def envelope(data: bytes) -> bool:
        with suppress(ValueError):
            opened = open_envelope(data)
            return opened == open_envelope(envelopes[verdict])
        return False

    def note(data: bytes) -> bool:
        with suppress(PeergateError):
            head = parse_note(data)
            assert str(head).encode() == data, "a note has one spelling"
            return bool(who_signed(head, log_keys([policy]))) and head.text != original.text
        return False

    def anchor(data: bytes) -> bool:
        path = work / "anchor.note"
        path.write_bytes(data)
        audit = verify.Audit(path=run)
        with suppress(PeergateError):
            head = read_anchor(path).head
            check_anchors(whole, [Anchor("kept", head)], None, audit)
            return not audit.damage and head.text != original.text
        return False

    def proof(data: bytes) -> bool:
        with suppress(PeergateError):
            read = parse_proof(data)
            same = (read.seq, read.path, read.head.text) == (proven.seq, proven.path, proven.head.text)
            return verify_proof(data, envelopes[verdict], policy) and not same
        return False

    def kept_policy(data: bytes) -> bool:
        path = work / "policy.json"
        path.write_bytes(data)
        audit = verify.Audit(path=run)
        with suppress(PeergateError):
            read = read_policy(path)
            check_policy(whole, read, audit)
            return not audit.damage and read.model_copy(update={"witnesses": policy.witnesses}) != policy
        return False

    def public(data: bytes) -> bool:
        with suppress(PeergateError, UnicodeDecodeError):
            return parse_key(data.decode()) not in log_keys([policy]) and False
        return False

    def private(data: bytes) -> bool:
        path = work / "key.pem"
        path.touch(0o600)
        path.write_bytes(data)
        with suppress(PeergateError):
            load_key(path)
        return False

    original = parse_note((exported / "checkpoint").read_bytes())
    proof_file = next((exported / PROOFS).glob(f"{verdict:06}-*")).read_bytes()
    proven = parse_proof(proof_file)
    key = (run.parent / ".peergate" / "keys" / "log.pem").read_bytes()
    yield FuzzTarget("entry", envelopes[verdict], entry, 6)
    yield FuzzTarget("envelope", envelopes[verdict], envelope, 10)
    yield FuzzTarget("statement", open_envelope(envelopes[verdict]).payload, statement, 20)
    yield FuzzTarget("note", str(original).encode(), note, 10)
    yield FuzzTarget("anchor", str(original).encode(), anchor, 4)
    yield FuzzTarget("proof", proof_file, proof, 10)
    yield FuzzTarget("policy", policy.canonical(), kept_policy, 6)
    yield FuzzTarget("public key", str(log_keys([policy])[0]).encode(), public, 4)
    yield FuzzTarget("private key", key, private, 4)


def _exports(exported: Path, copy: Path, whole: TrailVerification) -> Iterator[FuzzTarget]:
    """Every file of an export that is parsed, through the verification of the whole."""
    shutil.copytree(exported, copy)

    def changing(path: Path) -> Callable[[bytes], bool]:
        seed = path.read_bytes()

        def is_fooled(data: bytes) -> bool:
            path.write_bytes(data)
            try:
                with suppress(PeergateError):
                    select(copy, TrailQuery(text="verdict"), 3)
                return verify_export(copy).exit_code not in (1, 3)
            finally:
                path.write_bytes(seed)

        return is_fooled

    for path in sorted(path for path in copy.rglob("*") if path.is_file() and STORE not in path.parts):
        if path.suffix != ".html":
            name = f"export: {path.relative_to(copy).as_posix()}"
            yield FuzzTarget(name, path.read_bytes(), changing(path))
    page = copy / "report.html"
    seed = page.read_bytes()

    def another_page(data: bytes) -> bool:
        page.write_bytes(data)
        notes: list[str] = []
        try:
            # A page that says it was made by other code is not compared, and that is told.
            return not page_damage(copy, notes) and not notes
        finally:
            page.write_bytes(seed)

    yield FuzzTarget("export: report.html", seed, another_page)


def _trails(run: Path, runs: Path) -> Iterator[FuzzTarget]:
    """The trail file and its seal, through the verification, the reading commands and a session that goes on."""
    shutil.copytree(run, runs / run.name)
    shutil.copytree(run.parent / ".peergate", runs / ".peergate")
    copy = runs / run.name
    path, seal = copy / TRAIL, copy / "trail.seal"
    file, sealed = path.read_bytes(), seal.read_bytes()

    def verified(data: bytes) -> bool:
        path.write_bytes(data)
        return verify_run(copy, TRAIL, STORE).exit_code not in (1, 3)

    def another_seal(data: bytes) -> bool:
        path.write_bytes(file)
        seal.write_bytes(data)
        try:
            return verify_run(copy, TRAIL, STORE).exit_code not in (1, 3)
        finally:
            seal.write_bytes(sealed)

    def read(data: bytes) -> bool:
        path.write_bytes(data)
        with suppress(PeergateError):
            read_entries(path)
        for wanted in (TrailQuery(), TrailQuery(kinds=("verdict",), text="a")):
            with suppress(PeergateError):
                select(path, wanted, 3)
        return False

    def continued(data: bytes) -> bool:
        path.write_bytes(data)
        try:
            with suppress(PeergateError):
                trail = Trail(path, run.name)
                with closing(trail):
                    trail.verify_chain()
                    return _differ(path, file)
            return False
        finally:
            for journal in copy.glob(f"{TRAIL}-*"):
                journal.unlink()
            seal.write_bytes(sealed)

    yield FuzzTarget("trail file: verified", file, verified)
    yield FuzzTarget("trail file: read", file, read)
    yield FuzzTarget("trail file: gone on with", file, continued)
    yield FuzzTarget("seal", sealed, another_seal)


def _differ(path: Path, file: bytes) -> bool:
    """Return whether a trail that a session goes on with holds other entries than the file it was made from."""
    first = path.with_name("first.sqlite")
    first.write_bytes(file)
    with suppress(sqlite3.DatabaseError):
        return [row.envelope for row in read_trail(path).rows] != [row.envelope for row in read_trail(first).rows]
    return False
