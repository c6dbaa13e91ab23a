"""Proofs that another implementation made and judged: Go's sumdb/tlog, see ``tests/fixtures/merkle/vectors.go``.

The ways of making them wrong are those of the tests of transparency-dev/merkle: index, size, roots, leaf, and a path
that is cut, extended or changed. Where only the size is wrong by one, the path may show the same: Go says so too.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.chain.tree import MerkleTree, leaf_hash, prove_inclusion, root_of
from testing.fixtures.tlog_proofs import is_included

FOLDER = Path(__file__).parents[2] / "fixtures" / "merkle"
VECTORS: dict[str, list[Any]] = json.loads((FOLDER / "vectors.json").read_bytes())
SOURCES = Path("/usr/share/gocode")
LEAVES = [leaf_hash(b"leaf %d" % n) for n in range(len(VECTORS["roots"]))]
MAY_HOLD = {"right", "size + 1", "size - 1"}
OF_ONE = {"ends swapped", "no path"}
"""With one entry, or two equal sizes, there is no path, and leaf and root are the same."""


def read_proof(row: dict[str, Any]) -> tuple[int, int, list[bytes], bytes, bytes]:
    path = [base64.b64decode(hash) for hash in row["path"] or ()]
    return row["first"], row["size"], path, base64.b64decode(row["from"]), base64.b64decode(row["root"])


def named(row: dict[str, Any]) -> str:
    return f"{row['first']} of {row['size']}: {row['what']}"


@pytest.mark.parametrize("row", VECTORS["inclusion"], ids=named)
def test_inclusion(row: dict[str, Any]) -> None:
    index, size, path, leaf, root = read_proof(row)
    assert is_included(leaf, index, size, path, root) == row["valid"]
    if row["what"] == "right":
        assert prove_inclusion(MerkleTree(LEAVES[:size]), index) == path and LEAVES[index] == leaf


def test_roots_are_those_of_go() -> None:
    for size, root in enumerate(VECTORS["roots"], 1):
        assert root_of(LEAVES[:size]) == base64.b64decode(root)


def test_every_way_of_being_wrong_is_among_them() -> None:
    wrong = {value["what"] for value in VECTORS["inclusion"] if not value["valid"]}
    assert len(wrong) >= 26 and wrong >= {
        "first + 1", "first - 1", "size * 2", "size / 2", "other root", "empty root", "other leaf or root before",
        "both empty", "ends swapped", "no path", "cut at the end", "cut at the start", "garbage after",
        "garbage before", "root after", "root before", "a hash in the middle", "a short hash", "bit of hash 0",
    }  # fmt: skip
    for item in VECTORS["inclusion"]:
        alone = item["size"] == 1
        assert not item["valid"] or item["what"] in MAY_HOLD or (alone and item["what"] in OF_ONE), named(item)


@pytest.mark.nightly
def test_go_writes_the_same_vectors_again() -> None:
    if shutil.which("go") is None or not (SOURCES / "src" / "golang.org" / "x" / "mod").is_dir():
        pytest.skip("needs Go: apt-get install golang-go golang-golang-x-mod-dev")
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": str(SOURCES)}
    command = ["go", "run", str(FOLDER / "vectors.go")]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stdout == (FOLDER / "vectors.json").read_bytes()
