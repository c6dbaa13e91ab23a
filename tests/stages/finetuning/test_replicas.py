"""Replicas as processes of their own: one model after every synchronisation, killed and back, with faults planted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from reviews.stages.finetuning.replay_checks import differs
from reviews.stages.finetuning.weights import FarStep, far_steps
from specs.stages.base.witness import REPLAYED
from specs.stages.finetuning.distributed import DistributedTraining, Outer, ReplicaRound
from specs.stages.finetuning.rows import TrainingRow
from specs.system.digests import digest_path
from testing.fixtures.needed import need
from testing.fixtures.replica_jobs import replica_job, rounds_of
from testing.fixtures.replica_worker import start
from tests.stages.finetuning.test_training import judged
from tests.training.jobs.test_replay import replayed_by
from training.jobs.finetuning.replicas import coordinator, waits
from training.jobs.finetuning.replicas.coordinator import address_of, apart, lighthouse_of
from training.jobs.finetuning.replicas.dispatch import sft
from training.jobs.finetuning.replicas.replica_files import folder_of, rounds_in
from training.jobs.job import Job, StageResult
from training.jobs.saved_steps import FOLDER, newest_whole
from training.rules.finetuning.replica_rounds import donor_of

need("torch", "trl", "peft", "torchft")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    # transformers reads the old name when it saves a step.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, StageResult]:
    """Return a training by two replicas: 20 of 21 examples, 10 steps each, the last round of 2."""
    job = replica_job(tmp_path_factory.mktemp("whole"))
    return job, sft(job)


def _by_sync(job: Job) -> dict[int, list[ReplicaRound]]:
    results: dict[int, list[ReplicaRound]] = defaultdict(list)
    for row in rounds_of(job):
        results[row.sync].append(row)
    return results


def _steps(job: Job) -> list[TrainingRow]:
    return [TrainingRow.model_validate_json(line) for line in (job.out / "rows.jsonl").read_bytes().splitlines()]


def _far_steps(job: Job) -> list[FarStep]:
    """Return the rows that say of weights what no step can do, outer steps included."""
    stage = SimpleNamespace(kind="sft")
    manifest, rows = SimpleNamespace(dtype="float32"), {"rows": job.out / "rows.jsonl"}
    evidence: Any = SimpleNamespace(
        stage=stage, parameters=job.parameters.model_dump(mode="json"), manifest=manifest, outputs=rows
    )
    far, share = far_steps(evidence)
    assert share > 0
    return far


def _replicas() -> list[psutil.Process]:
    every = psutil.Process().children()
    return [process for process in every if "training.jobs.finetuning.replicas" in process.cmdline()]


def _killing(job: Job, replica: int, after: int, *, saved: bool) -> threading.Thread:
    """Kill a replica when it has synchronised so often, or when it has saved that too."""

    def kill() -> None:
        folder = folder_of(job.folder, replica)
        while not (folder / "rounds" / f"{after}.json").is_file() or (saved and newest_whole(folder / FOLDER) is None):
            time.sleep(0.01)
        for child in _replicas():
            if child.cmdline()[5] == str(replica):
                child.send_signal(signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


@pytest.mark.more
def test_replicas_differ_before_every_synchronisation_and_are_one_model_after_it(
    whole: tuple[Job, StageResult],
) -> None:
    job, done = whole
    rounds = _by_sync(job)
    assert [[row.replica for row in rows] for rows in rounds.values()] == [[0, 1]] * 3
    assert [(row.first_step, row.last_step) for rows in rounds.values() for row in rows[:1]] == [
        (1, 4),
        (5, 8),
        (9, 10),
    ]
    assert all(
        len({row.after for row in rows}) == 1 and len({row.before for row in rows}) == 2 for rows in rounds.values()
    )
    assert len({row.start for row in rounds[1]}) == 1
    assert all(
        {replica_round.start for replica_round in then} == {last[0].after} for last, then in pairwise(rounds.values())
    )
    assert len({row.after for row in rounds_of(job)}) == 3 and all(row.drift > 0 for row in rounds_of(job))
    trained = done.effective["trained_parameters"]
    assert trained < 2000 and {row.bytes for row in rounds_of(job)} == {4 * trained}
    steps = _steps(job)
    assert [step.step for step in steps] == list(range(1, 11)) and _far_steps(job) == []
    assert sum(row.tokens for row in rounds_of(job)) == sum(step.tokens for step in steps) == done.tokens
    assert done.facts["sequences"] == done.facts["sequences_due"] == 40 and done.facts["left_out"] == 1
    assert done.effective["distributed"] == job.order.parameters["distributed"]
    assert steps[-1].loss < steps[0].loss


@pytest.mark.slow
def test_the_merged_checkpoint_is_that_of_the_last_synchronisation(whole: tuple[Job, StageResult]) -> None:
    from safetensors.torch import load_file

    from training.jobs.finetuning.replicas.replica_files import sha256_of

    job, _ = whole
    saved = load_file(job.out / "checkpoint" / "adapter" / "adapter_model.safetensors")
    assert sha256_of(saved) == rounds_of(job)[-1].after
    assert not (job.folder / "replicas").exists()


@pytest.mark.slow
def test_the_gate_passes_what_replicas_leave(whole: tuple[Job, StageResult], tmp_path: Path) -> None:
    job, done = whole
    results = judged(tmp_path, job, done)
    wrong = {id: text for id, text in results.items() if not text.startswith(("PASS", "NOT_APPLICABLE"))}
    # A random model that sees twenty examples twice: what advises may say so.
    assert set(wrong) <= {"training.starvation", "training.loss"}, wrong
    assert len([id for id in results if id.startswith("replicas.")]) == 6
    assert "no sequence is lost" in results["replicas.samples"]


@pytest.mark.slow
def test_a_witness_trains_rounds_again_and_makes_their_outer_steps(whole: tuple[Job, StageResult]) -> None:
    job, _ = whole
    replayed, facts = replayed_by(job)
    rows = _steps(job)
    assert {step.step for step in replayed} >= {1, 2, 9, 10}
    assert [why for step in replayed if (why := differs(rows, step, REPLAYED["float32"]))] == []
    assert facts["end_apart"] < 1e-5 and facts["files"] == [] and facts["merged_apart"] < 1e-5
    assert list(facts["saved"]) == pytest.approx(list(rows[-1].sketch), rel=1e-6)


@pytest.mark.more
def test_a_replica_that_is_killed_comes_back_and_the_model_is_the_same(
    whole: tuple[Job, StageResult], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "LOG_AFTER_S", 0.5)
    job = replica_job(tmp_path)
    thread = _killing(job, replica=1, after=1, saved=True)
    done = sft(job)
    thread.join(10)
    starts = [item for item in done.facts["starts"] if item["replica"] == 1]
    assert len(starts) >= 2 and starts[1]["why"] == "was ended by SIGKILL"
    # It never begins at step 0: the others were further.
    assert all(item["step"] in (4, 8) for item in starts[1:])
    output = capfd.readouterr().out
    assert "replica 1 was ended by SIGKILL; it is started again from step" in output
    assert "replica 0 waits for replica 1 at synchronisation" in output and "where 2 must take part" in output
    assert rounds_of(job)[-1].after == rounds_of(whole[0])[-1].after
    assert digest_path(job.out / "checkpoint") == digest_path(whole[0].out / "checkpoint")
    assert done.facts["sequences"] == done.facts["sequences_due"]


@pytest.mark.slow
@pytest.mark.nightly
def test_one_that_had_saved_nothing_begins_with_the_state_of_another(tmp_path: Path) -> None:
    job = replica_job(tmp_path)
    thread = _killing(job, replica=1, after=1, saved=False)
    sft(job)
    thread.join(10)
    assert all(len({row.after for row in rows}) == 1 for rows in _by_sync(job).values())
    replayed, facts = replayed_by(job)
    assert [why for step in replayed if (why := differs(_steps(job), step, REPLAYED["float32"]))] == []
    assert facts["end_apart"] < 1e-5


@pytest.mark.slow
@pytest.mark.nightly
def test_two_of_three_go_on_and_who_returns_skips_the_steps_of_the_others(tmp_path: Path) -> None:
    job = replica_job(tmp_path, replicas=3, examples=120, every=2)
    kill = _killing(job, replica=2, after=2, saved=True)

    def hold() -> None:
        # The others are held when they are further, until the third is back: it starts for longer than they train.
        kill.join()
        _wait_for(lambda: len(rounds_in(folder_of(job.folder, 0))) >= 8)
        others = [replica for replica in _replicas() if replica.cmdline()[5] in ("0", "1")]
        for process in others:
            process.suspend()
        _wait_for(lambda: (folder_of(job.folder, 2) / "began" / "2.json").is_file())
        for process in others:
            # Where the job has ended by then, that is what the test is to say.
            with suppress(psutil.NoSuchProcess):
                process.resume()

    holding = threading.Thread(target=hold, daemon=True)
    holding.start()
    done = sft(job)
    holding.join(10)
    rows = _by_sync(job)
    assert list(rows) == list(range(1, 21)) and all(len({row.after for row in group}) == 1 for group in rows.values())
    assert all(len(group) >= 2 for group in rows.values())
    healed = [row for row in rounds_of(job) if row.healed]
    assert [row.replica for row in healed] == [2]
    assert healed[0].before in {row.before for row in rows[healed[0].sync] if not row.healed}
    assert done.facts["sequences"] < done.facts["sequences_due"] == 240
    assert [step.step for step in _steps(job)] == list(range(1, 41)) and _far_steps(job) == []
    replayed, facts = replayed_by(job)
    assert [why for step in replayed if (why := differs(_steps(job), step, REPLAYED["float32"]))] == []
    assert facts["end_apart"] < 1e-5


@pytest.mark.slow
def test_one_of_three_that_is_behind_takes_over_the_weights_of_the_others(tmp_path: Path) -> None:
    training, steps = DistributedTraining(replicas=3, sync_every=2), 20
    lighthouse, third = lighthouse_of(training), folder_of(tmp_path, 2) / "began" / "1.json"
    workers = [
        start(folder_of(tmp_path, number), number, address_of(lighthouse), training, steps=steps, until=third)
        for number in range(2)
    ]
    # Two of three suffice. The third begins at step 0 while they are further, and is not let contribute that.
    _wait_for(lambda: len(rounds_in(folder_of(tmp_path, 0))) >= 2)
    # What replicas send each other is pickled: no port of theirs is open to another machine.
    ports = [
        connection
        for worker in workers
        for connection in psutil.Process(worker.pid).net_connections()
        if connection.status == "LISTEN"
    ]
    assert len(ports) >= 2 * 4 and {connection.laddr.ip for connection in ports} == {"127.0.0.1"}
    workers.append(start(folder_of(tmp_path, 2), 2, address_of(lighthouse), training, steps=steps))
    lines = [worker.communicate(timeout=120) for worker in workers]
    lighthouse.shutdown()
    assert [worker.returncode for worker in workers] == [0, 0, 0], lines
    rounds = {number: rounds_in(folder_of(tmp_path, number)) for number in range(3)}
    assert apart(tmp_path, rounds) == ""
    assert [[record.row.sync for record in rounds[number]] for number in (0, 1)] == [list(range(1, 11))] * 2
    late = [record.row for record in rounds[2]]
    assert [row.healed for row in late] == [True] + [False] * (len(late) - 1) and 1 < len(late) <= 6
    assert (late[0].first_step, late[0].last_step, late[0].participants) == (1, 2, 3)
    others = [record.row for number in (0, 1) for record in rounds[number] if record.row.sync == late[0].sync]
    assert donor_of(late[0], [*others, late[0]]) in (0, 1)
    # What it skips are steps of the others: afterwards its steps are theirs.
    assert {(row.sync, row.first_step, row.last_step) for row in late[1:]} <= {
        (record.row.sync, record.row.first_step, record.row.last_step) for record in rounds[0]
    }


OUTER = Outer()


def _two_workers(
    folder: Path, outer: Outer = OUTER, fault: str = "", every: int = 2, steps: int = 6
) -> list[list[float]]:
    """Return what two replicas without a language model print, each in a process of its own."""
    training = DistributedTraining(replicas=2, sync_every=every, outer=outer)
    lighthouse = lighthouse_of(training)
    processes = [
        start(folder_of(folder, number), number, address_of(lighthouse), training, steps=steps, fault=fault)
        for number in range(2)
    ]
    assert len({process.pid for process in processes} | {os.getpid()}) == 3
    lines = [process.communicate(timeout=120) for process in processes]
    lighthouse.shutdown()
    assert all(process.returncode == 0 for process in processes), lines
    return [[float(line) for line in out.split()] for out, _ in lines]


@pytest.mark.more
@pytest.mark.parametrize(
    ("lr", "momentum", "expected"),
    [(1.0, 0.0, [2.0, 4.0, 6.0]), (0.7, 0.9, [2.66, 6.454, 11.2686])],
    ids=["mean", "nesterov"],
)
def test_the_model_moves_where_the_replicas_moved(
    tmp_path: Path, lr: float, momentum: float, expected: list[float]
) -> None:
    assert _two_workers(tmp_path, Outer(lr=lr, momentum=momentum)) == [pytest.approx(expected, abs=1e-4)] * 2
    rounds = [rounds_in(folder_of(tmp_path, number)) for number in range(2)]
    assert [[record.row.sync for record in replica_rounds] for replica_rounds in rounds] == [[1, 2, 3]] * 2
    # One weight is sent, none of the thousand that are frozen.
    assert {record.row.bytes for replica_rounds in rounds for record in replica_rounds} == {4}
    assert {record.row.participants for replica_rounds in rounds for record in replica_rounds} == {2}
    assert apart(tmp_path, dict(enumerate(rounds))) == ""


def _undecorated(*_: Any, **__: Any) -> Callable[[Any], Any]:
    def same(test: Any) -> Any:
        return test

    return same


@pytest.mark.slow
def test_the_expectations_of_torchfts_own_regression_test_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The library's test needs a decorator of another package, and nothing else of it.
    decorator = SimpleNamespace(parameterized=SimpleNamespace(expand=_undecorated))
    monkeypatch.setitem(sys.modules, "parameterized", decorator)
    from torchft.diloco_regression_test import DiLoCoMockedUpdateTest

    lines = _two_workers(tmp_path, Outer(lr=2.0, momentum=0.0), fault="torchft", every=6, steps=18)
    assert lines[0] == lines[1] and lines[0][4:7] == [-9.0, -23.0, -25.0]
    weights = {step: {"layers.0.weight": [[number]]} for step, number in enumerate([1.0, *lines[0]])}
    history = {"history": weights, "global_parameter_history": {step: weights[step] for step in (0, 6, 12, 18)}}
    theirs: Any = DiLoCoMockedUpdateTest("test_diloco_mocked_updates")
    theirs._validate_parameter_updates(history, 1, 6, 0, 0.0)
    # It can fail: the sign the other way.
    weights[6] = {"layers.0.weight": [[25.0]]}
    with pytest.raises(AssertionError, match="Parameters at sync step 6"):
        theirs._validate_parameter_updates(history, 1, 6, 0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "output"),
    [
        ("unequal", "replicas 0 and 1 began with different weights"),
        ("no-op", "replicas 0 and 1 have different weights after synchronisation 1"),
    ],
)
def test_replicas_that_are_not_one_model_are_found(tmp_path: Path, fault: str, output: str) -> None:
    _two_workers(tmp_path, fault=fault)
    assert apart(tmp_path, {number: rounds_in(folder_of(tmp_path, number)) for number in range(2)}) == output


@pytest.mark.more
def test_a_pseudo_gradient_with_the_wrong_sign_moves_the_model_the_other_way(tmp_path: Path) -> None:
    assert _two_workers(tmp_path, fault="negated") == [pytest.approx([-2.66, -6.454, -11.2686], abs=1e-4)] * 2


@pytest.mark.slow
def test_replicas_that_begin_with_different_weights_end_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replica_job(tmp_path)
    right: Callable[..., Any] = coordinator.Coordinator._start  # pyright: ignore[reportPrivateUsage]

    def elsewhere(self: Any, number: int, *rest: Any) -> None:
        # The second replica gets another seed, and so other adapters to begin with.
        order = job.order.model_copy(update={"parameters": job.order.parameters | {"seed": number}})
        (job.folder / "order.json").write_bytes(order.canonical())
        right(self, number, *rest)
        if number == 0:
            _wait_for(lambda: bool(list((folder_of(job.folder, 0) / "began").glob("*.json"))))

    monkeypatch.setattr(coordinator.Coordinator, "_start", elsewhere)
    with pytest.raises(SystemExit, match="replicas 0 and 1 began with different weights"):
        sft(job)
    assert not (job.out / "checkpoint").exists() and not psutil.Process().children()


def _wait_for(what: Callable[[], bool]) -> None:
    for _ in range(1200):
        if what():
            return
        time.sleep(0.1)


@pytest.mark.slow
def test_a_replica_is_started_by_its_stage_only(tmp_path: Path) -> None:
    job = replica_job(tmp_path)
    (job.folder / "claim" / "claim.json").write_text('{"key": "other", "pid": 1}', encoding="utf-8")
    words = [
        sys.executable,
        "-P",
        "-m",
        "training.jobs.finetuning.replicas",
        str(job.folder),
        "0",
        "1",
        "http://127.0.0.1:1",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 4 and "replicas are started by the process of their stage only" in done.stderr
