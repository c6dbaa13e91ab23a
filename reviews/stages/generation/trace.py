"""The lines that metrics of base_model_check, self_instruct and sample_responses are computed from.

Instructions are counted one by one, and a call gives several: the lines are those of the calls that wrote them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Part, chosen, every, part
from reviews.evidence.row_reader import read_rows
from reviews.stages.generation.measure import (
    PARSED,
    SHARES_OF_ANSWERS,
    Instructed,
    as_kept,
    encoding_fault,
    guard_rows,
    instructed,
    probes,
    responded,
    taken_out,
)
from reviews.stages.generation.residue import frequent_edges
from specs.stages.artifacts import Example, Item
from specs.stages.generation.rows import BaseModelCheckRow, SampleResponsesRow, SelfInstructRow
from training.rules.generation.instruction_harvest import Fated
from training.rules.generation.sentinels import BY_ID
from training.rules.similarity import near_repeats, words_of

INSTRUCTIONS = "instructions"


def sentinels(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the sentinels of one model in one form.

    Raises:
        EvidenceMissing: as :func:`reviews.stages.generation.measure.guard_rows`.
    """
    guard_rows(evidence)
    rows = read_rows(evidence.outputs.get("rows"), BaseModelCheckRow, "base_model_check rows")
    model, form, asked = {
        "templated_followed": ("declared", "chat", "command"),
        "control_followed": ("control", "chat", "command"),
        "control_bare_followed": ("control", "completion", "command"),
        "sentinels_followed": ("declared", "completion", "command"),
        "sentences_completed": ("declared", "completion", "completion"),
    }.get(metric, ("declared", "completion", ""))

    def belongs(row: BaseModelCheckRow) -> bool:
        return (row.model, row.form) == (model, form) and asked in ("", BY_ID[row.sentinel].kind)

    given = f"given to the {model} model {'as bare text' if form == 'completion' else 'with its chat template'}"
    what = {"command": "commands", "completion": "beginnings of sentences", "": "sentinels"}[asked]
    population = part(f"{what} {given}", rows, belongs)
    if metric == "sentinels":
        return (population,)
    if metric == "encoding_faults":
        return (part("are not encoded as their text", rows, lambda row: belongs(row) and bool(encoding_fault(row))),)
    met = part(f"{what} {given}, met", rows, lambda row: belongs(row) and BY_ID[row.sentinel].meets(row.output))
    return (met, population)


