"""The packet as a model is shown it: whole, but for checks that passed and have nothing to show, which are counted."""

from __future__ import annotations

from typing import Any

from specs.system.digests import canonical_bytes
from specs.system.text import enclose
from specs.trail.verdict import CheckResult, Packet

CLOSING = "Review the packet by your instructions and answer with the JSON object only."
_QUIET = ("PASS", "NOT_APPLICABLE")
_NOT_SHOWN = {"evidence", "title"}
"""Fields of a check that are omitted: digests mean nothing to a reader, and the title repeats the id."""


_ELSEWHERE = {"checks", "checks_digest", "metrics_digest", "registration", "reading"}
"""Fields of a packet that are shown in another way, or mean nothing to a reader."""


def render(packet: Packet, more: str = "") -> str:
    """Write the packet as canonical JSON, one line between markers; ``more`` comes before the closing."""
    return enclose("packet", canonical_bytes(build_packet_view(packet)).decode("utf-8")) + more + CLOSING


def reading_list(packet: Packet) -> str:
    """Write what is read before the packet, the same for all packets of a session; empty if there is nothing.

    The list is the value of the packet at ``/reading``.
    """
    return enclose("reading list", canonical_bytes(list(packet.reading)).decode("utf-8")) if packet.reading else ""


def build_packet_view(packet: Packet) -> dict[str, Any]:
    """Return what is shown of a packet. Every pointer into it points at the same place of the packet itself."""
    value = packet.model_dump(
        mode="json", exclude={"checks", "checks_digest", "metrics_digest", "registration", "reading"}
    )
    loud = {str(place): _of(check) for place, check in enumerate(packet.checks) if not _is_quiet(check)}
    quiet = [(check, place) for place, check in enumerate(packet.checks) if _is_quiet(check)]
    passed = {check_result.id: place for check_result, place in quiet if check_result.status == "PASS"}
    counts = {"passed": len(passed), "not_applicable": len(quiet) - len(passed)}
    return value | {"checks": loud, "quiet_checks": counts | {"places_of_passed": passed}}


def _is_quiet(check: CheckResult) -> bool:
    return check.status in _QUIET and not check.rows


def _of(check: CheckResult) -> dict[str, Any]:
    return check.model_dump(mode="json", exclude=_NOT_SHOWN, exclude_defaults=True)
