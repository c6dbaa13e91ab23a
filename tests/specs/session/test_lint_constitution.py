from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specs.lint.rules import lint_constitution
from specs.loading.loading import find_spec, load_constitution, load_spec
from specs.system.errors import SpecError
from testing.factories.spec_files import CONSTITUTION, list_problems, loads, write_spec


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
    (result,) = list_problems(path)
    assert message in result
    assert ".".join(part for part in loc if isinstance(part, str)).split(".")[-1] in result


NAME = ("name: small", "name: {}")


@pytest.mark.parametrize("name", ["cai_small", "small-cai", "CAI.2", "constitutional_sft", "after_constitution"])
def test_a_session_named_after_a_constitution_has_a_stage_that_reads_it(tmp_path: Path, name: str) -> None:
    (problem,) = list_problems(write_spec(tmp_path, (NAME[0], NAME[1].format(name))))
    assert f"'{name}' is named after a constitution, and no stage reads one" in problem


@pytest.mark.parametrize("name", ["caipirinha", "small", "cairo", "mosaic", "reconstitution"])
def test_other_names_and_a_constitution_for_reviewers_alone_are_fine(tmp_path: Path, name: str) -> None:
    spec = loads(write_spec(tmp_path, (NAME[0], NAME[1].format(name)))).spec
    assert spec.describe_constitution() == "read by no stage; it is registered for reviewers"


def test_who_reads_the_constitution_is_reported() -> None:
    spec = load_spec(find_spec("cai_preferences")).spec
    assert spec.describe_constitution() == "read by 'pilot_revise', 'revise'"
    assert load_spec(find_spec("self_instruct_sft")).spec.describe_constitution() == ""


def test_not_judged_names_what_makes_pairs(tmp_path: Path) -> None:
    (problem,) = list_problems(write_spec(tmp_path, ("stages:\n", "evaluation: {not_judged: [base]}\nstages:\n")))
    assert "'base' makes or holds no pairs" in problem


def test_worked_examples_are_held_to_what_a_model_can_continue(tmp_path: Path) -> None:
    worked = {"instruction": "What is tea?", "draft": "A drink.", "critique": "It is\ndull.", "revision": "A  drink."}
    principle = {"id": "short", "category": "form", "text": "Answer in one sentence.", "examples": [worked]}
    totals = {"principles": 1, "by_category": {"form": 1}}
    file = tmp_path / "constitution.yaml"
    document = {"schema_version": 1, "title": "Rules", "principles": [principle], "totals": totals}
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_constitution(file)
    lines = "has several lines, and a model that continues the form stops at their end"
    assert [(problem.keys, problem.message) for problem in caught.value.problems] == [
        ("principles[0].examples[0].critique", lines),
        ("principles[0].examples[0].revision", "repeats the draft"),
    ]


def test_a_stage_names_principles_that_the_constitution_holds(tmp_path: Path) -> None:
    library = find_spec("cai_preferences").parent
    shutil.copytree(library, tmp_path / "specs" / "library")
    shutil.copyfile(library.parents[1] / "constitution.yaml", tmp_path / "constitution.yaml")
    path = tmp_path / "specs" / "library" / "cai_preferences.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("revision_tokens: 64, ", "principles: [be-concis], ", 1), encoding="utf-8")
    with pytest.raises(SpecError, match=r"holds no principle 'be-concis'.*did you mean 'be-concise'"):
        load_spec(path)
