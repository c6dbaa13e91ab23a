"""`peergate replicate` as a person types it: every further seed is a session of its own, with real jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.sessions import entries, peergate, verify
from tests.fixtures.tiny_training import tiny_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
STAGES = ("first", "other")


def test_three_further_seeds_run_and_are_counted(tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "two")):
        tiny_checkpoint(tmp_path / name, seed=seed)
    words = ("--template", "evaluate", "--model", "path:one", "--against", "path:two")
    assert peergate("init", "pair", *words, cwd=tmp_path).returncode == 0
    first = peergate("start", "pair", cwd=tmp_path)
    assert first.returncode == 0 and "no significant difference" in first.stdout, first
    done = peergate("replicate", "pair", "--seeds", "3", cwd=tmp_path)
    # Models of random weights are never right: what did not show once does not show with other seeds.
    assert done.returncode == 0 and "pair: not replicated over 3 further seeds (8, 9, 10)" in done.stdout, done
    runs = tmp_path / "runs"
    for seed in (8, 9, 10):
        run = runs / f"pair-seed{seed}"
        orders = [json.loads((run / "jobs" / f"{run.name}.{stage}.1" / "order.json").read_bytes()) for stage in STAGES]
        assert [one["parameters"]["seed"] for one in orders] == [seed, seed]
        assert verify(run)[0] == 0
    code, told = verify(runs / "pair")
    assert code == 0, told
    assert [one.entry.kind for one in entries(runs / "pair", "replication", "replicated")] == [
        "replication",
        "replicated",
    ]
    assert "not replicated over 3 further seeds (8, 9, 10)" in peergate("report", "pair", cwd=tmp_path).stdout
