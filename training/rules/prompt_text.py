"""The prompts for new instructions after examples, and for an answer after worked pairs; numbered lists in them.

A prompt ends in the number of the first new item, so the answer begins without it. :func:`parse` gets that number; a
parser that looked for it would lose the first item of every answer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from specs.stages.base.sampling import END_MARK, WRAPPER, Form, Shot
from specs.stages.generation.parameters import SelfInstructParameters
from training.rules.disguise import count_words
from training.rules.similarity import words_of

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
        of_grown = min(len(grown), parameters.examples_per_prompt // 2) if parameters.growing else 0
        of_seeds = min(len(seeds), parameters.examples_per_prompt - of_grown)
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
    examples: Sequence[ExampleInstruction], count: int, part: tuple[object, ...]
) -> list[ExampleInstruction]:
    return sorted(examples, key=lambda value: hashlib.sha256(f"{part}/{value.id}".encode()).hexdigest())[:count]


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


_ITEM = re.compile(r"^[ \t]*(\d{1,4})[.)](?:[ \t]+|$)", re.MULTILINE)
_META = re.compile(
    r"^(?:(?:here (?:are|is)|sure|certainly|of course|below (?:are|is))\b"
    r"|(?:an)?other\b|more\b|next\b|(?:additional|further|new) (?:instructions?|tasks?|questions?|examples?)\b"
    r"|(?:instructions?|tasks?|questions?|examples?|topics?)\s*(?:\d+|list)?\s*[:.]?\s*$"
    r"|(?:instructions?|tasks?|examples?) (?:already used|about|on)\b"
    r"|(?:the )?(?:end|list) of\b|(?:etc|and so on)\b)",
    re.IGNORECASE,
)
_LEAST_WORDS = 3
_MOST_CHARACTERS = 400
_WORDLESS = re.compile(r"[\W\d_]*")

Fate = Literal["candidate", "meta", "short", "long", "cut"]


class ListItem(NamedTuple):
    """One item of a list that a model wrote."""

    number: int
    text: str
    fate: Fate
    """``candidate``, or why it is not an instruction; ``cut``: the token limit ended it."""


def render(items: Sequence[str], first: int = 1) -> str:
    """Write items as the lines of a numbered list."""
    return "\n".join(f"{number}. {' '.join(item.split())}" for number, item in enumerate(items, first))


def parse(raw: str, *, first: int, primed: bool, cut: bool) -> tuple[ListItem, ...]:
    """Return the items of a list whose numbers follow each other from ``first``.

    A number out of turn belongs to the text around it, and lines before the first item are skipped. ``primed``: the
    number was at the end of the prompt, so that ``raw`` begins with the item's text. ``cut``: the token limit ended the
    text, and with it the last item.
    """
    text = f"{first}. {raw.lstrip(' ')}" if primed else raw
    starts: list[re.Match[str]] = []
    for match in _ITEM.finditer(text):
        if int(match[1]) == first + len(starts):
            starts.append(match)
    if not starts:
        return ()
    ends = [match.start() for match in starts[1:]] + [len(text)]
    results: list[ListItem] = []
    for number, (match, end) in enumerate(zip(starts, ends, strict=True), first):
        body = " ".join(text[match.end() : end].split())
        is_last = number == first + len(starts) - 1
        results.append(ListItem(number, body, "cut" if cut and is_last else fate_of(body)))
    return tuple(results)


def fate_of(text: str) -> Fate:
    """Return whether a text can be an instruction, or why not."""
    if _META.match(text):
        return "meta"
    if count_words(words_of(text)) < _LEAST_WORDS or _WORDLESS.fullmatch(text):
        return "short"
    return "long" if len(text) > _MOST_CHARACTERS else "candidate"
