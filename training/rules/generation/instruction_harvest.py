"""From raw answers to instructions: parse them, drop repeats and other text, merge shards. The measurer calls it too.

A shard compares an instruction with the seeds and with all that it kept; in the end all shards are compared with each
other, so that a repeat across shards is kept once and reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from specs.stages.base.artifacts import Item
from specs.stages.generation.parameters import SelfInstructParameters
from specs.stages.generation.rows import SelfInstructRow
from training.rules.prompt_text import ExampleInstruction, Fate, parse
from training.rules.sampling_quality import of_calls, over, why_low
from training.rules.similarity import NearIndex

Outcome = Literal["kept", "repeat", "near", "cross_shard", "surplus", "meta", "short", "long", "cut"]


class HarvestItem(NamedTuple):
    """One item of a list that a model wrote, and its outcome."""

    id: str
    topic: str
    text: str
    outcome: Outcome
    of: str = ""
    """The earlier instruction that it repeats."""
    similarity: float = 0.0


class Shard:
    """The instructions of one shard, round after round."""

    def __init__(self, seeds: Sequence[ExampleInstruction], similarity: float) -> None:
        self._index = NearIndex(similarity)
        self._ids: list[str] = []
        self.grown: list[ExampleInstruction] = []
        self.fated: list[HarvestItem] = []
        self.calls = 0
        self.empty_calls = 0
        for seed in seeds:
            self._index.add(seed.text)
            self._ids.append(seed.id)

    def take(self, rows: Iterable[SelfInstructRow]) -> None:
        """Add the rows of a round, in order."""
        for row in rows:
            listed = parse(row.raw, first=row.first, primed=row.form == "completion", cut=row.finish == "length")
            self.calls += 1
            self.empty_calls += not any(value.fate == "candidate" for value in listed)
            for value in listed:
                id = f"s{row.shard}-r{row.round}-c{row.call}-n{value.number - row.first + 1}"
                self._judge(id, row.topic, value.text, value.fate)

    def _judge(self, id: str, topic: str, text: str, fate: Fate) -> None:
        if fate != "candidate":
            self.fated.append(HarvestItem(id, topic, text, fate))
            return
        near = self._index.add(text)
        self._ids.append(id)
        if near is not None:
            outcome: Outcome = "repeat" if near.similarity == 1 else "near"
            self.fated.append(HarvestItem(id, topic, text, outcome, self._ids[near.of], near.similarity))
            return
        self.fated.append(HarvestItem(id, topic, text, "kept"))
        self.grown.append(ExampleInstruction(id, text))

    @property
    def candidates(self) -> int:
        """How many instructions were parsed, repeats included."""
        return sum(value.outcome in ("kept", "repeat", "near") for value in self.fated)

    def why_broken_off(self, parameters: SelfInstructParameters) -> str:
        """Return why the shard must stop early, or nothing."""
        repeats = self.candidates - len(self.grown)
        message = ""
        if self.candidates >= parameters.abort_after:
            message = over(repeats, self.candidates, parameters.abort_repeats, "instructions repeat earlier ones")
        if not message and self.calls * parameters.per_call >= parameters.abort_after:
            message = over(self.empty_calls, self.calls, parameters.abort_empty, "calls gave no instruction")
        return message

    def has_enough(self, parameters: SelfInstructParameters) -> bool:
        """Return whether the shard has its part of the instructions."""
        return len(self.grown) >= math.ceil(count_instructions_to_write(parameters) / parameters.shards)


class Harvest(NamedTuple):
    """All instructions of a stage."""

    items: tuple[Item, ...]
    fated: tuple[HarvestItem, ...]
    """Every parsed item with its outcome after the merge."""
    calls: int
    empty_calls: int
    broken_off: str
    """Why a shard, or the stage, was broken off, or nothing."""


def count_instructions_to_write(parameters: SelfInstructParameters) -> int:
    """Return how many instructions to write: the target and what critics will refuse."""
    return math.ceil(parameters.target * parameters.over_generation)


def prompt_examples_of(items: Iterable[Item]) -> list[ExampleInstruction]:
    """Return items as prompts show them."""
    return [ExampleInstruction(item.id, " ".join(item.prompt.split())) for item in items]


def rounds_of(rows: Sequence[SelfInstructRow], shard: int) -> list[list[SelfInstructRow]]:
    """Return the rows of a shard by round, in order, without probes."""
    by_round: dict[int, list[SelfInstructRow]] = {}
    for row in rows:
        if row.shard == shard and row.probe == 0:
            by_round.setdefault(row.round, []).append(row)
    return [by_round[number] for number in sorted(by_round)]


def harvest(
    rows: Sequence[SelfInstructRow], seeds: Sequence[ExampleInstruction], parameters: SelfInstructParameters
) -> Harvest:
    """Return the instructions of raw rows, the same for the job and the measurer."""
    shards: list[Shard] = []
    broken_off = ""
    for number in range(parameters.shards):
        shard = Shard(seeds, parameters.similarity)
        for round_rows in rounds_of(rows, number):
            shard.take(round_rows)
        shards.append(shard)
        why = shard.why_broken_off(parameters)
        broken_off = broken_off or (f"shard {number}: {why}" if why else "")
    broken_off = broken_off or why_low(of_calls(rows), parameters.quality)
    fated = _merge_shards(shards, seeds, parameters)
    items = tuple(
        Item(id=value.id, group=value.id, kind=value.topic or "general", prompt=value.text, constraint={})
        for value in fated
        if value.outcome == "kept"
    )
    calls, empty = sum(shard.calls for shard in shards), sum(shard.empty_calls for shard in shards)
    return Harvest(items, tuple(fated), calls, empty, broken_off)


def _merge_shards(
    shards: Sequence[Shard], seeds: Sequence[ExampleInstruction], parameters: SelfInstructParameters
) -> list[HarvestItem]:
    """Compare all shards with each other, taking their instructions in turn, so that no shard has priority."""
    index = NearIndex(parameters.similarity)
    ids = [seed.id for seed in seeds]
    for seed in seeds:
        index.add(seed.text)
    changed: dict[str, dict[str, Any]] = {}
    remaining = 0
    longest = max(len(shard.grown) for shard in shards)
    for place in range(longest):
        for shard in shards:
            if place >= len(shard.grown):
                continue
            value = shard.grown[place]
            near = index.add(value.text)
            ids.append(value.id)
            if near is not None:
                changed[value.id] = {"outcome": "cross_shard", "of": ids[near.of], "similarity": near.similarity}
            elif remaining >= count_instructions_to_write(parameters):
                changed[value.id] = {"outcome": "surplus"}
            else:
                remaining += 1
    return [value._replace(**changed.get(value.id, {})) for shard in shards for value in shard.fated]
