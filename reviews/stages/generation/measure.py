"""What metrics of the kinds that write text are computed from: what a stage kept is computed again, never read."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.heldout_screen import held_out_among
from reviews.evidence.measured_value import Measured
from reviews.evidence.row_lines import Subjects, as_written, inside
from reviews.evidence.row_reader import read_rows
from reviews.evidence.text_overlap import Overlap
from reviews.stages.generation.residue import Edge, Kept, frequent_edges
from specs.errors import EvidenceMissing
from specs.stages.artifacts import Example, Item
from specs.stages.generation.parameters import SampleResponsesParameters, SelfInstructParameters
from specs.stages.generation.rows import BaseModelCheckRow, GenerationRow, SampleResponsesRow, SelfInstructRow
from training.rules import cleaning
from training.rules.generation.instruction_harvest import Fated, Harvest, harvest, shown_of
from training.rules.generation.sentinels import BY_ID, SENTINELS
from training.rules.prompt_encoding import fault_in
from training.rules.prompt_text import Shown
from training.rules.sampling_quality import kept_of
from training.rules.similarity import Words, near_repeats, words_of
from training.rules.tasks import verifier


class Judged(NamedTuple):
    """A sampled completion as the task's verifier judges it again."""

    row: GenerationRow
    accepted: bool
    """It ended by itself and the verifier accepts it."""
    repeated: bool
    """It is accepted and says what an earlier accepted one says."""

    @property
    def answer(self) -> tuple[str, str]:
        """What makes it another answer than others."""
        return self.row.prompt, self.row.completion.strip()


def judged_rows(evidence: Evidence) -> tuple[Judged, ...]:
    """Return all sampled rows, judged again.

    Raises:
        EvidenceMissing: rows are absent or unreadable, or name an item the prompts do not hold.
    """
    rows = read_rows(evidence.outputs.get("rows"), GenerationRow, "generation rows")
    _, _, name = evidence.stage.inputs["prompts"].partition(".")
    items = {item.id: item for item in evidence.data.get(name, ())}
    verify = verifier(evidence.resolved.spec.task)
    found, seen = list[Judged](), set[tuple[str, str]]()
    for row in rows:
        item = items.get(row.item)
        if item is None or item.prompt != row.prompt:
            told = f"row of item '{row.item}' does not belong to a registered prompt"
            raise EvidenceMissing(told, where="generation rows")
        one = Judged(row, not row.truncated and verify(item, row.completion).passed, False)
        found.append(one._replace(repeated=one.accepted and one.answer in seen))
        if one.accepted:
            seen.add(one.answer)
    return tuple(found)


def read_samples(evidence: Evidence, output: str) -> Subjects:
    """Return the samples for the metrics of ``generate``; errors as :func:`judged_rows`."""
    return as_written(judged_rows(evidence), output)


class Sentinel(NamedTuple):
    """What a model answered to a sentinel."""

    row: BaseModelCheckRow
    command: bool
    """Whether it is a command; others are beginnings of sentences."""
    met: bool
    fault: str
    """What is wrong with how a bare prompt was encoded."""


def asked_of(rows: Sequence[BaseModelCheckRow], model: str, form: str) -> tuple[BaseModelCheckRow, ...]:
    """Return the answers of a model in a form; empty for the chat template of a model without one."""
    return tuple(row for row in rows if (row.model, row.form) == (model, form))


def guard_rows(evidence: Evidence) -> tuple[BaseModelCheckRow, ...]:
    """Return the rows of a base_model_check stage, one for each sentinel, model and form.

    Raises:
        EvidenceMissing: rows are absent or unreadable, a sentinel has not exactly one answer of a model in a form, or
            its prompt is not the registered one.
    """
    what = "base_model_check rows"
    rows = read_rows(evidence.outputs.get("rows"), BaseModelCheckRow, what)
    for row in rows:
        sentinel = BY_ID.get(row.sentinel)
        if sentinel is None or (row.form == "completion" and row.prompt != sentinel.prompt):
            raise EvidenceMissing(f"a row of sentinel '{row.sentinel}' does not hold its prompt", where=what)
        if sentinel.prompt not in row.prompt:
            raise EvidenceMissing(f"the templated prompt does not hold '{sentinel.prompt}'", where=what)
    wanted = sorted(sentinel.id for sentinel in SENTINELS)
    for model, form in dict.fromkeys((row.model, row.form) for row in rows):
        some = asked_of(rows, model, form)
        if sorted(row.sentinel for row in some) != wanted:
            told = f"the {model} model as {form} answered {len(some)} sentinels, not {len(wanted)}, each once"
            raise EvidenceMissing(told, where=what)
    for model in ("declared", "control"):
        if not asked_of(rows, model, "completion"):
            raise EvidenceMissing(f"the {model} model was given no sentinel as bare text", where=what)
    return rows


