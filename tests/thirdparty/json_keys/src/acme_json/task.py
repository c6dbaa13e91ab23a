"""The task ``json_keys``: an answer is right when it is JSON with exactly the keys that the item names."""

from __future__ import annotations

import json
from typing import Any

from specs.stages.base.artifacts import Item


def verify(item: Any, answer: str) -> bool:
    """Valid JSON with exactly the item's keys."""
    return set(json.loads(answer)) == set(item.constraint["keys"].split())


def worked_example(item: Any) -> tuple[str, str]:
    """Show another item of the same form."""
    return "Give JSON with the keys x and y.", '{"x": 1, "y": 2}'


def known_answers() -> list[tuple[Any, str, bool]]:
    """Return answers of which it is known whether they are right; ``verify`` may raise nothing on right ones."""
    prompt = "Give JSON with the keys a and b."
    item = Item(id="known", group="known", kind="keys", prompt=prompt, constraint={"keys": "a b"})
    right = ['{"a": 1, "b": 2}', '{"b": [], "a": null}']
    wrong = ["{}", '{"a": 1}', '{"a": 1, "b": 2, "c": 3}']
    right += [f'{{"a": {n}, "b": "{"x" * n}"}}' for n in range(0, 60, 6)]
    wrong += [f'{{"a": {n}, "d": "{"x" * n}"}}' for n in range(0, 60, 6)]
    return [(item, text, True) for text in right] + [(item, text, False) for text in wrong]
