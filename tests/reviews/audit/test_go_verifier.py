"""verify/, the verifier that is not Peergate, in both its builds, on trails of more than one bundle."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from reviews.audit.export import PAGE, derived_files
from reviews.trail.chain.keys import KeyFolder
from reviews.trail.chain.tiles import CHECKPOINT, bundles_of
from reviews.trail.integrity import TrailVerification
from reviews.trail.key_rotation import rotate
from reviews.trail.tables.open_table import read_trail
from reviews.trail.trail import Trail
from specs.trail.entry import Role
from testing.factories.bodies import append_json
from testing.factories.forgery import Rows, chained, entries_of, head_of, rows_of, signed

SOURCE = Path(__file__).parents[3] / "verify"
PACKAGES = Path("/usr/share/gocode/src")
CHANGED = 301
"""The entry that changes the log's key."""
NEEDS = {"": "golang.org/x/mod/sumdb", "batch": "filippo.io/edwards25519"}


def go(*arguments: str) -> str:
    """Run Go with Debian's packages, or skip where they are not."""
    tag = "batch" if "batch" in arguments else ""
    if shutil.which("go") is None or not all((PACKAGES / NEEDS[text]).is_dir() for text in ("", tag)):
        pytest.skip(f"needs Debian's golang-go and {NEEDS[tag]}")
    environment = os.environ | {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": ""}
    done = subprocess.run(["go", *arguments], cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["", "batch"], ids=["each", "batch"])
def verifier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("go") / "verify"
    go("build", "-tags", request.param, "-o", str(program), ".")
    return program


@pytest.mark.parametrize("tag", ["none", "batch"])
def test_its_own_tests_pass(tag: str) -> None:
    assert go("test", "-vet=off", "-tags", tag, ".").startswith("ok")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trail of three bundles whose log changed its key in the second."""
    path = tmp_path_factory.mktemp("long") / "runs" / "long" / "trail.sqlite"
    for first, last in ((0, 300), (300, 600)):
        trail = Trail(path, "long")
        append_json(trail, "workspace", "workspace", {})
        with trail.alone():
            for number in range(first, last):
                append_json(trail, "pause", f"pause/{number}", {"by": "ada"})
        trail.close()
        if not first:
            shutil.copytree(trail.keys.folder, trail.keys.folder.with_name("before"))
            rotate(trail.keys, [(path, "long")], "log", by="ada", reason="due", revoke=False)
    return path


def export(rows: Rows, keys: KeyFolder, folder: Path) -> Path:
    """Write an export of rows as they are, under a head of the log; Peergate itself refuses wrong ones."""
    walk = TrailVerification().go(rows)
    note = str(head_of(rows, keys)).encode()
    files = [(PAGE, b""), (CHECKPOINT, note), *bundles_of([row.envelope for row in rows]), *derived_files(walk, note)]
    for name, data in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def run_verifier(verifier: Path, folder: Path) -> tuple[int, str]:
    done = subprocess.run([verifier, folder], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_long_trail_with_a_change_of_keys_holds(verifier: Path, long: Path, tmp_path: Path) -> None:
    rows = read_trail(long).rows
    code, message = run_verifier(verifier, export(rows, KeyFolder.of_trail(long), tmp_path))
    assert code == 0 and "entries: 1 signed by human, 601 signed by log" in message, message


@pytest.mark.parametrize("place", [1, 127, 255, 256, 400, 601])
def test_one_wrong_signature_is_named(verifier: Path, long: Path, tmp_path: Path, place: int) -> None:
    rows, keys = rows_of(long)[: place + 1], KeyFolder.of_trail(long)
    signature = rows[place].signatures
    at = signature.index(b'"sig":"') + 27
    other = b"A" if signature[at : at + 1] != b"A" else b"B"
    rows[place] = rows[place]._replace(signatures=signature[:at] + other + signature[at + 1 :])
    keys = keys if place > CHANGED else KeyFolder(keys.folder.with_name("before"))
    code, message = run_verifier(verifier, export(rows, keys, tmp_path))
    assert code == 1 and f"NOT OK: entry {place}: the signature of log does not hold" in message, message


def test_a_key_does_not_sign_after_its_end(verifier: Path, long: Path, tmp_path: Path) -> None:
    rows, keys = rows_of(long), KeyFolder.of_trail(long)
    before = KeyFolder(keys.folder.with_name("before"))
    late = chained(entries_of(rows)[590:591], before, stored_entries=rows[:590])
    code, message = run_verifier(verifier, export(late, keys, tmp_path))
    assert code == 1 and "NOT OK: entry 590: is signed with the unknown key" in message, message


def test_a_role_signs_only_its_kinds(verifier: Path, long: Path, tmp_path: Path) -> None:
    rows, keys = rows_of(long), KeyFolder.of_trail(long)
    rows[601] = signed(entries_of(rows)[601], keys, "human")
    code, message = run_verifier(verifier, export(rows, keys, tmp_path))
    assert code == 1 and 'entry 601: a "pause" entry is signed by human, may be by log' in message, message


@pytest.mark.parametrize(
    ("reviewer", "role", "expected"),
    [
        ("person", "human", "1 of verdicts hold"),
        ("person", "log", 'a "verdict:person" entry is signed by log, may be by human'),
        ("ada", "human", 'a "verdict" entry is signed by human, may be by reviewer'),
    ],
)
def test_only_the_person_signs_their_verdict(
    verifier: Path, long: Path, tmp_path: Path, reviewer: str, role: Role, expected: str
) -> None:
    rows, keys = rows_of(long), KeyFolder.of_trail(long)
    verdict = entries_of(rows)[601].model_copy(update={"kind": "verdict", "body": {"reviewer": reviewer}})
    rows[601] = signed(verdict, keys, role)
    code, message = run_verifier(verifier, export(rows, keys, tmp_path))
    assert (code == 0) == expected.startswith("1 of") and expected in message, message
