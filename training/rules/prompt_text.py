"""The prompts for new instructions after examples, and for an answer after worked pairs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from specs.stages.base.answer_end import Form
from specs.stages.base.sampling import END_MARK, WRAPPER, Shot
from specs.stages.generation.parameters import SelfInstructParameters
from training.rules.numbered_lists import render

_HEADER = "A list of instructions for a helpful writer. Each is one sentence, clear, and different from all others."
_TOPIC = "Those from number {first} on are about {topic}."


class ExampleInstruction(NamedTuple):
    """An instruction that a prompt can show."""

    id: str
    text: str


class InstructionPrompt(NamedTuple):
    """One prompt for new instructions."""

    topic: str
    examples: tuple[ExampleInstruction, ...]
    first: int
    """The number of the first new instruction."""
    text: str


def seed_of(seed: int, *parts: object) -> int:
    """Return a seed for a part of the work: the same on every machine, different for every part."""
    text = "/".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) % 2**31


def calls_of_round(
    parameters: SelfInstructParameters,
    form: Form,
    shard: int,
    round: int,
    seeds: Sequence[ExampleInstruction],
    grown: Sequence[ExampleInstruction],
) -> list[InstructionPrompt]:
    """Return the prompts of a round, which depend only on the arguments.

    Half of the shown instructions are seeds, if there are new ones for the other half.
    """
    calls: list[InstructionPrompt] = []
    for number in range(parameters.calls_per_round):
        part = (parameters.seed, shard, round, number)
        of_grown = min(len(grown), parameters.shown // 2) if parameters.growing else 0
        of_seeds = min(len(seeds), parameters.shown - of_grown)
        visible = _draw_examples(
            [*_draw_examples(seeds, of_seeds, part), *_draw_examples(grown, of_grown, part)], of_seeds + of_grown, part
        )
        # Shards begin with different topics.
        place = shard + round * parameters.calls_per_round + number
        topic = parameters.topics[place % len(parameters.topics)] if parameters.topics else ""
        first = len(visible) + 1 if form == "completion" else 1
        write = _list_to_go_on_with if form == "completion" else _request
        calls.append(InstructionPrompt(topic, tuple(visible), first, write(visible, topic, parameters.per_call)))
    return calls


def _draw_examples(
    some: Sequence[ExampleInstruction], count: int, part: tuple[object, ...]
) -> list[ExampleInstruction]:
    return sorted(some, key=lambda value: hashlib.sha256(f"{part}/{value.id}".encode()).hexdigest())[:count]


def _list_to_go_on_with(visible: Sequence[ExampleInstruction], topic: str, _: int) -> str:
    """Return a list that ends in the number of its next item."""
    first = len(visible) + 1
    header = f"{_HEADER} {_TOPIC.format(first=first, topic=topic)}" if topic else _HEADER
    return "\n".join([header, "", *([render([value.text for value in visible])] if visible else []), f"{first}."])


def _request(visible: Sequence[ExampleInstruction], topic: str, per_call: int) -> str:
    about = f" about {topic}" if topic else ""
    used = f"These instructions are already used:\n{render([value.text for value in visible])}\n\n" if visible else ""
    return (
        f"{used}Write {per_call} new instructions{about} that are different from all others. "
        f"Each is one clear sentence. Answer with nothing but a numbered list from 1 to {per_call}."
    )


def stops_of_round(parameters: SelfInstructParameters, form: Form, first: int) -> tuple[str, ...]:
    """Return the strings that end a call: the number after the last instruction, and an empty line."""
    after = f"\n{first + parameters.per_call}."
    return (after, "\n\n") if form == "completion" else (after,)


def answer_prompt(instruction: str, shots: Sequence[Shot], form: Form) -> str:
    """Return the prompt for an answer: after worked pairs for bare text, the instruction alone for a chat."""
    if form == "chat":
        return instruction
    return in_wrapper(WRAPPER, instruction, [(shot.instruction, shot.response) for shot in shots], END_MARK)


def in_wrapper(wrapper: str, prompt: str, worked: Sequence[tuple[str, str]] = (), end: str = "") -> str:
    """Return bare text that an answer follows: worked pairs in the wrapper, each with its end, then the prompt."""
    pairs = [f"{wrapper.replace('{prompt}', text)} {answer}{end}\n\n" for text, answer in worked]
    return "".join(pairs) + wrapper.replace("{prompt}", prompt)
