"""How the two sides of a pod's channel talk: frames, and the orders in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import ConfigDict, Field, StringConstraints

from specs.system.digests import Contract

MAX_LINE = 1 << 20
PROTOCOL = 1
MINUTES_A_DAY = 24 * 60
Minutes = Annotated[float, Field(gt=0, le=365 * MINUTES_A_DAY)]


class BadFrame(ValueError):
    """The other side sent a malformed frame."""


def line_of(header: Mapping[str, Any], size: int = 0) -> bytes:
    """Return the line before ``size`` bytes."""
    return json.dumps({**header, "bytes": size}, separators=(",", ":")).encode() + b"\n"


def read_line(line: bytes) -> tuple[dict[str, Any], int]:
    """Return the header of a line and how many bytes follow, or raise BadFrame."""
    try:
        result = json.loads(line)
        size = result.pop("bytes")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise BadFrame("a line that is not a header") from error
    if not isinstance(result, dict) or type(size) is not int or size < 0:
        raise BadFrame("a header without a size")
    return result, size


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], int] | None:
    """Read a header from a stream, None at its end, or raise BadFrame."""
    line = stream.readline(MAX_LINE)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise BadFrame(f"a line longer than {MAX_LINE} bytes")
    return read_line(line)


class Rules(Contract):
    """When the keeper ends the pod; a rule that is None never ends it."""

    usd_per_hour: Annotated[float, Field(ge=0)] | None = None
    """What the machine costs, as your provider bills it."""
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """What the machine may cost, counted from its first `pod up`; needs ``usd_per_hour``."""
    idle_minutes: Minutes | None = None
    """Ends the pod when the session has not run for this long."""
    dead_man_minutes: Minutes | None = None
    """Ends the pod when no one was attached for this long."""
    grace_minutes: Annotated[float, Field(ge=0, le=MINUTES_A_DAY)] = 10.0
    """Time between the end of the session and the shutdown, for an attached client to pull."""
    shutdown: Annotated[str, StringConstraints(min_length=1, max_length=2000)] | None = None
    """Shell command that ends the machine, run there. Without it Peergate ends only its processes."""

    @property
    def any(self) -> bool:
        """Return whether any rule can end the pod."""
        return any(value is not None for value in (self.max_cost_usd, self.idle_minutes, self.dead_man_minutes))


class Order(Contract):
    """Start or resume the session. It holds the keys, so it is read from standard input."""

    # An error about an order must not repeat the keys in it.
    model_config = ConfigDict(hide_input_in_errors=True)

    python: str
    spec: str
    """Relative to the folder the spec was sent to. A session that is there already does not need it."""
    profile: str | None = None
    answer: Literal["retry", "approve", "stop"] | None = None
    reason: str = ""
    secrets: dict[str, str] = {}
    rules: Rules = Rules()


class Status(Contract):
    """What the pod reports about itself: a hint when to look, never evidence."""

    orchestrator: Literal["running", "ended", "gone", "never"]
    """``gone``: it left no exit code, because it was killed or the machine was restarted."""
    pid: int | None = None
    code: int | None = None
    keeper: bool = False
    entries: Annotated[int, Field(ge=0)] = 0
    gates: Annotated[int, Field(ge=0)] = 0
    closed: bool = False
    log: Annotated[int, Field(ge=0)] = 0
    """The end of the log that was asked for."""
    hours: Annotated[float, Field(ge=0)] = 0.0
    """Since the first `pod up`."""
    ending: str | None = None
    """Why the keeper ends the pod, while it does."""
