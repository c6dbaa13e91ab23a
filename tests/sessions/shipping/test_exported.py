"""Sessions that export their model: read by llama.cpp, or registered without, and released with it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.evidence.evidence import Evidence
from reviews.evidence.gather import gather
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.exports.shipping.release import read_release
from sessions.nodes import job_end
from specs.system.digests import digest_path
from specs.system.errors import EvidenceMissing
from testing.factories.evidence_on_disk import write_rows
from testing.factories.small_export import exported, texts, with_export
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import drive, open_quick, quick_session

pytest.importorskip("gguf", reason="the package gguf is not installed (extra demo)")


@pytest.fixture(scope="module", params=["llama_cpp", "no"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = open_quick(tmp_path_factory.mktemp(request.param), with_export(request.param))
    drive(quick_session(run))
    return run


def evidence(run: Path) -> Evidence:
    return gather(run, History(read_entries(run / "trail.sqlite"), Store(run / "store")), "gguf", 1)


def states(result: Evidence) -> dict[str, str]:
    try:
        metrics = measure(result)
    except EvidenceMissing:
        metrics = None
    views = ("export.", "jobs.measured", "witness.")
    return {check.id: check.status for check in run_checks(result, metrics) if check.id.startswith(views)}


def test_the_session_is_accepted_and_verified_with_and_without_a_reading(run: Path) -> None:
    assert read_entries(run / "trail.sqlite")[-1].raw["decision"] == "approve"
    audit = verify_run(run, "trail.sqlite", "store")
    assert not audit.damage and not [name for name in audit.not_covered if name.startswith("store/")]
    read = "PASS" if "llama_cpp" in str(run) else "NOT_APPLICABLE"
    assert states(evidence(run)) == {
        "jobs.measured": "PASS",
        "witness.answers": read,
        # The checkpoint of quick sessions is of a family that no one knows.
        "export.file": "WARN",
        "export.tokens": read,
        "export.answers": read,
    }


def test_a_file_of_a_kept_folder_that_is_missing_is_found(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "runs" / "small")
    (exit,) = (entry for entry in read_entries(copy / "trail.sqlite") if entry.key == "exit/small.gguf.1")
    store = Store(copy / "store")
    (file,) = store.get_value(exit.raw["outputs"]["export"]["digest"]).values()
    store.path(file).unlink()
    (damage,) = verify_run(copy, "trail.sqlite", "store").damage
    assert f"/model.gguf {file} is missing from the store" in damage


def test_a_large_export_is_not_copied_into_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_end, "MOST_STORED_BYTES", 100)
    run = open_quick(tmp_path, with_export("no"))
    drive(quick_session(run))
    (exit,) = (entry for entry in read_entries(run / "trail.sqlite") if entry.key == "exit/small.gguf.1")
    recorded = exit.raw["outputs"]["export"]
    assert recorded["digest"] == digest_path(run / recorded["path"])
    assert not Store(run / "store").path(recorded["digest"]).exists()
    assert read_entries(run / "trail.sqlite")[-1].raw["decision"] == "approve"
    audit = verify_run(run, "trail.sqlite", "store")
    assert not audit.damage and not [name for name in audit.not_covered if name.startswith("store/")]


def test_what_no_witness_read_is_in_the_report(run: Path) -> None:
    """Without a reading nothing is concluded from the answers of an export, and no process loads its weights again."""
    began = {entry.raw["stage"] for entry in read_entries(run / "trail.sqlite") if entry.kind == "challenge"}
    report = json.loads((run / "report" / "report.json").read_bytes())
    page = (run / "report" / "report.md").read_text(encoding="utf-8")
    if "llama_cpp" in str(run):
        assert "gguf" in began and report["not_witnessed"] == [] and "gguf" in report["witnessed"]
    else:
        assert "gguf" not in began and "ship" in began and report["not_witnessed"] == ["gguf"]
    assert ("nothing of `gguf`" in page) == ("gguf" not in began)


def test_the_release_holds_the_export(run: Path, tmp_path: Path) -> None:
    done = called("ship", "push", run, tmp_path / "released")
    assert done.returncode == 0, done.stderr + done.stdout
    release = read_release(tmp_path / "released")
    assert release is not None and "gguf-model.gguf" in release.files


def spoilt(result: Evidence, folder: Path, name: str, rows: list[dict[str, Any]]) -> Evidence:
    return replace(result, outputs=result.outputs | {name: write_rows(folder / f"{name}.jsonl", rows)})


def _export(result: Evidence, folder: Path, change: bytes, to: bytes) -> Evidence:
    made = Path(shutil.copytree(result.outputs["export"], folder / "export"))
    data = (made / "model.gguf").read_bytes()
    assert change in data
    (made / "model.gguf").write_bytes(data.replace(change, to))
    return replace(result, outputs=result.outputs | {"export": made})


@pytest.mark.parametrize(
    ("flaw", "check", "status"),
    [
        ("other token ids", "export.tokens", "FAIL"),
        ("other tokens", "export.answers", "FAIL"),
        ("logits far away", "export.answers", "FAIL"),
        ("a next token of another distribution", "export.answers", "FAIL"),
        ("another probe", "export.answers", "FAIL"),
        ("silent probes", "export.answers", "FAIL"),
        ("a probe that was not read", "export.answers", "BLOCKED"),
        ("no pre-tokenizer", "export.file", "FAIL"),
        ("no file", "export.file", "FAIL"),
    ],
)
@pytest.mark.parametrize("run", ["llama_cpp"], indirect=True)
def test_a_flaw_closes_the_gate(run: Path, tmp_path: Path, flaw: str, check: str, status: str) -> None:
    result, rows = evidence(run), exported(read=True)
    changes: dict[str, dict[str, Any]] = {
        "other tokens": {"read": [1, 2, 4]},
        "logits far away": {"largest": 0.5},
        "a next token of another distribution": {"divergence": 0.5},
        "another probe": {"item": "unknown"},
    }
    match flaw:
        case "other token ids":
            result = spoilt(result, tmp_path, "texts", [texts(read=True)[0] | {"read": [2]}])
        case "silent probes":
            result = spoilt(result, tmp_path, "rows", [row | {"expected": [], "read": []} for row in rows])
        case "a probe that was not read":
            result = spoilt(result, tmp_path, "rows", [rows[0], exported(read=False)[1]])
        case "no pre-tokenizer":
            result = _export(result, tmp_path, b"tokenizer.ggml.pre", b"tokenizer.ggml.xxx")
        case "no file":
            (tmp_path / "export").mkdir()
            result = replace(result, outputs=result.outputs | {"export": tmp_path / "export"})
        case _:
            # A spec says f16: what 16 bits may do is not a flaw, what is beyond it is.
            parameters = result.parameters | {"format": "f32"}
            result = replace(
                spoilt(result, tmp_path, "rows", [rows[0] | changes[flaw], rows[1]]), parameters=parameters
            )
    assert states(result)[check] == status, json.dumps(states(result))
