"""Finds what generated text should not carry: delimiters, role marks, refusals, template beginnings and endings.

What the prompt or the item's constraint holds does not count. It misses delimiters of another shape unless they are
frequent enough to show as an edge, and refusals in other words or another language.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from reviews.evidence.text_overlap import DEFAULTS
from specs.stages.base.artifacts import Item
from specs.system.exact import holds
from training.rules.cleaning import REFUSING
from training.rules.similarity import jaccard, shingles_of, words_of

_ROLES = "user|human|assistant|system|instruction|response|question|answer|input|output|prompt|completion"

DELIMITERS = tuple(
    re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        # Chat templates: <|im_start|>, <|endoftext|>, and their beginnings.
        r"<\|\w*\|?>?",
        r"\[/?INST\b\]?",
        r"<</?SYS>>",
        r"</?s>",
        r"<(?:bos|eos|pad|unk|start_of_turn|end_of_turn|endoftext)>",
        # Alpaca's headings and the rest of ###END### when generation stops inside it.
        rf"#{{2,}}[ \t]*(?:end|{_ROLES})\b:?",
        # A heading begins a line and has words.
        r"#{2,}\s*\Z|^[ \t]*#{2,}[ \t]*$|(?<=\S)[ \t]*#{3,}",
        # A turn of a transcript, and an answer that a stop string cut at its colon.
        rf"^[ \t]*(?:{_ROLES}|q|a)[ \t]*:",
        r":\s*\Z",
    )
)

REFUSALS = (
    *REFUSING,
    # The words of someone who marks an answer.
    re.compile(r"\b(?:grade|score|rating|verdict)\s*[:=]\s*\S+", re.IGNORECASE),
    re.compile(r"\b\d+(?:\.\d+)?\s*/\s*10\b"),
)

_NATURAL = frozenset(".,!?;'\"*-()[]{}\u2018\u2019\u201c\u201d\u2026\u2013\u2014\u00ab\u00bb")
"""Marks that begin or end ordinary sentences, quotations and list items."""

_EDGE_WORDS = {"head": (3, 4, 5), "tail": (2, 3, 4)}
"""Two words begin many sentences by themselves ("it is"); few end with the same two."""

_LEAST_ROWS = 5
_LEAST_GROUPS = 3
"""Fewer rows, or fewer groups, are the wording of a topic and not a template."""


@dataclass(frozen=True)
class AcceptedCompletion:
    """A completion that was accepted, with the item it answers."""

    item: Item
    text: str

    def list_requested_texts(self) -> tuple[str, ...]:
        """Return the texts that the item asks for word for word."""
        return tuple(value for value in self.item.constraint.values() if isinstance(value, str))


class FrequentEdge(NamedTuple):
    """The same words or marks at the beginning or the end of many completions."""

    scope: str
    """A constraint kind, or empty for all of them."""
    where: Literal["head", "tail"]
    text: str
    times: int
    of: int
    groups: int

    @property
    def share(self) -> float:
        """The fraction of the completions of the scope."""
        return self.times / self.of


def marks_in(remaining: AcceptedCompletion, patterns: Sequence[re.Pattern[str]]) -> tuple[str, ...]:
    """Return what of a completion matches a pattern and is neither in its prompt nor in its constraint."""
    wanted = "\n".join((remaining.item.prompt, *remaining.list_requested_texts())).casefold()
    texts = [match[0].strip() for pattern in patterns for match in pattern.finditer(remaining.text)]
    return tuple(dict.fromkeys(mark for mark in texts if mark.casefold() not in wanted))


def repeats(text: str, source: str, similarity: float, contained: int = DEFAULTS.contained_words) -> bool:
    """Return whether a text repeats its source.

    It is nearly the same, or holds all of it where the source has ``contained`` words or more.
    """
    words, wanted = words_of(text), words_of(source)
    if jaccard(shingles_of(words), shingles_of(wanted)) >= similarity:
        return True
    starts = range(len(words) - len(wanted) + 1)
    return len(wanted) >= contained and any(words[at : at + len(wanted)] == wanted for at in starts)


def frequent_edges(remaining: Iterable[AcceptedCompletion], share: float) -> tuple[FrequentEdge, ...]:
    """Return beginnings and endings that more than a share of all completions, or of one kind, have in common.

    Of edges that lie in each other on the same completions the longest is returned. What the item's constraint asks
    for is taken off first; marks in the prompt do not count.
    """
    by_scope: defaultdict[str, list[AcceptedCompletion]] = defaultdict(list)
    for value in remaining:
        by_scope[""].append(value)
        by_scope[value.item.kind].append(value)
    if len(by_scope) == 2:
        del by_scope[next(scope for scope in by_scope if scope)]
    edges: list[FrequentEdge] = []
    for scope, completions in by_scope.items():
        for where in ("head", "tail"):
            edges += _edges_of(scope, where, completions, share)
    # Ties in a fixed order: an audit compares the rows that are shown.
    return tuple(sorted(edges, key=lambda edge: (-edge.share, edge.scope, edge.where, edge.text)))


def _edges_of(
    scope: str, where: Literal["head", "tail"], remaining: list[AcceptedCompletion], share: float
) -> list[FrequentEdge]:
    count: Counter[str] = Counter()
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for value in remaining:
        for text in _edge_texts(value, where):
            count[text] += 1
            groups[text].add(value.item.group)
    often = [
        FrequentEdge(scope, where, text, times, len(remaining), len(groups[text]))
        for text, times in count.items()
        if times >= _LEAST_ROWS
        and len(groups[text]) >= _LEAST_GROUPS
        and holds(Fraction(times, len(remaining)), ">", share)
    ]
    return [edge for edge in often if not any(_inside(edge, other) for other in often)]


def _inside(edge: FrequentEdge, other: FrequentEdge) -> bool:
    """Return whether another edge of the same rows says the same and more."""
    return edge.times == other.times and len(edge.text) < len(other.text) and edge.text in other.text


def _edge_texts(remaining: AcceptedCompletion, where: Literal["head", "tail"]) -> set[str]:
    """Return the first or last words in several lengths, and the marks there that no sentence has."""
    text = remaining.text.strip()
    for wanted in remaining.list_requested_texts():
        text = text.removesuffix(wanted).removeprefix(wanted).strip()
    match = re.search(r"\A[^\w\s]+" if where == "head" else r"[^\w\s]+\Z", text)
    marks = match[0] if match else ""
    words = words_of(text.removeprefix(marks) if where == "head" else text.removesuffix(marks))
    texts = {
        " ".join(words[:size] if where == "head" else words[-size:]) for size in _EDGE_WORDS[where] if len(words) > size
    }
    if set(marks) - _NATURAL and marks not in remaining.item.prompt:
        texts.add(marks)
    return texts
