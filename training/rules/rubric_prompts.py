"""Rubrics as files, their prompts, and the labelled pairs that measure a judge. The measurer writes the prompts again.

``training/rules/prompts`` holds one file for each sort of critic; a spec may bring another. Every row holds the digest
of its rubric.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from specs.stages.base.artifacts import Item
from specs.stages.base.rubric import Judges, Rubric
from specs.stages.base.witness import Label
from specs.stages.critique.parameters import ShownResponse

PROMPTS = Path(__file__).parent / "prompts"
PairLabel = Literal["reference", "candidate", "tie"]
PAIR_KEYS = ("reference", "candidate", "label")


class JudgementPrompts(NamedTuple):
    """The two prompts of one judgement: A means "good" (or the first response) in one, B in the other."""

    plain: str
    swapped: str


@cache
def load_shipped_rubric(judges: Judges) -> Rubric:
    """Return the rubric that Peergate ships for a sort of critic; raises OSError or ValueError for a broken file."""
    from ruamel.yaml import YAML

    with (PROMPTS / f"{judges}.yaml").open(encoding="utf-8") as handle:
        return Rubric.model_validate(YAML(typ="safe").load(handle))


def rubric_for(judges: Judges, own: Rubric | None) -> Rubric:
    """Return the spec's rubric, or the shipped one; raises ValueError if the spec's judges something else."""
    if own is not None and own.judges != judges:
        raise ValueError(f"the rubric judges {own.judges}, this critic judges {judges}")
    return own or load_shipped_rubric(judges)


def prompts_of_instruction(rubric: Rubric, instruction: str) -> JudgementPrompts:
    """Return the prompts that ask about an instruction."""
    return _fill_both_orders(rubric, instruction=instruction)


def prompts_of_response(rubric: Rubric, instruction: str, text: str) -> JudgementPrompts:
    """Return the prompts that ask about a response; ``text`` is what :func:`judged_text_of` left of it."""
    return _fill_both_orders(rubric, instruction=instruction, response=text)


def prompts_of_comparison(rubric: Rubric, instruction: str, first: str, second: str) -> JudgementPrompts:
    """Return the prompts that compare two responses; the second one swaps them."""
    start = _start(rubric, "A")
    text = rubric.fill_item(instruction=instruction, first=first, second=second)
    other = rubric.fill_item(instruction=instruction, first=second, second=first)
    return JudgementPrompts(start + text, start + other)


def judged_text_of(response: str, what: ShownResponse) -> str:
    """Return what a critic reads of a response: its first paragraph, if so set, cut to a length."""
    text = response.strip()
    if what.first_paragraph:
        text = text.split("\n\n", 1)[0]
    return text[: what.shown_characters]


def _fill_both_orders(rubric: Rubric, **texts: str) -> JudgementPrompts:
    """Swap the meaning of the labels; the lines stay in the order A, B, so that the place of "good" changes too."""
    item = rubric.fill_item(**texts)
    return JudgementPrompts(_start(rubric, "A") + item, _start(rubric, "B") + item)


def _start(rubric: Rubric, good: Label) -> str:
    """Return the text before the item: the same for all items, so that a model reads it once."""
    bad: Label = "B" if good == "A" else "A"
    lines = (rubric.good, rubric.bad) if good == "A" else (rubric.bad, rubric.good)
    parts = [rubric.fill_head(options=f"A: {lines[0]}\nB: {lines[1]}", bad=bad)]
    for example in rubric.examples:
        texts = example.model_dump(exclude={"good"}, exclude_none=True)
        parts.append(f"{rubric.fill_item(**texts)} {good if example.good else bad}")
    return "".join(f"{part}\n\n" for part in parts)


class LabelledPair(NamedTuple):
    """Two answers to one item, and which of them a person prefers."""

    item: Item
    reference: str
    candidate: str
    label: PairLabel


def labelled_pairs(items: Iterable[Item]) -> tuple[LabelledPair, ...]:
    """Return pairs whose constraint has just ``reference``, ``candidate``, ``label``; raises ValueError without any."""
    pairs: list[LabelledPair] = []
    for item in items:
        constraint = item.constraint
        label = constraint.get("label")
        if set(constraint) != set(PAIR_KEYS) or label not in get_args(PairLabel):
            raise ValueError(
                f"pair '{item.id}' has {sorted(constraint)} with label {label!r}, expected {', '.join(PAIR_KEYS)}"
            )
        side: PairLabel = label  # pyright: ignore[reportAssignmentType]
        pairs.append(LabelledPair(item, str(constraint["reference"]), str(constraint["candidate"]), side))
    if not pairs:
        raise ValueError("no labelled pairs: the judge cannot be calibrated")
    return tuple(pairs)
