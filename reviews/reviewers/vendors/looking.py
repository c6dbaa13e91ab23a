"""How a reviewer looks things up: in rounds of calls, with answers of bounded length, inside the cap of one review."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.gate.reviewer import Looking, LookupRecord
from specs.system.digests import digest_bytes
from specs.system.errors import ReviewerUnavailable
from specs.system.text import enclose
from specs.system.vendors.conversation import ToolCall, ToolResult
from specs.system.vendors.prices import MARGIN_TOKENS, ModelPrice, TokenUsage
from specs.system.vendors.tool_calls import SENDABLE

ROUND_BYTES = 24_000
"""The limit for all answers to one message."""
ANSWER_BYTES = 12_000
MOST_CALLS = 8
"""In one message; more are answered that they were not carried out."""
VERDICT_TOKENS = 4_000
"""The money for a verdict of so many tokens is kept back while something is looked up."""
_TOO_MANY = f"not carried out: one message may hold {MOST_CALLS} calls; ask again"
_NO_ROOM = f"not carried out: the answers to one message may have {ROUND_BYTES} bytes in all; ask again, for less"


class Lookups:
    """What a reviewer looks up in one review."""

    def __init__(self, looking: Looking, rounds: int) -> None:
        self._looking = looking
        self.tools = looking.tools
        self.rounds = rounds
        """How many more answers with calls are carried out."""
        self.looked: list[LookupRecord] = []
        """In order: an answer is cited by its number, from 1."""
        self.sent = 0
        """How many of them the model was sent."""

    def describe(self) -> str:
        """Return what may be read, for the end of the question."""
        names = enclose("list", "\n".join(self._looking.names))
        return f"\nYour tools read the evidence with these names, in up to {self.rounds} messages:\n{names}"

    def results(self, calls: Sequence[ToolCall], who: str) -> tuple[ToolResult, ...]:
        """Carry out the calls of one message; raises ReviewerUnavailable if they cannot be answered."""
        self.rounds -= 1
        ids = [call.id for call in calls]
        if len(set(ids)) < len(ids) or not all(map(SENDABLE.fullmatch, ids)):
            what = "the answer calls tools under names that cannot be answered"
            raise ReviewerUnavailable(what, where=who, cause="malformed")
        results: list[ToolResult] = []
        room = ROUND_BYTES
        for number, call in enumerate(calls):
            if number >= MOST_CALLS:
                results.append(ToolResult(call=call.id, text=_TOO_MANY, is_error=True))
                continue
            head = f"answer {len(self.looked) + 1}: "
            most = min(ANSWER_BYTES, room - len(head))
            if most < len(_NO_ROOM):
                results.append(ToolResult(call=call.id, text=_NO_ROOM, is_error=True))
                continue
            answer = self._looking.look(call.name, call.arguments, most)
            self.looked.append(LookupRecord(answer.entry, digest_bytes(answer.text.encode())))
            text = head + answer.text
            room -= len(text.encode())
            results.append(ToolResult(call=call.id, text=text, is_error=answer.is_error))
        return tuple(results)


def longest_with_calls(price: ModelPrice, count: int, left_usd: float, at_most: int, *, writes: bool) -> int:
    """Return how many tokens an answer with calls may have, so that its results and a verdict can be paid after it.

    ``count`` is the most tokens of the request, ``writes`` whether the vendor charges for what it caches of it.
    """

    def usd(tokens: int) -> float:
        after = count + tokens + ROUND_BYTES + MARGIN_TOKENS
        first = price.usd(TokenUsage(count, tokens), written_tokens=count if writes else 0)
        return first + price.usd(TokenUsage(after, VERDICT_TOKENS), written_tokens=after if writes else 0)

    low, high = 0, at_most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if usd(middle) <= left_usd else (low, middle - 1)
    return low
