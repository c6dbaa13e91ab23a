"""The page of the checks and of the thresholds they read. Checks that other distributions installed are left out."""

from __future__ import annotations

from reviews.gate.check_catalog import Listed, listing
from sessions.reference.contract_fields import fields_of, table
from specs.session.thresholds import Thresholds


def check_page() -> str:
    """Return the page.

    Raises:
        UserError: the checks of another distribution are refused.
    """
    own = [one for one in listing() if one.distribution == "peergate"]
    rows = [(f"`{one.id}`", one.title, ", ".join(one.stage_kinds), _weight(one), one.threshold or "") for one in own]
    return (
        "# Checks\n\n"
        "A blocking check that is FAIL, BLOCKED (evidence is missing) or ERROR closes the gate; advice is shown to\n"
        "the reviewer. `design` is the gate before anything is paid for. `peergate check explain CHECK` shows where a\n"
        "check comes from, what it reads and its code.\n\n"
        f"{table(('check', 'question', 'stage kinds', 'weight', 'threshold'), rows)}\n\n"
        "## Thresholds\n\n"
        "The keys of `thresholds` in a spec. Write only what differs. A value that equals its threshold meets it.\n\n"
        f"{table(('key', 'type and limits', 'default', 'what it counts', 'checks'), _thresholds(own))}\n"
    )


def _weight(check: Listed) -> str:
    return ("blocking" if check.blocking else "advice") + (", treatment only" if check.only_treatment else "")


def _thresholds(own: list[Listed]) -> list[tuple[str, ...]]:
    readers: dict[str, list[str]] = {}
    for check in own:
        for limit in check.limits:
            readers.setdefault(limit.key, []).append(f"`{check.id}`")
    return [
        (f"`{one.name}`", one.type, one.default, one.text, ", ".join(readers.get(f"thresholds.{one.name}", ())))
        for one in fields_of(Thresholds)
    ]
