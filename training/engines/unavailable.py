"""An engine that cannot run here."""

from __future__ import annotations


class EngineMissing(Exception):
    """The engine that a stage was granted cannot run on this machine or with these weights.

    Nothing is put in its place: the answers would come from something else than what was registered.
    """

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(f"{why}; {hint}")
