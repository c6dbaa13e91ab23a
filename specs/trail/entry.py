"""The entries of a trail: what is recorded at every hand-over (bodies: ``specs/trail/bodies.py``)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import StringConstraints

from specs.system.digests import Contract, Digest

_OfSessions = Literal["open", "model", "workspace", "keys", "pause", "resume", "report", "close"]
_OfJobs = Literal["launch", "exit", "lost", "challenge", "witness", "spend", "budget"]
_OfBuilders = Literal["turn", "call", "result", "note", "plan", "submit"]
_OfGates = Literal["grant", "metrics", "checks", "packet", "look", "verdict", "canary", "decision"]
_OfPeople = Literal["human", "override", "amendment", "retraction", "pruning", "question", "answer"]
_OfSeeds = Literal["replication_plan", "replication"]
EntryKind = Literal[_OfSessions, _OfJobs, _OfBuilders, _OfGates, _OfPeople, _OfSeeds]

KINDS: frozenset[str] = frozenset(get_args(EntryKind))
DESIGN = "design"
"""The name of the gate before the first stage."""
AMENDMENT = "amendment"
"""The name of the gate of a changed design."""
Role = Literal["log", "builder", "reviewer", "human"]
"""Whose key signs an entry (:mod:`specs.trail.key_policy`)."""
Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A key, or its id."""
GENESIS = "sha256:" + "0" * 64
EMPTY_ROOT = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""The root of a tree without entries (RFC 6962: the hash of nothing)."""


class Entry(Contract):
    """What one entry says; it is signed and in a tree."""

    schema_version: Literal[1] = 1
    seq: int
    kind: str
    """One of :data:`EntryKind`; a kind that a newer Peergate wrote is kept and shown, never dropped."""
    version: int = 1
    """The version of this kind's body."""
    session: str
    key: str
    """Idempotency key: appending the same key twice leaves one entry."""
    time_ns: str
    """Nanoseconds since 1970 as text: beyond 2**53, which canonical JSON refuses as a number."""
    previous: Digest
    """The root of the tree over all entries before this one."""
    body: dict[str, Any]
    policy: dict[str, Any] | None = None
    """Whose keys may sign what: in the first entry, and wherever that changes."""


class Head(Contract):
    """The newest entry: how many there are, the digest of the last, the root of the tree over all."""

    size: int
    digest: Digest
    root: Digest = EMPTY_ROOT


class OfAttempt(Contract):
    """Something of one attempt of a stage."""

    stage: str
    attempt: int


class Body(Contract):
    """What an entry of one kind records."""

    KIND: ClassVar[EntryKind]
    FROM_OUTSIDE: ClassVar[bool] = False
    """Whether it may be recorded while no orchestrator runs; such entries do not count as hours of the session."""
    AFTER_THE_END: ClassVar[bool] = False
    """Whether it may be added to the trail of a closed session."""

    @classmethod
    def key_of(cls, *parts: object) -> str:
        """Return the key of the entry of this kind that ``parts`` name: ``KIND/PART.PART``, or ``KIND`` alone."""
        return f"{cls.KIND}/{'.'.join(map(str, parts))}" if parts else cls.KIND

    def entry_key(self) -> str:
        """Return the key this entry is recorded under, unless its writer numbers the entries of the kind."""
        return self.key_of()


class AttemptBody(OfAttempt, Body):
    """What an entry on one attempt of a stage records."""

    def entry_key(self) -> str:
        """Return ``KIND/STAGE.ATTEMPT``."""
        return self.key_of(self.stage, self.attempt)


class UnknownBody(Body):
    """What an entry records whose kind, or version of it, a newer Peergate wrote."""
