"""docs/reference is what the generator writes, and the generator reads all that there is to read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from release.reference.pages import MARK, VARIABLES, pages, write_pages
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import STAGE_KINDS
from tests.docs.test_layout import command_names

HOME = Path(__file__).parents[2]
FOLDER = HOME / "docs" / "reference"
AGAIN = "write them again with `python -m release.reference docs/reference` and commit the result"


BY_HAND = {"figures.md"}
"""Pages that no generator writes."""


def differing(folder: Path, texts: dict[str, str]) -> list[str]:
    """Return the generated pages that are missing, changed or superfluous in a folder."""
    there = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    names = {*there, *texts} - BY_HAND
    return sorted(name for name in names if there.get(name) != texts.get(name))


WITHOUT = """
import runpy
import sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "trl")))
runpy.run_module("release.reference", run_name="__main__")
"""
"""Runs the generator as `python -m` does, where importing one of these fails."""


def test_the_pages_are_what_the_generator_writes_without_torch(tmp_path: Path) -> None:
    # In another process, as a person runs it: other tests change contracts in this one.
    command = [sys.executable, "-c", WITHOUT, str(tmp_path)]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    texts = {path.relative_to(tmp_path).as_posix(): path.read_text("utf-8") for path in tmp_path.glob("*.md")}
    results = differing(FOLDER, texts)
    assert results == [], f"docs/reference/{', '.join(results)} differ from the code: {AGAIN}"


def test_a_page_that_was_edited_is_missing_or_is_no_more_is_found(tmp_path: Path) -> None:
    write_pages(tmp_path)
    assert differing(tmp_path, pages(with_stages=False)) == []
    (tmp_path / "checks.md").write_text("edited", encoding="utf-8")
    (tmp_path / "commands.md").unlink()
    (tmp_path / "old.md").write_text(f"{MARK}\n", encoding="utf-8")
    (tmp_path / "mine.md").write_text("by hand", encoding="utf-8")
    assert differing(tmp_path, pages(with_stages=False)) == ["checks.md", "commands.md", "mine.md", "old.md"]
    write_pages(tmp_path)
    assert differing(tmp_path, pages(with_stages=False)) == ["mine.md"], "what a person wrote is not removed"


def test_every_parameter_metric_and_command_is_on_a_page() -> None:
    texts = pages(with_stages=True)
    text = "\n".join(texts.values())
    stages = "\n".join(page for name, page in texts.items() if name.startswith("stages/"))
    declared = [name for kind in STAGE_KINDS.values() for name in kind.parameters.model_fields]
    assert [name for name in declared if f"| `{name}` |" not in stages] == []
    assert [name for name in METRICS if f"| `{name}` |" not in stages] == []
    assert "<class" not in text and " object at 0x" not in text
    assert [name for name in command_names() if f"\n## peergate {name}\n" not in text] == []


def variables_of(source: str) -> set[str]:
    """Return Peergate's own environment variables in a source text."""
    return set(re.findall(r"\bPEERGATE_[A-Z]+(?:_[A-Z]+)*\b", source))


def test_the_environment_variables_are_those_of_the_source() -> None:
    paths = [
        path
        for package in ("agents", "reviews", "sessions", "specs", "training")
        for path in (HOME / package).rglob("*.py")
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths if path.parent.name != "reference")
    listed = {name for name, _, _ in VARIABLES}
    assert variables_of(text) == variables_of(" ".join(listed))
    assert [name for name in listed if name not in text] == []
