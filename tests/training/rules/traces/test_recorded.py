"""Transcripts that the real programs wrote are read as they are: each answer has before it what its model was sent.

``tests/fixtures/transcripts/README.md`` says how they were recorded.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from release.record_transcripts.__main__ import PROGRAMS, record
from release.record_transcripts.invented import DAY, HOME, LONGEST_TEXT
from release.record_transcripts.scenarios import HELPER_TASK, SCENARIOS, SUMMARY, scripted_texts
from specs.system.errors import UserError
from specs.system.masking import forms_only
from specs.traces.turn import TextPart, Thinking, TraceTurn
from testing.fixtures.agent_programs import program
from training.rules.traces.ingest import IngestResult, ingest
from training.rules.traces.record_kinds import CODEX
from training.rules.traces.shown_states import by_id, history, states

RECORDED = Path(__file__).parents[3] / "fixtures" / "transcripts"
CLAUDE = sorted(path.name for path in RECORDED.glob("claude-*"))
CODEXES = sorted(path.name for path in RECORDED.glob("codex-*"))
FORGETS = {("claude-2.1.39", "tools"): ("toolu_1_0", "toolu_1_1")}
"""What a version loses of a session that it resumes: of parallel calls it sends one. The transcript holds them all."""


def read(folder: Path) -> IngestResult:
    """Read transcripts, and require that every line of every file is used or skipped for one reason."""
    ingested = ingest([folder], forms_only())
    for file in ingested.account.files:
        skipped = [n for ranges in file.skipped.values() for first, last in ranges for n in range(first, last + 1)]
        assert len(skipped) == len(set(skipped)) and file.used + len(skipped) == file.records
    return ingested


def edited(folder: Path, version: str, scenario: str, edit: Callable[[dict[str, Any]], None]) -> Path:
    """Return a copy of a recording with every record edited; one that is left empty is gone."""
    shutil.copytree(RECORDED / version / scenario, folder / "copy")
    for path in (folder / "copy").rglob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            edit(row)
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows if row), encoding="utf-8")
    return folder / "copy"


def words(turns: list[TraceTurn]) -> list[str]:
    """Return what turns repeat of the script, in the form of ``requests.json``."""
    scripted = scripted_texts()
    repeated: list[str] = []
    for part in (part for turn in turns for part in turn.parts):
        if part.type == "tool_use":
            repeated.append(part.call)
        elif part.type == "tool_result":
            repeated.append(f"result of {part.call}")
        elif (text := part.text.strip()) in scripted:
            repeated.append(text)
        elif SUMMARY in part.text:
            repeated.append("summary")
    return in_any_order(repeated)


def in_any_order(repeated: list[str]) -> list[str]:
    """Return words with results that follow each other sorted: parallel calls end in any order."""
    runs = [list(run) for _, run in groupby(repeated, lambda word: word.startswith("result of"))]
    return [word for run in runs for word in (sorted(run) if run[0].startswith("result of") else run)]


def sent(folder: Path) -> dict[str, list[str]]:
    """Return what the model of a recording was sent before each of its answers, by the id of the answer's turn."""
    requests = json.loads((folder / "requests.json").read_text(encoding="utf-8"))
    return {hashlib.sha256(key.encode()).hexdigest()[:32]: in_any_order(value) for key, value in requests.items()}


def texts_before(ingested: IngestResult) -> dict[str, list[str]]:
    """Return what the reader says that the model had before it in each state."""
    turns = by_id(ingested.turns)
    return {state.id: words(history(turns, state)) for state in states(ingested.turns)}


def list_requests(ingested: IngestResult) -> list[str]:
    """Return what the reader takes for a person's words, or for a subagent's task."""
    prompts = [turn for turn in ingested.turns if turn.kind == "prompt"]
    return [part.text for turn in prompts for part in turn.parts if isinstance(part, TextPart)]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("version", CLAUDE)