def read_sentinels(evidence: Evidence, output: str) -> Subjects:
    """Return the sentinels for the metrics of ``base_model_check``; errors as :func:`guard_rows`."""
    rows = guard_rows(evidence)
    known = [BY_ID[row.sentinel] for row in rows]
    found = [
        Sentinel(row, one.kind == "command", one.meets(row.output), encoding_fault(row))
        for row, one in zip(rows, known, strict=True)
    ]
    return as_written(found, output)


def followed(rows: Sequence[BaseModelCheckRow]) -> tuple[int, int]:
    """Return how many commands were followed, and how many there are."""
    commands = [row for row in rows if BY_ID[row.sentinel].kind == "command"]
    return sum(BY_ID[row.sentinel].meets(row.output) for row in commands), len(commands)


def encoding_fault(row: BaseModelCheckRow) -> str:
    """Say what is wrong with how a bare prompt was encoded, from the ids in the row."""
    return fault_in(row.prompt, row.ids, row.ids_with_special, row.decoded, row.template_ids)


class Instructed(NamedTuple):
    """The rows of a self_instruct stage and what they hold."""

    rows: tuple[SelfInstructRow, ...]
    seeds: list[Shown]
    parameters: SelfInstructParameters
    harvest: Harvest


def instructed(evidence: Evidence) -> Instructed:
    """Return the calls, parsed, sifted and merged again; errors as :func:`read_rows` and :meth:`Evidence.granted`."""
    rows = read_rows(evidence.outputs.get("rows"), SelfInstructRow, "self_instruct rows")
    seeds = shown_of(read_rows(evidence.inputs.get("seeds"), Item, "seed items"))
    parameters = evidence.granted(SelfInstructParameters)
    return Instructed(rows, seeds, parameters, harvest(rows, seeds, parameters))


def taken_out(evidence: Evidence, found: Instructed) -> dict[int, Overlap]:
    """Return, by place among the kept instructions, those that are held-out prompts: later stages do not read them."""
    thresholds, written = evidence.resolved.spec.thresholds, [item.prompt for item in found.harvest.items]
    return held_out_among(written, evidence.heldout, thresholds.prompt_similarity, thresholds.contained_words)


def probes(rows: Sequence[SelfInstructRow]) -> tuple[list[bool], list[bool]]:
    """Say for each repeated call whether its text is the first one's: with the same seed, and with another."""
    by_probe = {number: {row.call: row.raw for row in rows if row.probe == number} for number in (1, 2, 3)}
    same, other = ([raw == by_probe[number].get(call) for call, raw in by_probe[1].items()] for number in (2, 3))
    return same, other


class CallMade(NamedTuple):
    """A call for instructions, probes left out, and how many became of it."""

    row: SelfInstructRow
    parsed: int
    kept: int
    empty: bool


class Listed(NamedTuple):
    """A list item that a call gave."""

    fated: Fated
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


def read_calls(evidence: Evidence, output: str) -> Subjects:
    """Return the ``calls``, what they ``listed``, what is ``kept``, or the probes; errors as :func:`instructed`."""
    found = instructed(evidence)
    rows, fated = found.rows, found.harvest.fated
    if output in ("same_seed", "other_seed"):
        same, other = probes(rows)
        met = same if output == "same_seed" else [not one for one in other]
        return Subjects(met, [line for line, row in enumerate(rows, 1) if row.probe == 1], len(rows))
    if output == "kept":
        file = evidence.outputs.get("instructions")
        items = read_rows(file, Item, "instructions", may_be_empty=True) if file else ()
        line, taken = {item.id: number for number, item in enumerate(items, 1)}, taken_out(evidence, found)
        kept = [KeptInstruction(item.prompt, place in taken) for place, item in enumerate(found.harvest.items)]
        return Subjects(kept, [line.get(item.id, 0) for item in found.harvest.items], len(items), "instructions")
    by_call: defaultdict[str, list[Fated]] = defaultdict(list)
    for one in fated:
        by_call[one.id.rpartition("-")[0]].append(one)
    times = Counter(words_of(one.text) for one in fated if one.outcome in PARSED)
    most, calls, lines = max(times.values(), default=0), list[CallMade](), list[int]()
    for number, row in enumerate(rows, 1):
        if row.probe == 0:
            gave = [one.outcome for one in by_call[_call_id(row)]]
            parsed = sum(one in PARSED for one in gave)
            calls.append(CallMade(row, parsed, gave.count("kept"), not parsed and row.shard < found.parameters.shards))
            lines.append(number)
    made = Subjects(calls, lines, len(rows))
    if output == "calls":
        return made

    def listed(one: Fated) -> Listed:
        words = words_of(one.text)
        return Listed(one, one.outcome in PARSED, words, times[words], times[words] == most)

    return inside(made, lambda call: map(listed, by_call[_call_id(call.row)]))


def _call_id(row: SelfInstructRow) -> str:
    return f"s{row.shard}-r{row.round}-c{row.call}"


