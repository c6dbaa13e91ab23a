"""Metrics of the kinds that write text, from raw rows: what a stage kept is computed again, never read.

Definitions stand in ``specs/stages/generation/metrics.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, TypeVar

from reviews.evidence.evidence import Evidence
from reviews.evidence.heldout_screen import held_out_among
from reviews.evidence.measured_value import Measured, ratio, share
from reviews.evidence.measured_value import share as _share
from reviews.evidence.row_reader import read_rows
from reviews.evidence.text_overlap import Overlap
from reviews.stages.generation.residue import Kept, frequent_edges
from specs.errors import EvidenceMissing
from specs.stages.artifacts import Example, Item
from specs.stages.generation.parameters import SampleResponsesParameters, SelfInstructParameters
from specs.stages.generation.rows import BaseModelCheckRow, GenerationRow, SampleResponsesRow, SelfInstructRow
from specs.stages.row_metric import where
from training.rules import cleaning
from training.rules.generation.instruction_harvest import Fated, Harvest, harvest, shown_of
from training.rules.generation.response_filter import kept_of
from training.rules.generation.sentinels import BY_ID, SENTINELS
from training.rules.prompt_encoding import fault_in
from training.rules.prompt_text import Shown
from training.rules.similarity import near_repeats, words_of
from training.rules.tasks import verifier


def accepted_rows(evidence: Evidence) -> tuple[tuple[GenerationRow, ...], tuple[GenerationRow, ...]]:
    """Return (all sampled rows, those that ended by themselves and that the verifier accepts).

    Raises:
        EvidenceMissing: rows are absent or unreadable, or name an item the prompts do not hold.
    """
    rows = read_rows(evidence.outputs.get("rows"), GenerationRow, "generation rows")
    _, _, name = evidence.stage.inputs["prompts"].partition(".")
    items = {item.id: item for item in evidence.data.get(name, ())}
    judge = verifier(evidence.resolved.spec.task)
    accepted: list[GenerationRow] = []
    for row in rows:
        item = items.get(row.item)
        if item is None or item.prompt != row.prompt:
            raise EvidenceMissing(
                f"row of item '{row.item}' does not belong to a registered prompt", where="generation rows"
            )
        if not row.truncated and judge(item, row.completion).passed:
            accepted.append(row)
    return rows, tuple(accepted)


def measure_generation(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics of a ``generate`` stage; errors as :func:`accepted_rows`."""
    rows, accepted = accepted_rows(evidence)
    distinct = {(row.prompt, row.completion.strip()): row.kind for row in accepted}
    kinds = Counter(distinct.values())
    total, kept = len(rows), len(accepted)
    return {
        "samples": Measured(total, total),
        "accepted": Measured(len(distinct), total),
        "acceptance_rate": _share(kept, total),
        "accepted_kinds": Measured(len(kinds), total),
        "accepted_min_kind": Measured(min(kinds[kind] for kind in {row.kind for row in rows}), total),
        "generate_truncation_rate": _share(sum(row.truncated for row in rows), total),
        "duplicate_rate": Measured(ratio(kept - len(distinct), kept), kept),
    }


PARSED = ("kept", "repeat", "near", "cross_shard", "surplus")
"""Outcomes of list items that can be an instruction."""


class Guarded(NamedTuple):
    """The rows of a base_model_check stage, one for each sentinel."""

    bare: tuple[BaseModelCheckRow, ...]
    """The declared model, as bare text."""
    templated: tuple[BaseModelCheckRow, ...]
    """The declared model with its chat template; empty where it has none."""
    control_bare: tuple[BaseModelCheckRow, ...]
    control_templated: tuple[BaseModelCheckRow, ...]


def guard_rows(evidence: Evidence) -> Guarded:
    """Return the rows by model and form.

    Raises:
        EvidenceMissing: rows are absent or unreadable, a sentinel has not exactly one answer of a model in a form, or
            its prompt is not the registered one.
    """
    rows = read_rows(evidence.outputs.get("rows"), BaseModelCheckRow, "base_model_check rows")
    parts: dict[tuple[str, str], list[BaseModelCheckRow]] = {}
    for row in rows:
        sentinel = BY_ID.get(row.sentinel)
        if sentinel is None or (row.form == "completion" and row.prompt != sentinel.prompt):
            raise EvidenceMissing(
                f"a row of sentinel '{row.sentinel}' does not hold its prompt", where="base_model_check rows"
            )
        if sentinel.prompt not in row.prompt:
            raise EvidenceMissing(
                f"the templated prompt does not hold '{sentinel.prompt}'", where="base_model_check rows"
            )
        parts.setdefault((row.model, row.form), []).append(row)
    wanted = [sentinel.id for sentinel in SENTINELS]
    for (model, form), some in parts.items():
        if sorted(row.sentinel for row in some) != sorted(wanted):
            message = f"the {model} model as {form} answered {len(some)} sentinels, not {len(wanted)}, each once"
            raise EvidenceMissing(message, where="base_model_check rows")
    for model in ("declared", "control"):
        if (model, "completion") not in parts:
            raise EvidenceMissing(
                f"the {model} model was given no sentinel as bare text", where="base_model_check rows"
            )
    return Guarded(
        tuple(parts["declared", "completion"]),
        tuple(parts.get(("declared", "chat"), ())),
        tuple(parts["control", "completion"]),
        tuple(parts.get(("control", "chat"), ())),
    )