def test_every_answer_has_before_it_what_its_model_was_sent(version: str, scenario: str) -> None:
    forgotten = [{call, f"result of {call}"} for call in FORGETS.get((version, scenario), ())]
    expected, actual = sent(RECORDED / version / scenario), texts_before(read(RECORDED / version / scenario))
    assert actual.keys() == expected.keys(), "every answer of the model is a state, and nothing else is one"
    for answer, request in expected.items():
        lost = set(actual[answer]) - set(request)
        assert not lost or lost in forgotten
        assert [word for word in actual[answer] if word not in lost] == request


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("version", CLAUDE)
def test_every_record_is_of_a_known_type_and_nothing_is_learned_but_the_script(version: str, scenario: str) -> None:
    ingested = read(RECORDED / version / scenario)
    assert not [reason for reason in ingested.account.skipped if reason.startswith(("unknown", "no ", "malformed"))]
    assert not ingested.account.opaque and not ingested.account.orphans and not ingested.account.branches
    parts = [part for state in states(ingested.turns) for part in state.parts]
    learned = {part.text for part in parts if isinstance(part, TextPart | Thinking)}
    answers = [*SCENARIOS[scenario].answers, *SCENARIOS[scenario].helpers]
    assert learned <= {text for answer in answers for text in (answer.text, answer.thinking) if text}
    typed = [prompt for prompt in SCENARIOS[scenario].prompts if not prompt.startswith("/")]
    assert list_requests(ingested) == typed + [HELPER_TASK] * bool(SCENARIOS[scenario].helpers), (
        "notes are the program's"
    )


def _rename_answers(record: dict[str, Any]) -> None:
    if record["type"] == "assistant":
        record["type"] = "assistant-of-a-later-version"


def _rename_one_attachment(record: dict[str, Any]) -> None:
    if record["type"] == "queue-operation":
        record["type"] = "novel"


@pytest.mark.parametrize("version", CLAUDE)
def test_a_type_that_is_not_known_is_named_and_never_read_as_text(version: str, tmp_path: Path) -> None:
    ingested = read(edited(tmp_path, version, "tools", _rename_one_attachment))
    assert ingested.account.skipped["unknown type: novel"] > 0
    with pytest.raises(UserError, match="unknown type: assistant-of-a-later-version"):
        read(edited(tmp_path / "answers", version, "tools", _rename_answers))


@pytest.mark.parametrize("version", CLAUDE)
def test_a_subagent_is_a_thread_of_its_own(version: str, tmp_path: Path) -> None:
    def hide(record: dict[str, Any]) -> None:
        record.pop("agentId", None)
        record.pop("isSidechain", None)

    ingested = read(RECORDED / version / "subagent")
    turns = by_id(ingested.turns)
    theirs = [state for state in states(ingested.turns) if state.subagent]
    mine = [state for state in states(ingested.turns) if not state.subagent]
    assert len(theirs) == len(SCENARIOS["subagent"].helpers)
    (thread,) = {state.thread for state in theirs}
    (file,) = (RECORDED / version / "subagent").rglob("agent-*.jsonl")
    assert thread == f"{mine[0].thread}/{file.stem.removeprefix('agent-')}" and thread != mine[0].thread
    assert all(words(history(turns, state))[0] == HELPER_TASK for state in theirs)
    assert all(turn.thread == state.thread for state in ingested.turns for turn in history(turns, state))
    # Without what marks it, it is not a subagent: the mark is what is read.
    assert not [turn for turn in read(edited(tmp_path, version, "subagent", hide)).turns if turn.subagent]


@pytest.mark.parametrize("version", CLAUDE)
def test_a_compaction_keeps_the_summary_and_what_its_record_names(version: str, tmp_path: Path) -> None:
    kept_by_format: list[str] = []

    def forget(record: dict[str, Any]) -> None:
        about = record.get("compactMetadata") or {}
        kept_by_format.extend(about.get("preservedMessages", {}).get("uuids", ()))
        about.pop("preservedMessages", None)
        about.pop("preservedSegment", None)

    def go_on(record: dict[str, Any]) -> None:
        if record.get("subtype") == "compact_boundary" or record.get("isCompactSummary"):
            record.clear()

    ingested = read(RECORDED / version / "compaction")
    (summary,) = [turn for turn in ingested.turns if turn.kind == "summary"]
    before = next(turn for turn in ingested.turns if turn.id == summary.compacted)
    assert ingested.account.compactions == 1 and words([before]) == ["It was read."]
    forgetful = read(edited(tmp_path, version, "compaction", forget))
    assert bool(summary.kept_turns) == bool(kept_by_format)
    assert (texts_before(forgetful) != sent(RECORDED / version / "compaction")) == bool(kept_by_format)
    # Without the compaction's own records the history goes on, which no model was sent.
    assert texts_before(read(edited(tmp_path / "2", version, "compaction", go_on))) != sent(
        RECORDED / version / "compaction"
    )


