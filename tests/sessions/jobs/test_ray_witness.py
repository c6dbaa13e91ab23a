"""Witnesses of small sessions on a Ray cluster, with real jobs: an honest session, and a job that lies. Needs Ray."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.flaws.session import run_session
from bench.flaws.small_specs import Variation, tiny_model
from reviews.audit.verify import verify_run
from reviews.trail.chain.store import Store
from sessions.jobs.launcher import JobState, Launcher
from sessions.runtime import wiring
from specs.jobs.job_records import Manifest
from specs.system.digests import digest_file
from testing.fixtures import ray_cluster
from testing.fixtures.command_sessions import entries
from testing.fixtures.fault_houses import Through
from testing.fixtures.tiny_training import write_lines

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models"))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Ray cluster that the environment names."""
    if missing := ray_cluster.missing():
        pytest.skip(missing)
    with ray_cluster.running(tmp_path / "cluster") as result:
        assert result.token is not None
        monkeypatch.setenv("RAY_ADDRESS", result.address)
        monkeypatch.setenv("RAY_AUTH_TOKEN", result.token)
        yield


@pytest.mark.usefixtures("cluster")
def test_a_session_on_ray_is_accepted_and_witnesses_read_every_stage_there(tmp_path: Path, model: Path) -> None:
    ended = run_session(tmp_path, model, variation=Variation(launcher="ray"))
    assert ended.is_accepted, ended
    run = tmp_path / "runs" / "small"
    recorded_entries, read, store = entries(run, "challenge"), entries(run, "witness"), Store(run / "store")
    assert {entry.raw["launcher"] for entry in recorded_entries} == {"ray"}
    kinds = {Manifest.model_validate_json(store.get(entry.raw["manifest"])).kind for entry in read}
    assert kinds == {"evaluate", "generate", "sft", "package"} and len(read) == len(recorded_entries) == 5
    assert all(entry.raw["rows"] and not entry.raw["why"] for entry in read)
    assert verify_run(run, "trail.sqlite", "store").exit_code == 0


class Swapping(Through):
    """A launcher whose first job has other answers in its rows, and states so, when it is seen to have ended."""

    def poll(self, folder: Path) -> JobState:
        """Swap the answers of neighbours once the job has ended."""
        state = super().poll(folder)
        path = folder / "out" / "rows.jsonl"
        if folder.name == "small.before.1" and state.exit is not None and not (folder / "lied").exists():
            rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            own = ("item", "prompt_ids", "prompt")
            swapped = [
                other | {name: row[name] for name in own if name in row}
                for row, other in zip(rows, rows[1:] + rows[:1], strict=True)
            ]
            write_lines(path, swapped)
            manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
            outputs = manifest.outputs | {"rows": digest_file(path)}
            (folder / "manifest.json").write_bytes(manifest.model_copy(update={"outputs": outputs}).canonical())
            (folder / "lied").touch()
        return state


@pytest.mark.usefixtures("cluster")
def test_rows_that_the_weights_did_not_write_fail_on_ray(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = wiring.make_launcher

    def lying(*values: Any) -> Launcher:
        return Swapping(honest(*values))

    monkeypatch.setattr(wiring, "make_launcher", lying)
    ended = run_session(tmp_path, model, variation=Variation(launcher="ray"))
    run = tmp_path / "runs" / "small"
    assert (run / "jobs" / "small.before.1" / "lied").exists()
    assert not ended.is_accepted and "witness.answers" in ended.failed, ended
    assert not entries(run, "witness")[0].raw["why"]
