"""Which key is used for whom: a vendor's own from its usual variable, an endpoint's from a variable of its party."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from specs.system.errors import UserError

Party = Literal["builder", "reviewer"]
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
ENDPOINT_KEYS = {"builder": "PEERGATE_BUILDER_KEY", "reviewer": "PEERGATE_REVIEWER_KEY"}
"""For an endpoint named in a spec: its author must not get the key of a vendor."""
_SENDABLE = re.compile(r"[\x21-\x7e]+")
NO_KEY = "no-key"
"""Sent to an endpoint that wants none: the SDKs refuse to work without."""


def variable_of(party: Party, vendor: str, base_url: str | None) -> str:
    """Return the name of the variable that holds a party's key."""
    return ENDPOINT_KEYS[party] if base_url else KEYS[vendor]


def find_key(party: Party, vendor: str, base_url: str | None, environ: Mapping[str, str]) -> str:
    """Return the key a party uses; raises UserError if a vendor's is not set or cannot be sent."""
    name = variable_of(party, vendor, base_url)
    return key_in(name, f"{party} vendor '{vendor}'", environ, required=not base_url) or NO_KEY


def key_in(name: str, who: str, environ: Mapping[str, str], *, required: bool = True) -> str:
    """Return the key of a variable; empty where none is required. Raises UserError if it is not set or holds none."""
    key = environ.get(name, "").strip()
    if not key and required:
        raise UserError(f"{name} is not set", where=who, hint=f"export {name}=...")
    if key and not _SENDABLE.fullmatch(key):
        message = f"{name} holds a space, a line end or a letter outside ASCII; no key does"
        raise UserError(message, where=who, hint="set it to the key alone")
    return key
