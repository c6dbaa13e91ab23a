"""The tree against the published roots, against RFC 6962 written down as it stands there, and against wrong proofs."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.trail.chain.tree import EMPTY_ROOT, Frontier, MerkleTree, leaf_hash, prove_inclusion, root_of
from specs.trail import entry as trail
from testing.fixtures.tlog_proofs import is_included

# The leaves and roots of the reference tests of Certificate Transparency.
LEAVES = [
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"
]  # fmt: skip
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


# ---- RFC 6962, sections 2.1 to 2.1.2, over entries, with nothing shared with the code under test ---------------


def mth(entries: list[bytes]) -> bytes:
    if not entries:
        return sha256().digest()
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    k = split(len(entries))
    return sha256(b"\x01" + mth(entries[:k]) + mth(entries[k:])).digest()


def split(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def path(m: int, entries: list[bytes]) -> list[bytes]:
    if len(entries) == 1:
        return []
    k = split(len(entries))
    if m < k:
        return [*path(m, entries[:k]), mth(entries[k:])]
    return [*path(m - k, entries[k:]), mth(entries[:k])]


def entries_of(size: int) -> list[bytes]:
    return [b"entry %d" % n for n in range(size)]


def leaves_of(size: int) -> list[bytes]:
    return [leaf_hash(entry) for entry in entries_of(size)]


# ---- what comes out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(9))
def test_the_published_roots_come_out(size: int) -> None:
    entries = [bytes.fromhex(leaf) for leaf in LEAVES[:size]]
    assert root_of(leaf_hash(entry) for entry in entries).hex() == ROOTS[size] == mth(entries).hex()


def test_the_empty_root_is_the_one_the_contracts_name() -> None:
    assert f"sha256:{EMPTY_ROOT.hex()}" == trail.EMPTY_ROOT


@pytest.mark.parametrize("size", [*range(1, 34), 63, 64, 65, 100, 128, 129])
def test_roots_and_proofs_are_those_of_the_standard(size: int) -> None:
    entries, leaves = entries_of(size), leaves_of(size)
    assert root_of(leaves) == mth(entries)
    for index in range(size):
        results = prove_inclusion(MerkleTree(leaves), index)
        assert results == path(index, entries)
        assert is_included(leaves[index], index, size, results, mth(entries))


def test_the_root_of_any_subtree_is_that_of_its_entries() -> None:
    """Of those that proofs are made of: a full subtree, and what is left of the tree after one."""
    for size in (1, 2, 5, 8, 13):
        entries, tree = entries_of(size), MerkleTree(leaves_of(size))
        assert len(tree) == size and tree.root(0, size) == mth(entries)
        for start in range(0, size, 4):
            for end in range(start + 1, min(start + 4, size) + 1):
                assert tree.root(start, end) == mth(entries[start:end]), (start, end)


def test_what_cannot_be_proven_is_refused() -> None:
    leaves = leaves_of(5)
    for index in (-1, 5):
        with pytest.raises(ValueError, match="is not in a tree of 5 entries"):
            prove_inclusion(MerkleTree(leaves), index)


# ---- what must not pass ------------------------------------------------------------------------------------------


def wrong(proofs: list[bytes]) -> list[list[bytes]]:
    """Return proofs that are nearly right."""
    flipped = [[*proofs[:n], bytes([proof[0] ^ 1]) + proof[1:], *proofs[n + 1 :]] for n, proof in enumerate(proofs)]
    shorter = [proofs[:-1], proofs[1:]] if proofs else []
    longer = [[*proofs, bytes(32)], [bytes(32), *proofs], [*proofs, proofs[-1] if proofs else bytes(32)]]
    turned = [proofs[::-1]] if proofs[::-1] != proofs else []
    cut = [[proof[:-1] for proof in proofs]] if proofs else []
    return flipped + shorter + longer + turned + cut


@pytest.mark.parametrize("size", range(1, 20))
def test_a_proof_proves_nothing_else(size: int) -> None:
    leaves = leaves_of(size)
    root = root_of(leaves)
    for index in range(size):
        results = prove_inclusion(MerkleTree(leaves), index)
        others = [n for n in range(-1, size + 2) if n != index]
        assert not any(is_included(leaves[index], n, size, results, root) for n in others)
        assert not any(is_included(leaf, index, size, results, root) for n, leaf in enumerate(leaves) if n != index)
        assert not any(is_included(leaves[index], index, size, row, root) for row in wrong(results))
        assert not is_included(leaves[index], index, size, results, bytes(32))


@settings(max_examples=300, deadline=None)
@given(
    st.integers(-5, 2**70),
    st.integers(-5, 2**70),
    st.lists(st.binary(min_size=0, max_size=33), max_size=8),
    st.binary(max_size=33),
    st.binary(max_size=33),
)
def test_nonsense_proves_nothing_and_raises_nothing(
    number: int, two: int, hashes: list[bytes], first: bytes, second: bytes
) -> None:
    same = first == second and len(first) == 32
    assert not is_included(first, number, two, hashes, second) or (two == 1 and same)


# ---- the growing tree --------------------------------------------------------------------------------------------


def test_a_frontier_that_was_kept_goes_on_where_it_was() -> None:
    tree = Frontier()
    for size, leaf in enumerate(leaves_of(130)):
        assert tree.root() == mth(entries_of(size))
        tree = Frontier(tree.size, tree.hashes)
        tree.append(leaf)


@pytest.mark.parametrize(("size", "hashes"), [(3, [bytes(32)]), (0, [bytes(32)]), (1, [bytes(31)]), (-1, [])])
def test_what_is_no_frontier_is_refused(size: int, hashes: list[bytes]) -> None:
    with pytest.raises(ValueError, match="full subtrees"):
        Frontier(size, hashes)
