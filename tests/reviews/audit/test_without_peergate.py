"""The commands of docs/how-to/verify-without-peergate.md, as they stand there, on the export of a finished session.

They pass, they say what `peergate audit verify` says, and they fail where something is wrong.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reviews.audit.export import export_run, verify_export
from reviews.trail.chain.signed_head import parse_note
from reviews.trail.chain.tiles import read_bundles
from reviews.trail.tables.open_table import read_trail
from reviews.trail.trail import Trail
from sessions.pages.report.trail_page import trail_page
from testing.factories.bodies import append_json
from testing.fixtures.quick_session import drive, open_quick, quick_session

HOME = Path(__file__).parents[3]
PAGE = HOME / "docs" / "how-to" / "verify-without-peergate.md"
STEPS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
WITH_GO = [step for step in STEPS if "verify" in step.replace("-verify", "")]
PAUSES = 300
"""They come before the first verdict, so that it lies in the second bundle of entries."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a finished session; next to it, the head that was there before its last stages."""
    folder = tmp_path_factory.mktemp("shown")
    run = open_quick(folder)
    trail = Trail(run / "trail.sqlite", "small")
    with trail.alone():
        for number in range(PAUSES):
            append_json(trail, "pause", f"pause/{number}", {"by": "ada"})
    head = read_trail(trail.path).head
    assert head is not None
    (folder / "kept.note").write_bytes(head[2])
    trail.close()
    drive(quick_session(run))
    export_run(run, "trail.sqlite", "store", folder / "out", trail_page)
    return folder / "out"


def followed(export: Path, path: Path, *, go: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the commands of the page; those that need Go only when asked."""
    missing = [tool for tool in ("openssl", "xxd", "sha256sum", "bash") if shutil.which(tool) is None]
    if go and not (shutil.which("go") and Path("/usr/share/gocode/src/golang.org/x/mod/sumdb").is_dir()):
        missing.append("Debian's golang-go and golang-golang-x-mod-dev")
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    steps = STEPS if go else [step for step in STEPS if step not in WITH_GO]
    # What a stranger has: the export, the head they kept, and the folder of the Go program.
    source = export.parent / "verify"
    shutil.copytree(HOME / "verify", source, dirs_exist_ok=True, ignore=shutil.ignore_patterns("verify"))
    arguments = {"EXPORT": str(export), "VERIFY": str(source), "KEPT": str(path), "HOME": str(export.parent)}
    return subprocess.run(
        ["bash", "-eu", "-c", "\n".join(steps)],
        env={name: os.environ[name] for name in ("PATH", "GOCACHE")} | arguments,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_every_step_passes_on_an_export(exported: Path) -> None:
    assert len(STEPS) == 7 and len(WITH_GO) == 2
    done = followed(exported, exported.parent / "kept.note")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Signature Verified Successfully") == 2
    size = parse_note((exported / "checkpoint").read_bytes()).size
    first = min(int(path.name[:6]) for path in exported.glob("proofs/*"))
    assert first > 256 and f"entry {first} is in the tree of {size} entries" in done.stdout


def test_with_go_it_ends_as_peergate_does(exported: Path, tmp_path: Path) -> None:
    done = followed(exported, exported.parent / "kept.note", go=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ours = verify_export(exported)
    root = base64.b64encode(bytes.fromhex(ours.root.removeprefix("sha256:"))).decode()
    assert ours.exit_code == 0 and done.stdout.count(f"head: {ours.entries} entries, root {root}, signed by") == 2
    signed = ", ".join(sorted(f"{row['entries']} signed by {row['role']}" for row in ours.signed))
    assert f"entries: {signed}\n" in done.stdout
    assert f"the log grew from its {PAUSES + 2} entries to {ours.entries}" in done.stdout
    other = tmp_path / "other.note"
    origin, size, rest = (exported / "checkpoint").read_bytes().split(b"\n", 2)
    other.write_bytes(b"\n".join([origin, str(int(size) - 100).encode(), rest]))
    assert followed(exported, other, go=True).returncode != 0


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def wrong_evidence(export: Path) -> None:
    flip(next(path for path in sorted(export.glob("store/*/*")) if path.stat().st_size > 100), 50)


def wrong_size(export: Path) -> None:
    path = export / "checkpoint"
    size = parse_note(path.read_bytes()).size
    path.write_bytes(path.read_bytes().replace(b"\n%d\n" % size, b"\n%d\n" % (size + 1)))


def wrong_signature(export: Path) -> None:
    flip(export / "checkpoint", -10)


def wrong_verdict(export: Path) -> None:
    size = parse_note((export / "checkpoint").read_bytes()).size
    first = min(int(path.name[:6]) for path in export.glob("proofs/*"))
    before = read_bundles(export, size)[256:first]
    flip(next(export.glob("tile/entries/001.p/*")), sum(len(content) + 2 for content in before) + 500)


def wrong_proof(export: Path) -> None:
    path = min(export.glob("proofs/*"))
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], b"A" * 43 + b"=", *lines[3:]]))


def wrong_key(export: Path) -> None:
    next(export.glob("keys/reviewer-*")).write_bytes(next(export.glob("keys/builder-*")).read_bytes())


@pytest.mark.parametrize(
    "spoil",
    [wrong_evidence, wrong_size, wrong_signature, wrong_verdict, wrong_proof, wrong_key],
    ids=lambda item: item.__name__,
)
def test_a_step_fails_where_something_is_wrong(exported: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    copy = tmp_path / "out"
    shutil.copytree(exported, copy)
    spoil(copy)
    assert followed(copy, exported.parent / "kept.note").returncode != 0
