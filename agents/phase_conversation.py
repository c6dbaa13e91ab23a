"""The conversation of one phase, built from the brief and the recorded turns alone: a restart sends the same again."""

from __future__ import annotations

from collections.abc import Sequence

from agents.providers.turn_request import readable
from agents.turns import Message, Stop, ToolCall, ToolResult
from agents.workbench_protocol import PastTurn
from specs.digests import digest_bytes
from specs.vendors.untrusted_text import mark

LONGEST = 240_000
"""Characters of results in a conversation before the older ones are replaced, some 60,000 tokens."""
KEPT_TURNS = 4
"""The results of so many newest turns are never replaced."""
SHORT = 600
"""A result of at most so many characters is never replaced."""

EXPECTED: dict[Stop, str] = {
    "end": (
        "Your answer called no tool, so nothing happened. This phase ends only by a tool call: go on with one, or with "
        "ask_person where that is open. A second answer without a call ends your work on this phase."
    ),
    "length": (
        "Your answer ended at the limit of its length, and nothing in it was carried out. Answer shorter: one call "
        "at a time, long texts in parts. A second answer without a call ends your work on this phase."
    ),
    "refusal": (
        "Your answer was a refusal, so nothing happened. Go on with a tool call, or say what stands in the way with "
        "ask_person where that is open. A second answer without a call ends your work on this phase."
    ),
    "tool_use": "",
}
"""What is said once about a turn without a call."""


def conversation(brief: str, past: Sequence[PastTurn]) -> tuple[Message, ...]:
    """Return the messages of the next request: roles alternate, and each call is answered in the next message."""
    replaced = _replaced(past)
    messages = [Message("user", text=brief)]
    for number, (turn, results) in enumerate(past):
        messages.append(Message("assistant", turn.text, turn.calls, turn.verbatim))
        if not turn.calls:
            messages.append(Message("user", text=EXPECTED[turn.stop]))
            continue
        by_call = {result.call: result for result in results}
        shown: list[ToolResult] = []
        for call in turn.calls:
            result = by_call.get(call.id) or ToolResult(call=call.id, text="it was not carried out", is_error=True)
            text = _line(call, result) if number < replaced and len(result.text) > SHORT else _whole(result)
            shown.append(result.model_copy(update={"text": text}))
        messages.append(Message("user", results=tuple(shown)))
    return tuple(messages)


def _whole(result: ToolResult) -> str:
    return mark("error" if result.is_error else "result", result.text)


def _line(call: ToolCall, result: ToolResult) -> str:
    """Say in one line what stood here; the name of an artifact is the model's own word for it."""
    named = readable(call.arguments).get("name")
    what = f"{named}, " if isinstance(named, str) and len(named) <= SHORT // 4 else ""
    digest = digest_bytes(result.text.encode())
    return mark("left out", f"{what}{len(result.text)} characters, {digest}; call the tool again if you need them")


def _replaced(past: Sequence[PastTurn]) -> int:
    """Return of how many turns the long results are replaced.

    It grows in steps, when the results since the last step are too long together: between two steps every request
    begins with the bytes of the one before, which is what prompt caches live on.
    """
    replaced, length = 0, 0
    sizes = [sum(len(one.text) for one in turn.results if len(one.text) > SHORT) for turn in past]
    for number in range(len(past)):
        length += sizes[number]
        if length > LONGEST and number + 1 > KEPT_TURNS:
            replaced = number + 1 - KEPT_TURNS
            length = sum(sizes[replaced : number + 1])
    return replaced
