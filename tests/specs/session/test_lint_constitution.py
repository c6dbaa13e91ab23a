from __future__ import annotations

from pathlib import Path

import pytest

from specs.lint.rules import lint_constitution
from specs.loading.loading import load_constitution
from testing.factories.spec_files import CONSTITUTION, told, write_spec


@pytest.mark.parametrize(
    ("old", "new", "loc", "message"),
    [
        ("principles: 2", "principles: 3", ("totals", "principles"), "says 3 principles, the file holds 2"),
        ("{honesty: 1", "{honesty: 2", ("totals", "by_category", "honesty"),
         "says 2 in category 'honesty', the file holds 1"),
        ("{honesty: 1, ", "{", ("totals", "by_category", "honesty"),
         "category 'honesty' has 1 principles but no total"),
        ("{honesty: 1", "{harm: 1, honesty: 1", ("totals", "by_category", "harm"),
         "says 1 in category 'harm', the file holds 0"),
        ("id: be-concise", "id: no-invention", ("principles", 1, "id"),
         "id 'no-invention' is already used by principles[0]"),
        ("Use as few words as the task needs.", "Do not state invented  facts AS if they were known.",
         ("principles", 1, "text"), "the same text as principles[0]"),
    ],
)  # fmt: skip
def test_a_constitution_must_hold_what_it_says(
    tmp_path: Path, old: str, new: str, loc: tuple[str | int, ...], message: str
) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(CONSTITUTION, encoding="utf-8")
    assert lint_constitution(load_constitution(good)[0]) == []
    path = write_spec(tmp_path)
    assert CONSTITUTION.count(old) == 1
    (tmp_path / "constitution.yaml").write_text(CONSTITUTION.replace(old, new), encoding="utf-8")
    (found,) = told(path)
    assert message in found
    assert ".".join(part for part in loc if isinstance(part, str)).split(".")[-1] in found
