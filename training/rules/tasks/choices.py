"""Multiple choice: the constraint holds ``choice_1``, ``choice_2``, ... and ``answer``, the number of the right one.

Items for a task of lm-eval also hold the ``document`` that its templates read, as JSON.
"""

from __future__ import annotations

from specs.stages.base.artifacts import Item

DOCUMENT = "document"
"""The key of the document."""


def choices_of(item: Item) -> tuple[str, ...]:
    """Return the choices in order; raises ValueError if they are not two or more different ones without a gap."""
    numbered = {key: str(value).strip() for key, value in item.constraint.items() if key not in ("answer", DOCUMENT)}
    texts = [f"choice_{number}" for number in range(1, len(numbered) + 1)]
    if len(texts) < 2 or set(numbered) != set(texts):
        raise ValueError(f"question '{item.id}' has {sorted(numbered)}; choices are choice_1, choice_2, ...")
    choices = tuple(numbered[key] for key in texts)
    if "" in choices or len(set(choices)) != len(choices):
        raise ValueError(f"question '{item.id}' has an empty choice, or one twice")
    return choices


def answer_of(item: Item) -> int:
    """Return the place of the right choice, from 0.

    Raises ValueError as :func:`choices_of`, or if it is not a choice.
    """
    choices, answer = choices_of(item), item.constraint.get("answer")
    if not isinstance(answer, int) or not 1 <= answer <= len(choices):
        raise ValueError(f"question '{item.id}': answer {answer!r} is not a number from 1 to {len(choices)}")
    return answer - 1
