"""What a stage's model was asked for one answer, derived again from granted inputs and parameters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from specs.jobs.job_records import LEFT
from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import ENGINES, Finish, Ids, PromptRead, digest_ids
from specs.stages.base.witness import Copies
from training.engines.sampling_noise import stream_of
from training.engines.token_sampling import TokenSampling
from training.jobs.job import Job
from training.jobs.row_files import Row, read_rows


class UnusableRow(Exception):
    """A row does not say what a witness needs: its item is unknown, or it has no token ids."""


class PromptedAnswer(NamedTuple):
    """One answer of a row, and what it is an answer to."""

    row: int
    """Its place in the file of rows, from 0."""
    prompt: Sequence[int]
    """Token ids, not taken from the row."""
    sampling: TokenSampling
    ids: Sequence[int]
    """The token ids of the answer, as the row states them."""
    text: str
    finish: Finish
    part: str = ""
    weights: str = "model"
    """The input whose weights were asked."""
    again: bool = False
    """Whether it was drawn by the random numbers of another row, and is due to repeat it."""
    states_prompt: bool = True
    """Whether the row states this prompt, as far as it states one."""
    stream: int | None = None
    """What the noise of its draws follows from; None where they are greedy or the engine has no such streams."""


class Source(NamedTuple):
    """What the draws of a stage's answers follow from."""

    parameters: Any
    part: str = ""
    """The part of the work that answers to items are of."""

    def stream(self, seed: int, *parts: object) -> int | None:
        """Return the stream of an answer; None where the granted engine has none."""
        return stream_of(seed, *parts) if ENGINES[self.parameters.engine].streams else None

    def of_item(self, item: str, sample: int) -> int | None:
        """Return the stream of an answer to an item."""
        return self.stream(self.parameters.seed, self.part, item, sample)


Asking = Callable[[Job[Any], Any, Sequence[int]], list[PromptedAnswer]]
"""Given the witness's job, the tokenizer and places of rows: what the model was asked for them. Raises NotAsked."""


def left_rows(job: Job[Any], row: type[Row], places: Sequence[int], output: str = "rows") -> list[tuple[int, Row]]:
    """Return rows of the judged job with their places, or raise NotAsked where there are fewer."""
    rows = read_rows(job.inputs[LEFT + output], row)
    if missing := [place for place in places if place >= len(rows)]:
        raise UnusableRow(f"no row {missing[0]}")
    return [(place, rows[place]) for place in places]


class ItemRow(Protocol):
    """A row that holds an answer to an item."""

    @property
    def item(self) -> str:
        """The item's id."""
        ...

    @property
    def sample(self) -> int:
        """Which answer to the item it is."""
        ...

    @property
    def answer_ids(self) -> Ids | None:
        """The token ids of the answer."""
        ...

    @property
    def finish(self) -> Finish | None:
        """How it ended."""
        ...


Answer = TypeVar("Answer", bound=ItemRow)


def of_items(
    rows: Sequence[tuple[int, Answer]],
    items: Sequence[Item],
    prompt_of: Callable[[Item], Sequence[int]],
    text_of: Callable[[Answer], str],
    sampling: TokenSampling,
    source: Source,
) -> list[PromptedAnswer]:
    """Return the prompts of rows that each answer one of these items; raises NotAsked for any other row."""
    known = {item.id: item for item in items}
    results: list[PromptedAnswer] = []
    for place, row in rows:
        if row.item not in known:
            raise UnusableRow(f"row {place} answers '{row.item}', which was not asked")
        prompt = prompt_of(known[row.item])
        stream = source.of_item(row.item, row.sample)
        results.append(
            answer(
                place, prompt, sampling, ids=row.answer_ids, text=text_of(row), finish=row.finish, stream=stream,
            )
        )  # fmt: skip
    return results


def answer(
    row: int,
    prompt: Sequence[int],
    sampling: TokenSampling,
    *,
    ids: Sequence[int] | None,
    text: str,
    finish: Finish | None,
    part: str = "",
    weights: str = "model",
    again: bool = False,
    stated: PromptRead | None = None,
    stream: int | None = None,
) -> PromptedAnswer:
    """Return an answer, or raise NotAsked where the row does not hold its token ids and its end."""
    if ids is None or finish is None:
        raise UnusableRow(f"row {row} has no token ids")
    states = stated is None or (stated.tokens == len(prompt) and stated.digest in (None, digest_ids(prompt)))
    return PromptedAnswer(row, prompt, sampling, ids, text, finish, part, weights, again, states, stream)


def copies_of(read: Sequence[PromptedAnswer], every: Sequence[PromptedAnswer]) -> dict[tuple[int, str], Copies]:
    """Return how many of all other answers to its prompt each recomputed sampled answer is a copy of.

    It counts answers that were not recomputed or were recomputed earlier, so that no two count each other: each
    comparison is with answers that a draw does not depend on. What is due to repeat another row counts nowhere.
    """
    read, every = [value for value in read if not value.again], [value for value in every if not value.again]
    known = {(value.row, value.part) for value in read}
    before: dict[tuple[object, ...], Counter[tuple[int, ...]]] = defaultdict(Counter)
    for value in every:
        if (value.row, value.part) not in known:
            before[_drawn_from(value)][tuple(value.ids)] += 1
    copies: dict[tuple[int, str], Copies] = {}
    for value in sorted(read, key=lambda value: (value.row, value.part)):
        others, ids = before[_drawn_from(value)], tuple(value.ids)
        if others and value.sampling.temperature is not None:
            copies[value.row, value.part] = Copies(of=others.total(), same=others[ids])
        others[ids] += 1
    return copies


def _drawn_from(value: PromptedAnswer) -> tuple[object, ...]:
    """Return what the distribution of an answer depends on."""
    return tuple(value.prompt), value.sampling, value.weights
