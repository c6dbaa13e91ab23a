"""A rubric: the question a critic is asked, and its examples."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from specs.system.digests import Contract

Judges = Literal["instruction", "response", "comparison"]

PLACES: dict[Judges, tuple[str, ...]] = {
    "instruction": ("instruction",),
    "response": ("instruction", "response"),
    "comparison": ("instruction", "first", "second"),
}
"""What a rubric of each sort is about; its prompt names these in braces."""

_PLACE = re.compile(r"\{([a-z_]*)\}")


class RubricExample(Contract):
    """A worked example in a rubric's prompt. It is part of what is registered, like every word of the rubric."""

    instruction: str
    response: str | None = None
    first: str | None = None
    second: str | None = None
    good: bool
    """In a comparison: whether the first response is the better one."""


class Rubric(Contract):
    """What a critic is asked: ``head``, the worked examples, then ``item``, after which the label is the next token.

    In ``head``, ``{options}`` says what A and B mean and ``{bad}`` is the bad label. ``item`` names in braces what it
    is about. In a comparison A and B are the two responses, and neither is "bad".
    """

    judges: Judges
    good: Annotated[str, Field(min_length=3, max_length=500)]
    """What the good label means."""
    bad: Annotated[str, Field(min_length=3, max_length=500)]
    head: Annotated[str, Field(min_length=20, max_length=8000)]
    item: Annotated[str, Field(min_length=10, max_length=2000)]
    examples: tuple[RubricExample, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        known = {"options"} if self.judges == "comparison" else {"options", "bad"}
        for what, text, texts, allowed in (
            ("head", self.head, ("options",), known),
            ("item", self.item, PLACES[self.judges], set(PLACES[self.judges])),
        ):
            named = _PLACE.findall(text)
            if unknown := sorted(set(named) - allowed):
                raise ValueError(f"unknown placeholder {{{unknown[0]}}} in {what}; known: {', '.join(sorted(allowed))}")
            if wrong := [name for name in texts if named.count(name) != 1]:
                raise ValueError(f"{{{wrong[0]}}} appears {named.count(wrong[0])} times in {what}; it must appear once")
        if self.item != self.item.rstrip() or "\n" not in self.item or self.item.endswith("}"):
            raise ValueError("item ends with a line such as 'Label:', and nothing after it")
        places = PLACES[self.judges]
        for example in self.examples:
            input_texts = {name for name, value in example if value is not None and name != "good"}
            if input_texts != set(places):
                raise ValueError(f"an example has {', '.join(sorted(input_texts))}, expected {', '.join(places)}")
        return self

    def fill_head(self, **texts: str) -> str:
        """Return the head with texts in its places; a place without one is a KeyError."""
        return _PLACE.sub(lambda match: texts[match[1]], self.head)

    def fill_item(self, **texts: str) -> str:
        """Return the item with texts in its places, in which braces mean nothing; a place without one is a KeyError."""
        return _PLACE.sub(lambda match: texts[match[1]], self.item)
