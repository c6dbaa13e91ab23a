"""Words with which a model refuses, or excuses itself for being one: one list for jobs and checks."""

from __future__ import annotations

import re

REFUSING = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b",
        r"\bi(?:['\u2019]m| am) (?:sorry|unable|not able)\b",
        r"\bi (?:cannot|can ?not|can['\u2019]t|won['\u2019]t)\b",
        r"\bi apologi[sz]e\b",
    )
)


def refuses(text: str) -> bool:
    """Say whether a text holds words of a refusal."""
    return any(pattern.search(text) for pattern in REFUSING)
