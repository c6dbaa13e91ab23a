"""Trail entries: what is recorded at every hand-over.

``open`` the session and its registration · ``model`` the weights it starts from · ``plan`` what the builder proposes ·
``grant`` the right to run · ``launch`` the intent to run, written before the job exists · ``exit`` how it ended ·
``lost`` a job that vanished · ``metrics``, ``checks``, ``packet``, ``verdict``, ``decision`` the way through a gate ·
``spend`` ledger lines · ``human`` what a person answered · ``override`` a check or condition lifted by a person ·
``amendment`` a changed registration · ``retraction`` a judgement taken back, with all that came after it ·
``asked`` a review that somebody requested, written before anybody is asked · ``answered`` what came of it ·
``workspace`` the first entry of a trail that holds requested reviews and no session ·
``pause``/``resume`` · ``report`` · ``close``.
"""

from __future__ import annotations

from typing import Any, Literal

from specs.digests import Contract, Digest

EntryKind = Literal[
    "open",
    "model",
    "plan",
    "grant",
    "launch",
    "exit",
    "lost",
    "metrics",
    "checks",
    "packet",
    "verdict",
    "decision",
    "spend",
    "human",
    "override",
    "amendment",
    "retraction",
    "asked",
    "answered",
    "workspace",
    "pause",
    "resume",
    "report",
    "close",
]

GENESIS = "sha256:" + "0" * 64


class Entry(Contract):
    """One link of the chain. ``digest`` covers every other field, ``previous`` is the digest before it."""

    schema_version: Literal[1] = 1
    seq: int
    kind: EntryKind
    session: str
    key: str
    """Idempotency key: appending the same key twice leaves one entry."""
    time_ns: str
    """Nanoseconds since 1970 as text: beyond 2**53, which canonical JSON refuses as a number."""
    previous: Digest
    body: dict[str, Any]


class Head(Contract):
    """The newest link: how many entries and the digest of the last."""

    size: int
    digest: Digest
