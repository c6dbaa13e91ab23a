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
    ingested = ingest(paths, forms_only())
    for file in ingested.account.files:
        lines = [n for ranges in file.skipped.values() for first, last in ranges for n in range(first, last + 1)]
        assert len(lines) == len(set(lines)), "a line is skipped for two reasons"
        assert file.used + len(lines) == file.records
    return ingested


def shape(ingested: IngestResult) -> list[dict[str, Any]]:
    """Return states with their histories, without where they were read."""
    turns = by_id(ingested.turns)
    lines = [[*history(turns, turn), turn] for turn in states(ingested.turns)]
    return [{"turns": [turn.model_dump(exclude={"source", "time"}) for turn in line]} for line in lines]


def texts(turns: Iterable[TraceTurn]) -> list[str]:
    """Return what is written in turns, calls and results by their ends."""
    return [getattr(part, "text", "") or part.call for turn in turns for part in turn.parts if part.type != "thinking"]  # type: ignore[union-attr]


def walked_back(records: list[dict[str, Any]]) -> set[str]:
    """Return what an ingester finds that walks back from the last record: the negative control."""
    by_uuid = {record["uuid"]: record for record in records if "uuid" in record}
    results: set[str] = set()
    at = next(record["uuid"] for record in reversed(records) if "uuid" in record)
    while at:
        results.add(at)
        at = by_uuid[at].get("parentUuid")
    return {text for text in results if by_uuid[text]["type"] in ("user", "assistant")}


def test_an_answer_of_several_records_is_one_state_with_its_results_behind_it(tmp_path: Path) -> None:
    made = Transcript()
    made.says("Read both.")
    made.answers("I read them.", "Read", "Read")
    made.says("And now?")
    made.answers("Done.")
    ingested = read(made.write(tmp_path / "s.jsonl"))
    first, second = states(ingested.turns)
    assert [part.type for part in first.parts] == ["thinking", "text", "tool_use", "tool_use"]
    before = history(by_id(ingested.turns), second)
    assert [turn.kind for turn in before] == ["prompt", "action", "results", "prompt"]
    assert texts(before[2:3]) == ["contents of Read", "contents of Read"]
    assert ingested.account.calls == 2 and ingested.account.unanswered == ingested.account.branches == 0


def test_walking_back_from_the_last_record_loses_what_this_keeps(tmp_path: Path) -> None:
    made = long_session()
    ingested = read(made.write(tmp_path / "s.jsonl"))
    conversation = [record for record in made.records if record["type"] in ("user", "assistant")]
    assert ingested.account.used == len(conversation)
    assert len(walked_back(made.records)) < 0.5 * len(conversation)


def test_going_back_makes_a_branch_and_keeps_the_one_that_was_left(tmp_path: Path) -> None:
    ingested = read(long_session().write(tmp_path / "s.jsonl"))
    turns = by_id(ingested.turns)
    changed, other = [turn for turn in states(ingested.turns) if texts([turn])[0].startswith("Changed")]
    assert ingested.account.branches == 1
    assert "Now change one." in texts(history(turns, changed))
    assert "Now change one." not in texts(history(turns, other)) and "Read both files." in texts(history(turns, other))


def test_after_a_compaction_the_summary_is_all_there_is(tmp_path: Path) -> None:
    ingested = read(long_session().write(tmp_path / "s.jsonl"))
    turns = by_id(ingested.turns)
    going_on = next(turn for turn in states(ingested.turns) if texts([turn])[0] == "I go on.")
    (summary,) = history(turns, going_on)
    assert summary.kind == "summary" and ingested.account.compactions == 1
    assert summary.compacted is not None and turns[summary.compacted].kind == "results"


def test_a_compaction_whose_summary_is_lost_leaves_nothing_before_what_follows(tmp_path: Path) -> None:
    made = long_session()
    made.records = [record for record in made.records if not record.get("isCompactSummary")]
    ingested = read(made.write(tmp_path / "s.jsonl"))
    going_on = next(turn for turn in states(ingested.turns) if texts([turn])[0] == "I go on.")
    assert history(by_id(ingested.turns), going_on) == []


def test_a_session_that_goes_on_in_another_file_is_read_after_the_first(tmp_path: Path) -> None:
    first, second = long_session(), Transcript("s2")
    second.last = first.last
    second.says("Once more.")
    second.answers("Again.")
    for record in second.records:
        record["timestamp"] = "2026-02-11T00:00:00.000Z"
    first.write(tmp_path / "b.jsonl")
    second.write(tmp_path / "a.jsonl")
    ingested = read(tmp_path)
    assert texts(history(by_id(ingested.turns), states(ingested.turns)[-1]))[-2:] == ["Done.", "Once more."]


def test_a_mark_at_the_beginning_of_a_file_is_not_part_of_its_first_line(tmp_path: Path) -> None:
    path = long_session().write(tmp_path / "s.jsonl")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert "malformed line" not in read(path).account.skipped


