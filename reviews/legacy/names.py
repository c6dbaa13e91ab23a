"""What the name of a review file says: its topic, who wrote it, and whether it is a request. English only."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from reviews.legacy.stamps import Stamp, stamp_of

_STAMPS = re.compile(
    r"(?<!\d)(?:19|20)\d\d[-_.]?\d\d[-_.]?\d\d(?:[-_T. ]{0,2}\d\d[-_:.h]?\d\d(?:[-_:.m]?\d\d)?)?Z?(?!\d)"
    r"|^P\d(?=_)|(?<=_)P\d(?=_)"
)
_REVIEWERS = (
    "codex",
    "gemini",
    "claude",
    "gpt",
    "gpt4",
    "gpt5",
    "opus",
    "sonnet",
    "o1",
    "o3",
    "llama",
    "qwen",
    "mistral",
    "deepseek",
    "human",
)
_ROLES = (
    "request",
    "requests",
    "response",
    "responses",
    "reply",
    "replies",
    "review",
    "reviews",
    "reviewed",
    "answer",
    "feedback",
    "result",
)
_NOISE = (
    "final",
    "draft",
    "copy",
    "the",
    "of",
    "for",
    "and",
    "a",
    "on",
    "in",
    "to",
    "v1",
    "v2",
    "v3",
    "short",
    "long",
    "full",
    "summary",
    "detailed",
    "autonomous",
)


class Name(NamedTuple):
    """A file name taken apart."""

    topic: frozenset[str]
    reviewer: str | None
    role: Literal["request", "review"]
    stamp: Stamp | None
    timed: bool
    """Its stamp has an hour: the way a program names files."""


def name_of(source: str) -> Name:
    """Return what a path below the imported folder says about the file."""
    path = PurePosixPath(source)
    words = [one for one in re.split(r"[^a-z0-9]+", _STAMPS.sub(" ", path.stem).lower()) if one]
    folders = {one.lower() for one in path.parts[:-1]}
    reviewer = next((one for one in reversed(words) if one in _REVIEWERS), None)
    if reviewer is None:
        reviewer = next((one for one in _REVIEWERS if one in folders), None)
    asked = ("request" in words or folders & {"requests", "pending"}) and not {"response", "responses", "reply"} & set(
        words
    )
    topic = frozenset(_singular(one) for one in words if one not in (*_REVIEWERS, *_ROLES, *_NOISE))
    stamp = stamp_of(path.name)
    return Name(topic, reviewer, "request" if asked else "review", stamp, bool(stamp and stamp.whole))


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of words that two topics have in common (Jaccard's index).

    It is 1 as well when one of them holds all words of the other, two or more.
    """
    if not one or not other:
        return 0.0
    shared = one & other
    if shared in (one, other) and len(shared) >= 2:
        return 1.0
    return len(shared) / len(one | other)


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