PARSED = ("kept", "repeat", "near", "cross_shard", "surplus")
"""Outcomes of list items that can be an instruction."""


class Responded(NamedTuple):
    """The rows of a sample_responses stage, what is kept of them and the instructions they answer."""

    rows: tuple[SampleResponsesRow, ...]
    kept: list[Example]
    items: tuple[Item, ...]
    parameters: SampleResponsesParameters


def responded(evidence: Evidence) -> Responded:
    """Return the answers, with marks and cleaning computed again from the raw texts.

    Raises:
        EvidenceMissing: rows, instructions or the granted parameters are absent or unreadable, or a row answers
            another instruction than its item's.
    """
    rows = read_rows(evidence.outputs.get("rows"), SampleResponsesRow, "sample_responses rows")
    items = read_rows(evidence.inputs.get("instructions"), Item, "instructions")
    parameters = evidence.granted(SampleResponsesParameters)
    by_id = {item.id: item for item in items}
    again: list[SampleResponsesRow] = []
    for row in rows:
        item = by_id.get(row.item)
        if item is None or item.prompt != row.instruction:
            message = f"row of item '{row.item}' does not answer an instruction of the input"
            raise EvidenceMissing(message, where="sample_responses rows")
        text, by = cleaning.clean(row.raw, parameters.cleaning)
        marks = cleaning.marks_of(text, row.instruction, row.finish, parameters.stops, parameters.scope)
        again.append(row.model_copy(update={"completion": text, "cleaned_by": by, "marks": marks}))
    return Responded(tuple(again), kept_of(again), items[: parameters.max_instructions], parameters)


class Answer(NamedTuple):
    """An answer to an instruction, its marks computed again."""

    row: SampleResponsesRow
    kept: bool
    repeated: bool
    """It is kept and has the words of an earlier kept one."""
    near: bool
    """It is kept and repeats an earlier kept one, or nearly."""
    most: bool
    """It is kept and none of them has others more often."""
    ends: bool
    """It is kept and has the most frequent ending."""

    @property
    def words(self) -> Words:
        """Its words without case and marks."""
        return words_of(self.row.completion)

    @property
    def runaway(self) -> bool:
        """Whether it runs away."""
        return cleaning.is_runaway(self.row.completion)

    @property
    def runaway_v1(self) -> bool:
        """Whether it runs away by the older rule."""
        return cleaning.is_runaway_v1(self.row.completion)

    @property
    def incomplete(self) -> bool:
        """Whether it is not whole."""
        return any(mark in cleaning.INCOMPLETE for mark in self.row.marks)


def read_answers(evidence: Evidence, output: str) -> Subjects:
    """Return the answers for the metrics of ``sample_responses``; errors as :func:`responded`."""
    rows, kept, _, _ = responded(evidence)
    first: dict[tuple[str, str], int] = {}
    for place, row in enumerate(rows):
        if not row.marks:
            first.setdefault((row.instruction, row.completion), place)
    places = [first[one.prompt, one.completion] for one in kept]
    similarity = evidence.resolved.spec.thresholds.prompt_similarity
    near = {places[one.place] for one in near_repeats((one.completion for one in kept), threshold=similarity)}
    times = Counter(words_of(one.completion) for one in kept)
    most, ending, seen = max(times.values(), default=0), ending_of(kept), set[Words]()
    found: list[Answer] = []
    for place, row in enumerate(rows):
        words, is_kept = words_of(row.completion), place in places
        ends = is_kept and ending is not None and _ends_in(row, ending.text)
        found.append(
            Answer(row, is_kept, is_kept and words in seen, place in near, is_kept and times[words] == most, ends)
        )
        seen |= {words} if is_kept else set()
    return as_written(found, output)


def measure_residue(evidence: Evidence) -> dict[str, Measured]:
    """Return the share of the most frequent ending; errors as :func:`responded`."""
    kept = responded(evidence).kept
    ending = ending_of(kept)
    return {"response_residue": Measured(ending.share if ending else 0.0, len(kept))}


def ending_of(kept: Sequence[Example]) -> Edge | None:
    """Return the most frequent ending; None without one."""
    ends = [one for one in frequent_edges(map(as_kept, kept), 0.0) if one.where == "tail" and not one.scope]
    return max(ends, key=lambda one: one.share, default=None)


def _ends_in(row: SampleResponsesRow, ending: str) -> bool:
    """Say whether an answer has an ending, as the scan for residue reads it: words, or the marks after them."""
    last, words = words_of(ending), words_of(row.completion)
    if last:
        return len(words) > len(last) and words[-len(last) :] == last
    marks = re.search(r"[^\w\s]+\Z", row.completion.strip())
    return marks is not None and marks[0] == ending and ending not in row.instruction


def as_kept(example: Example) -> Kept:
    """Return an example as the scan for residue takes it."""
    item = Item(id=example.item, group=example.group, kind=example.kind, prompt=example.prompt, constraint={})
    return Kept(item, example.completion)
