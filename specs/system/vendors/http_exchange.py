"""One HTTP exchange with an API: bounded in time and size, recorded, and repeated only where that cannot cost twice.

The vendors' SDKs build requests and read responses and repeat nothing. A call may be repeated that the API refused with
408, 409, 429 or 5xx, or that never reached it; a request that timed out or was cut off may have been billed.
"""

from __future__ import annotations

import importlib
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2

from specs.system.masking import SHORTEST_VALUE, Masker
from specs.system.vendors.api_keys import Party, find_key
from specs.system.vendors.parties import BuilderSpec, ReviewerSpec
from specs.system.vendors.prices import ModelPrice, missing_package, price_of

if TYPE_CHECKING:
    from anthropic import Anthropic
    from openai import OpenAI

ADDRESSES = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
NOT_THE_API = "the response is not in the form of the API"
UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError)
"""The SDKs do not validate what they read: a body in another form, or nested too deep, raises one of these."""

RETRIES = 3
BACKOFF_S = 1.0
JITTER = 0.25
"""Waits are up to so much longer than they have to be: those who were refused together do not come back together."""
REASON_CHARACTERS = 500
LONGEST_WAIT_S = 60.0
"""The longest own wait; an API may ask for more."""
MAX_RESPONSE_BYTES = 4 * 2**20
_REFUSED_FOR_NOW = (408, 409, 429)
_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding")
_HEADERS = ("host", "accept", "content-type", "content-length", "user-agent", "anthropic-version")


class Api(NamedTuple):
    """One model at one address: how its vendor is reached, what its tokens cost, what its SDK raises."""

    vendor: str
    model: str
    address: str
    key: str
    price: ModelPrice
    errors: tuple[type[Exception], ...]

    def __repr__(self) -> str:
        """Leave the key out: this may end up in a traceback."""
        return f"Api({self.vendor!r}, {self.address!r})"

    def client(self, timeout_s: float, most_bytes: int | None = None) -> RecordedClient:
        """Return the HTTP client of one turn or one review."""
        # Anthropic answers an API key in the form of a bearer token with 401.
        header = "x-api-key" if self.vendor == "anthropic" else "authorization"
        return RecordedClient(timeout_s, self.key, most_bytes, header)

    def openai(self, http: httpx2.Client) -> OpenAI:
        """Return OpenAI's client. The address is stated, so that no variable redirects a registered model."""
        from openai import OpenAI

        return OpenAI(api_key=self.key, base_url=self.address, max_retries=0, http_client=http)

    def anthropic(self, http: httpx2.Client) -> Anthropic:
        """Return Anthropic's client. It writes no spans: a configured tracer would receive whole conversations."""
        from anthropic import Anthropic

        return Anthropic(api_key=self.key, base_url=self.address, max_retries=0, http_client=http, open_telemetry=False)


def open_api(party: Party, spec: BuilderSpec | ReviewerSpec, environ: Mapping[str, str]) -> Api:
    """Return the API of a spec's model; raises UserError if its key is not set, or its SDK or price is missing."""
    key = find_key(party, spec.vendor, spec.base_url, environ)
    price = price_of(spec.vendor, spec.model or "", spec.usd_per_million_tokens, party)
    return api_with(key, spec, price, party)


def api_with(key: str, spec: BuilderSpec | ReviewerSpec, price: ModelPrice, party: Party = "builder") -> Api:
    """Return the API of a model whose key and price are known; raises UserError if its SDK is missing."""
    try:
        sdk = importlib.import_module(spec.vendor)
    except ImportError as error:
        raise missing_package(spec.vendor, party) from error
    raised = sdk.OpenAIError if spec.vendor == "openai" else sdk.AnthropicError
    address = spec.base_url or ADDRESSES[spec.vendor]
    return Api(spec.vendor, spec.model or "", address, key, price, (raised, httpx2.HTTPError))


@cache
def _certificates() -> ssl.SSLContext:
    """Return what servers are verified by; reading it takes longer than most of what else a call does here."""
    return httpx2.create_ssl_context()


