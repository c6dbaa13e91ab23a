"""What critics judge: instructions, responses, pairs of responses, and the labelled sample."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from specs.stages.base.artifacts import Example, Item


class Subject(NamedTuple):
    """One instruction, or one response to it."""

    item: str
    group: str
    kind: str
    sample: int | None
    instruction: str
    response: str | None


class ResponsePair(NamedTuple):
    """Two responses to one instruction."""

    item: str
    group: str
    instruction: str
    first: str
    second: str
    first_sample: int
    second_sample: int


class LabelFault(ValueError):
    """An item of the labelled sample lacks something; the message says which and what."""


def of_items(items: Iterable[Item]) -> list[Subject]:
    """Return instructions to be judged, in their order."""
    return [Subject(item.id, item.group, item.kind, None, item.prompt, None) for item in items]


def of_examples(examples: Iterable[Example]) -> list[Subject]:
    """Return responses to be judged, in their order."""
    return [
        Subject(example.item, example.group, example.kind, example.sample, example.prompt, example.completion)
        for example in examples
    ]


def read_labelled_subjects(items: Iterable[Item], *, responses: bool) -> list[tuple[Subject, Literal["good", "bad"]]]:
    """Return a critic's labelled sample: items with a person's ``label``, and a ``response`` if these are judged.

    Raises Unlabelled, with the item and what it lacks.
    """
    pairs: list[tuple[Subject, Literal["good", "bad"]]] = []
    for item in items:
        label, response = item.constraint.get("label"), item.constraint.get("response")
        if label not in ("good", "bad"):
            raise LabelFault(f"item '{item.id}' has the label {label!r}; it has to be 'good' or 'bad'")
        if responses != isinstance(response, str):
            raise LabelFault(f"item '{item.id}' has {'no' if responses else 'a'} response in its constraint")
        text = response if isinstance(response, str) else None
        pairs.append((Subject(item.id, item.group, item.kind, 0 if text else None, item.prompt, text), label))
    return pairs


def labelled_pairs(items: Iterable[Item]) -> list[tuple[ResponsePair, Literal["first", "second"]]]:
    """Return a judge's labelled sample: constraints with ``first``, ``second``, ``label``; raises Unlabelled."""
    pairs: list[tuple[ResponsePair, Literal["first", "second"]]] = []
    for item in items:
        label, first, second = (item.constraint.get(name) for name in ("label", "first", "second"))
        if label not in ("first", "second"):
            raise LabelFault(f"item '{item.id}' has the label {label!r}; it has to be 'first' or 'second'")
        if not isinstance(first, str) or not isinstance(second, str):
            raise LabelFault(f"item '{item.id}' lacks its 'first' or 'second' response")
        pairs.append((ResponsePair(item.id, item.group, item.prompt, first, second, 0, 1), label))
    return pairs
