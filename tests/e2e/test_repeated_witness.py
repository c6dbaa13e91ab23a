"""Witnesses of a session on real weights, repeated through the command line: here, and after pruning, with a copy."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from testing.fixtures.command_sessions import peergate

pytestmark = pytest.mark.slow


def again(run: Path, *words: str | Path) -> tuple[int, dict[str, Any]]:
    done = peergate("audit", "verify", run, "--again", "--rows", "3", "--json", *words)
    assert done.stdout, done.stderr
    assert "a witness reads 3 of" in done.stderr
    return done.returncode, {witness["stage"]: witness for witness in json.loads(done.stdout)["again"]["witnesses"]}


def _copied(source: str, target: str) -> None:
    (os.link if source.endswith(".safetensors") else shutil.copy2)(source, target)


def test_real_weights_reproduce_their_rows_and_pruned_ones_are_asked_for(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished.parent, tmp_path / "runs", copy_function=_copied) / "small"
    code, results = again(run)
    assert code == 0, results
    assert {name: (item["reproduced"], item["read"], item["unit"]) for name, item in results.items()} == {
        **dict.fromkeys(("before", "sample", "after"), (3, 3, "rows")),
        "train": (2, 2, "steps"),
    }
    path = shutil.copytree(run / "jobs" / "small.train.1" / "out" / "checkpoint", tmp_path / "kept")
    # The base model, wrongly said to be the trained one, is not taken for it.
    base = next((run / "jobs" / "small.before.1").glob("order.json"))
    other = Path(json.loads(base.read_bytes())["inputs"]["model"]["path"])
    pruned = peergate("prune", run, "--yes", "--json")
    assert pruned.returncode == 0 and json.loads(pruned.stdout)["freed_bytes"] >= 0
    audited = peergate("audit", "verify", run)
    assert audited.returncode == 0 and "weights of train were pruned" in audited.stdout, audited.stdout
    code, results = again(run, "--weights", other)
    assert code == 4 and "train.checkpoint" in results["after"]["why"] and results["before"]["holds"]
    assert again(run, "--weights", path)[0] == 0
