"""Weights of closed sessions are pruned with a record: what is left verifies, and nothing else may be missing."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reviews.audit import pruning as audited
from reviews.audit.verify import Audit, verify_run
from reviews.trail.integrity import walk_trail
from reviews.trail.tables.open_table import read_entries, read_trail
from reviews.trail.trail import Trail
from sessions.pods import pull
from sessions.run import pruning
from sessions.run.lease import lease
from testing.factories.bodies import append_json
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import open_quick

TRAINED, PACKAGE = "jobs/small.train.1/out/checkpoint", "jobs/small.ship.1/out/package"


def audit_of(run: Path) -> Audit:
    return verify_run(run, "trail.sqlite", "store")


def recorded(run: Path) -> list[list[str]]:
    bodies = [entry.raw for entry in read_entries(run / "trail.sqlite") if entry.kind == "pruning"]
    return [[weight["path"] for weight in body["weights"]] for body in bodies]


def forge(run: Path, **weights: object) -> None:
    """Record weights as pruned with the key that signs for people."""
    trail = Trail(run / "trail.sqlite", "small")
    row = {"stage": "train", "attempt": 1, "output": "checkpoint", "bytes": 1} | weights
    append_json(trail, "pruning", "pruning/1", {"by": "eve", "weights": [row], "leftovers": []})
    trail.close()


def test_pruned_weights_are_gone_and_everything_left_verifies(run: Path, tmp_path: Path) -> None:
    steps = run / "jobs" / "small.train.1" / "trainer" / "checkpoint-2"
    steps.mkdir(parents=True)
    (steps / "optimizer.pt").write_bytes(b"12345")
    before = (run / "trail.sqlite").read_bytes()
    completed_process = called("prune", run, "--dry-run", "--json")
    assert completed_process.returncode == 0 and (run / "trail.sqlite").read_bytes() == before
    planned = json.loads(completed_process.stdout)
    assert [weight["path"] for weight in planned["weights"]] == [TRAINED, PACKAGE]
    assert planned["leftovers"] == ["jobs/small.train.1/trainer"] and planned["freed_bytes"] > 5
    process = called("prune", run)
    assert (
        process.returncode == 2 and "this is not an interactive terminal" in process.stderr and (run / TRAINED).is_dir()
    )

    done = json.loads(called("prune", run, "--yes", "--json").stdout)
    assert done == planned | {"dry_run": False}
    assert not any((run / path).exists() for path in (TRAINED, PACKAGE, "jobs/small.train.1/trainer"))
    audit = audit_of(run)
    assert (audit.exit_code, audit.damage, audit.rederived) == (0, [], 6)
    (train,) = [text for text in audit.not_proven if text.startswith("weights of train were pruned")]
    assert "its training steps and answers and scores of tuned, ship can no longer be witnessed" in train
    assert not list(run.glob(f"jobs/*/{pruning.ASIDE}*"))

    again = called("prune", run, "--yes")
    assert (again.returncode, recorded(run)) == (0, [[TRAINED, PACKAGE]])
    assert "pruned before" in again.stdout and "nothing to delete" in again.stdout
    assert called("audit", "export", run, tmp_path / "export").returncode == 0
    exported = called("audit", "verify", tmp_path / "export")
    assert exported.returncode == 0 and "weights of train were pruned" in exported.stdout


def test_kept_weights_of_the_same_digest_can_still_be_witnessed(run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(run / TRAINED, elsewhere, copy_function=os.link)
    done = json.loads(called("prune", run, "--keep", "ship", "--yes", "--json").stdout)
    assert done["freed_bytes"] == 0 and (elsewhere / "model.safetensors").is_file() and (run / PACKAGE).is_dir()
    assert any(f"the same weights are still in {PACKAGE}" in text for text in audit_of(run).not_proven)
    assert called("prune", run, "--yes").returncode == 0
    assert recorded(run) == [[TRAINED], [PACKAGE]] and audit_of(run).exit_code == 0
    unknown = called("prune", run, "--keep", "nosuch", "--yes")
    assert unknown.returncode == 2 and "left no weights" in unknown.stderr


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _in_the_middle(folder: Path) -> None:
    next(path for path in folder.rglob("*") if path.is_file()).unlink()
    _die()


@pytest.mark.parametrize(
    ("where", "what", "dies", "code"),
    [
        (Trail, "close", _die, 1),
        pytest.param(pruning, "_delete", _die, 0, marks=pytest.mark.slow),
        pytest.param(pruning, "sync_folder", _die, 0, marks=pytest.mark.slow),
        (shutil, "rmtree", _in_the_middle, 0),
    ],
    ids=["before the seal", "before a folder is renamed", "renamed", "half deleted"],
)
def test_a_killed_prune_is_finished_by_the_next(
    run: Path, where: object, what: str, dies: Callable[..., None], code: int
) -> None:
    child = os.fork()
    if not child:
        setattr(where, what, dies)
        pruning.prune(run, "ada", (), lambda _: None)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    audit = audit_of(run)
    assert audit.exit_code == code, audit.damage
    if code:
        # As for every entry after the end: the seal comes with the next process that closes the trail.
        assert audit.damage[0].startswith("seal: covers")
    assert called("prune", run, "--yes").returncode == 0
    assert recorded(run) == [[TRAINED, PACKAGE]] and audit_of(run).exit_code == 0
    assert not list(run.glob(f"jobs/*/{pruning.ASIDE}*")) and not (run / TRAINED).exists()


def test_weights_that_no_one_pruned_must_be_here_and_unchanged(run: Path) -> None:
    shutil.rmtree(run / TRAINED)
    assert "checkpoint is unreadable" in audit_of(run).damage[0]
    assert called("prune", run, "--yes").returncode == 0
    assert recorded(run) == [[PACKAGE]] and "checkpoint is unreadable" in audit_of(run).damage[0]


def test_changed_weights_are_kept_as_evidence(run: Path) -> None:
    (run / TRAINED / "model.safetensors").write_bytes(b"others")
    refused = called("prune", run, "--yes")
    assert refused.returncode == 5 and "recorded as" in refused.stderr
    assert recorded(run) == [] and (run / TRAINED).is_dir() and (run / PACKAGE).is_dir()
    shutil.rmtree(run / TRAINED)
    (run / TRAINED).symlink_to(run.parent)
    assert called("prune", run, "--yes").returncode == 5 and (run / "trail.sqlite").is_file()


def test_many_weights_take_several_entries_and_saved_steps_alone_one(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "ENTRY_WEIGHTS", 1)
    assert called("prune", run, "--yes").returncode == 0
    (run / "jobs" / "small.train.1" / "trainer").mkdir()
    assert called("prune", run, "--yes").returncode == 0
    assert recorded(run) == [[TRAINED], [PACKAGE], []] and audit_of(run).exit_code == 0
    assert not (run / "jobs" / "small.train.1" / "trainer").exists()


def test_links_in_the_place_of_what_is_deleted_are_refused(run: Path) -> None:
    (run / "jobs" / "small.train.1" / "trainer").symlink_to(run.parent)
    assert called("prune", run, "--yes").returncode == 5
    assert recorded(run) == [] and (run / TRAINED).is_dir()


def test_only_outputs_of_the_kinds_of_weights_are_pruned(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [weights.path for weights in pruning.prunable(run).weights] == [TRAINED, PACKAGE]
    monkeypatch.setattr(audited, "WEIGHTS", ("snapshots",))
    assert pruning.prunable(run).paths == ()


def test_changed_weights_that_are_recorded_as_pruned_are_damage(run: Path) -> None:
    assert called("prune", run, "--yes").returncode == 0
    (run / TRAINED).mkdir()
    (run / TRAINED / "model.safetensors").write_bytes(b"others")
    assert audit_of(run).damage[0].startswith("entry ") and TRAINED in audit_of(run).damage[0]
    assert called("prune", run, "--yes").returncode == 5


@pytest.mark.parametrize("output", ["rows", "checkpoint"])
def test_a_record_covers_nothing_but_what_a_job_left_as_weights(run: Path, output: str) -> None:
    remaining = next(entry.raw for entry in read_entries(run / "trail.sqlite") if entry.key == "exit/small.train.1")
    path, digest = remaining["outputs"]["rows"]["path"], remaining["outputs"]["rows"]["digest"]
    if output == "checkpoint":
        # Another folder of the run under the name of the weights.
        path, digest = "store", remaining["outputs"]["checkpoint"]["digest"]
    forge(run, output=output, path=path, digest=digest)
    (run / remaining["outputs"]["rows"]["path"]).unlink()
    damage = audit_of(run).damage
    assert any(text.endswith(f"(pruning): {path} is not what a job left as weights") for text in damage)


def test_what_has_not_ended_is_held_or_is_no_session_is_refused(run: Path, tmp_path: Path) -> None:
    with lease(run):
        process = called("prune", run, "--yes")
    assert process.returncode == 4 and "another process is running this session" in process.stderr
    (tmp_path / "other").mkdir()
    opened = open_quick(tmp_path / "other")
    refused = called("prune", opened, "--yes")
    assert refused.returncode == 2 and "an unfinished session cannot be pruned" in refused.stderr
    trail = Trail(opened / "trail.sqlite", "small")
    append_json(trail, "pruning", "pruning/1", {"by": "eve", "weights": [], "leftovers": ["jobs/x/out"]})
    trail.close()
    damage = audit_of(opened).damage
    assert [text.partition("(pruning): ")[2] for text in damage] == [
        "the session had not ended",
        "jobs/x/out is not a folder of saved steps",
    ]
    missing = called("prune", tmp_path / "nosuch", "--yes")
    assert missing.returncode == 2 and "unknown session" in missing.stderr
    assert (run / TRAINED).is_dir()


def test_a_pull_does_not_ask_a_pod_for_what_was_pruned(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert called("prune", run, "--keep", "ship", "--yes").returncode == 0
    requests: list[str] = []

    def bring(_: object, relative: str, digest: str, target: Path) -> None:
        requests.append(relative)

    courier: Any = vars(pull)["_Courier"]
    monkeypatch.setattr(courier, "_bring", bring)
    courier(None, SimpleNamespace(folder=tmp_path, run=run), print).bring_files(
        walk_trail(read_trail(run / "trail.sqlite"))
    )
    assert PACKAGE in requests and TRAINED not in requests
