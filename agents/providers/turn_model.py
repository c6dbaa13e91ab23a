"""Asks a model for a turn: what it can cost, one call, and repeated calls until there is a turn."""

from __future__ import annotations

import importlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from agents.providers.turn_request import Asking, VendorReply, sendable_text, with_ids
from agents.turns import ConversationMessage, ModelTurn, TurnUsage
from agents.workbench_protocol import Workbench
from specs.system.errors import BuilderUnavailable
from specs.system.text import plain
from specs.system.vendors import prices
from specs.system.vendors.http_exchange import (
    LONGEST_WAIT_S,
    NOT_THE_API,
    REASON_CHARACTERS,
    RETRIES,
    UNREADABLE,
    Api,
    RecordedClient,
    backoff_s,
    open_api,
)
from specs.system.vendors.parties import BuilderSpec as BuilderSpec
from specs.system.vendors.prices import MARGIN_TOKENS, is_count, most_tokens
from specs.system.vendors.streams import IncompleteStream
from specs.system.vendors.token_counts import counted_tokens
from specs.trail.tool_arguments import Tool

FIVE_MINUTES_S, HOUR_S = 300.0, 3600.0
"""How long a prompt cache keeps what is written for a short and for a long time."""
COUNTED_FROM = 20_000
"""Bytes that no count covers from which on the vendor is asked to count."""
MAX_RESPONSE_BYTES = 64 * 2**20
"""A stream spends some 200 bytes on each token."""


_TOO_LONG = re.compile(
    r"prompt is too long|request_too_large|context[_ ]length|context[_ ]window|context[_ ]size", re.IGNORECASE
)
"""How vendors and servers of open models say that a request does not fit the model's window."""


class TokenCount(NamedTuple):
    """How many tokens the API counted in a request of so many bytes."""

    messages: tuple[ConversationMessage, ...]
    size: int
    tokens: int


class NoAnswer(Exception):
    """One call gave no turn; says whether asking again can help, and how long the API asks to wait, in seconds."""

    def __init__(self, message: str, *, passes: bool, may_be_billed: bool, told_s: float | None = None) -> None:
        super().__init__(message)
        self.passes, self.may_be_billed, self.told_s = passes, may_be_billed, told_s
        self.too_long = not passes and _TOO_LONG.search(message) is not None


class TooLong(Exception):
    """The API refused a request because it is longer than the model's window."""


class Vendor(Protocol):
    """The module of a vendor's API."""

    body: Callable[[Asking], Mapping[str, Any]]
    endpoint: Callable[[Api, RecordedClient], Callable[..., Any]]
    read: Callable[[Any], VendorReply]