def followed(rows: Sequence[BaseModelCheckRow]) -> tuple[int, int]:
    """Return how many commands were followed, and how many there are."""
    commands = [row for row in rows if BY_ID[row.sentinel].kind == "command"]
    return sum(BY_ID[row.sentinel].meets(row.output) for row in commands), len(commands)


def encoding_fault(row: BaseModelCheckRow) -> str:
    """Say what is wrong with how a bare prompt was encoded, from the ids in the row."""
    return fault_in(row.prompt, row.ids, row.ids_with_special, row.decoded, row.template_ids)


def measure_guard(evidence: Evidence) -> dict[str, Measured]:
    """Measure a base_model_check stage.

    Raises:
        EvidenceMissing: as :func:`guard_rows`.
    """
    rows = guard_rows(evidence)
    sentences = [row for row in rows.bare if BY_ID[row.sentinel].kind == "completion"]
    completed = sum(BY_ID[row.sentinel].meets(row.output) for row in sentences)
    return {
        "sentinels": Measured(len(rows.bare), len(rows.bare)),
        "sentinels_followed": share(*followed(rows.bare)),
        "templated_followed": _part(followed(rows.templated)),
        "control_followed": _part(followed(rows.control_templated)),
        "control_bare_followed": share(*followed(rows.control_bare)),
        "sentences_completed": share(completed, len(sentences)),
        "encoding_faults": Measured(sum(bool(encoding_fault(row)) for row in rows.bare), len(rows.bare)),
    }


class Instructed(NamedTuple):
    """The rows of a self_instruct stage and what they hold."""

    rows: tuple[SelfInstructRow, ...]
    seeds: list[Shown]
    parameters: SelfInstructParameters
    harvest: Harvest


def instructed(evidence: Evidence) -> Instructed:
    """Return the calls and what is left of them when parsing, repeats and merge are computed again.

    Raises:
        EvidenceMissing: rows, seeds or the granted parameters are absent or unreadable.
    """
    rows = read_rows(evidence.outputs.get("rows"), SelfInstructRow, "self_instruct rows")
    seeds = shown_of(read_rows(evidence.inputs.get("seeds"), Item, "seed items"))
    parameters = granted(evidence, SelfInstructParameters)
    return Instructed(rows, seeds, parameters, harvest(rows, seeds, parameters))


P = TypeVar("P", SelfInstructParameters, SampleResponsesParameters)


def granted(evidence: Evidence, model: type[P]) -> P:
    """Return the granted parameters in their form.

    Raises:
        EvidenceMissing: the order of the attempt is not on record.
    """
    if not evidence.parameters:
        raise EvidenceMissing("the order of the attempt is not on record")
    return model.model_validate(evidence.parameters)


def measure_instruct(evidence: Evidence) -> dict[str, Measured]:
    """Measure a self_instruct stage.

    Raises:
        EvidenceMissing: as :func:`instructed`, or there is no call beside probes.
    """
    found = instructed(evidence)
    work = [row for row in found.rows if row.probe == 0]
    if not work:
        raise EvidenceMissing("there is no call beside probes", where="self_instruct rows")
    fated = found.harvest.fated
    parsed = [one for one in fated if one.outcome in PARSED]
    kept = [one for one in parsed if one.outcome == "kept"]
    of_shards = [one for one in parsed if one.outcome in ("kept", "cross_shard", "surplus")]
    times = Counter(words_of(one.text) for one in parsed)
    same, other = probes(found.rows)
    n, calls = len(parsed), len(work)
    taken = len(taken_out(evidence, found))
    return {
        "instruct_calls": Measured(calls, calls),
        "instructions_parsed": Measured(n, calls),
        "instructions_kept": Measured(len(kept), calls),
        "instructions_kept_rate": _rate(kept, parsed),
        "instructions_held_out": Measured(taken, len(kept)),
        "instructions_left": Measured(len(kept) - taken, len(kept)),
        "instruction_uniqueness": Measured(ratio(len(times), n), n),
        "instruction_multiplicity": Measured(max(times.values(), default=0), n),
        "instruction_near_rate": _rate(_of(parsed, "near"), parsed),
        "cross_shard_rate": _rate(_of(parsed, "cross_shard"), of_shards),
        "meta_rate": _rate(_of(fated, "meta"), fated),
        "instruct_token_limit_rate": share(sum(row.finish == "length" for row in work), calls),
        "empty_calls_rate": share(found.harvest.empty_calls, calls),
        "instruction_median_words": Measured(median([len(one.text.split()) for one in kept] or [0]), len(kept)),
        "instruct_repeatable": _part((sum(same), len(same))),
        "instruct_seed_effect": _part((sum(not one for one in other), len(other))),
    }


