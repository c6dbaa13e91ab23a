"""The messages between session and reviewer's process: one JSON object a line, of known form and length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

import specs.trail.no_verdict
from reviews.gate.reviewer import Exchange
from specs.system.digests import Contract, Digest
from specs.system.vendors.parties import Reviewer
from specs.trail.key_policy import Hex

MAX_LINE_BYTES = 64 * 2**20
"""Far above the largest packet and the largest exchange (two streams of 16 MiB as base64)."""


class Message(Contract):
    """A message; bytes travel as base64."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class Start(Message):
    """The first message: the session, its reviewers and the signing key."""

    op: Literal["start"] = "start"
    session: str
    reviewers: tuple[Reviewer, ...]
    """All reviewers; persons are not asked here, but keep their place."""
    key: str
    """Path of the signing key."""
    humans: tuple[Hex, ...] = ()
    """Public keys that persons sign their verdicts with."""


class Review(Message):
    """Review a packet."""

    op: Literal["review"] = "review"
    reviewer: int
    """Which of the reviewers."""
    packet: str
    """Canonical JSON."""
    digest: Digest
    readable: tuple[str, ...] = ()
    """What its tools can read beside the packet, a line each."""


class Spoken(Message):
    """An entry of the trail that holds a verdict, as it was signed, and the verdict."""

    payload: str
    signatures: str
    verdict: str


class Merge(Message):
    """Merge what the members of a panel said."""

    op: Literal["merge"] = "merge"
    packet: Digest
    quorum: int
    members: tuple[Spoken, ...]


class Repeat(Message):
    """Repeat the verdict on the same evidence in an earlier attempt for this packet."""

    op: Literal["repeat"] = "repeat"
    packet: str
    before: str
    """The packet of the earlier attempt."""
    spoken: Spoken


class NoVerdict(Message):
    """State that there is no verdict, and why. It closes the gate, so no reviewer need have been asked."""

    op: Literal["no_verdict"] = "no_verdict"
    packet: Digest
    reviewer: str
    why: specs.trail.no_verdict.NoVerdict


class Sign(Message):
    """Sign an entry, given as the bytes a signature is over (DSSE pre-authentication encoding)."""

    op: Literal["sign"] = "sign"
    data: bytes


class Ready(Message):
    """The process has its key and its reviewers."""

    op: Literal["ready"] = "ready"
    public: Hex


class Reviewed(Message):
    """A verdict as canonical JSON, or the reason why it is missing."""

    op: Literal["reviewed"] = "reviewed"
    verdict: str | None
    no_verdict: specs.trail.no_verdict.NoVerdict | None = None
    exchange: Exchange | None = None


class Waiting(Message):
    """The model's API refuses calls for now or is not reached; the answer comes after the next call, or later."""

    op: Literal["waiting"] = "waiting"
    seconds: float
    why: str
    usd: float
    """What this review has cost so far."""


class Look(Message):
    """The reviewer looks something up; the session carries it out, records both and answers with ``Looked``."""

    op: Literal["look"] = "look"
    tool: str
    arguments: str
    most: int
    """The most bytes of the answer."""


class Looked(Message):
    """The answer to a ``Look``, and the key of the entry that holds it."""

    op: Literal["looked"] = "looked"
    text: str
    is_error: bool
    entry: str


class Signed(Message):
    """A signature."""

    op: Literal["signed"] = "signed"
    signature: bytes


class Refused(Message):
    """The process refuses, and says why."""

    op: Literal["refused"] = "refused"
    is_users: bool = False
    """The user can mend it: a key file, an environment variable, a package."""
    message: str
    where: str = ""
    hint: str = ""


Question = Annotated[Start | Review | Merge | Repeat | NoVerdict | Sign | Looked, Field(discriminator="op")]
Answer = Annotated[Ready | Reviewed | Waiting | Look | Signed | Refused, Field(discriminator="op")]
_QUESTIONS: TypeAdapter[Any] = TypeAdapter(Question)
_ANSWERS: TypeAdapter[Any] = TypeAdapter(Answer)


def line_of(message: Message) -> bytes:
    """Write a message as a line; raises ValueError if it is too long, or holds text that is no text."""
    line = message.model_dump_json().encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a message of {len(line)} bytes, the limit is {MAX_LINE_BYTES}")
    return line


def read_question(line: bytes) -> Start | Review | Merge | Repeat | NoVerdict | Sign | Looked:
    """Read what the session asks; errors as in :func:`read_answer`."""
    return _read(_QUESTIONS, line)


def read_answer(line: bytes) -> Ready | Reviewed | Waiting | Look | Signed | Refused:
    """Read what the process answers; raises ValueError if it is too long, cut off, or no message of this protocol."""
    return _read(_ANSWERS, line)


def _read(form: TypeAdapter[Any], line: bytes) -> Any:
    if len(line) > MAX_LINE_BYTES or not line.endswith(b"\n"):
        raise ValueError(f"a line without an end, or of more than {MAX_LINE_BYTES} bytes")
    try:
        return form.validate_json(line, strict=True)
    except ValidationError as error:
        first: Mapping[str, Any] = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(f"no message: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
