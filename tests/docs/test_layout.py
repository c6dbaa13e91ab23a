"""What keeps the house in order: sizes, imports, shipped specs, exit codes, the docs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from sessions.commands.cli import app
from sessions.commands.lazy_group import commands_of
from sessions.graph import NODES, build_graph
from sessions.pages.overview import EXIT_CODES
from specs.loading.loading import find_spec, list_profiles, load_spec
from specs.stages.base.stage import Kind
from specs.stages.registry import STAGE_KINDS
from specs.system.errors import EXIT_MEANINGS, ExitCode

HOME = Path(__file__).parents[2]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
PACKAGES = ("agents", "reviews", "sessions", "specs", "training")
SOURCES = sorted(path for package in PACKAGES for path in (HOME / package).rglob("*.py"))


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_files_stay_small_enough_to_hold_in_the_head() -> None:
    sizes = sorted(lines(path) for path in SOURCES)
    assert sizes[-1] <= 600 and sizes[len(sizes) // 2] <= 200
    assert lines(HOME / "sessions" / "graph.py") <= 150


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert not [path for path in SOURCES if path.stem in ("utils", "helpers", "manager", "core", "base")]


IN_A_CIRCLE = {"first": "from knot.second import x", "second": "def late():\n    from knot.first import x"}


def test_the_contracts_of_imports_hold() -> None:
    """Directions, floors, and no cycle between the modules or folders of any folder."""
    done = subprocess.run([LINT_IMPORTS, "--no-cache"], cwd=HOME, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("modules", "code"), [(IN_A_CIRCLE, 1), ({**IN_A_CIRCLE, "second": ""}, 0)])
def test_a_cycle_of_imports_is_refused(tmp_path: Path, modules: dict[str, str], code: int) -> None:
    """The negative control: an import inside a function closes a cycle too."""
    (tmp_path / "knot").mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (tmp_path / "knot" / f"{name}.py").write_text(f"{text}\n", encoding="utf-8")
    contract = "[importlinter]\nroot_package = knot\n[importlinter:contract:1]\nname = c\n"
    contract += "type = acyclic_siblings\nancestors = knot\n"
    (tmp_path / ".importlinter").write_text(contract, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([LINT_IMPORTS, "--no-cache"], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert done.returncode == code


def test_every_bench_explains_itself_before_it_runs() -> None:
    """Without a parser `--help` would run the bench for minutes."""
    programs = {path: path.read_text(encoding="utf-8") for path in (HOME / "bench").rglob("*.py")}
    programs = {path: text for path, text in programs.items() if 'if __name__ == "__main__"' in text}
    assert len(programs) > 15
    assert [path.name for path, text in programs.items() if "ArgumentParser(" not in text] == []


def test_every_package_is_typed() -> None:
    """That every module has a docstring is ruff's D100 and D104."""
    assert all((HOME / package / "py.typed").exists() for package in PACKAGES)


def test_the_command_line_does_not_import_torch() -> None:
    heavy = ("torch", "transformers", "trl", "matplotlib", "scipy", "langgraph")
    code = f"import sessions.commands.cli, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_orchestrator_never_imports_torch() -> None:
    code = "import sessions.runtime.runtime, sessions.graph, sessions.pages.report.report, sys\n"
    code += "print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


SHIPPED = {
    "cai_demo",
    "cai_leave_one_out",
    "cai_preferences",
    "self_instruct_sft",
    "composer_demo",
    "demo",
    "demo_leaky",
    "demo_models",
    "demo_null",
}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_every_shipped_spec_loads_and_is_named_as_its_file(name: str) -> None:
    path = find_spec(name)
    for profile in list_profiles(path) or (None,):
        assert load_spec(path, profile).spec.name == name


def test_no_shipped_spec_is_left_out_of_the_tests() -> None:
    assert {path.stem for path in (HOME / "specs" / "library").glob("*.yaml")} == SHIPPED


def test_exit_codes_are_frozen_and_each_has_its_meaning() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "DONE": 0,
        "FAULT": 1,
        "USAGE": 2,
        "REJECTED": 3,
        "BLOCKED": 4,
        "DAMAGED": 5,
        "BUDGET": 6,
        "INTERRUPTED": 130,
    }
    assert set(EXIT_MEANINGS) == set(ExitCode)


def test_a_closed_session_has_the_exit_code_of_its_decision() -> None:
    assert {decision: int(code) for decision, code in EXIT_CODES.items()} == {
        "approve": 0,
        "null": 0,
        "overridden": 3,
        "reject": 3,
        "stop": 3,
        "budget": 6,
        "cancelled": 130,
        "retracted": 3,
    }


def command_names(group: object = None, prefix: str = "") -> list[str]:
    """Return the names of all commands; their options are frozen by docs/reference/commands.md."""
    names: list[str] = []
    for name, command in commands_of(group or typer.main.get_command(app)).items():
        whole = f"{prefix}{name}"
        names += command_names(command, f"{whole} ") if hasattr(command, "commands") else [whole]
    return names


def test_the_graph_in_the_docs_is_the_graph() -> None:
    text = (HOME / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    drawn = text.split("```mermaid")[1].split("```")[0]
    arrows: set[tuple[str, str]] = set()
    for line in drawn.splitlines()[2:]:
        names = re.sub(r"\|[^|]*\|", "", line).replace(" ", "").split("-->")
        arrows |= set(zip(names, names[1:], strict=False))
    compiled = build_graph(None).get_graph()
    edges = {(edge.source, edge.target) for edge in compiled.edges if edge.source in NODES and edge.target in NODES}
    assert arrows == edges


@pytest.mark.parametrize("kind", STAGE_KINDS)
def test_each_stage_kind_names_a_job_that_is_there(kind: Kind) -> None:
    """By its source: importing a job may import torch."""
    module, _, function = STAGE_KINDS[kind].job.partition(":")
    source = (HOME / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    parameters = STAGE_KINDS[kind].parameters.__name__
    assert f"\ndef {function}(job: Job[{parameters}]) -> StageResult:" in source, (
        "the job takes the parameters of its kind"
    )
