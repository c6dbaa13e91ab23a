"""How much effort a packet is worth: by the stakes that are registered for its gate."""

from __future__ import annotations

from specs.lint.party_rules import DESIGN_STAKES
from specs.system.vendors.parties import Efforts, ReviewLimits
from specs.trail.entry import DESIGN
from specs.trail.verdict import Packet

MOST_REFUTED = 4
"""Blocking findings of one verdict that are put to a fresh call."""


def effort_of(packet: Packet, efforts: Efforts) -> ReviewLimits:
    """Return the effort a review of a packet is asked with."""
    gate = packet.registered.get("gate", {})
    return getattr(efforts, DESIGN_STAKES if packet.stage == DESIGN else gate.get("stakes", DESIGN_STAKES))
