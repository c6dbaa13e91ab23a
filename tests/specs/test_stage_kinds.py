"""A kind is declared once: other code asks for its traits, and nothing outside its own files compares its name."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from reviews.stages.judge import judge_of
from specs.stages.base.metric import RowMetric
from specs.stages.registry import STAGE_KINDS, built_in_kinds
from specs.system.home import HOME, PACKAGES

OWN = re.compile(r"^(specs/stages|training/jobs|training/rules|reviews/stages)/\w+/|^reviews/legacy/")
_NAMES = "|".join(kind.name for kind in built_in_kinds())
COMPARES = re.compile(
    rf"""\.kind\s*(?:==|!=|(?:not )?in)\s*[("'{{\[\s]*["']?(?:{_NAMES})\b|case ["'](?:{_NAMES})["']:"""
)


def test_no_file_but_a_kinds_own_compares_its_name() -> None:
    assert COMPARES.search('if stage.kind == "sft":') and COMPARES.search('stage.kind in ("sft", "dpo")')
    lines = [
        f"{path.relative_to(HOME)}:{number}: {line.strip()}"
        for package in PACKAGES
        for path in sorted((HOME / package).rglob("*.py"))
        if not OWN.search(path.relative_to(HOME).as_posix())
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if COMPARES.search(line) and "model.kind" not in line
    ]
    assert lines == []


@pytest.mark.parametrize("kind", built_in_kinds(), ids=lambda kind: kind.name)
def test_the_judge_of_each_kind_measures_and_traces_what_the_kind_declares(kind: object) -> None:
    declared = next(stage_kind for stage_kind in built_in_kinds() if stage_kind is kind)
    judge = judge_of(declared)
    assert import_module(declared.judge).__doc__
    rows = [metric for metric in declared.metrics if isinstance(metric, RowMetric)]
    assert rows == list(declared.metrics)
    by_judge = [row for row in rows if row.value.of is None]
    assert (judge.measure is not None) == bool(by_judge) or not rows
    assert all(metric.scope == declared.name for metric in declared.metrics)
    assert set(declared.rows) <= set(declared.outputs) | {
        name for ports in declared.conditional_ports for name in ports.outputs
    }
    assert bool(declared.outcomes) == (judge.outcomes is not None)


def test_every_kind_is_found_by_its_name_and_no_other_is() -> None:
    assert all(STAGE_KINDS[kind.name] is kind for kind in built_in_kinds())
    with pytest.raises(KeyError):
        STAGE_KINDS["sorting"]
