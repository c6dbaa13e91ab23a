"""What a lease says, and where it is kept."""

from __future__ import annotations

from specs.digests import Contract

LEASE_S = 60.0
"""Without a sign of life for this long, the owner is taken for gone. Network folders tell old times for less."""

LOCK = "lease.lock"


class LeaseRecord(Contract):
    """Who holds a session, or held it last."""

    number: int
    """Rises with every owner: the epoch that entries are fenced with."""
    by: str
    host: str
    pid: int
    started: float
    """When the process was started: its id alone may have been given to another one."""
    since: float
    lock: str = LOCK
    """The file whose lock the owner holds: another one after each take-over, the old one may still be held."""
    released: bool = False
