"""A task in a file next to the spec."""

from __future__ import annotations

from pathlib import Path

from testing.factories.spec_files import write_spec

GOOD = """
from specs.stages.base.artifacts import Item

def verify(item, answer):
    return int(answer) == 1

def worked_example(item):
    return "Say one.", "1"

def known_answers():
    item = Item(id="a", group="g", kind="k", prompt="p", constraint={})
    return [(item, text, text.strip() == "1") for text in ("1", " 1", "1 ", "2", "10", "-1")]
"""
TASK = ("task: format_instructions", "task: ./verify.py")


def spec_with(folder: Path, code: str, *changes: tuple[str, str]) -> Path:
    """Write a spec whose task is a file with this code, and return its path."""
    path = write_spec(folder, *(changes or (TASK,)))
    (folder / "verify.py").write_text(code, encoding="utf-8")
    return path
