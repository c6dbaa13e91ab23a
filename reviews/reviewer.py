"""The protocol every reviewer meets: it sees a packet and nothing else, and proposes a verdict."""

from __future__ import annotations

from typing import Protocol

from specs.verdicts import Packet, Verdict


class Reviewer(Protocol):
    """Judges a packet."""

    name: str

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Return findings whose spans name ``packet_digest`` and point into the packet.

        Raises:
            Blocked: no verdict can be had (down, refused, timed out, answered outside the schema); the gate stays
                closed.
        """
        ...
