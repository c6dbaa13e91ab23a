"""The messages between session and reviewer's process: one JSON object a line, of known form and length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

import specs.trail.verdict
from reviews.gate.reviewer import ReviewExchange
from specs.system.digests import Contract, Digest
from specs.system.vendors.parties import ReviewerSpec
from specs.trail.entry import Hex

MAX_LINE_BYTES = 64 * 2**20
"""Far above the largest packet and the largest exchange (two streams of 16 MiB as base64)."""


class ProcessMessage(Contract):
    """A message; bytes travel as base64."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class StartMessage(ProcessMessage):
    """The first message: the session, its reviewers and the signing key."""

    op: Literal["start"] = "start"
    session: str
    reviewers: tuple[ReviewerSpec, ...]
    """All reviewers; persons are not asked here, but keep their place."""
    key: str
    """Path of the signing key."""
    humans: tuple[Hex, ...] = ()
    """Public keys that persons sign their verdicts with."""


class ReviewMessage(ProcessMessage):
    """Review a packet."""

    op: Literal["review"] = "review"
    reviewer: int
    """Which of the reviewers."""
    packet: str
    """Canonical JSON."""
    digest: Digest
    readable: tuple[str, ...] = ()
    """What its tools can read next to the packet, a line each."""


class Spoken(ProcessMessage):
    """An entry of the trail that holds a verdict, as it was signed, and the verdict."""

    payload: str
    signatures: str
    verdict: str


class MergeMessage(ProcessMessage):
    """Merge what the members of a panel said."""

    op: Literal["merge"] = "merge"
    packet: Digest
    quorum: int
    members: tuple[Spoken, ...]


class RepeatMessage(ProcessMessage):
    """Repeat the verdict on the same evidence in an earlier attempt for this packet."""

    op: Literal["repeat"] = "repeat"
    packet: str
    before: str
    """The packet of the earlier attempt."""
    spoken: Spoken


class NoVerdictMessage(ProcessMessage):
    """State why a review gave no verdict. This closes the gate, so no reviewer needs to have been asked."""

    op: Literal["no_verdict"] = "no_verdict"
    packet: Digest
    reviewer: str
    why: specs.trail.verdict.NoVerdict


class Sign(ProcessMessage):
    """Sign an entry, given as the bytes a signature is over (DSSE pre-authentication encoding)."""

    op: Literal["sign"] = "sign"
    data: bytes


class Ready(ProcessMessage):
    """The process has its key and its reviewers."""

    op: Literal["ready"] = "ready"
    public: Hex


class VerdictMessage(ProcessMessage):
    """A verdict as canonical JSON, or the reason why it is missing."""

    op: Literal["reviewed"] = "reviewed"
    verdict: str | None
    no_verdict: specs.trail.verdict.NoVerdict | None = None
    exchange: ReviewExchange | None = None


class Waiting(ProcessMessage):
    """The model's API refuses calls for now or is not reached; the answer comes after the next call, or later."""

    op: Literal["waiting"] = "waiting"
    seconds: float
    why: str
    usd: float
    """What this review has cost so far."""


class Look(ProcessMessage):
    """The reviewer looks something up; the session does it, records both and answers ``LookupAnswerMessage``."""

    op: Literal["look"] = "look"
    tool: str
    arguments: str
    most: int
    """The most bytes of the answer."""


class LookupAnswerMessage(ProcessMessage):
    """The answer to a ``Look``, and the key of the entry that holds it."""

    op: Literal["looked"] = "looked"
    text: str
    is_error: bool
    entry: str


class SignatureMessage(ProcessMessage):
    """A signature."""

    op: Literal["signed"] = "signed"
    signature: bytes


class RefusalMessage(ProcessMessage):
    """The process refuses, and says why."""

    op: Literal["refused"] = "refused"
    is_users: bool = False
    """The user can fix it: a key file, an environment variable, a package."""
    message: str
    where: str = ""
    hint: str = ""


Question = Annotated[
    StartMessage | ReviewMessage | MergeMessage | RepeatMessage | NoVerdictMessage | Sign | LookupAnswerMessage,
    Field(discriminator="op"),
]
Answer = Annotated[
    Ready | VerdictMessage | Waiting | Look | SignatureMessage | RefusalMessage, Field(discriminator="op")
]
_QUESTIONS: TypeAdapter[Any] = TypeAdapter(Question)
_ANSWERS: TypeAdapter[Any] = TypeAdapter(Answer)


def line_of(message: ProcessMessage) -> bytes:
    """Write a message as a line; raises ValueError if it is too long, or holds text that is not text."""
    line = message.model_dump_json().encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a message of {len(line)} bytes, the limit is {MAX_LINE_BYTES}")
    return line


def read_question(
    line: bytes,
) -> StartMessage | ReviewMessage | MergeMessage | RepeatMessage | NoVerdictMessage | Sign | LookupAnswerMessage:
    """Read what the session asks; errors as in :func:`read_answer`."""
    return _read(_QUESTIONS, line)


def read_answer(line: bytes) -> Ready | VerdictMessage | Waiting | Look | SignatureMessage | RefusalMessage:
    """Read what the process answers; raises ValueError if it is too long, cut off, or no message of this protocol."""
    return _read(_ANSWERS, line)


def _read(form: TypeAdapter[Any], line: bytes) -> Any:
    if len(line) > MAX_LINE_BYTES or not line.endswith(b"\n"):
        raise ValueError(f"a line without an end, or of more than {MAX_LINE_BYTES} bytes")
    try:
        return form.validate_json(line, strict=True)
    except ValidationError as error:
        first: Mapping[str, Any] = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(f"invalid message: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
