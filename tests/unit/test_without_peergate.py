"""Every step of docs/verify-without-peergate.md, on a real export: it passes, and it fails where something is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reviews.log.tiles import read_bundles
from tests.e2e.sessions import peergate

PAGE = Path(__file__).parents[2] / "docs" / "verify-without-peergate.md"
STEPS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shown")
    assert peergate("start", "demo_leaky", "--runs", folder / "runs").returncode == 3
    assert peergate("audit", "export", folder / "runs" / "demo_leaky", folder / "out").returncode == 0
    return folder / "out"


def followed(export: Path) -> subprocess.CompletedProcess[str]:
    missing = [tool for tool in ("openssl", "xxd", "sha256sum", "bash") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    return subprocess.run(
        ["bash", "-eu", "-c", "\n".join(STEPS)],
        env=os.environ | {"EXPORT": str(export)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_every_step_passes_on_an_export(exported: Path) -> None:
    assert len(STEPS) == 5
    done = followed(exported)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Signature Verified Successfully") == 2
    assert "entry 3 is in the tree of 7 entries" in done.stdout


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def wrong_evidence(export: Path) -> None:
    flip(next(path for path in sorted(export.glob("store/*/*")) if path.stat().st_size > 100), 50)


def wrong_size(export: Path) -> None:
    path = export / "checkpoint"
    path.write_bytes(path.read_bytes().replace(b"\n7\n", b"\n8\n"))


def wrong_signature(export: Path) -> None:
    flip(export / "checkpoint", -10)


def wrong_verdict(export: Path) -> None:
    before = read_bundles(export, 7)[:3]
    flip(export / "tile/entries/000.p/7", sum(len(one) + 2 for one in before) + 500)


def wrong_proof(export: Path) -> None:
    path = next(export.glob("proofs/*"))
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], b"A" * 43 + b"=", *lines[3:]]))


def wrong_key(export: Path) -> None:
    next(export.glob("keys/reviewer-*")).write_bytes(next(export.glob("keys/builder-*")).read_bytes())


@pytest.mark.parametrize(
    "spoil",
    [wrong_evidence, wrong_size, wrong_signature, wrong_verdict, wrong_proof, wrong_key],
    ids=lambda one: one.__name__,
)
def test_a_step_fails_where_something_is_wrong(exported: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    copy = tmp_path / "out"
    shutil.copytree(exported, copy)
    spoil(copy)
    assert followed(copy).returncode != 0
