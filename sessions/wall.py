"""What no builder may read: secrets, and the prompts of the held-out items, wherever a text picked them up."""

from __future__ import annotations

import re

from reviews.collect import load_items
from reviews.requests.masking import Masker
from sessions.session import Session

SHORTEST_PROMPT = 12
"""Shorter prompts are words that stand in any text."""


class Wall:
    """Takes out what a text must not carry to a builder, a transcript or the trail."""

    def __init__(self, session: Session, masker: Masker) -> None:
        self._masker = masker
        items = load_items(session.store, session.resolved.data_digests["heldout"])
        prompts = {" ".join(item.prompt.split()) for item in items}
        self._prompts = sorted((one for one in prompts if len(one) >= SHORTEST_PROMPT), key=len, reverse=True)

    def scrub(self, text: str) -> str:
        """Return the text with marks in the place of secrets and held-out prompts."""
        text = self._masker.mask(text).text
        flat = " ".join(text.split()).casefold()
        # Prompts as they stand in JSON or on several lines are the same words with other spaces between.
        for prompt in self._prompts:
            if prompt.casefold() in flat or _escaped(prompt).casefold() in flat:
                for form in (prompt, _escaped(prompt)):
                    words = r"(?:\s|\\n|\\t)+".join(re.escape(word) for word in form.split())
                    text = re.sub(words, "[held-out]", text, flags=re.IGNORECASE)
        return text

    def scrub_bytes(self, data: bytes) -> bytes:
        """Return the body of a request or response, masked if it is text."""
        return self.scrub(data.decode("utf-8", "replace")).encode()


def _escaped(prompt: str) -> str:
    """Return a prompt as it stands inside a JSON string."""
    return prompt.replace("\\", "\\\\").replace('"', '\\"')