class RecordedClient(httpx2.Client):
    """An HTTP client for one turn or one review: keeps the bodies, ends at a deadline and masks secrets in answers.

    Redirects are not followed and only ``_HEADERS`` and the key are sent: an SDK's own headers may hold secrets of
    another vendor (``OPENAI_CUSTOM_HEADERS``), and the address may be someone else's.
    """

    def __init__(
        self, timeout_s: float, key: str, most_bytes: int | None = None, key_header: str = "authorization"
    ) -> None:
        super().__init__(follow_redirects=False, verify=_certificates())
        self.started = time.monotonic()
        self.deadline = self.started + timeout_s
        self._key = {key_header: f"Bearer {key.strip()}" if key_header == "authorization" else key.strip()}
        self._most_bytes = most_bytes or MAX_RESPONSE_BYTES
        self._masker = Masker(os.environ, {key.strip(): "the key"} if len(key.strip()) >= SHORTEST_VALUE else {})
        self.sent = b""
        self.received: bytes | None = None
        self.statuses: list[int | None] = []
        self._reached = False
        self._answer_headers = httpx2.Headers()
        self._streams: list[Any] = []
        """The connections of this client, the last one of which is in use."""

    @property
    def remaining_s(self) -> float:
        """Return the seconds left for this call."""
        return self.deadline - time.monotonic()

    def allow(self, seconds: float) -> None:
        """Give the next call so many seconds."""
        self.deadline = time.monotonic() + seconds

    @property
    def was_reached(self) -> bool:
        """Return whether the last call came as far as the server."""
        return self._reached

    @property
    def may_be_billed(self) -> bool:
        """Return whether the last call may cost something although its answer could not be used."""
        status = self.statuses[-1] if self.statuses else None
        return self._reached and (status is None or status < 400)

    def without_secrets(self, text: str) -> str:
        """Return a text without the key and every other secret."""
        return self._masker.text(text)

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request and read its whole response; ``stream`` is not supported and ignored."""
        self.sent, self.received, self._reached = request.read(), None, False
        self._answer_headers = httpx2.Headers()
        self.statuses.append(None)
        options["stream"] = True
        remaining = max(self.remaining_s, 0.001)
        request.extensions["timeout"] = {"connect": remaining, "read": remaining, "write": remaining, "pool": remaining}
        own = {name: request.headers[name] for name in _HEADERS if name in request.headers}
        request.headers = httpx2.Headers(own | self._key | {"accept-encoding": "identity"})
        with self._ending_at_the_deadline(request):
            try:
                response = super().send(request, **options)
            except httpx2.HTTPError as error:
                self._reached = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                if self._reached and self.remaining_s <= 0:
                    raise httpx2.ReadTimeout("the response did not begin in time") from error
                raise
            self._reached = True
            data = self._without_secrets(self._read(response))
        self.received, self.statuses[-1], self._answer_headers = data, response.status_code, response.headers
        headers = [
            multi_item for multi_item in response.headers.multi_items() if multi_item[0].lower() not in _OF_THE_BODY
        ]
        return httpx2.Response(response.status_code, headers=headers, content=data, request=request)

    @contextmanager
    def _ending_at_the_deadline(self, request: httpx2.Request) -> Generator[None]:
        """Shut the connection at the deadline: a timeout of a read begins anew with every byte, of headers too."""

        def keep(_: str, info: dict[str, Any]) -> None:
            if (stream := info.get("return_value")) is not None and hasattr(stream, "get_extra_info"):
                self._streams.append(stream)

        def shut() -> None:
            for stream in self._streams:
                # A separate descriptor, because the reading thread uses TLS on this one.
                with (
                    suppress(OSError, AttributeError),
                    socket.socket(fileno=os.dup(stream.get_extra_info("socket").fileno())) as connection,
                ):
                    connection.shutdown(socket.SHUT_RDWR)

        request.extensions["trace"] = keep
        timer = threading.Timer(max(self.remaining_s, 0.001), shut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _without_secrets(self, data: bytes) -> bytes:
        """Return a body without secrets; each event of a stream is masked alone, so that the others stay whole."""
        if data.lstrip()[:1] in (b"{", b"[") or b"data:" not in data:
            return self._masker.data(data)
        # The end of a line is not part of what is masked: without it an event has no end.
        lines = data.split(b"\n")
        return b"\n".join(b"data:" + self._masker.data(line[5:]) if line[:5] == b"data:" else line for line in lines)

    def _read(self, response: httpx2.Response) -> bytes:
        """Read the body. A server that sends a byte now and then ends at the deadline as well."""
        pieces: list[bytes] = []
        size = 0
        try:
            for piece in response.iter_bytes():
                pieces.append(piece)
                size += len(piece)
                if size > self._most_bytes:
                    raise httpx2.ReadError(f"the response is longer than {self._most_bytes} bytes")
                if self.remaining_s <= 0:
                    break
            if self.remaining_s <= 0:
                # A body without a length ends as its connection is shut.
                raise httpx2.ReadTimeout("the response did not end in time")
        except httpx2.HTTPError as error:
            if self.remaining_s <= 0:
                raise httpx2.ReadTimeout("the response did not end in time") from error
            raise
        finally:
            response.close()
        return b"".join(pieces)

    @property
    def refused_for_now(self) -> bool:
        """Return whether the last call cost nothing and may be repeated as it was."""
        status = self.statuses[-1] if self.statuses else None
        return not self._reached or status in _REFUSED_FOR_NOW or (status is not None and status >= 500)

    @property
    def server_wait_s(self) -> float | None:
        """Return what the last answer asks to wait; None when it says nothing."""
        return retry_after_s(self._answer_headers)


def backoff_s(repeats: int, value: float | None, longest_s: float = float("inf")) -> float:
    """Return how long to wait after so many repeats: twice as long each time, or longer if the server asks for it."""
    wait = max(min(BACKOFF_S * 2 ** min(repeats, 30), longest_s), value or 0.0)
    return wait * random.uniform(1, 1 + JITTER)


def retry_after_s(headers: httpx2.Headers) -> float | None:
    """Return what the server asks to wait, in seconds; None when it says nothing that can be read."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        # Wait too if it is not a number or is infinite: the deadline decides.
        return max(seconds, 0.0) if seconds == seconds else None
    try:
        return max(parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time(), 0.0)
    except (KeyError, ValueError, TypeError):
        return None
