"""Each failure of a builder's model has one message for a person; a table says which tests show what follows from each.

The reviewer's messages are those of ``tests/reviews/reviewers/test_no_verdict.py``, followed through whole sessions.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specs.errors import BuilderUnavailable
from testing.fixtures import scripted_builder as scripted
from testing.fixtures.loopback_api import ANTHROPIC, OPENAI, Step, failed
from testing.fixtures.scripted_builder import Call, Said, Turn, calls
from tests.agents.test_builder_wire import ENDPOINT, LAUNCH, MODELS, WIRE, run
from tests.agents.test_builder_wire import quick as quick

pytestmark = pytest.mark.integration

HOME = Path(__file__).parents[2]
AGAIN = "`peergate resume` asks again"
MEND = f"{AGAIN}; mend the cause first"
EARLY = {
    ANTHROPIC: "the stream ended before the message did, with stop reason 'None'",
    OPENAI: "the stream ended before the response did",
    ENDPOINT: "the stream ended with finish reason 'None'",
}
STATUSES = {
    400: ("BadRequestError", MEND),
    401: ("AuthenticationError", MEND),
    403: ("PermissionDeniedError", MEND),
    404: ("NotFoundError", MEND),
    429: ("RateLimitError", AGAIN),
    500: ("InternalServerError", AGAIN),
}


@pytest.mark.parametrize("vendor", [ANTHROPIC, OPENAI, ENDPOINT])
@pytest.mark.parametrize("status", STATUSES)
def test_a_status_is_told_with_what_helps(vendor: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, hint = STATUSES[status]
    error = run(vendor, monkeypatch, failed(WIRE[vendor], status), outage_s=0).error
    assert isinstance(error, BuilderUnavailable) and error.exit_code == 4
    who = f"{'openai' if vendor == ENDPOINT else vendor}:{MODELS[vendor]}"
    first, last = str(error).split("\n")
    assert first.startswith(f"{who}: status {status} after 1 call: {kind}: Error code: {status}")
    assert last == f"  {hint}"


@pytest.mark.parametrize("vendor", [ANTHROPIC, OPENAI, ENDPOINT])
def test_a_broken_stream_is_told_with_how_often_it_was_asked_for(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    who = f"{'openai' if vendor == ENDPOINT else vendor}:{MODELS[vendor]}"
    lost = "no whole response after 1 call: APIConnectionError: Connection error."
    steps: tuple[tuple[list[Turn], str], ...] = (
        ([Said("hello", cut=True)] * 4, f"{lost} (asked 4 times)\n  {AGAIN}"),
        ([Said("hello", ends_early=3)] * 4, f"{EARLY[vendor]} (asked 4 times)\n  {AGAIN}"),
        ([Step(b"<html>busy</html>")], f"the response is no stream of events\n  {MEND}"),
        ([Step(b"", 307, {"location": "/"})], f"status 307 after 1 call: APIStatusError: Error code: 307\n  {MEND}"),
    )
    for turns, told in steps:
        assert str(run(vendor, monkeypatch, *turns).error) == f"{who}: {told}"


@pytest.mark.more
@pytest.mark.parametrize("vendor", [ANTHROPIC, OPENAI, ENDPOINT])
def test_an_answer_of_three_megabytes_is_an_answer(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that says so much and calls nothing is reminded; a long call reaches the workbench, which refuses it."""
    monkeypatch.setattr(scripted, "PIECE", 10**7)
    ran = run(vendor, monkeypatch, Said("x" * 3_000_000), LAUNCH, timeout_s=120.0)
    assert ran.error is None and len(ran.turns[0].text) == 3_000_000
    assert [one.name for one in ran.bench.called] == ["launch_stage"]
    assert "called no tool" in json.dumps(ran.played.bodies()[1])
    long = calls(Call("write_note", {"text": "x" * 3_000_000}))
    ran = run(vendor, monkeypatch, long, LAUNCH, timeout_s=120.0)
    assert ran.error is None and [one.name for one in ran.bench.called] == ["write_note", "launch_stage"]


WIRE_TESTS = "tests/agents/test_builder_wire.py"
HERE = "tests/agents/test_builder_messages.py"
NO_VERDICT, VENDORS = "tests/reviews/reviewers/test_no_verdict.py", "tests/reviews/reviewers/test_vendors.py"
LOOKUPS = "tests/reviews/reviewers/test_lookups.py"
EVERYWHERE = f"{NO_VERDICT}::test_the_cause_is_named_everywhere_at_the_design_and_at_a_stage"
SCENARIOS: dict[str, tuple[str, str]] = {
    "401, 403, 404": (f"{HERE}::test_a_status_is_told_with_what_helps", EVERYWHERE),
    "429": (f"{WIRE_TESTS}::test_retry_after_is_obeyed", f"{VENDORS}::test_429_waits_as_long_as_it_is_told"),
    "429 for too long": (f"{WIRE_TESTS}::test_a_wait_beyond_the_bound_is_not_begun", EVERYWHERE),
    "5xx": (f"{WIRE_TESTS}::test_what_passes_is_repeated_and_costs_nothing", EVERYWHERE),
    "5xx for too long": (
        f"{WIRE_TESTS}::test_an_outage_longer_than_the_bound_pauses_and_loses_nothing",
        f"{VENDORS}::test_500_for_ever_ends_when_the_outage_is_over",
    ),
    "cut stream": (f"{HERE}::test_a_broken_stream_is_told_with_how_often_it_was_asked_for", EVERYWHERE),
    "refusal": (f"{WIRE_TESTS}::test_the_second_turn_without_a_call_has_a_person_asked", EVERYWHERE),
    "malformed answer": (f"{WIRE_TESTS}::test_malformed_arguments_are_answered_with_the_error", EVERYWHERE),
    "3 MB": (f"{HERE}::test_an_answer_of_three_megabytes_is_an_answer", EVERYWHERE),
    "parallel calls": (
        f"{WIRE_TESTS}::test_calls_of_one_turn_are_carried_out_in_order_and_answered_together",
        f"{LOOKUPS}::test_calls_of_one_message_and_their_answers_are_bounded",
    ),
    "unknown tool": (
        f"{WIRE_TESTS}::test_an_unknown_tool_is_answered_with_the_error",
        f"{LOOKUPS}::test_what_is_looked_up_is_sent_back_and_cited",
    ),
    "injected text": (
        f"{WIRE_TESTS}::test_results_stand_between_markers_that_they_cannot_know",
        f"{VENDORS}::test_hostile_rows_stay_inside_the_data",
    ),
    "whole session with all of it": (
        "tests/sessions/builder/test_builder_session.py::"
        "test_a_session_is_worked_through_to_its_end_whatever_the_wire_and_the_model_do",
        "tests/e2e/test_wire_session.py::test_a_reviewer_without_a_whole_verdict_leaves_the_gate_closed",
    ),
}
"""By scenario, the test on the builder's side and that on the reviewer's."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_has_a_test_on_both_sides(scenario: str) -> None:
    for node in SCENARIOS[scenario]:
        file, _, name = node.partition("::")
        assert f"def {name}(" in (HOME / file).read_text(encoding="utf-8"), node
