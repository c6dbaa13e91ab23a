"""Whose model somebody is: the vendor a spec names, and whoever an address or the name of a model gives away.

An endpoint of one's own can serve any vendor's models, and vendors serve their own under other vendors' APIs. What is
told apart here is only what the spec itself shows: a model under another name at an unknown address passes.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from specs.session.session_spec import Builder, Reviewer

_HOSTS = {
    "anthropic": ("anthropic.com", "claude.com"),
    "openai": ("openai.com", "openai.azure.com", "chatgpt.com"),
}
_MODELS = {
    "anthropic": re.compile(r"\bclaude\b|\banthropic\b", re.IGNORECASE),
    "openai": re.compile(r"\b(gpt-\d|chatgpt|o[1-9](-|$)|openai\b)", re.IGNORECASE),
}


def makers(party: Builder | Reviewer) -> frozenset[str]:
    """Return every vendor whose model a builder or reviewer shows itself to be."""
    found: set[str] = {party.vendor}
    host = (urlsplit(party.base_url).hostname or "").rstrip(".") if party.base_url else ""
    found |= {name for name, hosts in _HOSTS.items() if any(host == one or host.endswith(f".{one}") for one in hosts)}
    if isinstance(party, Builder) and party.model_vendor is not None:
        found.add(party.model_vendor)
    if party.model:
        found |= {name for name, pattern in _MODELS.items() if pattern.search(party.model)}
    return frozenset(found)