def test_a_command_and_a_caveat_are_context_and_no_prompt(tmp_path: Path) -> None:
    made = long_session()
    made.says("Told by the program.", isMeta=True)
    ingested = read(made.write(tmp_path / "s.jsonl"))
    kinds = {texts([turn])[0]: turn.kind for turn in ingested.turns if turn.kind in ("prompt", "context")}
    assert kinds.pop("<command-name>/clear</command-name>") == kinds.pop("Told by the program.") == "context"
    assert set(kinds.values()) == {"prompt"}


def test_a_call_without_its_result_is_marked(tmp_path: Path) -> None:
    made = Transcript()
    made.says("Go.")
    made.answers("I go.", "Bash", "Read")
    made.records.pop()
    ingested = read(made.write(tmp_path / "s.jsonl"))
    (state,) = states(ingested.turns)
    assert len(state.unanswered) == ingested.account.unanswered == 1


def test_a_result_whose_call_is_nowhere_is_kept_and_counted(tmp_path: Path) -> None:
    made = Transcript()
    made.result("lost", "an old result")
    made.answers("I see.")
    ingested = read(made.write(tmp_path / "s.jsonl"))
    assert ingested.account.orphans == 1
    assert texts(history(by_id(ingested.turns), states(ingested.turns)[0])) == ["an old result"]


def test_subagents_are_threads_of_their_own_and_the_writer_of_summaries_is_left_out(tmp_path: Path) -> None:
    made = long_session()
    made.write(tmp_path / "s1.jsonl")
    agent, compact = Transcript("s1"), Transcript("s1")
    for transcript, name in ((agent, "a1"), (compact, "acompact-2")):
        transcript.records = []
        transcript.says("Look it up.", isSidechain=True, agentId=name)
        transcript.answers("Found it.", isSidechain=True, agentId=name)
        for record in transcript.records:
            record["uuid"], record["parentUuid"] = (
                f"{name}{record['uuid']}",
                record["parentUuid"] and f"{name}{record['parentUuid']}",
            )
            if record["type"] == "assistant":
                record["message"]["id"] = f"msg_{name}"
        transcript.write(tmp_path / "s1" / "subagents" / f"agent-{name}.jsonl")
    ingested = read(tmp_path)
    (theirs,) = [turn for turn in states(ingested.turns) if turn.subagent]
    assert theirs.thread == "s1/a1" and texts(history(by_id(ingested.turns), theirs)) == ["Look it up."]
    assert ingested.account.skipped["the run that wrote a summary"] == 3
    alone = read(made.write(tmp_path / "alone" / "s.jsonl"))
    assert [turn.id for turn in states(ingested.turns) if not turn.subagent] == [
        turn.id for turn in states(alone.turns)
    ]


def test_what_was_copied_into_a_resumed_session_is_read_once_and_continued(tmp_path: Path) -> None:
    first = long_session()
    second = Transcript("s2")
    second.records, second.last = [dict(record, sessionId="s2") for record in first.records], first.last
    second.says("Once more.")
    second.answers("Again.")
    first.write(tmp_path / "b.jsonl")
    second.write(tmp_path / "a.jsonl")
    ingested = read(tmp_path)
    assert ingested.account.skipped[DUPLICATE] == len(first.records) - 1
    last = states(ingested.turns)[-1]
    assert texts(history(by_id(ingested.turns), last))[-2:] == ["Done.", "Once more."]


def test_errors_and_answers_of_the_program_are_no_states(tmp_path: Path) -> None:
    made = Transcript()
    made.says("Go.")
    made.answers("API Error: 529", isApiErrorMessage=True)
    made.answers("I go.")
    made.records[-1]["message"]["model"] = made.records[-2]["message"]["model"] = "<synthetic>"
    made.answers("Here.")
    ingested = read(made.write(tmp_path / "s.jsonl"))
    assert [texts([turn]) for turn in states(ingested.turns)] == [["Here."]]
    assert texts(history(by_id(ingested.turns), states(ingested.turns)[0])) == ["Go."]
    assert ingested.account.skipped == {"error of the API": 2, "written by the program": 2}


