"""Transcripts become turns; every record is accounted for, however a file is cut, copied or disturbed."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.system.errors import UserError
from specs.system.masking import forms_only
from specs.traces.turn import TraceTurn
from testing.factories.transcripts import Transcript, long_session
from training.rules.traces.ingest import DUPLICATE, IngestResult, ingest
from training.rules.traces.shown_states import by_id, history, states

REAL = os.environ.get("PEERGATE_TRACES", "")


def read(*paths: Path) -> IngestResult:
    """Read transcripts, and hold every account against its file."""
    found = ingest(paths, forms_only())
    for file in found.account.files:
        lines = [n for ranges in file.skipped.values() for first, last in ranges for n in range(first, last + 1)]
        assert len(lines) == len(set(lines)), "a line is skipped for two reasons"
        assert file.used + len(lines) == file.records
    return found


def shape(found: IngestResult) -> list[dict[str, Any]]:
    """Return states with their histories, without where they were read."""
    turns = by_id(found.turns)
    told = [[*history(turns, one), one] for one in states(found.turns)]
    return [{"turns": [one.model_dump(exclude={"source", "time"}) for one in some]} for some in told]


def texts(turns: Iterable[TraceTurn]) -> list[str]:
    """Return what is written in turns, calls and results by their ends."""
    return [getattr(part, "text", "") or part.call for turn in turns for part in turn.parts if part.type != "thinking"]  # type: ignore[union-attr]


def walked_back(records: list[dict[str, Any]]) -> set[str]:
    """Return what an ingester finds that walks back from the last record: the negative control."""
    by_uuid = {one["uuid"]: one for one in records if "uuid" in one}
    found: set[str] = set()
    at = next(one["uuid"] for one in reversed(records) if "uuid" in one)
    while at:
        found.add(at)
        at = by_uuid[at].get("parentUuid")
    return {one for one in found if by_uuid[one]["type"] in ("user", "assistant")}


def test_an_answer_of_several_records_is_one_state_with_its_results_behind_it(tmp_path: Path) -> None:
    made = Transcript()
    made.says("Read both.")
    made.answers("I read them.", "Read", "Read")
    made.says("And now?")
    made.answers("Done.")
    found = read(made.write(tmp_path / "s.jsonl"))
    first, second = states(found.turns)
    assert [one.type for one in first.parts] == ["thinking", "text", "tool_use", "tool_use"]
    before = history(by_id(found.turns), second)
    assert [one.kind for one in before] == ["prompt", "action", "results", "prompt"]
    assert texts(before[2:3]) == ["contents of Read", "contents of Read"]
    assert found.account.calls == 2 and found.account.unanswered == found.account.branches == 0


def test_walking_back_from_the_last_record_loses_what_this_keeps(tmp_path: Path) -> None:
    made = long_session()
    found = read(made.write(tmp_path / "s.jsonl"))
    conversation = [one for one in made.records if one["type"] in ("user", "assistant")]
    assert found.account.used == len(conversation)
    assert len(walked_back(made.records)) < 0.5 * len(conversation)


def test_going_back_makes_a_branch_and_keeps_the_one_that_was_left(tmp_path: Path) -> None:
    found = read(long_session().write(tmp_path / "s.jsonl"))
    turns = by_id(found.turns)
    changed, other = [one for one in states(found.turns) if texts([one])[0].startswith("Changed")]
    assert found.account.branches == 1
    assert "Now change one." in texts(history(turns, changed))
    assert "Now change one." not in texts(history(turns, other)) and "Read both files." in texts(history(turns, other))


def test_after_a_compaction_the_summary_is_all_there_is(tmp_path: Path) -> None:
    found = read(long_session().write(tmp_path / "s.jsonl"))
    turns = by_id(found.turns)
    going_on = next(one for one in states(found.turns) if texts([one])[0] == "I go on.")
    (summary,) = history(turns, going_on)
    assert summary.kind == "summary" and found.account.compactions == 1
    assert summary.compacted is not None and turns[summary.compacted].kind == "results"


def test_a_compaction_whose_summary_is_lost_leaves_nothing_before_what_follows(tmp_path: Path) -> None:
    made = long_session()
    made.records = [one for one in made.records if not one.get("isCompactSummary")]
    found = read(made.write(tmp_path / "s.jsonl"))
    going_on = next(one for one in states(found.turns) if texts([one])[0] == "I go on.")
    assert history(by_id(found.turns), going_on) == []


def test_a_session_that_goes_on_in_another_file_is_read_after_the_first(tmp_path: Path) -> None:
    first, second = long_session(), Transcript("s2")
    second.last = first.last
    second.says("Once more.")
    second.answers("Again.")
    for one in second.records:
        one["timestamp"] = "2026-02-11T00:00:00.000Z"
    first.write(tmp_path / "b.jsonl")
    second.write(tmp_path / "a.jsonl")
    found = read(tmp_path)
    assert texts(history(by_id(found.turns), states(found.turns)[-1]))[-2:] == ["Done.", "Once more."]


def test_a_mark_at_the_beginning_of_a_file_is_not_part_of_its_first_line(tmp_path: Path) -> None:
    path = long_session().write(tmp_path / "s.jsonl")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert "malformed line" not in read(path).account.skipped


def test_a_command_and_a_caveat_are_context_and_no_prompt(tmp_path: Path) -> None:
    made = long_session()
    made.says("Told by the program.", isMeta=True)
    found = read(made.write(tmp_path / "s.jsonl"))
    kinds = {texts([one])[0]: one.kind for one in found.turns if one.kind in ("prompt", "context")}
    assert kinds.pop("<command-name>/clear</command-name>") == kinds.pop("Told by the program.") == "context"
    assert set(kinds.values()) == {"prompt"}


def test_a_call_without_its_result_is_marked(tmp_path: Path) -> None:
    made = Transcript()
    made.says("Go.")
    made.answers("I go.", "Bash", "Read")
    made.records.pop()
    found = read(made.write(tmp_path / "s.jsonl"))
    (state,) = states(found.turns)
    assert len(state.unanswered) == found.account.unanswered == 1


def test_a_result_whose_call_is_nowhere_is_kept_and_counted(tmp_path: Path) -> None:
    made = Transcript()
    made.result("lost", "an old result")
    made.answers("I see.")
    found = read(made.write(tmp_path / "s.jsonl"))
    assert found.account.orphans == 1
    assert texts(history(by_id(found.turns), states(found.turns)[0])) == ["an old result"]


def test_subagents_are_threads_of_their_own_and_the_writer_of_summaries_is_left_out(tmp_path: Path) -> None:
    made = long_session()
    made.write(tmp_path / "s1.jsonl")
    agent, compact = Transcript("s1"), Transcript("s1")
    for some, name in ((agent, "a1"), (compact, "acompact-2")):
        some.records = []
        some.says("Look it up.", isSidechain=True, agentId=name)
        some.answers("Found it.", isSidechain=True, agentId=name)
        for one in some.records:
            one["uuid"], one["parentUuid"] = f"{name}{one['uuid']}", one["parentUuid"] and f"{name}{one['parentUuid']}"
            if one["type"] == "assistant":
                one["message"]["id"] = f"msg_{name}"
        some.write(tmp_path / "s1" / "subagents" / f"agent-{name}.jsonl")
    found = read(tmp_path)
    (theirs,) = [one for one in states(found.turns) if one.subagent]
    assert theirs.thread == "s1/a1" and texts(history(by_id(found.turns), theirs)) == ["Look it up."]
    assert found.account.skipped["the run that wrote a summary"] == 3
    alone = read(made.write(tmp_path / "alone" / "s.jsonl"))
    assert [one.id for one in states(found.turns) if not one.subagent] == [one.id for one in states(alone.turns)]


def test_what_was_copied_into_a_resumed_session_is_read_once_and_continued(tmp_path: Path) -> None:
    first = long_session()
    second = Transcript("s2")
    second.records, second.last = [dict(one, sessionId="s2") for one in first.records], first.last
    second.says("Once more.")
    second.answers("Again.")
    first.write(tmp_path / "b.jsonl")
    second.write(tmp_path / "a.jsonl")
    found = read(tmp_path)
    assert found.account.skipped[DUPLICATE] == len(first.records) - 1
    last = states(found.turns)[-1]
    assert texts(history(by_id(found.turns), last))[-2:] == ["Done.", "Once more."]


def test_errors_and_answers_of_the_program_are_no_states(tmp_path: Path) -> None:
    made = Transcript()
    made.says("Go.")
    made.answers("API Error: 529", isApiErrorMessage=True)
    made.answers("I go.")
    made.records[-1]["message"]["model"] = made.records[-2]["message"]["model"] = "<synthetic>"
    made.answers("Here.")
    found = read(made.write(tmp_path / "s.jsonl"))
    assert [texts([one]) for one in states(found.turns)] == [["Here."]]
    assert texts(history(by_id(found.turns), states(found.turns)[0])) == ["Go."]
    assert found.account.skipped == {"error of the API": 2, "written by the program": 2}


def test_secrets_are_masked_in_texts_calls_and_results(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "Ab3dE5gH7j" * 9 + "AA"
    made = Transcript()
    made.says(f"My key is {key}.")
    made.answers(f"You said {key}.", "Bash")
    made.records[-1]["message"]["content"][0]["content"] = [{"type": "text", "text": f"export KEY={key}"}]
    for one in made.records:
        for block in one.get("message", {}).get("content", []):
            if isinstance(block, dict) and block["type"] == "tool_use":
                block["input"] = {"command": f"curl -H 'x-api-key: {key}'"}
    found = read(made.write(tmp_path / "s.jsonl"))
    assert key not in "".join(one.model_dump_json() for one in found.turns)
    assert found.account.secrets == 4


def test_long_results_are_cut_with_their_length_and_images_are_named(tmp_path: Path) -> None:
    made = Transcript()
    made.says([{"type": "image", "source": {"type": "base64", "data": "QUJD" * 50}}, {"type": "text", "text": "This?"}])
    made.answers("I look.", "Read")
    made.records[-1]["message"]["content"][0]["content"] = "y" * 100_000
    found = read(made.write(tmp_path / "s.jsonl"))
    assert texts(found.turns)[0].startswith("[image sha256:") and "QUJD" not in texts(found.turns)[0]
    result = found.turns[-1].parts[0]
    assert result.type == "tool_result" and result.left_out == 80_000
    assert "[80000 of 100000 characters left out]" in result.text and len(result.text) < 20_100


def test_a_file_that_is_still_written_may_be_cut_at_every_byte(tmp_path: Path) -> None:
    made = long_session()
    path = made.write(tmp_path / "s.jsonl")
    whole, last = path.read_bytes(), len(made.lines()[-1]) + 1
    until = shape(read(path))
    made.records.pop()
    without = shape(read(made.write(tmp_path / "t.jsonl")))
    assert until != without
    for cut in range(1, last):
        path.write_bytes(whole[:-cut])
        found = read(path)
        assert shape(found) == (until if cut == 1 else without)
        assert ("unfinished last line" in found.account.skipped) == (1 < cut < last)


def disturbed(change: Callable[[list[str]], list[str]], tmp_path: Path) -> IngestResult:
    """Read a session whose lines were changed."""
    path = tmp_path / "changed.jsonl"
    path.write_bytes("".join(change(long_session().lines())).encode())
    return read(path)


def _crlf(lines: list[str]) -> list[str]:
    return ["\ufeff", *(f"{one}\r\n" for one in lines)]


def _noise(lines: list[str]) -> list[str]:
    noise = ["", "{", "[]", "null", '{"type": "novel", "uuid": "n"}', '{"type": 3}', "[" * 100_000, '{"a": NaN}']
    return [f"{one}\n" for pair in zip(lines, [*noise, *[""] * len(lines)], strict=False) for one in pair]


def _shuffled(lines: list[str]) -> list[str]:
    kept = [json.loads(one)["type"] in ("user", "assistant") or "compact" in one for one in lines]
    moved = [one for one, keep in zip(lines, kept, strict=True) if not keep]
    random.Random(3).shuffle(moved)
    return [f"{one if keep else moved.pop()}\n" for one, keep in zip(lines, kept, strict=True)]


def _without_progress(lines: list[str]) -> list[str]:
    return [f"{one}\n" for one in lines if json.loads(one)["type"] != "progress"]


def _twice(lines: list[str]) -> list[str]:
    return [f"{one}\n" for one in [*lines, *lines]]


def _in_one_record(lines: list[str]) -> list[str]:
    """Write the records of one message that lie next to each other as one."""
    records: list[dict[str, Any]] = []
    for one in map(json.loads, lines):
        last = records[-1] if records else {}
        same = one["type"] == last.get("type") == "assistant" and one["message"]["id"] == last["message"]["id"]
        if same:
            last["message"]["content"] += one["message"]["content"]
            last["uuid"] = one["uuid"]
        else:
            records.append(one)
    return [f"{json.dumps(one)}\n" for one in records]


@pytest.mark.parametrize("change", [_crlf, _noise, _shuffled, _without_progress, _twice, _in_one_record])
def test_states_stay_the_same(change: Callable[[list[str]], list[str]], tmp_path: Path) -> None:
    plain = read(long_session().write(tmp_path / "s.jsonl"))
    assert shape(disturbed(change, tmp_path)) == shape(plain)


def test_a_text_that_grew_while_it_was_streamed_is_there_once(tmp_path: Path) -> None:
    made = Transcript()
    made.says("Count.")
    for text in ("One", "One, two", "One, two, three", "One, two"):
        made.answers(text, split=False)
        made.records[-1]["message"]["id"] = "same"
    found = read(made.write(tmp_path / "s.jsonl"))
    assert texts(states(found.turns)) == ["One, two, three"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(["s1-1", "msg_1"]),
    lambda some: (
        st.lists(some, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "id", "content", "tool_use_id", "input", "name", "thinking", "model", "prompt"]
            ),
            some,
            max_size=4,
        )
    ),
    max_leaves=8,
)
RECORDS = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "system", "attachment", "progress"]) | VALUES},
    optional={
        "uuid": st.sampled_from(["a", "b", "c"]) | VALUES,
        "parentUuid": st.sampled_from(["a", "b", "c", None]) | VALUES,
        "logicalParentUuid": VALUES,
        "message": st.fixed_dictionaries({"content": VALUES}, optional={"id": VALUES, "model": VALUES}) | VALUES,
        **dict.fromkeys(("sessionId", "agentId", "isSidechain", "subtype", "isMeta", "attachment", "cwd"), VALUES),
    },
)


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORDS, max_size=12))
def test_no_record_raises_and_all_are_accounted_for(records: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.jsonl"
        path.write_text("".join(f"{json.dumps(one)}\n" for one in [*records, *one_answer().records]))
        found = read(path)
        turns = by_id(found.turns)
        for one in states(found.turns):
            assert history(turns, one) is not None
        for one in found.turns:
            assert TraceTurn.model_validate_json(one.model_dump_json()) == one


def one_answer() -> Transcript:
    """Return a session with one answer, so that there is a state."""
    made = Transcript("last")
    made.says("Go.")
    made.answers("Gone.")
    return made


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "it is empty"), (b"root:x:0:0\n" * 3, "3 malformed line"), ("a".encode("utf-16"), "unfinished last line")],
)
def test_a_file_without_an_answer_is_one_error(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match="no answer of a model") as raised:
        ingest([path], forms_only())
    assert told in str(raised.value) and str(path) in str(raised.value.where)


def test_a_path_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        ingest([tmp_path / "none"], forms_only())


@pytest.mark.skipif(not REAL, reason="PEERGATE_TRACES names no folder of transcripts")
def test_real_transcripts_have_no_unaccounted_record_and_every_call_its_result() -> None:
    found = read(Path(REAL))
    ids: set[str] = set()
    for path in Path(REAL).rglob("*.jsonl"):
        if "acompact" not in path.name:
            for one in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
                if one["type"] == "assistant" and one["message"]["model"] != "<synthetic>":
                    ids.add(one["message"]["id"])
    assert found.account.states == len(ids)
    assert not [reason for reason in found.account.skipped if reason.startswith(("unknown", "no "))]
    turns = by_id(found.turns)
    lost = 0
    for path in Path(REAL).glob("*.jsonl"):
        records = [json.loads(one) for one in path.read_text(encoding="utf-8").splitlines()]
        lost += sum(one["type"] in ("user", "assistant") for one in records) - len(walked_back(records))
    assert lost > 100
    for state in states(found.turns):
        calls = {part.call for part in state.parts if part.type == "tool_use"}
        after = next((one for one in found.turns if one.id == f"{state.id}.results"), None)
        answered = {part.call for part in after.parts if part.type == "tool_result"} if after else set()
        assert calls - answered == set(state.unanswered)
        assert all(one.thread == state.thread for one in history(turns, state))
