"""`peergate export inspect`: every evaluation of a session as a log, and the library that reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reviews.trail.tables.open_table import read_entries
from testing.factories.evidence_on_disk import N
from testing.fixtures.command_sessions import called
from testing.fixtures.inspect_library import needs_inspect, read_by_library
from training.rules.evaluation.inspect_log import read_log


def test_each_evaluation_is_a_log_of_its_items(run: Path, tmp_path: Path) -> None:
    done = called("export", "inspect", "small", "--runs", run.parent, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "small-inspect"
    assert sorted(path.name for path in folder.iterdir()) == ["base.1.eval", "tuned.1.eval"]
    log = read_log(folder / "tuned.1.eval")
    rows = {
        row["item"]: row["output"]
        for row in map(json.loads, (run / "jobs/small.tuned.1/out/rows.jsonl").read_text(encoding="utf-8").splitlines())
    }
    assert {sample.id: sample.output for sample in log.samples} == rows and len(rows) == N
    right = sum(sample.scores[0].value == "C" for sample in log.samples)
    metrics = called("check", "run", run, "--stage", "tuned", "--json")
    (attempt,) = json.loads(metrics.stdout)["attempts"]
    assert right / N == attempt["metrics"]["accuracy"]["value"]
    assert json.loads(done.stdout)["lines"][1] == f"tuned.1.eval: {right} of {N} items right"


def test_the_same_session_gives_the_same_files(run: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        assert called("export", "inspect", run, "--out", tmp_path / name).returncode == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()


def test_what_cannot_be_exported_says_why_and_leaves_nothing(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    unknown = called("export", "parquet", run, "--out", out)
    assert (unknown.returncode, "formats: inspect" in unknown.stderr) == (2, True)
    out.mkdir()
    there = called("export", "inspect", run, "--out", out)
    assert there.returncode == 2 and "already exists" in there.stderr
    out.rmdir()


@pytest.mark.parametrize(("damage", "code"), [("changed", 5), ("gone", 4)])
def test_rows_that_are_not_the_recorded_ones_are_not_exported(
    run: Path, tmp_path: Path, damage: str, code: int
) -> None:
    digest = next(
        entry.raw["outputs"]["rows"]["digest"]
        for entry in read_entries(run / "trail.sqlite")
        if entry.key == "exit/small.base.1"
    )
    saved = run / "store" / digest[7:9] / digest[9:]
    data = saved.read_bytes()
    saved.unlink()
    if damage == "changed":
        saved.write_bytes(data.replace(b'"truncated": false', b'"truncated": true ', 1))
    done = called("export", "inspect", run, "--out", tmp_path / "out")
    assert done.returncode == code and not (tmp_path / "out").exists(), done.stderr
    assert not list(tmp_path.glob(".out*"))


def test_a_damaged_trail_vouches_for_nothing(run: Path, tmp_path: Path) -> None:
    path = run / "trail.sqlite"
    path.write_bytes(path.read_bytes().replace(b'"outcome":"approve"', b'"outcome":"approvE"', 1))
    done = called("export", "inspect", run, "--out", tmp_path / "out")
    assert done.returncode == 5 and not (tmp_path / "out").exists()


@needs_inspect
def test_the_library_reads_what_was_exported(run: Path, tmp_path: Path) -> None:
    assert called("export", "inspect", run, "--out", tmp_path / "out").returncode == 0
    report = read_by_library(tmp_path / "out" / "tuned.1.eval")
    assert (report["status"], report["task"], report["summaries"]) == ("success", "tuned", N)
    right = sum(sample["scores"]["registered_verifier"] == "C" for sample in report["samples"])
    assert report["accuracy"] == [right / N] and right > N / 2
    ours = {sample.id: sample.output for sample in read_log(tmp_path / "out" / "tuned.1.eval").samples}
    assert {sample["id"]: sample["output"] for sample in report["samples"]} == ours