def test_secrets_are_masked_in_texts_calls_and_results(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "Ab3dE5gH7j" * 9 + "AA"
    made = Transcript()
    made.says(f"My key is {key}.")
    made.answers(f"You said {key}.", "Bash")
    made.records[-1]["message"]["content"][0]["content"] = [{"type": "text", "text": f"export KEY={key}"}]
    for record in made.records:
        for block in record.get("message", {}).get("content", []):
            if isinstance(block, dict) and block["type"] == "tool_use":
                block["input"] = {"command": f"curl -H 'x-api-key: {key}'"}
    ingested = read(made.write(tmp_path / "s.jsonl"))
    assert key not in "".join(turn.model_dump_json() for turn in ingested.turns)
    assert ingested.account.secrets == 4


def test_long_results_are_cut_with_their_length_and_images_are_named(tmp_path: Path) -> None:
    made = Transcript()
    made.says([{"type": "image", "source": {"type": "base64", "data": "QUJD" * 50}}, {"type": "text", "text": "This?"}])
    made.answers("I look.", "Read")
    made.records[-1]["message"]["content"][0]["content"] = "y" * 100_000
    ingested = read(made.write(tmp_path / "s.jsonl"))
    assert texts(ingested.turns)[0].startswith("[image sha256:") and "QUJD" not in texts(ingested.turns)[0]
    result = ingested.turns[-1].parts[0]
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
        ingested = read(path)
        assert shape(ingested) == (until if cut == 1 else without)
        assert ("unfinished last line" in ingested.account.skipped) == (1 < cut < last)


def disturbed(change: Callable[[list[str]], list[str]], tmp_path: Path) -> IngestResult:
    """Read a session whose lines were changed."""
    path = tmp_path / "changed.jsonl"
    path.write_bytes("".join(change(long_session().lines())).encode())
    return read(path)


def _crlf(lines: list[str]) -> list[str]:
    return ["\ufeff", *(f"{line}\r\n" for line in lines)]


def _noise(lines: list[str]) -> list[str]:
    noise = ["", "{", "[]", "null", '{"type": "novel", "uuid": "n"}', '{"type": 3}', "[" * 100_000, '{"a": NaN}']
    return [f"{text}\n" for pair in zip(lines, [*noise, *[""] * len(lines)], strict=False) for text in pair]


def _shuffled(lines: list[str]) -> list[str]:
    selected = [json.loads(line)["type"] in ("user", "assistant") or "compact" in line for line in lines]
    moved = [line for line, keep in zip(lines, selected, strict=True) if not keep]
    random.Random(3).shuffle(moved)
    return [f"{line if keep else moved.pop()}\n" for line, keep in zip(lines, selected, strict=True)]


def _without_progress(lines: list[str]) -> list[str]:
    return [f"{line}\n" for line in lines if json.loads(line)["type"] != "progress"]


def _twice(lines: list[str]) -> list[str]:
    return [f"{line}\n" for line in [*lines, *lines]]


def _in_one_record(lines: list[str]) -> list[str]:
    """Write the records of one message that lie next to each other as one."""
    records: list[dict[str, Any]] = []
    for item in map(json.loads, lines):
        last = records[-1] if records else {}
        same = item["type"] == last.get("type") == "assistant" and item["message"]["id"] == last["message"]["id"]
        if same:
            last["message"]["content"] += item["message"]["content"]
            last["uuid"] = item["uuid"]
        else:
            records.append(item)
    return [f"{json.dumps(record)}\n" for record in records]


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
    ingested = read(made.write(tmp_path / "s.jsonl"))
    assert texts(states(ingested.turns)) == ["One, two, three"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(["s1-1", "msg_1"]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "id", "content", "tool_use_id", "input", "name", "thinking", "model", "prompt"]
            ),
            children,
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
        path.write_text("".join(f"{json.dumps(record)}\n" for record in [*records, *one_answer().records]))
        ingested = read(path)
        turns = by_id(ingested.turns)
        for turn in states(ingested.turns):
            assert history(turns, turn) is not None
        for turn in ingested.turns:
            assert TraceTurn.model_validate_json(turn.model_dump_json()) == turn


def one_answer() -> Transcript:
    """Return a session with one answer, so that there is a state."""
    made = Transcript("last")
    made.says("Go.")
    made.answers("Gone.")
    return made


@pytest.mark.parametrize(
    ("content", "output"),
    [(b"", "it is empty"), (b"root:x:0:0\n" * 3, "3 malformed line"), ("a".encode("utf-16"), "unfinished last line")],
)
def test_a_file_without_an_answer_is_one_error(content: bytes, output: str, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match="no answer of a model") as raised:
        ingest([path], forms_only())
    assert output in str(raised.value) and str(path) in str(raised.value.where)


def test_a_path_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        ingest([tmp_path / "none"], forms_only())


@pytest.mark.skipif(not REAL, reason="PEERGATE_TRACES names no folder of transcripts")
def test_real_transcripts_have_no_unaccounted_record_and_every_call_its_result() -> None:
    ingested = read(Path(REAL))
    ids: set[str] = set()
    for path in Path(REAL).rglob("*.jsonl"):
        if "acompact" not in path.name:
            for item in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
                if item["type"] == "assistant" and item["message"]["model"] != "<synthetic>":
                    ids.add(item["message"]["id"])
    assert ingested.account.states == len(ids)
    assert not [reason for reason in ingested.account.skipped if reason.startswith(("unknown", "no "))]
    turns = by_id(ingested.turns)
    lost = 0
    for path in Path(REAL).glob("*.jsonl"):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        lost += sum(record["type"] in ("user", "assistant") for record in records) - len(walked_back(records))
    assert lost > 100
    for state in states(ingested.turns):
        calls = {part.call for part in state.parts if part.type == "tool_use"}
        after = next((turn for turn in ingested.turns if turn.id == f"{state.id}.results"), None)
        answered = {part.call for part in after.parts if part.type == "tool_result"} if after else set()
        assert calls - answered == set(state.unanswered)
        assert all(turn.thread == state.thread for turn in history(turns, state))
