"""An answer that an item's own verifier has to accept, made from the item's constraint alone. Free of torch.

An item whose verifier refuses it cannot be answered by anybody: its constraint contradicts itself or names nothing.
For types of ``instruction_following`` there is none: they are combined freely, and an answer that follows several at
once cannot be put together by rule.
"""

from __future__ import annotations

from specs.stages.artifacts import Item
from training.rules.tasks.format_instructions import KINDS, Constraint


def reference(task: str, item: Item) -> str | None:
    """Return an answer that follows the item, or None where none can be made by rule.

    Raises:
        KeyError: the item's kind is unknown to the task, or a value of its constraint is missing.
        ValueError: a value is not what its kind takes.
    """
    if task == "exact_answer":
        return str(item.constraint["answer"])
    if task == "format_instructions":
        return _bullets(item.constraint) if item.kind == "bullets" else KINDS[item.kind].worked(item.constraint)
    return None


def stated_values(task: str, item: Item) -> tuple[str, ...]:
    """Return what the item's text has to say for its constraint to be known to whoever answers."""
    if task != "format_instructions":
        return ()
    return tuple(str(value) for value in item.constraint.values())


def _bullets(constraint: Constraint) -> str:
    return "\n".join(f"- Fact number {place + 1} is about bread." for place in range(int(constraint["count"])))
