"""Transcripts as a data file: a row each, as they are but for secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specs.data.registered import read_registered
from specs.data.transcripts import pack_transcripts
from specs.stages.base.artifacts import Item
from specs.system.errors import Problem

SECRET = "canary-9f8e7d6c5b4a"


def line(text: str) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}})


def test_a_folder_is_a_row_for_each_transcript_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "one" / "subagents").mkdir(parents=True)
    (tmp_path / "one.jsonl").write_text(line("Hello") + "\n", encoding="utf-8")
    (tmp_path / "one" / "subagents" / "agent-x.jsonl").write_text(line("Find it") + "\n", encoding="utf-8")
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    (tmp_path / "notes.md").write_text("nothing of this", encoding="utf-8")
    items = [item for item in pack_transcripts(tmp_path) if isinstance(item, Item)]
    assert [(item.id, item.group, item.kind) for item in items] == [
        ("one/subagents/agent-x.jsonl", "one", "transcript"),
        ("one.jsonl", "one", "transcript"),
    ]
    whole = read_registered(tmp_path, "transcripts")
    assert not isinstance(whole, list) and (whole.row_kind, whole.rows) == ("transcripts", 2)
    assert [item.prompt for item in items if item.id == "one.jsonl"] == [line("Hello") + "\n"]


def test_a_known_secret_is_masked_and_every_line_stays_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    path = tmp_path / "one.jsonl"
    path.write_text(line(f'say "{SECRET}"\nand go') + "\n" + line("fine") + "\n", encoding="utf-8")
    (row,) = pack_transcripts(path)
    assert isinstance(row, Item) and SECRET not in row.prompt
    lines = [json.loads(text)["message"]["content"] for text in row.prompt.splitlines()]
    assert "[masked:" in lines[0] and lines[0].endswith("and go") and lines[1] == "fine"


def test_a_folder_without_transcripts_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("nothing", encoding="utf-8")
    (problem,) = pack_transcripts(tmp_path)
    assert isinstance(problem, Problem) and "holds no transcript" in str(problem)
