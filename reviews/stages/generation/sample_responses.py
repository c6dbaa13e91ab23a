"""The judge of ``sample_responses`` stages: marks and cleaning are computed again from the raw texts, never read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import MeasuredValue
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import read_rows
from reviews.stages.generation.residue import AcceptedCompletion, FrequentEdge, frequent_edges
from specs.stages.base.artifacts import Example, Item
from specs.stages.generation.parameters import SampleResponsesParameters
from specs.stages.generation.rows import SampleResponsesRow
from specs.system.errors import EvidenceMissing
from training.rules import cleaning
from training.rules.sampling_quality import kept_of
from training.rules.similarity import Words, near_repeats, words_of


class RecomputedResponses(NamedTuple):
    """The rows of a sample_responses stage, what is kept of them and the instructions they answer."""

    rows: tuple[SampleResponsesRow, ...]
    examples: list[Example]
    items: tuple[Item, ...]
    parameters: SampleResponsesParameters


def recompute_responses(evidence: Evidence) -> RecomputedResponses:
    """Return the answers, with marks and cleaning computed again from the raw texts.

    Raises:
        EvidenceMissing: rows, instructions or the granted parameters are absent or unreadable, or a row answers
            another instruction than its item's.
    """
    rows = read_rows(evidence.outputs.get("rows"), SampleResponsesRow, "sample_responses rows")
    items = read_rows(evidence.inputs.get("instructions"), Item, "instructions")
    parameters = evidence.parse_parameters(SampleResponsesParameters)
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
    return RecomputedResponses(tuple(again), kept_of(again), items[: parameters.max_instructions], parameters)


class MarkedAnswer(NamedTuple):
    """An answer to an instruction, its marks computed again."""

    row: SampleResponsesRow
    is_example: bool
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
        """Return whether it runs away."""
        return cleaning.is_runaway(self.row.completion)

    @property
    def runaway_v1(self) -> bool:
        """Return whether it runs away by the older rule."""
        return cleaning.is_runaway_v1(self.row.completion)

    @property
    def incomplete(self) -> bool:
        """Return whether it is not whole."""
        return any(mark in cleaning.INCOMPLETE for mark in self.row.marks)


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the answers for its metrics; errors as :func:`recompute_responses`."""
    rows, examples, _, _ = recompute_responses(evidence)
    first: dict[tuple[str, str], int] = {}
    for place, row in enumerate(rows):
        if not row.marks:
            first.setdefault((row.instruction, row.completion), place)
    places = [first[example.prompt, example.completion] for example in examples]
    similarity = evidence.resolved.spec.thresholds.prompt_similarity
    near = {
        places[repeat.place]
        for repeat in near_repeats((example.completion for example in examples), threshold=similarity)
    }
    times = Counter(words_of(example.completion) for example in examples)
    most, ending, seen_words = max(times.values(), default=0), ending_of(examples), set[Words]()
    answers: list[MarkedAnswer] = []
    for place, row in enumerate(rows):
        words, is_kept = words_of(row.completion), place in places
        ends = is_kept and ending is not None and _ends_in(row, ending.text)
        answers.append(
            MarkedAnswer(
                row, is_kept, is_kept and words in seen_words, place in near, is_kept and times[words] == most, ends
            )
        )
        seen_words |= {words} if is_kept else set()
    return as_written(answers, output)


def measure(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return the share of the most frequent ending; errors as :func:`recompute_responses`."""
    examples = recompute_responses(evidence).examples
    ending = ending_of(examples)
    return {"response_residue": MeasuredValue(ending.share if ending else 0.0, len(examples))}


def ending_of(examples: Sequence[Example]) -> FrequentEdge | None:
    """Return the most frequent ending; None without one."""
    ends = [edge for edge in frequent_edges(map(as_kept, examples), 0.0) if edge.where == "tail" and not edge.scope]
    return max(ends, key=lambda edge: edge.share, default=None)


def _ends_in(row: SampleResponsesRow, ending: str) -> bool:
    """Return whether an answer has an ending, as the scan for residue reads it: words, or the marks after them."""
    last, words = words_of(ending), words_of(row.completion)
    if last:
        return len(words) > len(last) and words[-len(last) :] == last
    marks = re.search(r"[^\w\s]+\Z", row.completion.strip())
    return marks is not None and marks[0] == ending and ending not in row.instruction


def as_kept(example: Example) -> AcceptedCompletion:
    """Return an example as the scan for residue takes it."""
    item = Item(id=example.item, group=example.group, kind=example.kind, prompt=example.prompt, constraint={})
    return AcceptedCompletion(item, example.completion)
