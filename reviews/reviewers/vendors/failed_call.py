"""How a call to a reviewer's server failed, in words and as a cause."""

from __future__ import annotations

import httpx2

from specs.system.errors import NoVerdictCause
from specs.system.vendors.http_exchange import NOT_THE_API, RecordedClient

CUT_OFF = "the answer of the reviewer's server was cut off"
_STATUSES: dict[int, tuple[str, NoVerdictCause]] = {
    401: ("key refused", "key_refused"),
    403: ("not allowed", "key_refused"),
    404: ("not found", "request_refused"),
    408: ("timeout", "server_error"),
    409: ("request refused", "server_error"),
    429: ("too many requests", "rate_limited"),
}


def describe_failure(http: RecordedClient, error: Exception) -> tuple[str, NoVerdictCause]:
    """Return how the last call failed, in words and as a cause."""
    status, count = http.statuses[-1] if http.statuses else None, len(http.statuses)
    after = f" after {count} calls" if count > 1 else ""
    if status is None:
        if not http.was_reached:
            return f"the reviewer's server was not reached{after}", "unreachable"
        if _timed_out(error) or http.remaining_s <= 0:
            return f"the reviewer's server did not answer in time{after}", "timed_out"
        return f"{CUT_OFF}{after}", "cut_off"
    if status < 300:
        # An error in the middle of a stream comes under the status of its beginning.
        return (CUT_OFF, "cut_off") if b"data:" in (http.received or b"") else (NOT_THE_API, "malformed")
    other = ("request refused", "request_refused") if status < 500 else ("server error", "server_error")
    named, cause = _STATUSES.get(status, other)
    return f"the reviewer's server answered {status} ({named}){after}", cause


def _timed_out(error: BaseException | None) -> bool:
    """Return whether an error or its cause is a timeout; the SDKs wrap errors of the connection."""
    return error is not None and (isinstance(error, httpx2.TimeoutException) or _timed_out(error.__cause__))
