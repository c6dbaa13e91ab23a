"""A release of an accepted session: what is in it, that it is signed, and that nothing goes where anything is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.tables.open_table import read_entries
from sessions.exports.shipping.push import release_run
from sessions.exports.shipping.release import RELEASE, SUMS, read_release
from specs.system.errors import UserError
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session, rows_with


def test_a_release_holds_weights_card_evidence_sums_and_a_signed_list(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "released"
    done = called("ship", "push", run, target)
    assert done.returncode == 0, done.stderr + done.stdout
    release = read_release(target)
    assert release is not None and release.session == "small"
    assert {"model.safetensors", "config.json", "README.md", SUMS, "evidence/checkpoint"} <= set(release.files)
    checked = called("ship", "check", target, "--files-only", "--key", release.key_id)
    assert "PASS     digests" in checked.stdout, checked.stdout
    assert called("audit", "verify", target / "evidence").returncode == 0
    assert not list(tmp_path.glob(".release-*"))
    lines = done.stdout.splitlines()
    counted = sum(name.startswith("evidence/") for name in release.files)
    assert len(lines) < 20 and f"and {counted} files under evidence: SHA256SUMS lists all" in lines
    again = called("ship", "push", run, target)
    assert again.returncode == 2 and "already exists" in again.stderr


def test_the_card_states_what_the_trail_holds(run: Path, tmp_path: Path) -> None:
    assert called("ship", "push", run, tmp_path / "released").returncode == 0
    card = (tmp_path / "released" / "README.md").read_text(encoding="utf-8")
    entries = read_entries(run / "trail.sqlite")
    report = json.loads((run / "report" / "report.json").read_bytes())
    # The escapes of Markdown aside.
    assert report["result"].split(":")[0] in card and entries[-1].raw["decision"] == "approve"
    lines = ("## Data", "## Training", "## Evaluation", "## Limits", "## Gates", "learning_rate", "accuracy_gain")
    lines += (f"Of the registered claims: {report['scorecard']['summary']}",)
    assert [text for text in lines if text not in card] == []
    assert all(f"| {stage['stage']}.1 | approve |" in card for stage in report["stages"])
    for digest in (report["registration"], report["heldout"], report["model"]["digest"], report["trail"]["head"]):
        assert f"`{digest}`" in card


def test_a_dry_run_leaves_nothing_and_needs_no_token(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.delenv("HF_TOKEN", raising=False)
    for to in (str(tmp_path / "released"), "hub:ada/small"):
        done = called("ship", "push", run, to, "--dry-run", "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["sent"] is False and RELEASE in report["files"] and "model.safetensors" in report["files"]
    assert not (tmp_path / "released").exists()
    with pytest.raises(UserError, match="HF_TOKEN is not set"):
        release_run(run, "hub:ada/small", messages.append, dry_run=False, public=False)
    assert called("ship", "push", run, "hub:ada").returncode == 2


def test_the_hub_gets_the_folder_with_the_token_of_the_environment(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, Any] = {}

    class Api:
        def __init__(self, token: str) -> None:
            sent["token"] = token

        def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> None:
            sent["repository"] = (name, private)

        def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> None:
            sent["files"] = read_release(Path(folder_path))

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    monkeypatch.setenv("HF_TOKEN", "token-of-a-test")
    messages: list[str] = []
    done = release_run(run, "hub:ada/small", messages.append, dry_run=False, public=False)
    assert sent["token"] == "token-of-a-test" and sent["repository"] == ("ada/small", True)
    assert sent["files"].key_id == done.key_id and "model.safetensors" in sent["files"].files
    assert "token-of-a-test" not in "".join(messages)


def test_a_session_that_is_not_accepted_releases_nothing(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=QuickLauncher(rows=rows_with(0))))
    done = called("ship", "push", run, tmp_path / "released")
    assert done.returncode == 2 and "the session is not accepted" in done.stderr
    assert not (tmp_path / "released").exists() and not list(tmp_path.glob(".release-*"))


def test_a_retracted_session_releases_nothing(run: Path, tmp_path: Path) -> None:
    assert called("retract", run, "decision/ship.1", "--reason", "the probes were wrong").returncode == 0
    assert called("ship", "push", run, tmp_path / "released").returncode == 2


@pytest.mark.parametrize("damage", ["weights", "report"])
def test_what_is_not_the_recorded_is_not_released(damage: str, run: Path, tmp_path: Path) -> None:
    named = {"weights": "jobs/small.ship.1/out/package/model.safetensors", "report": "report/report.json"}
    path = run / named[damage]
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    done = called("ship", "push", run, tmp_path / "released")
    assert done.returncode == 5, done.stderr
    assert not (tmp_path / "released").exists()
