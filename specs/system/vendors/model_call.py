"""One call of a model: sent once, read whole, and every way it can fail in words and as a cause."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import httpx2

from specs.system.errors import NoVerdictCause
from specs.system.text import plain
from specs.system.vendors.conversation import ModelReply, ModelRequest
from specs.system.vendors.http_exchange import NOT_THE_API, REASON_CHARACTERS, UNREADABLE, Api, RecordedClient
from specs.system.vendors.streams import IncompleteStream

CUT_OFF = "the answer of the model's server was cut off"
INCOMPLETE = "the answer is not whole"
_TOO_LONG = re.compile(
    r"prompt is too long|request_too_large|context[_ ]length|context[_ ]window|context[_ ]size", re.IGNORECASE
)
"""How vendors and servers of open models say that a request does not fit the model's window."""
_STATUSES: dict[int, tuple[str, NoVerdictCause]] = {
    401: ("key refused", "key_refused"),
    403: ("not allowed", "key_refused"),
    404: ("not found", "request_refused"),
    408: ("timeout", "server_error"),
    409: ("request refused", "server_error"),
    429: ("too many requests", "rate_limited"),
}


class VendorApi(Protocol):
    """The module of a vendor's API."""

    body: Callable[[ModelRequest], Mapping[str, Any]]
    endpoint: Callable[[Api, RecordedClient], Callable[..., Any]]
    read: Callable[[Any], ModelReply]


class FailedCall(Exception):
    """One call gave no answer."""

    def __init__(
        self, what: str, cause: NoVerdictCause, http: RecordedClient, *, detail: str = "", can_repeat: bool = True
    ) -> None:
        self.what = what
        self.cause: NoVerdictCause = cause
        self.detail = plain(http.without_secrets(detail), REASON_CHARACTERS)
        self.can_repeat = can_repeat
        """Whether asking again can help."""
        self.refused_for_now = http.refused_for_now
        """Whether the call cost nothing and may be repeated as it was."""
        self.may_be_billed = http.may_be_billed
        self.wait_s = http.server_wait_s
        """How long the API asks to wait; None where it does not say."""
        super().__init__(f"{what}: {self.detail}" if self.detail else what)
        self.too_long = not can_repeat and _TOO_LONG.search(self.detail) is not None
        """Whether the request does not fit the model's window."""


def vendor_api(name: str) -> VendorApi:
    """Return the module of an API: ``anthropic``, ``openai`` or ``openai_chat``; imports its SDK."""
    return cast(VendorApi, importlib.import_module(f"specs.system.vendors.{name}"))


def send_request(vendor: VendorApi, api: Api, http: RecordedClient, request: ModelRequest) -> ModelReply:
    """Send a request once and return its reply; raises FailedCall if there is none."""
    try:
        return vendor.read(vendor.endpoint(api, http)(**vendor.body(request), timeout=request.timeout_s))
    except api.errors as error:
        what, cause = _describe_failure(http, error)
        can_repeat = http.refused_for_now or not http.statuses or (http.statuses[-1] or 0) < 300
        detail = f"{type(error).__name__}: {error}"
        raise FailedCall(what, cause, http, detail=detail, can_repeat=can_repeat) from error
    except IncompleteStream as error:
        if b"data:" not in (http.received or b""):
            # A page, or a body in one piece: nothing was cut off, and the next answer will be like it.
            raise FailedCall(NOT_THE_API, "malformed", http, can_repeat=False) from error
        raise FailedCall(CUT_OFF, "cut_off", http, detail=str(error), can_repeat=error.passes) from error
    except (*UNREADABLE, KeyError) as error:
        raise FailedCall(f"{NOT_THE_API} ({type(error).__name__})", "malformed", http) from error


def _describe_failure(http: RecordedClient, error: Exception) -> tuple[str, NoVerdictCause]:
    """Return how the last call failed, in words and as a cause."""
    status, count = http.statuses[-1] if http.statuses else None, len(http.statuses)
    after = f" after {count} calls" if count > 1 else ""
    if status is None:
        if not http.was_reached:
            return f"the model's server was not reached{after}", "unreachable"
        if _timed_out(error) or http.remaining_s <= 0:
            return f"the model's server did not answer in time{after}", "timed_out"
        return f"{CUT_OFF}{after}", "cut_off"
    if status < 300:
        # An error in the middle of a stream comes under the status of its beginning.
        return (CUT_OFF, "cut_off") if b"data:" in (http.received or b"") else (NOT_THE_API, "malformed")
    other = ("request refused", "request_refused") if status < 500 else ("server error", "server_error")
    label, cause = _STATUSES.get(status, other)
    return f"the model's server answered {status} ({label}){after}", cause


def _timed_out(error: BaseException | None) -> bool:
    """Return whether an error or its cause is a timeout; the SDKs wrap errors of the connection."""
    return error is not None and (isinstance(error, httpx2.TimeoutException) or _timed_out(error.__cause__))
