"""What a named person has lifted: a check of a stage, or a condition of an earlier approval.

A person can lift what no reviewer can. It is an entry of its own with name, reason and, if given, an end; a check is
lifted for gates whose packet is built after it, never for a judgement made before.
"""

from __future__ import annotations

from collections.abc import Sequence

from reviews.trail.envelope import Recorded


def in_force(override: Recorded, moment_ns: int) -> bool:
    """Say whether an override has not ended at a moment, given in nanoseconds since 1970."""
    expires = override.body.get("expires")
    return expires is None or moment_ns <= expires * 1e9


def lifted_checks(entries: Sequence[Recorded], stage: str, moment_ns: int) -> dict[str, str]:
    """Return the checks that are lifted for a stage at a moment, each with the person and the reason."""
    return {
        one.body["check"]: f"{one.body['by']}: {one.body['reason']}"
        for one in entries
        if one.entry.kind == "override"
        and one.body["check"] is not None
        and one.body["stage"] == stage
        and in_force(one, moment_ns)
    }


def waived_conditions(entries: Sequence[Recorded], moment_ns: int) -> dict[str, Recorded]:
    """Return the conditions that are waived at a moment, by id, with the entry that says so."""
    return {
        one.body["condition"]: one
        for one in entries
        if one.entry.kind == "override" and one.body["condition"] is not None and in_force(one, moment_ns)
    }