def taken_out(evidence: Evidence, found: Instructed) -> dict[int, Overlap]:
    """Return, by place among the kept instructions, those that are held-out prompts: later stages do not read them."""
    thresholds, written = evidence.resolved.spec.thresholds, [item.prompt for item in found.harvest.items]
    return held_out_among(written, evidence.heldout, thresholds.prompt_similarity, thresholds.contained_words)


def probes(rows: Sequence[SelfInstructRow]) -> tuple[list[bool], list[bool]]:
    """Say for each repeated call whether its text is the first one's: with the same seed, and with another."""
    by_probe = {number: {row.call: row.raw for row in rows if row.probe == number} for number in (1, 2, 3)}
    first = by_probe[1]
    return (
        [first[call] == by_probe[2].get(call) for call in first],
        [first[call] == by_probe[3].get(call) for call in first],
    )


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
    parameters = granted(evidence, SampleResponsesParameters)
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


SHARES_OF_ANSWERS = {
    "responses_kept_rate": where("have no mark", lambda row: not row.marks),
    "runaway_rate_v2": where("run away", lambda row: cleaning.is_runaway(row.completion)),
    "runaway_rate_v1": where("run away by the older rule", lambda row: cleaning.is_runaway_v1(row.completion)),
    "response_token_limit_rate": where("hit the token limit", lambda row: row.finish == "length"),
    "incomplete_rate": where("are not whole", lambda row: any(mark in cleaning.INCOMPLETE for mark in row.marks)),
    "delimiter_leak_rate": where("hold a delimiter", lambda row: "delimiter" in row.marks),
    "out_of_scope_rate": where("break a scope rule", lambda row: any(mark.startswith("scope:") for mark in row.marks)),
}
"""Which of all answers a share counts: its value and its lines. Marks are computed again, so no contract can say it."""


def measure_respond(evidence: Evidence) -> dict[str, Measured]:
    """Measure a sample_responses stage.

    Raises:
        EvidenceMissing: as :func:`responded`.
    """
    rows, kept, _, _ = responded(evidence)
    tokens = {(row.instruction, row.completion): row.completion_tokens for row in rows}
    times = Counter(words_of(one.completion) for one in kept)
    similarity = evidence.resolved.spec.thresholds.prompt_similarity
    near = near_repeats((one.completion for one in kept), threshold=similarity)
    n = len(kept)
    return {
        "responses": Measured(len(rows), len(rows)),
        "responses_kept": Measured(n, len(rows)),
        **{id: share(sum(map(those.fits, rows)), len(rows)) for id, those in SHARES_OF_ANSWERS.items()},
        "response_residue": Measured(residue_of(kept), n),
        "response_median_tokens": Measured(median([tokens[one.prompt, one.completion] for one in kept] or [0]), n),
        "response_uniqueness": Measured(ratio(len(times), n), n),
        "response_multiplicity": Measured(max(times.values(), default=0), n),
        "response_near_rate": Measured(ratio(len(near), n), n),
    }


def residue_of(kept: Sequence[Example]) -> float:
    """Return the share of the most frequent ending."""
    edges = frequent_edges((as_kept(one) for one in kept), 0.0)
    return max((edge.share for edge in edges if edge.where == "tail" and not edge.scope), default=0.0)


def as_kept(example: Example) -> Kept:
    """Return an example as the scan for residue takes it."""
    item = Item(id=example.item, group=example.group, kind=example.kind, prompt=example.prompt, constraint={})
    return Kept(item, example.completion)


def _of(fated: Sequence[Fated], outcome: str) -> list[Fated]:
    return [one for one in fated if one.outcome == outcome]


def _rate(some: Sequence[object], of: Sequence[object]) -> Measured:
    return _part((len(some), len(of)))


def _part(counted: tuple[int, int]) -> Measured:
    """Return a share whose population may be empty: then nothing of it is there."""
    return share(*counted) if counted[1] else Measured(ratio(0, 0), 0)