@pytest.mark.parametrize("version", CLAUDE)
def test_an_interrupted_call_has_no_result_of_its_command(version: str, tmp_path: Path) -> None:
    """Nothing at all, or the program's note in its place, which says that it failed."""

    def answer_it(record: dict[str, Any]) -> None:
        for block in record.get("message", {}).get("content", ()):
            if isinstance(block, dict) and block["type"] == "tool_result":
                block |= {"content": "The bread is baked.", "is_error": False}

    def outcomes(folder: Path) -> list[str]:
        ingested = read(folder)
        results = [part for turn in ingested.turns for part in turn.parts if part.type == "tool_result"]
        rejected = [part for part in results if part.failed and part.text.startswith("The user doesn't want to")]
        assert ingested.account.calls == 1 == ingested.account.unanswered + len(results)
        return ["none"] * ingested.account.unanswered + ["rejected"] * len(rejected)

    (outcome,) = outcomes(RECORDED / version / "interruption")
    if outcome == "rejected":
        assert outcomes(edited(tmp_path, version, "interruption", answer_it)) == []
    ingested = read(RECORDED / version / "interruption")
    assert list_requests(ingested) == list(SCENARIOS["interruption"].prompts), (
        "notes of an interruption are the program's"
    )


def test_both_ways_to_record_an_interruption_are_there() -> None:
    unanswered = {version: read(RECORDED / version / "interruption").account.unanswered for version in CLAUDE}
    assert set(unanswered.values()) == {0, 1}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("version", CODEXES)
def test_a_rollout_of_codex_is_named_to_its_last_record(version: str, scenario: str, tmp_path: Path) -> None:
    files = sorted((RECORDED / version / scenario).glob("*.jsonl"))
    records = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    assert len(files) == (2 if SCENARIOS[scenario].helpers else 1)
    with pytest.raises(UserError, match=rf"in {records} records \({records} {CODEX}\)"):
        read(RECORDED / version / scenario)

    def change(record: dict[str, Any]) -> None:
        if record["type"] == "event_msg":
            del record["payload"]

    with pytest.raises(UserError, match="unknown type: event_msg"):
        read(edited(tmp_path, version, scenario, change))


def test_rollouts_next_to_transcripts_are_left_aside_and_change_nothing(tmp_path: Path) -> None:
    alone = read(RECORDED / CLAUDE[0] / "tools")
    shutil.copytree(RECORDED / CLAUDE[0] / "tools", tmp_path / "claude")
    shutil.copytree(RECORDED / CODEXES[0] / "tools", tmp_path / "codex")
    together = read(tmp_path)
    assert texts_before(together) == texts_before(alone) and set(together.account.left_aside.values()) == {CODEX}


def test_versions_differ_and_every_scenario_is_there() -> None:
    assert len(CLAUDE) >= 3 and len(CODEXES) >= 2
    for version in [*CLAUDE, *CODEXES]:
        assert {path.name for path in (RECORDED / version).iterdir()} == SCENARIOS.keys()
        for scenario in SCENARIOS:
            texts = "".join(
                path.read_text(encoding="utf-8") for path in (RECORDED / version / scenario).glob("*.jsonl")
            )
            assert f'"{version.partition("-")[2]}"' in texts, "the program says its version"


def test_recordings_are_small_and_say_nothing_of_the_machine_that_made_them() -> None:
    files = [path for path in RECORDED.rglob("*") if path.suffix in (".jsonl", ".json")]
    assert sum(path.stat().st_size for path in files) < 400_000
    for path in files:
        text = f"{path.name}\n{path.read_text(encoding='utf-8')}"
        assert len(text.encode()) < 60_000
        ids = set(re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", text))
        assert all(id.endswith("-0000-4000-8000-000000000000") for id in ids)
        days = set(re.findall(r"\b(20\d\d-\d\d-\d\d)[T ]\d\d[:-]\d\d", text))
        assert days <= {f"{DAY:%Y-%m-%d}"}
        places = set(re.findall(r"(?<![\w.:/])/(?:home|root|tmp|var|work|Users)/[\w-]+", text))
        assert places <= {HOME, "/srv/bakery/tmp"}
        longest = max(map(len, _strings(path)), default=0)
        assert longest <= LONGEST_TEXT + 100, "texts of the programs are not copied"


def _strings(path: Path) -> list[str]:
    if path.suffix == ".json":
        return []
    strings: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, str):
            strings.append(value)
        for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            collect(member)

    for line in path.read_text(encoding="utf-8").splitlines():
        collect(json.loads(line))
    return strings


@pytest.mark.integration
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_installed_program_is_recorded_again_and_read(name: str, scenario: str, tmp_path: Path) -> None:
    path = program(name)
    if path is None:
        pytest.skip(f"the agent program '{name}' is not installed: its vendor says how to install it")
    assert record(name, Path(path), SCENARIOS[scenario], tmp_path / "out") == []
    if name == "claude":
        assert texts_before(read(tmp_path / "out")) == sent(tmp_path / "out")
    else:
        with pytest.raises(UserError, match=rf"\(\d+ {CODEX}\)"):
            read(tmp_path / "out")
