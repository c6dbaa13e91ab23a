"""The Merkle tree of RFC 6962, section 2.1: roots, proofs that an entry is in, proofs that a tree only grew.

Everything works on leaf hashes. A verifying function returns False and raises nothing, whatever it is given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

_sha256 = hashlib.sha256
EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry (RFC 6962: SHA-256 over 0x00 and the entry)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left_hash: bytes, right_hash: bytes) -> bytes:
    """Return the hash of two subtrees (RFC 6962: SHA-256 over 0x01, the left and the right hash)."""
    return hashlib.sha256(b"\x01" + left_hash + right_hash).digest()


class Frontier:
    """The full subtrees at the right edge of a growing tree: enough to append and to know the root."""

    def __init__(self, size: int = 0, hashes: Sequence[bytes] = ()) -> None:
        if size < 0 or len(hashes) != size.bit_count() or any(len(data) != 32 for data in hashes):
            raise ValueError(
                f"a tree of {size} entries has {max(size, 0).bit_count()} full subtrees, not {len(hashes)}"
            )
        self.size = size
        self.hashes = list(hashes)

    @classmethod
    def of_bytes(cls, size: int, hashes: bytes) -> Frontier:
        """Return the frontier that is stored as its hashes in a row."""
        return cls(size, [hashes[start : start + 32] for start in range(0, len(hashes), 32)])

    def append(self, leaf: bytes) -> None:
        """Add a leaf hash."""
        merges = (~self.size & (self.size + 1)).bit_length() - 1
        for _ in range(merges):
            leaf = node_hash(self.hashes.pop(), leaf)
        self.hashes.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """Return the root of the tree as it is."""
        if not self.hashes:
            return EMPTY_ROOT
        root = self.hashes[-1]
        for data in reversed(self.hashes[:-1]):
            root = _sha256(b"\x01" + data + root).digest()
        return root


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Return the root over leaf hashes."""
    tree = Frontier()
    for leaf in leaves:
        tree.append(leaf)
    return tree.root()


def _split(size: int) -> int:
    """Return the largest power of two below ``size``."""
    return 1 << (size - 1).bit_length() - 1


class MerkleTree:
    """A whole tree, hashed once: for many proofs of the same entries."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.levels: list[Sequence[bytes]] = [leaves]
        while len(self.levels[-1]) > 1:
            below = self.levels[-1]
            self.levels.append([node_hash(below[n], below[n + 1]) for n in range(0, len(below) - 1, 2)])

    def __len__(self) -> int:
        return len(self.levels[0])

    def root(self, start: int, end: int) -> bytes:
        """Return the root over the entries from ``start`` up to and without ``end``, at least one."""
        size = end - start
        if size & (size - 1) == 0 and start % size == 0:
            level = size.bit_length() - 1
            return self.levels[level][start >> level]
        middle = start + _split(size)
        return node_hash(self.root(start, middle), self.root(middle, end))


def prove_inclusion(tree: MerkleTree, index: int) -> list[bytes]:
    """Return the audit path of RFC 6962, section 2.1.1, from the leaf's sibling up; raises ValueError without it."""
    if not 0 <= index < len(tree):
        raise ValueError(f"entry {index} is not in a tree of {len(tree)} entries")
    start, end = 0, len(tree)
    path: list[bytes] = []
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            path.append(tree.root(middle, end))
            end = middle
        else:
            path.append(tree.root(start, middle))
            start = middle
    return path[::-1]
