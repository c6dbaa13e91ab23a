"""A session whose spec names no constitution: nothing that is recorded, judged, shown or checked needs one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.builder.tools.reading_tools import artifacts
from sessions.pods.install import bundle_of
from specs.loading.loading import load_spec
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.quick_session import drive, open_quick, quick_session

pytestmark = pytest.mark.integration

NONE = ("constitution: constitution.yaml\n", "")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = open_quick(tmp_path_factory.mktemp("bare"), NONE)
    (run.parent.parent / "constitution.yaml").unlink()
    drive(quick_session(run))
    return run


def test_it_ends_accepted(bare: Path) -> None:
    entries = read_entries(bare / "trail.sqlite")
    assert entries[-1].raw["decision"] == "approve"
    assert "constitution" not in entries[0].raw


def test_no_packet_shows_one(bare: Path) -> None:
    store = Store(bare / "store")
    packets = [entry.raw["packet"] for entry in read_entries(bare / "trail.sqlite") if entry.kind == "packet"]
    assert packets
    assert all("constitution" not in store.get_value(digest)["registered"] for digest in packets)


def test_report_and_export_are_written_and_verify(bare: Path, tmp_path: Path) -> None:
    assert json.loads((bare / "report" / "report.json").read_bytes())["outcome"] == "approve"
    assert peergate("audit", "export", bare, tmp_path / "export").returncode == 0
    done = peergate("audit", "verify", bare)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_builder_is_offered_none(bare: Path, closed_quick: Path) -> None:
    assert "constitution" not in {artifact.name for artifact in artifacts(quick_session(bare))}
    assert "constitution" in {artifact.name for artifact in artifacts(quick_session(closed_quick))}


def test_a_pod_is_sent_none(bare: Path) -> None:
    spec = bare.parent.parent / "spec.yaml"
    assert sorted(bundle_of(spec, load_spec(spec)).files) == ["heldout.jsonl", "prompts.jsonl", "spec.yaml"]