def calls(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return calls for instructions, by what became of what they gave.

    Raises:
        EvidenceMissing: as :func:`reviews.stages.generation.measure.instructed`.
    """
    found = instructed(evidence)
    rows, fated = found.rows, found.harvest.fated
    work = part("calls, probes left out", rows, lambda row: row.probe == 0)
    if metric in ("instruct_repeatable", "instruct_seed_effect"):
        return _probes(rows, metric)
    if metric == "instruct_token_limit_rate":
        cut = "calls that the token limit ended"
        return (part(cut, rows, lambda row: row.probe == 0 and row.finish == "length"), work)
    parsed = [one for one in fated if one.outcome in PARSED]
    writers = _writers(rows, parsed)
    if metric == "empty_calls_rate":
        empty = part("calls that gave no instruction", rows, lambda row: row.probe == 0 and _key(row) not in writers)
        return (empty, work)
    if metric in ("instructions_kept", "instructions_kept_rate", "instruction_median_words"):
        items = read_rows(evidence.outputs.get("instructions"), Item, "instructions", may_be_empty=True)
        by = _calls_of(rows, [one for one in fated if one.outcome == "kept"], "calls that wrote them")
        return (every("every instruction that is kept", items, INSTRUCTIONS), by)
    if metric in ("instructions_held_out", "instructions_left"):
        return _handed_on(evidence, found, metric == "instructions_left")
    of_outcome = {
        "instruction_near_rate": ("near", "calls with an instruction that nearly repeats an earlier one"),
        "cross_shard_rate": ("cross_shard", "calls with an instruction that repeats one of another shard"),
        "meta_rate": ("meta", "calls with an item that speaks of the list"),
    }
    if metric in of_outcome:
        outcome, what = of_outcome[metric]
        return (_calls_of(rows, [one for one in fated if one.outcome == outcome], what),)
    if metric in ("instruction_uniqueness", "instruction_multiplicity"):
        times: Counter[tuple[str, ...]] = Counter(words_of(one.text) for one in parsed)
        most = metric == "instruction_multiplicity"
        least = max(times.values(), default=0) if most else 2
        what = f"calls with an instruction that was written {'most often' if most else 'twice or more'}"
        return (_calls_of(rows, [one for one in parsed if times[words_of(one.text)] >= least], what),)
    if metric == "instructions_parsed":
        return (_calls_of(rows, parsed, "calls that gave an instruction"),)
    return (work,)


def _handed_on(evidence: Evidence, found: Instructed, left: bool) -> tuple[Part, ...]:
    """Return the kept instructions that are handed on, or those that are not, and the calls that wrote them."""
    items = read_rows(evidence.outputs.get("instructions"), Item, "instructions", may_be_empty=True)
    taken = {found.harvest.items[place].id for place in taken_out(evidence, found)}
    what = "are no held-out prompts and are handed on" if left else "are held-out prompts and are taken out"
    places = [number for number, item in enumerate(items, 1) if (item.id in taken) != left]
    some = [one for one in found.harvest.fated if one.outcome == "kept" and (one.id in taken) != left]
    return (
        chosen(f"kept instructions that {what}", items, places, INSTRUCTIONS),
        _calls_of(found.rows, some, "calls that wrote them"),
    )


def _key(row: SelfInstructRow) -> str:
    return f"s{row.shard}-r{row.round}-c{row.call}"


def _writers(rows: Sequence[SelfInstructRow], some: Iterable[Fated]) -> set[str]:
    known = {_key(row) for row in rows}
    return {one.id.rpartition("-")[0] for one in some} & known


def _calls_of(rows: Sequence[SelfInstructRow], some: Sequence[Fated], what: str) -> Part:
    writers = _writers(rows, some)
    return part(what, rows, lambda row: row.probe == 0 and _key(row) in writers)


def _probes(rows: Sequence[SelfInstructRow], metric: str) -> tuple[Part, ...]:
    same, other = probes(rows)
    first = [number for number, row in enumerate(rows, 1) if row.probe == 1]
    by, what = (
        (same, "gave the same text with the same seed")
        if metric == "instruct_repeatable"
        else ([not one for one in other], "gave another text with another seed")
    )
    met = [number for number, holds in zip(first, by, strict=True) if holds]
    return (chosen(f"calls that were made again and {what}", rows, met), chosen("calls made again", rows, first))


def responses(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return answers, by what their marks say, or those that are kept.

    Raises:
        EvidenceMissing: as :func:`reviews.stages.generation.measure.responded`.
    """
    rows, kept, _, _ = responded(evidence)
    if metric in SHARES_OF_ANSWERS:
        return (part(SHARES_OF_ANSWERS[metric].told, rows, SHARES_OF_ANSWERS[metric].fits),)
    if metric == "responses":
        return (every("every answer", rows),)
    places = _places(rows, kept)
    those = chosen("are kept", rows, places)
    if metric in ("responses_kept", "response_median_tokens"):
        return (those,)
    what, some = _repeats(evidence, kept, metric)
    return (chosen(what, rows, (places[place] for place in some)), those)


def _places(rows: Sequence[SampleResponsesRow], kept: Sequence[Example]) -> list[int]:
    """Return the line of every kept answer: the first one that has no mark and says it."""
    first: dict[tuple[str, str], int] = {}
    for number, row in enumerate(rows, 1):
        if not row.marks:
            first.setdefault((row.instruction, row.completion), number)
    return [first[one.prompt, one.completion] for one in kept]


def _repeats(evidence: Evidence, kept: Sequence[Example], metric: str) -> tuple[str, list[int]]:
    """Return what some of the kept answers have in common, and their places."""
    if metric == "response_near_rate":
        similarity = evidence.resolved.spec.thresholds.prompt_similarity
        near = near_repeats((one.completion for one in kept), threshold=similarity)
        return "of these, repeat an earlier one or nearly", [one.place for one in near]
    if metric == "response_residue":
        edges = frequent_edges((as_kept(one) for one in kept), 0.0)
        ends = [edge for edge in edges if edge.where == "tail" and not edge.scope]
        if not ends:
            return "of these, end in the same words", []
        last = ends[0].text
        return f"of these, end in '{last}'", [place for place, one in enumerate(kept) if _ends_in(one, last)]
    places: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, one in enumerate(kept):
        places[words_of(one.completion)].append(place)
    if metric == "response_multiplicity":
        return "of these, say what is said most often", max(places.values(), key=len, default=[])
    return "of these, say what an earlier one says", [place for some in places.values() for place in some[1:]]


def _ends_in(one: Example, ending: str) -> bool:
    """Say whether an answer has an ending, as the scan for residue reads it: words, or the marks after them."""
    last, words = words_of(ending), words_of(one.completion)
    if last:
        return len(words) > len(last) and words[-len(last) :] == last
    marks = re.search(r"[^\w\s]+\Z", one.completion.strip())
    return marks is not None and marks[0] == ending and ending not in one.prompt
