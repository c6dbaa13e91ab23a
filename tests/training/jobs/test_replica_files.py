"""The files of replicas: whole ones only, and the newest state before any other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specs.stages.finetuning.distributed import ReplicaRound
from training.jobs.finetuning.replicas import replica_files
from training.jobs.finetuning.replicas.coordinator import apart, environment
from training.jobs.finetuning.replicas.replica_files import (
    OUTER,
    RoundRecord,
    folder_of,
    newest_state,
    own_newest,
    own_state,
    rounds_in,
    write_json,
    write_round,
)
from training.jobs.saved_steps import mark


def _row(sync: int, replica: int, start: str, after: str) -> ReplicaRound:
    digests = {"start": start * 64, "before": f"{replica}" * 64, "after": after * 64}
    counts = {"process": 1, "first_step": sync, "last_step": sync, "participants": 2}
    rest = dict.fromkeys(("tokens", "sequences", "quorum", "drift", "bytes", "seconds"), 0)
    return ReplicaRound.model_validate({"sync": sync, "replica": replica, "healed": False} | digests | counts | rest)


def _rounds(folder: Path, *rows: ReplicaRound) -> dict[int, list[RoundRecord]]:
    for row in rows:
        write_round(folder_of(folder, row.replica), RoundRecord(row, [], {}))
    return {number: rounds_in(folder_of(folder, number)) for number in range(2)}


def _begun(folder: Path, replica: int, sync: int, weights: str, process: int = 1) -> None:
    report = {"process": process, "sync": sync, "step": sync, "weights": weights * 64}
    write_json(folder_of(folder, replica) / "began" / f"{process}.json", report)


def _saved(folder: Path, replica: int, step: int, *, outer: bool = True) -> Path:
    saved = folder_of(folder, replica) / "trainer" / f"checkpoint-{step}"
    saved.mkdir(parents=True)
    (saved / "trainer_state.json").write_text(json.dumps({"global_step": step}), encoding="utf-8")
    if outer:
        (saved / OUTER).write_bytes(b"state")
    mark(saved)
    return saved


def test_a_file_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    _rounds(tmp_path, *(_row(sync, 0, "a", "b") for sync in (10, 9, 2)))
    _begun(tmp_path, 0, 0, "a")
    for folder, name in (("rounds", ".11.json"), ("began", ".2.json")):
        (folder_of(tmp_path, 0) / folder / name).write_text("{", encoding="utf-8")
    assert [record.row.sync for record in rounds_in(folder_of(tmp_path, 0))] == [2, 9, 10]
    assert [record.row.sync for record in rounds_in(folder_of(tmp_path, 0), 9)] == [10]
    assert apart(tmp_path, {0: []}) == ""


def test_the_newest_whole_state_of_any_replica_is_begun_with(tmp_path: Path) -> None:
    assert newest_state(tmp_path, 1, 2) is None
    other = _saved(tmp_path, 0, 4)
    assert newest_state(tmp_path, 1, 2) == other
    own = _saved(tmp_path, 1, 4)
    assert newest_state(tmp_path, 1, 2) == own and newest_state(tmp_path, 0, 2) == other
    newer = _saved(tmp_path, 0, 6)
    assert newest_state(tmp_path, 1, 2) == newer == newest_state(tmp_path, 0, 2)
    # Without the outer state, or half written, it is none.
    _saved(tmp_path, 1, 8, outer=False)
    (_saved(tmp_path, 0, 12) / OUTER).write_bytes(b"")
    assert newest_state(tmp_path, 1, 2) == newer


def test_the_state_of_another_replica_is_copied_over_what_is_half_written(tmp_path: Path) -> None:
    other, mine = _saved(tmp_path, 0, 4), folder_of(tmp_path, 1)
    half = mine / "trainer" / "checkpoint-4"
    half.mkdir(parents=True)
    (half / "junk").write_bytes(b"junk")
    own = own_state(other, mine)
    assert own == half and {path.name for path in own.iterdir()} == {path.name for path in other.iterdir()}
    assert own_state(own, mine) == own and (own / OUTER).read_bytes() == b"state"


def test_a_state_that_others_drop_meanwhile_is_looked_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_newest(tmp_path, 1, 2) is None
    older, newer = _saved(tmp_path, 0, 4), _saved(tmp_path, 0, 6)
    shutil.rmtree(older)
    seen = [older, newer]

    def next_seen(*_: object) -> Path:
        return seen.pop(0) if seen else older

    monkeypatch.setattr(replica_files, "newest_state", next_seen)
    own = own_newest(tmp_path, 1, 2)
    assert own is not None
    assert own == folder_of(tmp_path, 1) / "trainer" / "checkpoint-6" and (own / OUTER).read_bytes() == b"state"
    assert [path.name for path in own.parent.iterdir()] == ["checkpoint-6"], "no copy is left that is not whole"
    with pytest.raises(FileNotFoundError):
        own_newest(tmp_path, 1, 2)


def test_weights_that_must_be_the_same_are_compared(tmp_path: Path) -> None:
    for replica in range(2):
        _begun(tmp_path, replica, 0, "a")
    rounds = _rounds(
        tmp_path, *(_row(sync, number, *ends) for number in (0, 1) for sync, ends in ((1, "ab"), (2, "bc")))
    )
    assert apart(tmp_path, rounds) == ""
    _begun(tmp_path, 1, 1, "b", process=2)
    assert apart(tmp_path, rounds) == ""
    _begun(tmp_path, 1, 1, "a", process=3)
    assert apart(tmp_path, rounds) == "replica 1 began after synchronisation 1 with other weights than those"


def test_a_round_begins_with_what_was_synchronised(tmp_path: Path) -> None:
    rounds = _rounds(tmp_path, _row(1, 0, "a", "b"), _row(2, 0, "a", "c"))
    assert apart(tmp_path, rounds) == "replica 0 began a round with other weights than it had synchronised"


def test_gloo_listens_to_its_own_machine_only() -> None:
    # Otherwise it listens at the address that the machine's name has.
    assert environment(2)["GLOO_SOCKET_IFNAME"] == "lo"
