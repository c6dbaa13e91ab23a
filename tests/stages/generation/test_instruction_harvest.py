"""From raw calls to instructions: repeats within and across shards, merge, breaking off, and shards on disk."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from specs.stages.generation.parameters import SelfInstructParameters
from specs.stages.generation.rows import SelfInstructRow
from training.jobs.row_files import GroupedRows
from training.rules.generation.instruction_harvest import Shard, harvest, rounds_of
from training.rules.prompt_text import ExampleInstruction
from training.rules.similarity import NearIndex, near_repeats

SEEDS = [
    ExampleInstruction("seed0", "Write a poem about the sea."),
    ExampleInstruction("seed1", "Name three kinds of tea."),
]


def call(*items: str, shard: int = 0, round: int = 0, number: int = 0, **changes: object) -> SelfInstructRow:
    raw = "".join(f"{'' if n == 0 else f'{n + 8}.'} {item}\n" for n, item in enumerate(items))
    report = {
        "shard": shard,
        "round": round,
        "call": number,
        "probe": 0,
        "seed": 1,
        "form": "completion",
        "topic": "",
        "examples": (),
        "first": 8,
        "prompt": "",
        "prompt_tokens": 1,
        "raw": raw,
        "tokens": 1,
        "finish": "stop",
        "stop": None,
    }
    return SelfInstructRow.model_validate(report | changes)


def parameters(**changes: object) -> SelfInstructParameters:
    return SelfInstructParameters.model_validate({"target": 100, "shards": 2, "abort_after": 1000} | changes)


def outcomes(rows: list[SelfInstructRow], **changes: object) -> list[tuple[str, str]]:
    return [(item.text, item.outcome) for item in harvest(rows, SEEDS, parameters(**changes)).fated]


def test_an_instruction_is_kept_once_and_a_seed_never() -> None:
    rows = [
        call("Describe an old house.", "NAME three kinds of tea!", "describe an  old house"),
        call("Describe an old house by the wide green sea.", "More of the same", "Go now", number=1),
        call("Describe an old house by the wide green sea today.", round=1),
    ]
    assert outcomes(rows) == [
        ("Describe an old house.", "kept"),
        ("NAME three kinds of tea!", "repeat"),
        ("describe an old house", "repeat"),
        ("Describe an old house by the wide green sea.", "kept"),
        ("More of the same", "meta"),
        ("Go now", "short"),
        ("Describe an old house by the wide green sea today.", "near"),
    ]
    result = harvest(rows, SEEDS, parameters())
    assert [(item.outcome, item.of) for item in result.fated if item.of] == [
        ("repeat", "seed1"),
        ("repeat", "s0-r0-c0-n1"),
        ("near", "s0-r0-c1-n1"),
    ]
    assert [item.id for item in result.items] == ["s0-r0-c0-n1", "s0-r0-c1-n1"]


def test_a_repeat_across_shards_is_kept_once_and_reported() -> None:
    rows = [
        call("Describe an old house.", "Say why bees dance."),
        call("Tell a tale of two owls.", "Describe an old house!", shard=1),
    ]
    result = harvest(rows, SEEDS, parameters())
    assert Counter(item.outcome for item in result.fated) == {"kept": 3, "cross_shard": 1}
    (repeat,) = [item for item in result.fated if item.outcome == "cross_shard"]
    assert (repeat.id, repeat.of) == ("s1-r0-c0-n2", "s0-r0-c0-n1")
    # The control: each shard by itself knows nothing of the other.
    assert len(harvest(rows, SEEDS, parameters(shards=1)).items) == 2


def test_more_than_is_wanted_is_surplus_of_all_shards_in_turn() -> None:
    texts = ("Name a red bird.", "Draw the moon now.", "Sing about warm bread.")
    rows = [call(*texts), call("Tell a tale of two owls.", "Say why bees dance.", shard=1)]
    result = harvest(rows, SEEDS, parameters(target=2, over_generation=1.5))
    assert [item.prompt for item in result.items] == [*texts[:2], "Tell a tale of two owls."]
    assert Counter(item.outcome for item in result.fated) == {"kept": 3, "surplus": 2}


def test_probes_are_no_work() -> None:
    rows = [call("Describe an old house."), call("Tell a tale of two owls.", probe=1)]
    assert [item.prompt for item in harvest(rows, SEEDS, parameters()).items] == ["Describe an old house."]


def test_a_shard_is_broken_off_when_it_repeats_itself_and_not_before() -> None:
    limits = parameters(abort_after=6, abort_repeats=0.5)
    shard = Shard(SEEDS, 0.7)
    for number in range(5):
        shard.take([call("Describe an old house.", number=number)])
    assert shard.why_broken_off(limits) == ""
    shard.take([call("Describe an old house.", number=5)])
    assert shard.why_broken_off(limits) == "5 of 6 instructions repeat earlier ones, more than 0.5"
    assert shard.why_broken_off(limits.model_copy(update={"abort_repeats": 5 / 6})) == ""


def test_a_shard_is_broken_off_when_calls_give_nothing() -> None:
    limits = parameters(abort_after=6, per_call=3, abort_empty=0.5)
    shard = Shard(SEEDS, 0.7)
    shard.take([call("no"), call("Describe an old house.", number=1)])
    assert shard.why_broken_off(limits) == ""
    shard.take([call("no", round=1)])
    assert shard.why_broken_off(limits) == "2 of 3 calls gave no instruction, more than 0.5"


def test_the_harvest_says_which_shard_was_broken_off() -> None:
    rows = [call(*["Describe an old house."] * 8, shard=1), call("Tell a tale of two owls.")]
    result = harvest(rows, SEEDS, parameters(abort_after=6))
    assert result.broken_off.startswith("shard 1: 7 of 8")


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_an_index_that_grows_finds_what_a_search_over_all_finds(threshold: float) -> None:
    texts = [f"tell a tale of {n % 7} old owls and the {n % 3} bees by the sea {'!' * (n % 2)}" for n in range(60)]
    index = NearIndex(threshold)
    neighbours = [index.add(text) for text in texts]
    assert [(place, near.of, near.similarity) for place, near in enumerate(neighbours) if near] == [
        tuple(repeat) for repeat in near_repeats(texts, threshold=threshold)
    ]


def test_rows_on_disk_are_whole_groups(tmp_path: Path) -> None:
    path = tmp_path / "shards" / "0000.jsonl"
    first = GroupedRows(path, SelfInstructRow)
    first.add([call("Describe an old house."), call("Say why bees dance.", number=1)])
    first.add([])
    first.add([call("Tell a tale of two owls.", round=1)])
    whole = path.read_bytes()
    again = GroupedRows(path, SelfInstructRow)
    assert again.rows() == first.rows() and [len(group) for group in again.groups] == [2, 0, 1]
    assert rounds_of(again.rows(), 0) == [first.groups[0], first.groups[2]]
    # Killed at any byte: what is left is groups, and going on gives the same file.
    for at in range(0, len(whole), 37):
        path.write_bytes(whole[:at])
        rows = GroupedRows(path, SelfInstructRow)
        assert path.read_bytes() == whole[: path.stat().st_size] and rows.groups == first.groups[: len(rows.groups)]
        for group in first.groups[len(rows.groups) :]:
            rows.add(group)
        assert path.read_bytes() == whole
