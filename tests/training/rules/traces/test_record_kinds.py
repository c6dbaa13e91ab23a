"""What newer and other programs write into transcripts: nothing foreign is learned, nobody's words are another's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sessions.commands.traces.teacher_file import circles
from specs.stages.traces.parameters import family_of
from specs.system.errors import UserError
from specs.system.masking import forms_only
from specs.traces.teachers import Teacher, TeacherFile
from specs.traces.turn import TraceTurn
from training.rules.traces.ingest import IngestResult, ingest
from training.rules.traces.record_kinds import CODEX
from training.rules.traces.rendering import action_of, render_action
from training.rules.traces.shown_states import by_id, history, states

SESSION = "11111111-1111-4111-8111-111111111111"


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    base = {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": SESSION}
    return base | {"message": {"role": "user", "content": content}} | more


def answer(uuid: str, parent: str | None, content: Any, id: str = "", model: str = "claude-opus-4-8") -> dict[str, Any]:
    message = {"id": id or f"m-{uuid}", "role": "assistant", "model": model, "content": content}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, "message": message}


def call(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": id}}


def result(uuid: str, parent: str, id: str) -> dict[str, Any]:
    return user(uuid, parent, [{"type": "tool_result", "tool_use_id": id, "content": f"of {id}"}])


def read(folder: Path, records: Sequence[dict[str, Any]], name: str = "session.jsonl") -> IngestResult:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return ingest([folder], forms_only())


def list_texts(turns: Sequence[TraceTurn]) -> list[str]:
    return [getattr(part, "text", None) or getattr(part, "call", "") for turn in turns for part in turn.parts]


COMPACTED = [
    user("u0", None, "Find the bug."),
    answer("a0", "u0", [call("c0")]),
    result("r0", "a0", "c0"),
    answer("a1", "r0", [call("c1")]),
    result("r1", "a1", "c1"),
    {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None, "sessionId": SESSION},
    user("s", "b", "Summary: looked.", isCompactSummary=True),
    answer("a2", "r1", [{"type": "text", "text": "I fix it."}]),
]
SEGMENT = {"headUuid": "a1", "anchorUuid": "s", "tailUuid": "r1"}
MESSAGES = {"anchorUuid": "s", "uuids": ["a1", "r1"]}


@pytest.mark.parametrize("about", [{"preservedMessages": MESSAGES}, {"preservedSegment": SEGMENT}], ids=["all", "ends"])
def test_what_a_partial_compaction_keeps_stands_behind_its_summary(tmp_path: Path, about: dict[str, Any]) -> None:
    records = [record | ({"compactMetadata": about} if record["uuid"] == "b" else {}) for record in COMPACTED]
    made = read(tmp_path, records)
    last = states(made.turns)[-1]
    assert list_texts(history(by_id(made.turns), last)) == ["Summary: looked.", "c1", "of c1"]
    assert made.account.states == 3, "a state that is kept is not counted twice"


def test_a_whole_compaction_leaves_the_summary_alone(tmp_path: Path) -> None:
    records = [*COMPACTED[:-1], answer("a2", "s", [{"type": "text", "text": "I fix it."}])]
    made = read(tmp_path, records)
    assert list_texts(history(by_id(made.turns), states(made.turns)[-1])) == ["Summary: looked."]


OPAQUE = (
    "redacted_thinking",
    "server_tool_use",
    "web_search_tool_result",
    "mcp_tool_use",
    "container_upload",
    "of_2027",
)


@pytest.mark.parametrize("kind", OPAQUE)
def test_blocks_of_answers_that_are_not_known_are_never_learned(tmp_path: Path, kind: str) -> None:
    block = {"type": kind, "text": "SECRET WORDS", "data": "SECRET WORDS", "content": "SECRET WORDS", "id": "x"}
    made = read(tmp_path, [user("u0", None, "Go"), answer("a0", "u0", [block, {"type": "text", "text": "Done."}])])
    (state,) = states(made.turns)
    assert render_action(action_of(state)) == "Done." and "SECRET" not in state.model_dump_json()
    assert made.account.opaque == {kind: 1}, "and the account says so"


def test_two_steps_with_the_id_of_one_message_stay_two(tmp_path: Path) -> None:
    steps = [
        user("u0", None, "Run both"),
        answer("a0", "u0", [call("c0")], id="msg_1"),
        result("r0", "a0", "c0"),
        answer("a1", "r0", [call("c1")], id="msg_1"),
        result("r1", "a1", "c1"),
        answer("a2", "r1", [call("c2")], id="msg_1"),
        answer("a3", "a2", [call("c3")], id="msg_1"),
        result("r2", "a2", "c2"),
        result("r3", "a3", "c3"),
    ]
    acted = states(read(tmp_path, steps).turns)
    assert [list_texts([state]) for state in acted] == [["c0"], ["c1"], ["c2", "c3"]]
    assert not any(state.unanswered for state in acted)


@pytest.mark.parametrize(("parent", "request_id"), [("a0", {}), ("r0", {"requestId": "q1"})], ids=["fork", "streamed"])
def test_parallel_calls_of_one_message_stay_one_step(tmp_path: Path, parent: str, request_id: dict[str, str]) -> None:
    steps = [
        user("u0", None, "Run both"),
        answer("a0", "u0", [call("c0")], id="msg_1") | request_id,
        result("r0", "a0", "c0"),
        answer("a1", parent, [call("c1")], id="msg_1") | request_id,
        result("r1", "a1", "c1"),
    ]
    assert [list_texts([state]) for state in states(read(tmp_path, steps).turns)] == [["c0", "c1"]]


NOT_A_PERSON = (
    "<user-prompt-submit-hook>\nadded\n</user-prompt-submit-hook>",
    '<teammate-message teammate_id="x">hello</teammate-message>',
    "<ide_opened_file>The user opened a.py</ide_opened_file>",
    "<ide_selection>lines 1 to 3</ide_selection>",
    "<ide_diagnostics>none</ide_diagnostics>\n<system-reminder>be brief</system-reminder>",
    "<local-command-stdout></local-command-stdout>",
    "<command-name>/clear</command-name>\n<command-message>clear</command-message>",
    "<bash-stdout>clean</bash-stdout><bash-stderr></bash-stderr>",
    "<background-task-notification>job 1 ended</background-task-notification>",
    "Stop hook feedback:\n[lint]: fix the errors",
    "PreToolUse:Bash hook error: blocked",
    "[Request interrupted by user for tool use]",
    "[SYSTEM NOTIFICATION] a task ended",
    "<task-notification>job 1</task-notification>\nRead the output file to retrieve the result.",
)


@pytest.mark.parametrize("text", NOT_A_PERSON)
@pytest.mark.parametrize("as_blocks", [False, True])
def test_what_a_program_writes_for_a_person_is_no_prompt(tmp_path: Path, text: str, as_blocks: bool) -> None:
    content = [{"type": "text", "text": text}] if as_blocks else text
    made = read(tmp_path, [user("u0", None, content), answer("a0", "u0", "Seen.")])
    assert [turn.kind for turn in made.turns] == ["context", "action"]


@pytest.mark.parametrize(
    "content",
    [
        "Fix the hook in a.py",
        "<div class=x> is not closed, why?",
        "<ide_opened_file>The user opened a.py</ide_opened_file>\nWhat does this do?",
        [{"type": "text", "text": "<ide_selection>x</ide_selection>"}, {"type": "text", "text": "Explain it."}],
    ],
)
def test_a_persons_own_words_are_a_prompt(tmp_path: Path, content: Any) -> None:
    made = read(tmp_path, [user("u0", None, content), answer("a0", "u0", "Seen.")])
    assert [turn.kind for turn in made.turns] == ["prompt", "action"]


def test_records_that_say_who_wrote_them_are_believed(tmp_path: Path) -> None:
    made = read(tmp_path, [user("u0", None, "go on", origin={"kind": "teammate"}), answer("a0", "u0", "Seen.")])
    assert made.turns[0].kind == "context"


def test_a_summary_that_is_not_marked_is_no_prompt(tmp_path: Path) -> None:
    text = "This session is being continued from a previous conversation that ran out of context. It is ..."
    made = read(tmp_path, [user("u0", None, text), answer("a0", "u0", "Go on.")])
    assert made.turns[0].kind == "summary"


ROLLOUT = [
    {"timestamp": "2026-06-01T10:00:00Z", "type": "session_meta", "payload": {"id": "x"}},
    {"timestamp": "2026-06-01T10:00:01Z", "type": "response_item", "payload": {"type": "message", "role": "user"}},
    {"timestamp": "2026-06-01T10:00:02Z", "type": "event_msg", "payload": {"type": "agent_message"}},
]


def test_a_rollout_of_codex_is_named_as_a_whole_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="3 Codex rollout, not read") as error:
        read(tmp_path, ROLLOUT, "rollout.jsonl")
    assert "rollouts of Codex" in error.value.hint
    made = read(tmp_path, [user("u0", None, "Go"), answer("a0", "u0", "Done.")])
    assert made.account.left_aside == {"rollout.jsonl": CODEX}


SPELLINGS = {
    "claude": ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic/claude-3.5-sonnet", "claude-opus-4@20250514",
               "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-haiku", "vertex_ai/claude-3-opus"),
    "gpt": ("ft:gpt-4o-mini-2024-07-18:acme::abc123", "openai/gpt-5.4", "azure/gpt-4.1", "o3-mini"),
    "gpt-oss": ("openai.gpt-oss-120b-1:0", "gpt-oss:20b"),
    "gemini": ("publishers/google/models/gemini-2.5-pro", "google/gemini-2.5-flash:free"),
    "gemma": ("google/gemma-3-27b-it", "medgemma-4b"),
    "llama": ("meta.llama3-1-70b-instruct-v1:0", "accounts/fireworks/models/llama-v3p1-70b", "codellama:13b",
              "meta-llama/Llama-3.3-70B-Instruct"),
    "qwen": ("qwen.qwen3-coder-480b", "Qwen/Qwen2.5-7B", "qwq:32b"),
    "mistral": ("mistral.mistral-large-2402-v1:0", "open-mixtral-8x22b", "ministral-8b"),
    "deepseek": ("us.deepseek.r1-v1:0", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "deepseek/deepseek-chat-v3"),
    "phi": ("microsoft/phi-4", "phi3:mini", "Phi-3.5-mini-instruct"),
    "nova": ("amazon.nova-pro-v1:0",),
}  # fmt: skip


@pytest.mark.parametrize("family", SPELLINGS)
def test_a_family_is_known_in_the_spelling_of_every_provider(family: str) -> None:
    assert {name: family_of(name) for name in SPELLINGS[family]} == dict.fromkeys(SPELLINGS[family], family)


@pytest.mark.parametrize(
    "name", ["philosopher-7b", "glmnet", "o10", "claudette", "my-model", "novak-1", "", "llamafile-x"]
)
def test_a_part_of_a_word_is_no_family(name: str) -> None:
    assert family_of(name) is None


def teacher(id: str, family: str) -> Teacher:
    return Teacher(id=id, model=id, family=family, license="own")


def test_an_unknown_author_asks_and_does_not_pass() -> None:
    file = TeacherFile(student="smollm", teachers=(teacher("a", "gpt"), teacher("b", "gemini")))
    assert circles(file, ["claude"]) == ()
    (why,) = circles(file, ["acme-agent-1"])
    assert "acme-agent-1" in why and "not known" in why
