"""Rewrites a trail the way someone with a database tool, and with some or all of the keys, would."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from reviews.trail.chain import tree as merkle
from reviews.trail.chain.envelope import EnvelopeSignature, entry_of, pae, payload_of, signatures_text
from reviews.trail.chain.keys import KeyFolder, load_key
from reviews.trail.chain.signed_head import LOG_KEY, Checkpoint, NoteKey, sign_text
from reviews.trail.file_seal import seal_path
from reviews.trail.tables.open_table import read_trail
from reviews.trail.tables.trail_file import StoredEntry
from specs.system.digests import canonical_bytes, digest_bytes, digest_file
from specs.trail.entry import Entry, Role
from specs.trail.key_policy import SIGNERS

Rows = list[StoredEntry]


def rows_of(path: Path) -> Rows:
    return read_trail(path).rows


def entries_of(rows: Iterable[StoredEntry]) -> list[Entry]:
    return [entry_of(row.payload) for row in rows]


def keys_of(path: Path) -> KeyFolder:
    return KeyFolder.of_trail(path)


def signed(entry: Entry, keys: KeyFolder, role: Role | None = None) -> StoredEntry:
    """Return an entry as a row, signed by the role its kind asks for or by another one."""
    payload = payload_of(entry)
    signer = load_key(keys.path(role or SIGNERS.get(entry.kind, ("log",))[0]))
    return StoredEntry(entry.seq, payload, signatures_text(EnvelopeSignature(signer.id, signer.sign(pae(payload)))))


def chained(
    entries: Sequence[Entry],
    keys: KeyFolder,
    *,
    stored_entries: Sequence[StoredEntry] = (),
    change: Callable[[Entry], Entry] = lambda entry: entry,
) -> Rows:
    """Write entries after the rows that are kept, numbered and in the tree as they have to be."""
    rows, tree = list(stored_entries), merkle.Frontier()
    for row in rows:
        tree.append(merkle.leaf_hash(row.envelope))
    for entry in entries:
        whole = entry.model_copy(update={"seq": len(rows), "previous": f"sha256:{tree.root().hex()}"})
        rows.append(signed(change(whole), keys))
        tree.append(merkle.leaf_hash(rows[-1].envelope))
    return rows


def put(path: Path, rows: Rows, keys: KeyFolder | None = None, *, seal: bool = True, head: bool = True) -> None:
    """Put rows into a trail file; with the keys of the log also a head over them, and a seal that agrees."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TRIGGER IF EXISTS entry_is_final")
        database.execute("DROP TRIGGER IF EXISTS entry_stays")
        database.execute("DROP INDEX IF EXISTS entry_key")
        database.execute("DROP INDEX IF EXISTS entry_keys")
        database.execute("DROP INDEX IF EXISTS entry_resumes")
        database.execute("DELETE FROM entry")
        values = [(row.seq, row.payload.decode(), row.signatures.decode()) for row in rows]
        database.executemany("INSERT INTO entry VALUES (?, ?, ?)", values)
        if keys is not None and head:
            tree = merkle.Frontier()
            for row in rows:
                tree.append(merkle.leaf_hash(row.envelope))
            database.execute(
                "INSERT OR REPLACE INTO head VALUES (0, ?, ?, ?)",
                (tree.size, b"".join(tree.hashes), str(head_of(rows, keys))),
            )
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if seal:
        digest = digest_bytes(rows[-1].envelope)
        mark = {"size": len(rows), "digest": digest, "file": digest_file(path)}
        seal_path(path).unlink(missing_ok=True)
        seal_path(path).write_bytes(canonical_bytes(mark))


def head_of(rows: Rows, keys: KeyFolder) -> Checkpoint:
    """Sign a head over rows."""
    origin = f"peergate/{entry_of(rows[0].payload).session}"
    root = merkle.root_of(merkle.leaf_hash(row.envelope) for row in rows)
    signer = keys.signer("log")
    head = Checkpoint(origin, len(rows), root)
    return head.with_signatures(sign_text(NoteKey(origin, LOG_KEY, signer.public), signer.sign, head.text))


def with_body(entry: Entry, **changes: Any) -> Entry:
    return entry.model_copy(update={"body": json.loads(json.dumps(entry.body)) | changes})
