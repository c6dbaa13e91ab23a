"""A spec with a task of inspect_ai: what is registered of it, and what is refused with its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specs.loading.loading import load_spec
from specs.stages.registry import STAGE_KINDS
from specs.system.home import HOME
from testing.factories.spec_files import problems_of

EXAMPLE = HOME / "docs" / "examples" / "opposites"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLE, tmp_path / "opposites") / "spec.yaml"


def changed(spec: Path, *changes: tuple[str, str]) -> list[str]:
    text = spec.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    spec.write_text(text, encoding="utf-8")
    return [str(problem) for problem in problems_of(spec)]


def test_the_task_is_registered_with_its_text(spec: Path) -> None:
    resolved = load_spec(spec)
    before, after = resolved.spec.stage("before"), resolved.spec.stage("after")
    assert before.parameters == after.parameters
    assert resolved.scripts == {before.parameters.code: (spec.parent / "task.py").read_text(encoding="utf-8")}
    registered = resolved.registration()
    task = spec.parent / "task.py"
    task.write_text(task.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    assert load_spec(spec).registration() != registered


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (("    script: task.py\n", ""), "nothing says where the task 'opposites' is"),
        (
            ("{task: opposites,", "{task: inspect_evals/opposites,"),
            "is a task of a package, and the stage has a script",
        ),
        (("script: task.py", "script: task.yaml"), "a task of inspect_ai is in a file that ends in .py"),
        (("script: task.py", "script: missing.py"), "file 'missing.py' does not exist"),
        (("script: task.py", "script: other.py"), "code is sha256:"),
        (("max_new_tokens: 24}", "max_new_tokens: 25}"), "max_new_tokens is 24 here and 25 at"),
        (("score: match, ", ""), "score"),
        (("args: {data:", "args: {1data:"), "1data"),
        (("primary_metric: benchmark_accuracy, ", ""), "write primary_metric: benchmark_accuracy"),
        (
            ("items: heldout}\n    parameters: {task", "items: heldout, more: data.train}\n    parameters: {task"),
            "more",
        ),
        (("kind: inspect\n    script", "kind: inspect\n    allow_code: true\n    script"), "runs no code of a builder"),
    ],
)
def test_what_is_wrong_is_reported(spec: Path, change: tuple[str, str], output: str) -> None:
    (spec.parent / "other.py").write_text("x = 1\n", encoding="utf-8")
    assert any(output in text for text in changed(spec, change)), changed(spec)


def test_other_kinds_of_evaluation_take_no_script(spec: Path) -> None:
    text = '{task: opposites, args: {data: "{items}"}, score: match, max_new_tokens: 24}'
    lines = changed(spec, ("kind: inspect", "kind: evaluate"), (text, "{max_new_tokens: 24}"))
    assert any("evaluate runs Peergate's own code" in word for word in lines)


def test_only_benchmarks_read_held_out_items_by_a_persons_script() -> None:
    assert [kind.name for kind in STAGE_KINDS.values() if kind.takes_script] == ["inspect", "lm_eval"]
    assert [kind.name for kind in STAGE_KINDS.values() if kind.environment] == ["inspect", "lm_eval"]
