"""docs/how-to/write-a-spec.md: its example loads and the errors it shows are real. Tables are in docs/reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specs.loading.loading import load_spec
from specs.system.digests import digest_file
from testing.factories.spec_files import problems_of, write_spec

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "how-to" / "write-a-spec.md"
EXAMPLE = DOCS / "examples" / "small.yaml"
MISTAKES = (
    ('machine_usd_per_hour: 2.0', 'machine_usd_per_hour: "2.0"'),
    ("baseline: base", "baseline: bass"),
    ("low\n      criteria", "low\n      critera"),
    ("learning_rate: 1e-5", "learning_rate: 3"),
    ("metric: identical_outputs", "metric: accuracy"),
)  # fmt: skip


def error_output(folder: Path) -> str:
    path = write_spec(folder, *MISTAKES)
    return "\n".join(str(problem).replace(f"{folder}/", "") for problem in problems_of(path))


@pytest.mark.parametrize("page", [PAGE, EXAMPLE], ids=["page", "example"])
def test_the_example_loads(tmp_path: Path, page: Path) -> None:
    write_spec(tmp_path)
    text = page.read_text(encoding="utf-8")
    example = text.split("```yaml\n", 1)[1].split("```", 1)[0] if page is PAGE else text
    path = tmp_path / "example.yaml"
    path.write_text(example.replace("HELDOUT", digest_file(tmp_path / "heldout.jsonl")), encoding="utf-8")
    assert load_spec(path).spec.name == "small"


def test_the_errors_shown_are_real(tmp_path: Path) -> None:
    shown = re.search(r"```text\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert shown[1] == error_output(tmp_path)
