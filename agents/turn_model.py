"""Asks a model for a turn: what it can cost, one call, and repeated calls until there is a turn."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agents.turns import ModelTurn, TurnUsage
from agents.workbench_protocol import Workbench
from specs.system.errors import BuilderUnavailable
from specs.system.vendors import prices
from specs.system.vendors.conversation import ConversationMessage, ModelReply, ModelRequest, Stop, ToolCall
from specs.system.vendors.http_exchange import LONGEST_WAIT_S, RETRIES, Api, backoff_s, open_api
from specs.system.vendors.model_call import INCOMPLETE, FailedCall, VendorApi, send_request, vendor_api
from specs.system.vendors.parties import BuilderSpec as BuilderSpec
from specs.system.vendors.prices import MARGIN_TOKENS, is_count, most_tokens
from specs.system.vendors.token_counts import counted_tokens
from specs.system.vendors.tool_calls import SENDABLE, sendable_text
from specs.trail.tool_arguments import Tool

FIVE_MINUTES_S, HOUR_S = 300.0, 3600.0
"""How long a prompt cache keeps what is written for a short and for a long time."""
COUNTED_FROM = 20_000
"""Bytes that no count covers from which on the vendor is asked to count."""
MAX_RESPONSE_BYTES = 64 * 2**20
"""A stream spends some 200 bytes on each token."""


class TokenCount(NamedTuple):
    """How many tokens the API counted in a request of so many bytes."""

    messages: tuple[ConversationMessage, ...]
    size: int
    tokens: int


class TooLong(Exception):
    """The API refused a request because it is longer than the model's window."""


class TurnModel:
    """One model at one address, with a price and the limits of a spec."""

    def __init__(self, api: Api, spec: BuilderSpec, vendor: VendorApi) -> None:
        self._api = api
        self._spec = spec
        self._vendor = vendor
        self._counts = True
        self.price = api.price
        self.name = f"{spec.vendor}:{spec.model}"

    def request(
        self,
        system: str,
        tools: tuple[Tool, ...],
        messages: tuple[ConversationMessage, ...],
        shortened: int = 0,
        wait_s: float = 0,
    ) -> ModelRequest:
        """Return the request for the next turn of a conversation, after which the model may have to wait so long."""
        spec = self._spec
        displayed_messages = messages if spec.images else tuple(message.without_images() for message in messages)
        return ModelRequest(
            spec.model or "",
            system,
            displayed_messages,
            spec.max_output_tokens,
            spec.timeout_s,
            tools,
            spec.reasoning,
            hour=FIVE_MINUTES_S < wait_s <= HOUR_S,
            shortened=shortened,
        )

    def cap_usd(self, request: ModelRequest, before: TokenCount | None = None) -> float:
        """Return the most USD a turn can cost: all its tokens written into the cache, and the longest answer.

        Every byte is taken for a token, except in the beginning that the API has counted ``before``. What would still
        be far too much is counted by the vendor, where it does so for nothing.
        """
        at_most = most_tokens(added := self._size(request))
        if before is not None and request.messages[: len(before.messages)] == before.messages:
            added = max(added - before.size, 0)
            at_most = min(at_most, before.tokens + most_tokens(added))
        if added > COUNTED_FROM and (counted := self._count(request)) is not None:
            at_most = min(at_most, counted + MARGIN_TOKENS)
        hour = min(at_most, most_tokens(self._size(request._replace(messages=())))) if request.hour else 0
        usage = prices.TokenUsage(at_most, request.max_output_tokens)
        return self.price.usd(usage, written_tokens=at_most, hour_tokens=hour)

    def read_token_count(self, request: ModelRequest, turn: ModelTurn) -> TokenCount | None:
        """Return what the API counted of a request; None if it reported nothing."""
        return (
            None if turn.usage is None else TokenCount(request.messages, self._size(request), turn.usage.input_tokens)
        )

    def _count(self, request: ModelRequest) -> int | None:
        """Return the most tokens of a request as the vendor counts them; None if it does not say."""
        counted = counted_tokens(self._api, self._vendor.body(request)) if self._counts else None
        # An endpoint that does not count is not asked in every turn.
        self._counts = counted is not None
        return counted

    def _size(self, request: ModelRequest) -> int:
        return len(json.dumps(self._vendor.body(request), ensure_ascii=False).encode())

    def call(self, request: ModelRequest, cap_usd: float) -> tuple[ModelTurn, bytes, bytes]:
        """Ask once; return a turn with both bodies on the wire, without the key; raises FailedCall without a turn."""
        with self._api.client(request.timeout_s, MAX_RESPONSE_BYTES) as http:
            reply = send_request(self._vendor, self._api, http, request)
            if reply.stop == "failed":
                raise FailedCall(INCOMPLETE, "incomplete", http, detail=reply.reason, can_repeat=reply.can_repeat)
            return self._turn(reply, reply.stop, request, cap_usd), http.sent, http.received or b""

    def _turn(self, reply: ModelReply, stop: Stop, request: ModelRequest, cap_usd: float) -> ModelTurn:
        usage, usd = None, cap_usd
        if reply.usage is not None and is_count(reply.usage) and is_count(prices.TokenUsage(reply.written_tokens, 0)):
            # Where the API does not tell the two apart, the dearer one counts.
            hour_tokens_written = (
                reply.written_tokens if reply.hour_tokens is None else min(reply.hour_tokens, reply.written_tokens)
            )
            hour = hour_tokens_written if request.hour else 0
            usage = TurnUsage(**reply.usage._asdict(), written_tokens=reply.written_tokens, hour_tokens=hour)
            usd = self.price.usd(reply.usage, written_tokens=reply.written_tokens, hour_tokens=hour)
        calls = with_ids(reply.calls, (call.id for message in request.messages for call in message.calls))
        return ModelTurn(
            text=reply.text,
            calls=calls,
            stop=stop,
            model=sendable_text([reply.model]),
            usage=usage,
            usd=round(usd, 6),
            usd_is_measured=usage is not None,
            verbatim=reply.verbatim if calls == reply.calls else "",
            shortened=request.shortened,
        )


