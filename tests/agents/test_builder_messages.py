"""Each failure of a builder's model has one message for a person.

The reviewer's messages are those of ``tests/reviews/reviewers/test_no_verdict.py``, followed through whole sessions.
"""

from __future__ import annotations

import json

import pytest

from specs.system.errors import BuilderUnavailable
from specs.system.vendors.model_call import CUT_OFF
from testing.fixtures import scripted_builder as scripted
from testing.fixtures.loopback_api import ANTHROPIC, OPENAI, Step, failed
from testing.fixtures.scripted_builder import Call, Reply, Turn, calls
from tests.agents.test_builder_wire import ENDPOINT, LAUNCH, MODELS, WIRE, run
from tests.agents.test_builder_wire import quick as quick

pytestmark = pytest.mark.integration

AGAIN = "`peergate resume` asks again"
FIX = f"{AGAIN}; fix the cause first"
EARLY = {
    ANTHROPIC: "the stream ended before the message did, with stop reason 'None'",
    OPENAI: "the stream ended before the response did",
    ENDPOINT: "the stream ended with finish reason 'None'",
}
STATUSES = {
    400: ("BadRequestError", FIX),
    401: ("AuthenticationError", FIX),
    403: ("PermissionDeniedError", FIX),
    404: ("NotFoundError", FIX),
    429: ("RateLimitError", AGAIN),
    500: ("InternalServerError", AGAIN),
}


@pytest.mark.parametrize("vendor", [ANTHROPIC, OPENAI, ENDPOINT])
@pytest.mark.parametrize("status", STATUSES)
def test_a_status_is_reported_with_what_helps(vendor: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, hint = STATUSES[status]
    error = run(vendor, monkeypatch, failed(WIRE[vendor], status), outage_s=0).error
    assert isinstance(error, BuilderUnavailable) and error.exit_code == 4
    who = f"{'openai' if vendor == ENDPOINT else vendor}:{MODELS[vendor]}"
    first, last = str(error).split("\n")
    assert first.startswith(f"{who}: the model's server answered {status} (")
    assert f"): {kind}: Error code: {status}" in first
    assert last == f"  {hint}"


@pytest.mark.parametrize("vendor", [ANTHROPIC, OPENAI, ENDPOINT])
def test_a_broken_stream_is_reported_with_how_often_it_was_asked_for(
    vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = f"{'openai' if vendor == ENDPOINT else vendor}:{MODELS[vendor]}"
    lost = f"{CUT_OFF}: APIConnectionError: Connection error."
    answered = "the model's server answered 307 (request refused)"
    steps: tuple[tuple[list[Turn], str], ...] = (
        ([Reply("hello", cut=True)] * 4, f"{lost} (asked 4 times)\n  {AGAIN}"),
        ([Reply("hello", ends_early=3)] * 4, f"{CUT_OFF}: {EARLY[vendor]} (asked 4 times)\n  {AGAIN}"),
        ([Step(b"<html>busy</html>")], f"the response is not in the form of the API\n  {FIX}"),
        ([Step(b"", 307, {"location": "/"})], f"{answered}: APIStatusError: Error code: 307\n  {FIX}"),
    )
    for turns, step in steps:
        assert str(run(vendor, monkeypatch, *turns).error) == f"{who}: {step}"


@pytest.mark.more
@pytest.mark.parametrize("vendor", [ANTHROPIC, OPENAI, ENDPOINT])
def test_an_answer_of_three_megabytes_is_an_answer(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that says so much and calls nothing is reminded; a long call reaches the workbench, which refuses it."""
    monkeypatch.setattr(scripted, "PIECE", 10**7)
    ran = run(vendor, monkeypatch, Reply("x" * 3_000_000), LAUNCH, timeout_s=120.0)
    assert ran.error is None and len(ran.turns[0].text) == 3_000_000
    assert [call.name for call in ran.bench.called] == ["launch_stage"]
    assert "called no tool" in json.dumps(ran.played.bodies()[1])
    long = calls(Call("write_note", {"text": "x" * 3_000_000}))
    ran = run(vendor, monkeypatch, long, LAUNCH, timeout_s=120.0)
    assert ran.error is None and [call.name for call in ran.bench.called] == ["write_note", "launch_stage"]
