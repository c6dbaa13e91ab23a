"""What a builder's model is told: roles, results, what is left out when it gets long, and that it stays the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agents import conversation as conversations
from agents import model_builder
from agents.conversation import EXPECTED, IMAGE, SHORT, SIZES, Size, conversation
from agents.turn_model import with_ids
from agents.turns import ModelTurn
from agents.workbench_protocol import PastTurn
from specs.system.digests import digest_bytes
from specs.system.vendors.conversation import ConversationMessage, Stop, ToolCall, ToolResult
from specs.system.vendors.tool_calls import UNREADABLE, readable, sendable_name, sendable_text
from specs.trail.builder_tools import TOOLS

LONG = "row " * 500
KEPT_TURNS = SIZES[0].recent_turns
PROMPT = (Path(model_builder.__file__).parent / "prompts" / "builder.md").read_text(encoding="utf-8")


def turn(number: int, *texts: str, stop: Stop = "tool_use") -> PastTurn:
    """Return a turn that read artifacts of these texts."""
    calls = tuple(
        ToolCall(id=f"c{number}_{index}", name="read_artifact", arguments=f'{{"name": "rows.{number}.{index}"}}')
        for index, _ in enumerate(texts)
    )
    results = tuple(ToolResult(call=call.id, text=text) for call, text in zip(calls, texts, strict=True))
    model_turn = ModelTurn(text="", calls=calls, stop=stop, model="m", usage=None, usd=0, usd_is_measured=False)
    return PastTurn(model_turn, results)


def texts(messages: tuple[ConversationMessage, ...]) -> list[str]:
    return [result.text for message in messages for result in message.results]


def test_each_turn_is_answered_in_the_next_message() -> None:
    messages = conversation("the brief", [turn(1, "a", "b"), turn(2, stop="refusal"), turn(3, "c")])
    assert [message.role for message in messages] == ["user", "assistant"] * 3 + ["user"]
    assert messages[0].text == "the brief" and messages[4].text == EXPECTED["refusal"]
    assert [result.call for result in messages[2].results] == [call.id for call in messages[1].calls]


def test_a_call_without_a_result_is_answered_all_the_same() -> None:
    cut = PastTurn(turn(1, "a", "b").turn, turn(1, "a", "b").results[:1])
    results = conversation("b", [cut])[-1].results
    assert [result.call for result in results] == ["c1_0", "c1_1"] and results[1].is_error


@pytest.mark.parametrize("stop", ["end", "length", "refusal"])
def test_what_is_expected_names_only_tools_there_are(stop: Stop) -> None:
    named = set(re.findall(r"\b[a-z]+_[a-z_]+\b", EXPECTED[stop] + PROMPT))
    assert named <= {tool.name for tool in TOOLS}


def test_old_results_are_left_out_by_name_size_and_digest_and_the_newest_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "SIZES", (Size(5 * len(LONG), KEPT_TURNS),))
    past = [turn(number, f"{number} {LONG}", "short") for number in range(8)]
    views = texts(conversation("b", past))
    left_out = [text for text in views if "LEFT OUT" in text]
    assert left_out == views[: 2 * len(left_out) : 2] and 0 < len(left_out) <= 8 - KEPT_TURNS
    original = past[0].results[0].text
    assert f"rows.0.0, {len(original)} characters, {digest_bytes(original.encode())}" in views[0]
    assert all(f"{number} {LONG}" in views[2 * number] for number in range(8 - KEPT_TURNS, 8))
    assert sum(len(text) for text in views) < 8 * len(LONG)


def test_an_image_goes_with_its_result_and_counts_for_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "SIZES", (Size(5 * IMAGE, KEPT_TURNS),))
    drawn = [turn(number, "figures") for number in range(8)]
    past = [
        past_turn._replace(results=(past_turn.results[0].model_copy(update={"image": "aW1n"}),)) for past_turn in drawn
    ]
    results = [result for message in conversation("b", past) for result in message.results]
    assert [bool(result.image) for result in results[:2]] == [False, False]
    assert all(result.image for result in results[-KEPT_TURNS:]) and all("figures" in result.text for result in results)


def test_what_is_short_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "SIZES", (Size(10, KEPT_TURNS),))
    past = [turn(number, "x" * SHORT) for number in range(20)]
    assert not [text for text in texts(conversation("b", past)) if "LEFT OUT" in text]


def test_a_long_conversation_begins_with_the_same_bytes_from_turn_to_turn_but_for_few_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversations, "SIZES", (Size(10 * len(LONG), KEPT_TURNS),))
    past = [turn(number, f"{number} {LONG}") for number in range(40)]
    steps = 0
    for count in range(1, 40):
        before, after = conversation("b", past[:count]), conversation("b", past[: count + 1])
        steps += after[: len(before)] != before
        # The limit, the newest turn on top of it, and the lines in the place of what was left out.
        assert sum(len(text) for text in texts(after)) < 12 * len(LONG) + 400 * count
    assert 2 <= steps <= 6


def test_a_restart_sends_what_would_have_been_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "SIZES", (Size(3 * len(LONG), KEPT_TURNS),))
    past = [turn(number, f"{number} {LONG}") for number in range(12)]
    again = [
        PastTurn(ModelTurn.model_validate_json(past_turn.turn.model_dump_json()), past_turn.results)
        for past_turn in past
    ]
    assert conversation("b", past) == conversation("b", again)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1]", {UNREADABLE: "[1]"}),
        ("", {UNREADABLE: ""}),
        ('{"a": NaN}', {UNREADABLE: '{"a": NaN}'}),
        ('{"a": "\\ud800"}', {UNREADABLE: '{"a": "\\ud800"}'}),
        ("[" * 100_000, {UNREADABLE: "[" * 100_000}),
    ],
)
def test_arguments_go_back_as_an_object(arguments: str, sent: dict[str, object]) -> None:
    assert readable(arguments) == sent
    json.dumps(readable(arguments), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("name", "sent"),
    [("read_spec", "read_spec"), ("rm -rf /", "unknown_tool"), ("", "unknown_tool"), ("x" * 65, "unknown_tool")],
)
def test_names_go_back_in_a_form_vendors_take(name: str, sent: str) -> None:
    assert sendable_name(name) == sent


def test_lone_surrogates_are_replaced_and_split_characters_are_not() -> None:
    assert sendable_text(["a\ud800", "b"]) == "a\ufffdb"
    assert sendable_text(["\ud83d", "\ude00 \u2603"]) == "\U0001f600 \u2603"


def test_ids_are_made_where_they_are_missing_repeated_or_no_ids() -> None:
    calls = [ToolCall(id=id, name="n", arguments="") for id in ("a", "a", "", "b c", "taken", "d", "call_5")]
    ids = [call.id for call in with_ids(calls, ["taken"])]
    assert ids[0] == "a" and ids[5] == "d" and len(set(ids)) == 7 and "taken" not in ids
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", id) for id in ids)
