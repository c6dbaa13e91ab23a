"""The judge of ``self_instruct`` stages: what was kept is computed again from the calls, never read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.heldout_screen import held_out_among
from reviews.evidence.row_lines import Subjects, inside
from reviews.evidence.row_reader import read_rows
from reviews.evidence.text_overlap import Overlap
from specs.stages.base.artifacts import Item
from specs.stages.generation.parameters import SelfInstructParameters
from specs.stages.generation.rows import SelfInstructRow
from training.rules.generation.instruction_harvest import Harvest, HarvestItem, harvest, prompt_examples_of
from training.rules.prompt_text import ExampleInstruction
from training.rules.similarity import Words, words_of


class RecomputedInstructions(NamedTuple):
    """The rows of a self_instruct stage and what they hold."""

    rows: tuple[SelfInstructRow, ...]
    seeds: list[ExampleInstruction]
    parameters: SelfInstructParameters
    harvest: Harvest


def recompute_instructions(evidence: Evidence) -> RecomputedInstructions:
    """Return the calls, parsed, sifted and merged again; errors as :func:`read_rows` and :meth:`Evidence.granted`."""
    rows = read_rows(evidence.outputs.get("rows"), SelfInstructRow, "self_instruct rows")
    seeds = prompt_examples_of(read_rows(evidence.inputs.get("seeds"), Item, "seed items"))
    parameters = evidence.parse_parameters(SelfInstructParameters)
    return RecomputedInstructions(rows, seeds, parameters, harvest(rows, seeds, parameters))


def taken_out(evidence: Evidence, result: RecomputedInstructions) -> dict[int, Overlap]:
    """Return the kept instructions that are held-out prompts, by place: later stages do not read them."""
    thresholds, written = evidence.resolved.spec.thresholds, [item.prompt for item in result.harvest.items]
    return held_out_among(written, evidence.reserved_items, thresholds.prompt_similarity, thresholds.contained_words)


def probes(rows: Sequence[SelfInstructRow]) -> tuple[list[bool], list[bool]]:
    """Return for each repeated call whether its text is the first one's: with the same seed, and with another."""
    by_probe = {number: {row.call: row.raw for row in rows if row.probe == number} for number in (1, 2, 3)}
    same, other = ([raw == by_probe[number].get(call) for call, raw in by_probe[1].items()] for number in (2, 3))
    return same, other


class CallMade(NamedTuple):
    """A call for instructions, probes left out, and how many became of it."""

    row: SelfInstructRow
    parsed: int
    kept_count: int
    empty: bool


class ParsedListItem(NamedTuple):
    """A list item that a call gave."""

    fated: HarvestItem
    parsed: bool
    """Whether it can be an instruction."""
    words: Words
    times: int
    """How often such items have its words."""
    most: bool
    """Whether none has others more often."""


class KeptInstruction(NamedTuple):
    """An instruction that is kept."""

    text: str
    held_out: bool
    """It is a held-out prompt, so that later stages do not read it."""


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the ``calls``, what they ``listed``, what is ``kept``, or the probes.

    Errors are those of :func:`recompute_instructions`.
    """
    result = recompute_instructions(evidence)
    rows, fated = result.rows, result.harvest.fated
    if output in ("same_seed", "other_seed"):
        same, other = probes(rows)
        met = same if output == "same_seed" else [not value for value in other]
        return Subjects(met, [line for line, row in enumerate(rows, 1) if row.probe == 1], len(rows))
    if output == "kept":
        file = evidence.outputs.get("instructions")
        items = read_rows(file, Item, "instructions", may_be_empty=True) if file else ()
        line, overlaps = {item.id: number for number, item in enumerate(items, 1)}, taken_out(evidence, result)
        kept_instructions = [
            KeptInstruction(item.prompt, place in overlaps) for place, item in enumerate(result.harvest.items)
        ]
        return Subjects(
            kept_instructions, [line.get(item.id, 0) for item in result.harvest.items], len(items), "instructions"
        )
    by_call: defaultdict[str, list[HarvestItem]] = defaultdict(list)
    for value in fated:
        by_call[value.id.rpartition("-")[0]].append(value)
    times = Counter(words_of(value.text) for value in fated if value.outcome in PARSED)
    most, calls, lines = max(times.values(), default=0), list[CallMade](), list[int]()
    for number, row in enumerate(rows, 1):
        if row.probe == 0:
            gave = [value.outcome for value in by_call[_call_id(row)]]
            parsed = sum(text in PARSED for text in gave)
            calls.append(CallMade(row, parsed, gave.count("kept"), not parsed and row.shard < result.parameters.shards))
            lines.append(number)
    made = Subjects(calls, lines, len(rows))
    if output == "calls":
        return made

    def make_list_item(value: HarvestItem) -> ParsedListItem:
        words = words_of(value.text)
        return ParsedListItem(value, value.outcome in PARSED, words, times[words], times[words] == most)

    return inside(made, lambda call: map(make_list_item, by_call[_call_id(call.row)]))


def _call_id(row: SelfInstructRow) -> str:
    return f"s{row.shard}-r{row.round}-c{row.call}"


PARSED = ("kept", "repeat", "near", "cross_shard", "surplus")
"""Outcomes of list items that can be an instruction."""