def make_model(spec: BuilderSpec, environ: Mapping[str, str] = os.environ) -> TurnModel:
    """Return the model that the builder of a spec names; raises UserError if its key, SDK or price is missing."""
    return model_at(open_api("builder", spec, environ), spec)


def model_at(api: Api, spec: BuilderSpec) -> TurnModel:
    """Return a model at an API that is open, with the limits of a spec."""
    # A user's endpoint speaks chat completions, or the API of Anthropic.
    form = "openai_chat" if spec.base_url and spec.vendor == "openai" else spec.vendor
    return TurnModel(api, spec, vendor_api(form))


def take_turn(
    bench: Workbench, model: TurnModel, request: ModelRequest, outage_s: float, before: TokenCount | None = None
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
    cap = model.cap_usd(request, before)
    reservation = bench.reserve(cap)
    while True:
        try:
            turn, sent, response = model.call(request, cap)
        except FailedCall as failure:
            paid += failure.may_be_billed
            wait = backoff_s(repeats, failure.wait_s, LONGEST_WAIT_S)
            ends = not failure.can_repeat or paid > RETRIES or time.monotonic() + wait > until
            if ends or failure.may_be_billed:
                bench.release(reservation, cap if failure.may_be_billed else 0.0)
            if failure.too_long:
                raise TooLong(str(failure)) from failure
            if ends:
                hint = "`peergate resume` asks again" + ("" if failure.can_repeat else "; fix the cause first")
                why = f"{failure} (asked {repeats + 1} times)" if repeats else str(failure)
                raise BuilderUnavailable(why, where=model.name, hint=hint) from failure
            repeats += 1
            try:
                bench.wait(wait, str(failure))
            except BaseException:
                if not failure.may_be_billed:
                    bench.release(reservation, 0.0)
                raise
            if failure.may_be_billed:
                reservation = bench.reserve(cap)
        else:
            bench.record(turn, reservation, sent, response)
            return turn


def with_ids(calls: Iterable[ToolCall], texts: Iterable[str]) -> tuple[ToolCall, ...]:
    """Return the calls with ids that are unique in the conversation and that every vendor takes back.

    Some endpoints count from 0 in every answer or leave the id empty.
    """
    seen_texts = set(texts)
    tool_calls: list[ToolCall] = []
    for call in calls:
        id, number = call.id, len(seen_texts)
        while not SENDABLE.fullmatch(id) or id in seen_texts:
            id = f"call_{number}"
            number += 1
        seen_texts.add(id)
        tool_calls.append(call if id == call.id else call.model_copy(update={"id": id}))
    return tuple(tool_calls)
