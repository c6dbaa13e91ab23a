"""The seal of a trail file: its newest entry and the digest of its bytes, taken when it was closed.

The tree covers entries only; the seal shows a changed byte in SQLite's own slack too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from reviews.trail.chain.store import write_durably
from reviews.trail.integrity import TrailVerification
from reviews.trail.tables.pointer import pointer_path
from specs.system.digests import canonical_bytes, digest_file
from specs.system.regular_files import read_regular
from specs.trail.entry import Head

MOST_BYTES = 4096


def seal_path(trail: Path) -> Path:
    """Return the path of a trail file's seal."""
    return trail.with_suffix(".seal")


def write_seal(trail: Path, head: Head, file: str | None) -> None:
    """Record a head and the digest of the file, None for a trail in a database; raises OSError."""
    write_durably(seal_path(trail), canonical_bytes({"size": head.size, "digest": head.digest, "file": file}))


def differs(path: Path) -> bool:
    """Return whether a file at rest has other bytes than when it was sealed, or has no seal: quick, and no proof.

    Anyone who changes a file can change its seal; only :func:`seal_damage`, with the entries verified, says that it
    holds.
    """
    try:
        return json.loads(read_regular(seal_path(path), MOST_BYTES))["file"] != digest_file(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return True


def seal_damage(path: Path, walk: TrailVerification, notes: list[str]) -> Iterator[str]:
    """Compare a trail with its seal; what is not damage goes to ``notes``."""
    closed = any(entry.kind == "close" for entry in walk.entries)
    try:
        written = read_regular(seal_path(path), MOST_BYTES)
        seal = json.loads(written)
        size, digest, file = seal["size"], seal["digest"], seal["file"]
        if type(size) is not int or size < 0 or canonical_bytes(seal) != written:
            raise ValueError("not in canonical form")
    except FileNotFoundError:
        notes.append("the trail file has no seal: it was never closed cleanly")
        if closed:
            yield "seal: the session is closed but its seal is gone"
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        yield "seal: unreadable"
        return
    if size > walk.tree.size:
        yield f"seal: was taken over {size} entries, the trail has {walk.tree.size}: entries were cut off"
    elif size and walk.digests[size - 1] != digest:
        yield f"seal: entry {size - 1} differs from the sealed entry"
    elif size < walk.tree.size and closed:
        yield (
            f"seal: covers {size} of the {walk.tree.size} entries of a closed session; if its process was killed as it "
            "closed, `peergate resume` seals it"
        )
    elif size < walk.tree.size:
        notes.append(f"{walk.tree.size - size} entries are newer than the seal: the orchestrator runs, or was killed")
    elif pointer_path(path).is_file():
        return  # a database has no file around the entries
    elif digest_file(path) != file:
        yield "seal: bytes of the trail file were changed outside of its entries"
    elif closed and (log := path.with_name(path.name + "-wal")).exists() and log.stat().st_size:
        yield f"seal: {log.name} holds data written after the closed session was sealed"
