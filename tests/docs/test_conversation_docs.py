"""The spec of the page on evaluation: its commands write its data, it loads, and its design passes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specs.lint.evaluation_rules import notes
from specs.loading.loading import load_spec
from testing.factories.evidence_on_disk import design_results
from training.items import conversation_items, format_items
from training.rules.tasks import load_items

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "explanation" / "pipeline-evaluation.md"
EXAMPLE = DOCS / "examples" / "talks.yaml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with what the page's commands write, and its spec."""
    text = PAGE.read_text(encoding="utf-8").split("## Conversations as the registered comparison\n", 1)[1]
    (tmp_path / "talks.yaml").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    commands = {"training.items.format_items": format_items, "training.items.conversation_items": conversation_items}
    for line in text.split("```\n", 1)[1].split("```", 1)[0].splitlines():
        _, found, command = line.partition("python -m ")
        if found:
            module, *arguments = command.split()
            monkeypatch.setattr(sys, "argv", [module, *arguments])
            assert commands.pop(module).main() == 0
    assert commands == {}
    return tmp_path


def test_the_spec_of_the_page_loads_and_its_design_passes(folder: Path) -> None:
    resolved = load_spec(folder / "talks.yaml")
    assert list(notes(resolved.spec)) == []
    heldout = tuple(load_items(folder / "data" / "conversations.jsonl"))
    data = {"prompts": tuple(load_items(folder / "data" / "format_train.jsonl"))}
    found = {one.id: one for one in design_results(resolved, heldout, data)}
    assert {id: one.detail for id, one in found.items() if one.status not in ("PASS", "NOT_APPLICABLE")} == {
        "design.seeds": found["design.seeds"].detail
    }
    assert "found with probability 0.819 (memory, 75 items)" in found["design.power"].detail