class TurnModel:
    """One model at one address, with a price and the limits of a spec."""

    def __init__(self, api: Api, spec: BuilderSpec, vendor: Vendor) -> None:
        self._api = api
        self._spec = spec
        self._vendor = vendor
        self._counts = True
        self.price = api.price
        self.name = f"{spec.vendor}:{spec.model}"

    def asking(
        self,
        system: str,
        tools: tuple[Tool, ...],
        messages: tuple[ConversationMessage, ...],
        shortened: int = 0,
        wait_s: float = 0,
    ) -> Asking:
        """Return the request for the next turn of a conversation, after which the model may have to wait so long."""
        spec = self._spec
        limits = (spec.max_output_tokens, spec.timeout_s, spec.reasoning)
        hour = FIVE_MINUTES_S < wait_s <= HOUR_S
        displayed_messages = messages if spec.images else tuple(message.without_images() for message in messages)
        return Asking(spec.model or "", system, tools, displayed_messages, *limits, hour, shortened)

    def cap_usd(self, asking: Asking, before: TokenCount | None = None) -> float:
        """Return the most USD a turn can cost: all its tokens written into the cache, and the longest answer.

        Every byte is taken for a token, except in the beginning that the API has counted ``before``. What would still
        be far too much is counted by the vendor, where it does so for nothing.
        """
        at_most = most_tokens(added := self._size(asking))
        if before is not None and asking.messages[: len(before.messages)] == before.messages:
            added = max(added - before.size, 0)
            at_most = min(at_most, before.tokens + most_tokens(added))
        if added > COUNTED_FROM and (counted := self._count(asking)) is not None:
            at_most = min(at_most, counted + MARGIN_TOKENS)
        hour = min(at_most, most_tokens(self._size(asking._replace(messages=())))) if asking.hour else 0
        usage = prices.TokenUsage(at_most, asking.max_output_tokens)
        return self.price.usd(usage, written_tokens=at_most, hour_tokens=hour)

    def read_token_count(self, asking: Asking, turn: ModelTurn) -> TokenCount | None:
        """Return what the API counted of a request; None if it reported nothing."""
        return None if turn.usage is None else TokenCount(asking.messages, self._size(asking), turn.usage.input_tokens)

    def _count(self, asking: Asking) -> int | None:
        """Return the most tokens of a request as the vendor counts them; None if it does not say."""
        counted = counted_tokens(self._api, self._vendor.body(asking)) if self._counts else None
        # An endpoint that does not count is not asked in every turn.
        self._counts = counted is not None
        return counted

    def _size(self, asking: Asking) -> int:
        return len(json.dumps(self._vendor.body(asking), ensure_ascii=False).encode())

    def call(self, asking: Asking, cap_usd: float) -> tuple[ModelTurn, bytes, bytes]:
        """Ask once; return a turn with both bodies on the wire, without the key; raises NoAnswer without a turn."""
        with self._api.client(asking.timeout_s, MAX_RESPONSE_BYTES) as http:
            try:
                send = self._vendor.endpoint(self._api, http)
                with send(**self._vendor.body(asking), timeout=asking.timeout_s) as stream:
                    reply = self._vendor.read(stream)
                turn = self._turn(reply, asking, cap_usd)
            except self._api.errors as error:
                passes = http.refused_for_now or not http.statuses or (http.statuses[-1] or 0) < 300
                wait = http.told_to_wait_s
                raise NoAnswer(http.why(error), passes=passes, may_be_billed=http.may_be_billed, told_s=wait) from error
            except IncompleteStream as error:
                message = plain(http.without_secrets(str(error)), REASON_CHARACTERS)
                # A page or a body in one piece was not cut off: the next answer will be like it.
                streamed = b"data:" in (http.received or b"")
                text = message if streamed else "the response is not a stream of events"
                raise NoAnswer(text, passes=streamed and error.passes, may_be_billed=True) from error
            except (*UNREADABLE, KeyError) as error:
                message = f"{NOT_THE_API} ({type(error).__name__})"
                raise NoAnswer(message, passes=True, may_be_billed=http.may_be_billed) from error
            return turn, http.sent, http.received or b""

    def _turn(self, reply: VendorReply, asking: Asking, cap_usd: float) -> ModelTurn:
        usage, usd = None, cap_usd
        if reply.usage is not None and is_count(reply.usage) and is_count(prices.TokenUsage(reply.written_tokens, 0)):
            # Where the API does not tell the two apart, the dearer one counts.
            hour_tokens_written = (
                reply.written_tokens if reply.hour_tokens is None else min(reply.hour_tokens, reply.written_tokens)
            )
            hour = hour_tokens_written if asking.hour else 0
            usage = TurnUsage(**reply.usage._asdict(), written_tokens=reply.written_tokens, hour_tokens=hour)
            usd = self.price.usd(reply.usage, written_tokens=reply.written_tokens, hour_tokens=hour)
        calls = with_ids(reply.calls, (call.id for message in asking.messages for call in message.calls))
        return ModelTurn(
            text=reply.text,
            calls=calls,
            stop=reply.stop,
            model=sendable_text([reply.model]),
            usage=usage,
            usd=round(usd, 6),
            usd_is_measured=usage is not None,
            verbatim=reply.verbatim if calls == reply.calls else "",
            shortened=asking.shortened,
        )


def make_model(spec: BuilderSpec, environ: Mapping[str, str] = os.environ) -> TurnModel:
    """Return the model that the builder of a spec names; raises UserError if its key, SDK or price is missing."""
    return model_at(open_api("builder", spec, environ), spec)


def model_at(api: Api, spec: BuilderSpec) -> TurnModel:
    """Return a model at an API that is open, with the limits of a spec."""
    # A user's endpoint speaks chat completions, or the API of Anthropic.
    form = "openai_chat" if spec.base_url and spec.vendor == "openai" else spec.vendor
    vendor: Any = importlib.import_module(f"agents.providers.{form}")
    return TurnModel(api, spec, vendor)


def take_turn(
    bench: Workbench, model: TurnModel, asking: Asking, outage_s: float, before: TokenCount | None = None
) -> ModelTurn:
    """Return the model's next turn, recorded and paid for.

    Temporary faults are repeated for at most ``outage_s``, and at most ``RETRIES`` times where the call may have been
    billed. The whole cap of a call that may have been billed counts as spent, and its repeat is reserved anew.

    Raises:
        TooLong: the request does not fit the model's window.
        BuilderUnavailable: no turn arrived in that time, or a retry cannot help.
        BudgetExceeded: the cap exceeds the remaining budget.
    """
    until = time.monotonic() + outage_s
    repeats = paid = 0
    cap = model.cap_usd(asking, before)
    reservation = bench.reserve(cap)
    while True:
        try:
            turn, request, response = model.call(asking, cap)
        except NoAnswer as none:
            paid += none.may_be_billed
            wait = backoff_s(repeats, none.told_s, LONGEST_WAIT_S)
            ends = not none.passes or paid > RETRIES or time.monotonic() + wait > until
            if ends or none.may_be_billed:
                bench.release(reservation, cap if none.may_be_billed else 0.0)
            if none.too_long:
                raise TooLong(str(none)) from none
            if ends:
                hint = "`peergate resume` asks again" + ("" if none.passes else "; mend the cause first")
                why = f"{none} (asked {repeats + 1} times)" if repeats else str(none)
                raise BuilderUnavailable(why, where=model.name, hint=hint) from none
            repeats += 1
            try:
                bench.wait(wait, str(none))
            except BaseException:
                if not none.may_be_billed:
                    bench.release(reservation, 0.0)
                raise
            if none.may_be_billed:
                reservation = bench.reserve(cap)
        else:
            bench.record(turn, reservation, request, response)
            return turn
