"""What replicas lose, and what not, where the lighthouse is lost, one is slow, or the network between them is cut."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specs.stages.finetuning.distributed import DistributedTraining
from testing.fixtures.needed import need
from testing.fixtures.replica_worker import ROOT, start
from training.jobs.finetuning.replicas import coordinator
from training.jobs.finetuning.replicas.coordinator import address_of, apart, lighthouse_of
from training.jobs.finetuning.replicas.replica_files import AGAIN, folder_of, make_arrival_path, rounds_in

need("torch", "torchft")

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
TWO = DistributedTraining(replicas=2, sync_every=2)
STEPS = 20


def _until(what: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def _synchronised(folder: Path, number: int) -> list[int]:
    return [record.row.sync for record in rounds_in(folder_of(folder, number))]


def _ended(workers: list[subprocess.Popen[str]], code: int = 0) -> list[str]:
    try:
        lines = [worker.communicate(timeout=120)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [code] * len(workers), lines
    return lines


def _one_model(folder: Path, replicas: int) -> None:
    """Require that all synchronisations are there, and left the replicas that took part one model."""
    assert apart(folder, {number: rounds_in(folder_of(folder, number)) for number in range(replicas)}) == ""
    rounds = {sync for number in range(replicas) for sync in _synchronised(folder, number)}
    assert rounds == set(range(1, STEPS // 2 + 1))


LIGHTHOUSE = """
import json, sys, time
from specs.stages.finetuning.distributed import DistributedTraining
from training.jobs.finetuning.replicas.coordinator import address_of, lighthouse_of
lighthouse = lighthouse_of(DistributedTraining.model_validate_json(sys.argv[1]), bind=sys.argv[2])
print(address_of(lighthouse), flush=True)
time.sleep(1000)
"""


class Lighthouse:
    """A lighthouse that can be killed, as a process of its own."""

    def __init__(self, training: DistributedTraining, bind: str = "127.0.0.1:0") -> None:
        words = [sys.executable, "-c", LIGHTHOUSE, training.model_dump_json(), bind]
        self._process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.communicate()


def test_a_lighthouse_that_is_lost_between_synchronisations_and_comes_back_costs_nothing(tmp_path: Path) -> None:
    lighthouse, go = Lighthouse(TWO), tmp_path / "go"
    address = lighthouse.address
    workers = [start(folder_of(tmp_path, index), index, address, TWO, steps=STEPS, until=go) for index in range(2)]
    _until(lambda: all(len(_synchronised(tmp_path, index)) == 4 for index in range(2)))
    lighthouse.kill()
    again = Lighthouse(TWO, bind=address.removeprefix("http://"))
    go.touch()
    _ended(workers)
    again.kill()
    _one_model(tmp_path, 2)


def test_one_that_waits_when_the_lighthouse_is_lost_asks_the_next(tmp_path: Path) -> None:
    lighthouse, go = Lighthouse(TWO), tmp_path / "go"
    address = lighthouse.address
    workers = [
        start(folder_of(tmp_path, index), index, address, TWO, steps=STEPS, until=go if index else None)
        for index in range(2)
    ]
    _until(lambda: make_arrival_path(folder_of(tmp_path, 0), 1, 5).is_file())
    time.sleep(0.5)
    lighthouse.kill()
    time.sleep(1)
    again = Lighthouse(TWO, bind=address.removeprefix("http://"))
    go.touch()
    _ended(workers)
    again.kill()
    _one_model(tmp_path, 2)
    assert {record.row.healed for number in range(2) for record in rounds_in(folder_of(tmp_path, number))} == {False}


def _three(folder: Path, paces: tuple[float, float, float]) -> tuple[Any, list[subprocess.Popen[str]]]:
    """Start three replicas, two of which suffice, that take so many seconds for a step."""
    training = DistributedTraining(replicas=3, sync_every=2)
    lighthouse = lighthouse_of(training)
    address, ready = address_of(lighthouse), folder / "ready"
    workers = [
        start(folder_of(folder, index), index, address, training, steps=STEPS, slow_s=pace, ready=ready)
        for index, pace in enumerate(paces)
    ]
    _until(lambda: all((folder_of(folder, index) / "began" / "1.json").is_file() for index in range(3)))
    ready.touch()
    return lighthouse, workers


def test_one_that_is_slow_is_waited_for(tmp_path: Path) -> None:
    lighthouse, workers = _three(tmp_path, (0.0, 0.0, 0.4))
    _ended(workers)
    lighthouse.shutdown()
    _one_model(tmp_path, 3)
    rows = [record.row for record in rounds_in(folder_of(tmp_path, 2))]
    assert len(rows) == STEPS // 2 and {row.participants for row in rows} == {3}
    assert not any(row.healed for row in rows)


def test_one_that_is_too_slow_is_left_behind_and_takes_over_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "JOIN_MS", 300)
    lighthouse, workers = _three(tmp_path, (0.5, 0.5, 1.5))
    _ended(workers[:2])
    # Alone it would wait: a coordinator ends it.
    workers[2].kill()
    workers[2].communicate()
    lighthouse.shutdown()
    _one_model(tmp_path, 3)
    rows = [record.row for record in rounds_in(folder_of(tmp_path, 2))]
    assert rows and len(rows) < STEPS // 2 and any(row.healed for row in rows)
    # No synchronisation is without steps of its own.
    own = {
        record.row.sync for number in range(3) for record in rounds_in(folder_of(tmp_path, number)) if record.row.counts
    }
    assert own == set(range(1, STEPS // 2 + 1))


def _namespaces() -> bool:
    """Return whether this machine lets a person make network namespaces."""
    try:
        made = subprocess.run(["unshare", "-rn", "ip", "link", "add", "br0", "type", "bridge"], check=False)
    except FileNotFoundError:
        return False
    return made.returncode == 0


def _scenario(folder: Path, name: str) -> dict[str, Any]:
    if not _namespaces():
        pytest.skip("network namespaces cannot be made here: unshare -rn, ip")
    words = ["unshare", "-rn", sys.executable, "-m", "testing.fixtures.cut_network", name, str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_two_that_cannot_reach_each_other_commit_nothing_until_they_can(tmp_path: Path) -> None:
    report = _scenario(tmp_path, "between")
    # Neither trains a model of its own, though both reach the lighthouse.
    assert [item["code"] for item in report["cut"]] == [AGAIN, AGAIN], report
    assert report["then"] == [[1, 2, 3, 4]] * 2
    assert [item["code"] for item in report["mended"]] == [0, 0], report
    _one_model(tmp_path, 2)


def test_one_that_is_cut_off_commits_nothing_while_more_than_half_go_on(tmp_path: Path) -> None:
    report = _scenario(tmp_path, "off")
    assert [other["code"] for other in report["others"]] == [0, 0], report
    assert report["alone"] == [1, 2, 3, 4]
    _one_model(tmp_path, 3)
