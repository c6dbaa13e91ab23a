"""The conversation of a phase, as a model is sent it: from the brief and the recorded turns alone.

What is left out of a conversation that gets long is replaced in steps, so that between two steps every request begins
with the bytes of the previous turn and is cached. The brief, the charter and a gate's conditions are never touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from agents.workbench_protocol import PastTurn
from specs.system.digests import digest_bytes
from specs.system.text import mark
from specs.system.vendors.conversation import ConversationMessage, Stop, ToolCall, ToolResult
from specs.system.vendors.tool_calls import readable, sendable_name

SHORT = 600
"""Characters of a result that is never replaced."""
IMAGE = 6_000
"""Characters for which an image counts."""


class Size(NamedTuple):
    """How long a conversation may get."""

    results: int
    """Characters of results before older ones are replaced by a line."""
    recent_turns: int
    """The results of so many newest turns are never replaced."""
    turns: int | None = None
    """Between so many turns and twice as many are sent at all; None for every turn."""
    result: int | None = None
    """Characters of one result that are sent; None for all of them."""


SIZES = (
    Size(240_000, 4),
    Size(60_000, 2),
    Size(15_000, 1, turns=8),
    Size(4_000, 1, turns=2, result=4_000),
)
"""The first is some 60,000 tokens. The next is taken each time an API says that the prompt is too long."""

_LAST = "A second answer without a call ends your work on this phase."
EXPECTED: dict[Stop, str] = {
    "end": "Your answer called no tool, so nothing happened. This phase ends only by a tool call: continue with one, "
    f"or with ask_person where that is open. {_LAST}",
    "length": "Your answer ended at the limit of its length, and nothing in it was carried out. Answer shorter: one "
    f"call at a time, long texts in parts. {_LAST}",
    "refusal": "Your answer was a refusal, so nothing happened. Continue with a tool call, or say what stops you with "
    f"ask_person where that is open. {_LAST}",
    "tool_use": "",
}
"""The reply to a turn without a call."""


def conversation(brief: str, past: Sequence[PastTurn], shortened: int = 0) -> tuple[ConversationMessage, ...]:
    """Return the messages of the next request: roles alternate, the next message answers each call.

    ``shortened`` says which of :data:`SIZES` it has to fit.
    """
    size = SIZES[shortened]
    replaced = _count_replaced_turns(past, size)
    first = max(len(past) // size.turns - 1, 0) * size.turns if size.turns else 0
    messages = [ConversationMessage("user", text=brief + _left_out(past[:first]))]
    for number, (turn, results) in list(enumerate(past))[first:]:
        messages.append(ConversationMessage("assistant", turn.text, turn.calls, turn.verbatim))
        if not turn.calls:
            messages.append(ConversationMessage("user", text=EXPECTED[turn.stop]))
            continue
        by_call = {result.call: result for result in results}
        tool_results: list[ToolResult] = []
        for call in turn.calls:
            result = by_call.get(call.id) or ToolResult(call=call.id, text="it was not carried out", is_error=True)
            # An image is sent with the newest results alone, and not where room is scarce.
            image = "" if number < replaced or size.result else result.image
            if number < replaced and len(result.text) > SHORT:
                text = _line(call, result)
            else:
                text = mark("error" if result.is_error else "result", _cut(result.text, size.result))
            tool_results.append(result.model_copy(update={"text": text, "image": image}))
        messages.append(ConversationMessage("user", results=tuple(tool_results)))
    return tuple(messages)


def next_step(brief: str, past: Sequence[PastTurn], shortened: int) -> int | None:
    """Return the next of :data:`SIZES` that leaves out more of this conversation; None if none does."""
    now = conversation(brief, past, shortened)
    return next((index for index in range(shortened + 1, len(SIZES)) if conversation(brief, past, index) != now), None)


def _left_out(past: Sequence[PastTurn]) -> str:
    """Return what the brief says of turns that are not sent; empty if all are."""
    if not past:
        return ""
    called = Counter(sendable_name(call.name) for turn, _ in past for call in turn.calls)
    names = ", ".join(f"{name} {count}" for name, count in sorted(called.items()))
    return (
        f"\n\nYour first {len(past)} turns of this phase are left out here, because the conversation was too long. "
        f"They called: {names or 'nothing'}. What they changed still holds; reread what you need."
    )


def _cut(text: str, most: int | None) -> str:
    """Return beginning and end of a text that is too long."""
    if most is None or len(text) <= most:
        return text
    return f"{text[: most // 2]}\n[{len(text) - most} characters left out]\n{text[len(text) - most // 2 :]}"


def _line(call: ToolCall, result: ToolResult) -> str:
    """Return one line in place of a long result; the artifact's name is the model's word."""
    named = readable(call.arguments).get("name")
    what = f"{named}, " if isinstance(named, str) and len(named) <= SHORT // 4 else ""
    digest = digest_bytes(result.text.encode())
    return mark("left out", f"{what}{len(result.text)} characters, {digest}; call the tool again if you need them")


def _count_replaced_turns(past: Sequence[PastTurn], limit: Size) -> int:
    """Return of how many turns the long results are replaced."""
    replaced, length = 0, 0
    sizes = [sum(_weight(result) for result in turn.results) for turn in past]
    for number, size in enumerate(sizes):
        length += size
        if length > limit.results and number + 1 > limit.recent_turns:
            replaced = number + 1 - limit.recent_turns
            length = sum(sizes[replaced : number + 1])
    return replaced


def _weight(result: ToolResult) -> int:
    """Return how many characters of a result can be replaced; an image has as many tokens as some thousand."""
    return (len(result.text) if len(result.text) > SHORT else 0) + (IMAGE if result.image else 0)
