"""An answer is right when it is a JSON list of the item's words, in any order."""

import json

from specs.stages.base.artifacts import Item


def verify(item: Item, answer: str) -> bool:
    """Compare the words."""
    return sorted(json.loads(answer)) == sorted(str(item.constraint["keys"]).split())


def known_answers() -> list[tuple[Item, str, bool]]:
    """Return answers of which it is known whether they are right."""
    item = Item(id="known", group="known", kind="keys", prompt="List a and b.", constraint={"keys": "a b"})
    right = [f'["{name}",{" " * n}"{other}"]' for n in range(6) for name, other in ("ab", "ba")]
    wrong = [f'["a",{" " * n}"{other}"]' for n in range(6) for other in "ac"]
    return [(item, text, True) for text in right] + [(item, text, False) for text in wrong]
