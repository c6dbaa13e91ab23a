"""The examples of pages load, run and fail as the pages show."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from reviews.stages.judge import Judge
from specs.lint.evaluation_rules import notes
from specs.loading.loading import load_spec
from specs.session.design import ModelSource
from specs.stages.base import metric
from specs.stages.base.kind import StageKind
from specs.stages.metric_catalog import metrics_of
from specs.stages.registry import Stage
from specs.system.digests import digest_file
from specs.system.home import HOME
from specs.system.vendors.parties import Efforts
from testing.factories.evidence_on_disk import design_results
from testing.factories.spec_files import loads, problems_of, write_spec
from training.items import conversation_items, format_items
from training.rules.tasks import load_items

HOW_TO, EXPLANATION, EXAMPLES = (HOME / "docs" / name for name in ("how-to", "explanation", "examples"))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


BUILDERS = re.findall(r"```yaml\n(builder:.*?)```", text_of(HOW_TO / "model-builders.md"), re.DOTALL)
REVIEWERS = re.findall(
    r"```yaml\n(reviewer:.*?)```", text_of(HOW_TO / "model-reviewers.md") + text_of(HOW_TO / "write-a-spec.md"), re.S
)


def test_there_are_examples() -> None:
    assert (len(BUILDERS), len(REVIEWERS)) == (2, 4)


@pytest.mark.parametrize("example", BUILDERS)
def test_every_builder_loads(tmp_path: Path, example: str) -> None:
    assert loads(write_spec(tmp_path, ("builder: {vendor: playbook}\n", example))).spec.builder.asks_a_model


def reviewer_efforts(folder: Path, example: str) -> Efforts:
    changes = (("reviewer: {vendor: checklist}\n", example), ("review: 0.05", "review: 0.3"))
    return loads(write_spec(folder, *changes)).spec.reviewer.effort


@pytest.mark.parametrize("example", REVIEWERS)
def test_every_reviewer_loads(tmp_path: Path, example: str) -> None:
    reviewer_efforts(tmp_path, example)


def test_the_example_of_a_spec_states_the_defaults_of_efforts(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    stated = reviewer_efforts(tmp_path, REVIEWERS[-1])
    assert stated == reviewer_efforts(tmp_path / "bare", "reviewer: {vendor: openai, model: gpt-5.4}\n")


def test_the_python_example_of_requested_reviews_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n", encoding="utf-8")
    exec(text_of(HOW_TO / "requested-reviews.md").split("```python\n")[1].split("```")[0], {})
    assert "No rule found a fault" in capsys.readouterr().out


MISTAKES = (
    ('machine_usd_per_hour: 2.0', 'machine_usd_per_hour: "2.0"'),
    ("baseline: base", "baseline: bass"),
    ("low\n      criteria", "low\n      critera"),
    ("learning_rate: 1e-5", "learning_rate: 3"),
    ("metric: identical_outputs", "metric: accuracy"),
)  # fmt: skip


@pytest.mark.parametrize("page", [HOW_TO / "write-a-spec.md", EXAMPLES / "small.yaml"], ids=["page", "example"])
def test_the_spec_of_a_page_loads(tmp_path: Path, page: Path) -> None:
    write_spec(tmp_path)
    example = text_of(page).split("```yaml\n", 1)[1].split("```", 1)[0] if page.suffix == ".md" else text_of(page)
    path = tmp_path / "example.yaml"
    path.write_text(example.replace("HELDOUT", digest_file(tmp_path / "heldout.jsonl")), encoding="utf-8")
    assert load_spec(path).spec.name == "small"


def test_the_errors_of_a_page_are_real(tmp_path: Path) -> None:
    printed = re.search(r"```text\n(.*?)\n```", text_of(HOW_TO / "write-a-spec.md"), re.DOTALL)
    problems = problems_of(write_spec(tmp_path, *MISTAKES))
    assert printed is not None
    assert printed[1] == "\n".join(str(problem).replace(f"{tmp_path}/", "") for problem in problems)


def test_the_stages_of_the_text_pipeline_are_valid_and_their_criteria_are_measured_there() -> None:
    example = re.search(r"```yaml\n(.*?)```", text_of(EXPLANATION / "pipeline-text.md"), re.DOTALL)
    assert example is not None
    spec: dict[str, Any] = YAML(typ="safe").load(example[1])
    assert ModelSource.model_validate(spec["model"]).kind == "base"
    assert ModelSource.model_validate(spec["control"]).kind == "instruct"
    stages = [TypeAdapter[Any](Stage).validate_python(stage) for stage in spec["stages"]]
    assert [stage.kind for stage in stages] == ["base_model_check", "self_instruct", "sample_responses"]
    for stage in stages:
        criteria = stage.gate.criteria
        assert criteria and {criterion.metric for criterion in criteria} <= set(metrics_of(stage.kind))
        assert all(criterion.get_bound() for criterion in criteria)


@pytest.fixture
def conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with what the commands of the page on conversations write, and its spec."""
    page = text_of(EXPLANATION / "pipeline-evaluation.md")
    text = page.split("## Conversations as the registered comparison\n", 1)[1]
    (tmp_path / "talks.yaml").write_text(text_of(EXAMPLES / "talks.yaml"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    commands = {"training.items.format_items": format_items, "training.items.conversation_items": conversation_items}
    for line in text.split("```\n", 1)[1].split("```", 1)[0].splitlines():
        _, separator, command = line.partition("python -m ")
        if separator:
            module, *arguments = command.split()
            monkeypatch.setattr(sys, "argv", [module, *arguments])
            assert commands.pop(module).main() == 0
    assert commands == {}
    return tmp_path


def test_the_spec_of_conversations_loads_and_its_design_passes(conversations: Path) -> None:
    resolved = load_spec(conversations / "talks.yaml")
    assert list(notes(resolved.spec)) == []
    heldout = tuple(load_items(conversations / "data" / "conversations.jsonl"))
    data = {"prompts": tuple(load_items(conversations / "data" / "format_train.jsonl"))}
    results = {result.id: result for result in design_results(resolved, heldout, data)}
    fine = ("PASS", "NOT_APPLICABLE")
    assert {id for id, result in results.items() if result.status not in fine} == {"design.seeds"}
    assert "found with probability 0.819 (memory, 75 items)" in results["design.power"].detail


def first_cells(page: str, head: str) -> list[str]:
    """Return the names in backticks of the first column of the table with this head, without their arguments."""
    table = re.search(rf"\| {head} \|[^\n]*\n\|[-|]+\n((?:\|.*\n)+)", page)
    assert table is not None, head
    return [name for row in table[1].splitlines() for name in re.findall(r"`(\w+)", row.split(" | ")[0])]


def test_the_names_that_a_stage_kind_is_extended_by_exist() -> None:
    page = text_of(HOME / "docs" / "extending.md")
    hooks, values = first_cells(page, "name"), first_cells(page, "value")
    assert len(hooks) == 6 and set(hooks) <= {*Judge._fields, "CHECKS"}
    assert len(values) == 6 and set(values) <= vars(metric).keys()
    traits = re.findall(r'`(\w+)="module:function"`', page) + re.findall(r"unless `(\w+)` names a parameter", page)
    assert len(traits) >= 2 and set(traits) <= {field.name for field in fields(StageKind)}
