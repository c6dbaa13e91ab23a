"""The protocol every builder meets: it is shown a stage and proposes; it never launches, measures or decides."""

from __future__ import annotations

from typing import Protocol

from specs.grants import Proposal, StageView


class Builder(Protocol):
    """Prepares one attempt of one stage."""

    name: str

    def propose(self, view: StageView) -> Proposal:
        """Return the parameters to move, or ask for a person.

        Whatever is returned is a proposal: a change outside the allowed ranges is refused when the grant is minted.
        """
        ...
