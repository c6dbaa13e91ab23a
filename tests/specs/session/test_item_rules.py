"""Items that the task's verifier cannot judge are refused at `spec check`, with one message a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specs.loading.loading import load_spec
from specs.system.digests import digest_file
from specs.system.errors import SpecError
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.command_sessions import write_small_spec

EXACT = ("task: format_instructions", "task: exact_answer")
PLAIN = ("samples_per_prompt: 2, temperature", "worked_example: false, samples_per_prompt: 2, temperature")
Change = Callable[[dict[str, Any]], object]


def named(item: dict[str, Any]) -> None:
    item["constraint"] = {"answer": "Paris"}


def write(folder: Path, change: Change, *changes: tuple[str, str], lines: slice = slice(None)) -> Path:
    """Write the small spec with these changes, of its data too; the held-out digest is that of the changed file."""
    path = write_small_spec(folder, *changes)
    before = digest_file(folder / "heldout.jsonl")
    for name in ("heldout.jsonl", "prompts.jsonl"):
        items = [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        for item in items[lines]:
            change(item)
        text = "".join(f"{json.dumps(item)}\n" for item in items)
        (folder / name).write_text(text, encoding="utf-8")
    text = path.read_text(encoding="utf-8").replace(before, digest_file(folder / "heldout.jsonl"))
    path.write_text(text, encoding="utf-8")
    return path


def test_items_without_an_answer_are_one_clear_error_a_file(tmp_path: Path) -> None:
    path = write_small_spec(tmp_path, EXACT, PLAIN)
    for command in (("spec", "check", path), ("start", path, "--runs", tmp_path / "runs")):
        done = peergate(*command)
        assert done.returncode == 2 and "KeyError" not in done.stderr
        lines = [line for line in done.stderr.splitlines() if "constraint.answer" in line]
        assert len(lines) == 2 and all("16 of 16 name none" in line for line in lines)
        assert f"{tmp_path}/heldout.jsonl:1:1: constraint.answer: task exact_answer compares" in done.stderr
        assert '{"answer": "Paris"}' in lines[0]
    assert not (tmp_path / "runs").exists()


def test_the_first_item_that_lacks_one_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, named, EXACT, PLAIN, lines=slice(0, 5))
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert sorted((Path(problem.path).name, problem.line) for problem in caught.value.problems) == [
        ("heldout.jsonl", 6),
        ("prompts.jsonl", 6),
    ]
    assert all("11 of 16 name none" in problem.message for problem in caught.value.problems)


def test_items_that_name_an_answer_are_accepted(tmp_path: Path) -> None:
    assert load_spec(write(tmp_path, named, EXACT, PLAIN)).spec.task == "exact_answer"


def test_other_tasks_need_no_answer(tmp_path: Path) -> None:
    assert load_spec(write_small_spec(tmp_path)).spec.task == "format_instructions"


def test_an_evaluation_with_its_own_scorer_is_asked_by_it(tmp_path: Path) -> None:
    own = [
        (
            f"model: {model}, items: heldout}}\n    parameters: {{max",
            f"model: {model}, items: heldout}}\n    parameters: {{scorer: exact_answer, max",
        )
        for model in ("model", "train.checkpoint")
    ]
    with pytest.raises(SpecError) as caught:
        load_spec(write_small_spec(tmp_path, *own))
    files = {Path(problem.path).name for problem in caught.value.problems if problem.keys == "constraint.answer"}
    assert files == {"heldout.jsonl"}, "prompts are verified by the task of the spec"
