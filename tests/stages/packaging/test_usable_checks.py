"""A checkpoint is not refused for a flaw that came with the model it was made of, whatever a script calls it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reviews.evidence.evidence import Evidence
from reviews.stages.packaging.usable_checks import (
    _check_files,  # pyright: ignore[reportPrivateUsage]
)
from specs.stages.recipes.parameters import RecipeParameters
from testing.fixtures.line_writer import line_writer

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def flawed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = line_writer(tmp_path_factory.mktemp("base") / "model")
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'][:-1] }}", encoding="utf-8")
    return folder


def status(output: Path, **inputs: Path) -> str:
    stage = SimpleNamespace(kind="recipe", parameters=RecipeParameters(trains="start"))
    evidence: Any = SimpleNamespace(stage=stage, outputs={"checkpoint": output}, inputs=inputs)
    return _check_files(cast(Evidence, evidence), None).status


@pytest.mark.parametrize("role", ["model", "start"])
def test_a_flaw_of_an_input_is_a_warning(flawed: Path, role: str) -> None:
    assert status(flawed, **{role: flawed}) == "WARN"


def test_a_flaw_that_no_input_has_is_a_failure(flawed: Path, tmp_path: Path) -> None:
    assert status(flawed) == "FAIL"
    assert status(flawed, start=line_writer(tmp_path / "sound")) == "FAIL"


def test_damage_is_never_excused(flawed: Path, tmp_path: Path) -> None:
    damaged = line_writer(tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"torn")
    assert status(damaged, start=damaged) == "FAIL"
