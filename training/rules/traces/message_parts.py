"""Makes parts of a message's content, whatever form it has, and joins what a program wrote as several records."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from specs.traces.turn import Part, TextPart, Thinking, ToolResultPart, ToolUse

LONGEST = 20_000
"""Characters of a text or a result that are kept: from its beginning three quarters, the rest from its end."""


_ANSWERS = ("text", "thinking", "tool_use")


class PartMaker:
    """Makes parts without secrets and of bounded length."""

    def __init__(self, mask: Callable[[Any], Any], longest: int = LONGEST) -> None:
        """Take what masks secrets in a text or in a JSON value."""
        self._mask = mask
        self._longest = longest
        self.opaque: Counter[str] = Counter()
        """Blocks of answers that are neither texts nor calls, by type: nothing of them is learned."""

    def parts(self, content: Any, *, answer: bool = False) -> Iterator[Part]:
        """Yield the parts of a message's content: a text, or a list of blocks.

        Of an answer only texts, thoughts and calls are parts: what a provider's own tools did, what is encrypted and
        what a later version adds would otherwise be text that a student learns.
        """
        for block in content if isinstance(content, list) else [content]:
            if isinstance(block, str):
                block = {"type": "text", "text": block}
            if answer and isinstance(block, dict) and block.get("type") not in _ANSWERS:
                self.opaque[_text(block.get("type"))[:40] or "unknown"] += 1
                continue
            if isinstance(block, dict) and (part := self._part(block)) is not None:
                yield part

    def _part(self, block: dict[str, Any]) -> Part | None:
        kind = block.get("type")
        if kind == "thinking":
            thought = _text(block.get("thinking"))
            return Thinking(text=self._mask(thought)) if thought.strip() else None
        if kind == "tool_use":
            arguments = self._mask(_plain(block.get("input")))
            return ToolUse(call=_text(block.get("id")), tool=_text(block.get("name")), arguments=arguments)
        if kind == "tool_result":
            text, left_out = self._cut(self._mask("\n".join(_texts(block.get("content")))))
            failed = block.get("is_error") is True
            return ToolResultPart(call=_text(block.get("tool_use_id")), text=text, failed=failed, left_out=left_out)
        text, left_out = self._cut(self._mask("\n".join(_texts([block]))))
        return TextPart(text=text, left_out=left_out) if text.strip() else None

    def _cut(self, text: str) -> tuple[str, int]:
        """Return a text of bounded length and how many of its characters are left out."""
        if len(text) <= self._longest:
            return text, 0
        first, last = self._longest * 3 // 4, self._longest // 4
        left_out = len(text) - first - last
        return f"{text[:first]}\n[{left_out} of {len(text)} characters left out]\n{text[-last:]}", left_out


def _texts(content: Any) -> Iterator[str]:
    """Yield what can be read of a content; what cannot, such as an image, is named by a digest of its data."""
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            yield block
        elif isinstance(block, dict):
            kind = _text(block.get("type")) or "unknown"
            if kind == "text":
                yield _text(block.get("text"))
            else:
                data = json.dumps(block.get("source", block), sort_keys=True).encode()
                yield f"[{kind} sha256:{hashlib.sha256(data).hexdigest()}]"


def _text(value: Any) -> str:
    """Return a text without halves of character pairs, which no file could hold; "" for anything else."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""


def _plain(value: Any) -> Any:
    """Return a JSON value whose texts can be written, and whose numbers are finite."""
    if isinstance(value, dict):
        return {_text(name): _plain(element) for name, element in value.items()}
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return _text(value) if isinstance(value, str) else value


def join_part(parts: list[Part], more: Part) -> None:
    """Add a part of the same message: of a call, or of a text that grew, the newest form is kept."""
    if isinstance(more, (TextPart, Thinking)):
        # While an answer is streamed, some versions write it again and again as it grows.
        for place, part in enumerate(parts):
            if isinstance(part, type(more)) and more.text.startswith(part.text):
                parts[place] = more
                return
            if isinstance(part, type(more)) and part.text.startswith(more.text):
                return
    elif isinstance(more, ToolUse):
        for place, part in enumerate(parts):
            if isinstance(part, ToolUse) and part.call == more.call:
                parts[place] = more
                return
    parts.append(more)
