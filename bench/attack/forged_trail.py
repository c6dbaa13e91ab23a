"""Trails that someone with keys writes anew, entry by entry as bytes, and the export around them.

Nothing here goes through Peergate's own checks: what is written may be no entry at all. Every other file of the export
is made to agree, so that only what was changed can be found.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reviews.audit.export import PROOFS
from reviews.trail.chain import tree as merkle
from reviews.trail.chain.envelope import (
    EnvelopeSignature,
    entry_of,
    open_envelope,
    pae,
    payload_of,
    seal,
    signatures_text,
)
from reviews.trail.chain.keys import KeyFolder, SigningKey, load_key, public_pem
from reviews.trail.chain.signed_head import LOG_KEY, Checkpoint, NoteKey, parse_note, sign_text
from reviews.trail.chain.tiles import CHECKPOINT, InclusionProof, bundles_of, read_bundles, tiles_of
from specs.system.digests import canonical_bytes
from specs.trail.entry import Entry, Role
from specs.trail.key_policy import SIGNERS

Change = Callable[[Entry], Entry]
Rewrite = Callable[[bytes], bytes]


def as_it_is(data: bytes) -> bytes:
    """Change nothing."""
    return data


class Step(NamedTuple):
    """One entry to be written: changed as a value, then as bytes, then signed, then changed as an envelope."""

    entry: Entry
    payload: Rewrite = as_it_is
    envelope: Rewrite = as_it_is
    role: Role | None = None
    """Who signs it; by default who may."""


class Original(NamedTuple):
    """An export, what it was made from, and all keys."""

    folder: Path
    entries: list[Entry]
    keys: dict[Role, SigningKey]

    @classmethod
    def of(cls, folder: Path, keys: KeyFolder) -> Original:
        """Read an export."""
        size = parse_note((folder / CHECKPOINT).read_bytes()).size
        entries = [entry_of(open_envelope(bundle).payload) for bundle in read_bundles(folder, size)]
        roles: tuple[Role, ...] = ("log", "builder", "reviewer", "human")
        return cls(folder, entries, {role: load_key(keys.path(role)) for role in roles})


def copy_trail(original: Original, target: Path) -> Path:
    """Copy an export; files are links to the same bytes until :func:`rewrite` or :func:`removed`."""
    shutil.copytree(original.folder, target, copy_function=_link)
    return target


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def rewrite(path: Path, data: bytes) -> None:
    """Give a file other bytes and leave the file it may be a link to alone."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def steps_of(original: Original) -> list[Step]:
    """Return the entries as they are."""
    return [Step(entry) for entry in original.entries]


def envelopes_of(original: Original, steps: Sequence[Step]) -> list[bytes]:
    """Write and sign entries, each numbered and with the tree before it."""
    tree = merkle.Frontier()
    matching_data: list[bytes] = []
    for number, step in enumerate(steps):
        entry = step.entry
        if entry.previous not in WRONG_TREES:
            entry = entry.model_copy(update={"previous": f"sha256:{tree.root().hex()}"})
        payload = step.payload(payload_of(entry.model_copy(update={"seq": number})))
        signer = original.keys[step.role or _role(entry)]
        data = step.envelope(seal(payload, signatures_text(EnvelopeSignature(signer.id, signer.sign(pae(payload))))))
        matching_data.append(data)
        tree.append(merkle.leaf_hash(data))
    return matching_data


WRONG_TREES = frozenset({"sha256:" + "7" * 64})


def _role(entry: Entry) -> Role:
    own = f"{entry.kind}:person" if entry.body.get("reviewer") == "person" else entry.kind
    return SIGNERS.get(own, SIGNERS.get(entry.kind, ("log",)))[0]


def forge_trail(
    original: Original, steps: Sequence[Step], target: Path, *, policy: Any = None, size: int | None = None
) -> Path:
    """Write an export of these entries with everything around them in agreement.

    Args:
        original: the export to begin with; its store and page are taken.
        steps: the entries.
        target: a folder that is not there yet.
        policy: the policy the export shows; that of the newest entry that has one by default.
        size: of how many of the entries head and tree are.
    """
    copy_trail(original, target)
    for name in (CHECKPOINT, "policy.json", "log.vkey"):
        (target / name).unlink()
    for name in ("tile", "keys", PROOFS):
        shutil.rmtree(target / name)
    envelopes = envelopes_of(original, steps)[:size]
    kept_entries = [step.entry for step in steps][:size]
    visible = policy or next(entry.policy for entry in reversed(kept_entries) if entry.policy is not None)
    head = head_of(original, visible, envelopes)
    leaves = [merkle.leaf_hash(envelope) for envelope in envelopes]
    files: list[tuple[str, bytes]] = [(CHECKPOINT, str(head).encode()), *bundles_of(envelopes), *tiles_of(leaves)]
    files.append(("policy.json", canonical_bytes(visible)))
    files.extend(_keys(visible))
    tree = merkle.MerkleTree(leaves)
    for number, (entry, data) in enumerate(zip(kept_entries, envelopes, strict=True)):
        if _kind(data, entry) == "verdict":
            name = re.sub(r"[^A-Za-z0-9.]+", "-", entry.key)[:80]
            proof = InclusionProof(number, tuple(merkle.prove_inclusion(tree, number)), head)
            files.append((f"{PROOFS}/{number:06}-{name}.tlog-proof", str(proof).encode()))
    for name, data in files:
        rewrite(target / name, data)
    return target


def _kind(envelope: bytes, entry: Entry) -> str:
    try:
        return json.loads(open_envelope(envelope).payload)["predicate"]["kind"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return entry.kind


def _keys(policy: Any) -> list[tuple[str, bytes]]:
    """Return the files of keys as far as the policy has the form it should."""
    pairs: list[tuple[str, bytes]] = []
    for key in policy.get("keys", []):
        try:
            public = bytes.fromhex(key["public"])
            pairs.append((f"keys/{key['role']}-{key['id'][:16]}.pem", public_pem(public).encode()))
            if key["role"] == "log" and key.get("until") is None:
                pairs.append(("log.vkey", f"{NoteKey(policy['origin'], LOG_KEY, public)}\n".encode()))
        except (LookupError, TypeError, ValueError):
            continue
    return pairs


def head_of(original: Original, policy: Any, envelopes: Sequence[bytes], role: Role = "log") -> Checkpoint:
    """Sign a head over envelopes."""
    signer = original.keys[role]
    origin = str(policy.get("origin", "peergate/small"))
    root = merkle.root_of(merkle.leaf_hash(envelope) for envelope in envelopes)
    head = Checkpoint(origin, len(envelopes), root)
    return head.with_signatures(sign_text(NoteKey(origin, LOG_KEY, signer.public), signer.sign, head.text))


def spoiled_base64(text: str) -> str:
    """Return another spelling of the same bytes: other bits after the last whole byte."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    stem = text.rstrip("=")
    other = stem[:-1] + letters[letters.index(stem[-1]) ^ 1] + "=" * (len(text) - len(stem))
    return other if base64.b64decode(other) == base64.b64decode(text) else text
