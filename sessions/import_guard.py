"""Guard against name clashes: our top-level packages have plain names, and `openai-agents` brings an `agents` too."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from specs.errors import UserError
from specs.home import HOME, PACKAGES


def require_own_packages() -> None:
    """Make sure the five packages all come from one place.

    Raises:
        UserError: one is missing or belongs to another distribution.
    """
    for name in PACKAGES:
        found = find_spec(name)
        where = Path(found.origin).resolve().parent.parent if found and found.origin else None
        if where != HOME:
            raise UserError(
                f"import name '{name}' is provided by {where or 'nothing'}, not by Peergate in {HOME}",
                hint="install peergate in an environment of its own (openai-agents also installs 'agents')",
            )
