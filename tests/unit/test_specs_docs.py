"""docs/writing-specs.md says what the contracts say; its tables and its error output are compared with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from specs.digests import digest_file
from specs.session.lint.stage_rules import numeric_parameters
from specs.session.loading import load_spec
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import STAGE_KINDS
from tests.unit.spec_files import problems_of, write_spec

PAGE = Path(__file__).parents[2] / "docs" / "writing-specs.md"
MISTAKES = (
    ('machine_usd_per_hour: 2.0', 'machine_usd_per_hour: "2.0"'),
    ("baseline: base", "baseline: bass"),
    ("low\n      criteria", "low\n      critera"),
    ("learning_rate: 1e-5", "learning_rate: 3"),
    ("metric: identical_outputs", "metric: accuracy"),
)  # fmt: skip
LONGEST_DEFAULT = 40
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def metrics_table() -> str:
    lines = ["| metric | measured by | unit | population | definition | better |", "|---|---|---|---|---|---|"]
    for metric in METRICS.values():
        row = (f"`{metric.id}`", metric.scope, metric.unit, metric.population, metric.definition, metric.direction)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def limits(info: FieldInfo) -> str:
    """Write the limits of a parameter as the contract states them."""
    if get_origin(info.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(info.annotation))
    if info.annotation is bool:
        return "true or false"
    found: list[str] = []

    def collect(metadata: Any) -> None:
        for entry in metadata:
            for name, sign in _SIGNS.items():
                limit = getattr(entry, name, None)
                if limit is not None:
                    found.append(f"{sign} {limit:.15g}")
            collect(getattr(entry, "metadata", ()))

    collect(info.metadata)
    for argument in get_args(info.annotation):
        collect(getattr(argument, "__metadata__", ()))
    return ", ".join(dict.fromkeys(found))


def parameters_table() -> str:
    lines = ["| kind | parameter | default | limits |", "|---|---|---|---|"]
    for kind, declared in STAGE_KINDS.items():
        for name, info in declared.parameters.model_fields.items():
            default = "not set" if info.default is None else str(info.default).lower()
            default = default if len(default) <= LONGEST_DEFAULT and "\n" not in default else "see the file"
            whole = "whole number, " if numeric_parameters(declared.parameters).get(name) is int else ""
            lines.append(f"| `{kind}` | `{name}` | {default} | {whole}{limits(info)} |")
    return "\n".join(lines)


def error_output(folder: Path) -> str:
    path = write_spec(folder, *MISTAKES)
    return "\n".join(str(problem).replace(f"{folder}/", "") for problem in problems_of(path))


def table_below(heading: str) -> str:
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return "\n".join(line for line in section.split("\n") if line.startswith("|"))


def test_the_metrics_table_lists_exactly_the_metrics_there_are() -> None:
    assert table_below("Metrics") == metrics_table()


def test_the_parameters_table_lists_exactly_the_parameters_there_are() -> None:
    assert table_below("Parameters") == parameters_table()


def test_the_kinds_table_lists_exactly_the_kinds_there_are() -> None:
    rows = [
        f"| `{kind}` | {', '.join(f'`{role}` ({what})' for role, what in stage.inputs.items())}"
        f" | {', '.join(f'`{name}` ({what})' for name, what in stage.outputs.items())} |"
        for kind, stage in STAGE_KINDS.items()
    ]
    assert table_below("Stage kinds").split("\n")[2:] == rows


def test_the_example_loads(tmp_path: Path) -> None:
    write_spec(tmp_path)
    example = PAGE.read_text(encoding="utf-8").split("```yaml\n", 1)[1].split("```", 1)[0]
    path = tmp_path / "example.yaml"
    path.write_text(example.replace("HELDOUT", digest_file(tmp_path / "heldout.jsonl")), encoding="utf-8")
    assert load_spec(path).spec.name == "small"


def test_the_errors_shown_are_real(tmp_path: Path) -> None:
    shown = re.search(r"```text\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert shown[1] == error_output(tmp_path)
