"""The policy of a trail: whose keys may sign what. The first entry holds it; changes are entries of kind `keys`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from specs.system.digests import Contract
from specs.trail.entry import Hex, Role

ROLES: tuple[Role, ...] = get_args(Role)

SIGNERS: dict[str, tuple[Role, ...]] = {
    "*": ("log",),
    "plan": ("builder",),
    "call": ("builder",),
    "note": ("builder",),
    "submit": ("builder",),
    "verdict": ("reviewer",),
    "verdict:person": ("human",),
    "human": ("human",),
    "override": ("human",),
    "amendment": ("human",),
    "retraction": ("human",),
    "pruning": ("human",),
    "replication_plan": ("human",),
    "replication": ("human",),
    "keys": ("human",),
}
"""Which role signs which kind of entry, `*` being all others; the log signs heads.

``verdict:person``: a verdict whose reviewer is a person.
"""
PERSON = "person"


class PolicyKey(Contract):
    """A public key, its role and the entries it may sign: from ``since`` up to and without ``until``."""

    id: Hex
    role: Role
    public: Hex
    """The 32 bytes of the ed25519 key."""
    since: int = 0
    until: int | None = None
    revoked: bool = False
    """It may have been stolen: of what it signed, only what an anchor elsewhere covers from before can be believed."""


class Policy(Contract):
    """Keys and roles of one trail."""

    schema_version: Literal[1] = 1
    origin: str
    """The name of the log in its checkpoint notes."""
    keys: tuple[PolicyKey, ...]
    roles: dict[str, tuple[Role, ...]]
    witnesses: tuple[str, ...] = ()
    """Public keys, in the form ``name+id+key``, of those whose cosignatures on a head are looked for."""

    def roles_of(self, kind: str) -> tuple[Role, ...]:
        """Return which roles may sign entries of a kind."""
        return self.roles.get(kind) or self.roles.get("*", ())

    def signed_as(self, kind: str, body: Mapping[str, Any]) -> str:
        """Return the name of an entry's roles: its kind, or its kind with ``:person`` if a person reviewed."""
        own = f"{kind}:{PERSON}"
        return own if own in self.roles and body.get("reviewer") == PERSON else kind

    def key(self, id: str, seq: int) -> PolicyKey | None:
        """Return the key with this id if it may sign entry ``seq``."""
        for key in self.keys:
            if key.id == id and key.since <= seq and (key.until is None or seq < key.until):
                return key
        return None

    def current(self, role: Role, seq: int) -> PolicyKey | None:
        """Return the newest key of a role that may sign entry ``seq``."""
        able = [key for key in self.keys if key.role == role and self.key(key.id, seq) == key]
        return able[-1] if able else None
