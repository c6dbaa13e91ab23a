"""How much effort a packet is worth: by the stakes that are registered for its gate."""

from __future__ import annotations

from reviews.packet import DESIGN
from specs.lint_reviewer import DESIGN_STAKES
from specs.session import Effort, Efforts
from specs.verdicts import Packet


def effort_of(packet: Packet, efforts: Efforts) -> Effort:
    """Return the effort a review of a packet is asked with."""
    gate = packet.registered.get("gate", {})
    return getattr(efforts, DESIGN_STAKES if packet.stage == DESIGN else gate.get("stakes", DESIGN_STAKES))
