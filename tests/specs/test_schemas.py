from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specs.schemas import SCHEMAS, schema_text, write_schemas

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "specs" / "schema"


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_the_committed_schema_is_the_one_of_the_contract(name: str) -> None:
    committed = (COMMITTED / name).read_text(encoding="utf-8")
    assert committed == schema_text(SCHEMAS[name]), "run `python -m specs.schemas specs/schema` if the change is meant"


def test_there_is_no_schema_without_a_contract() -> None:
    there = (path.relative_to(COMMITTED).as_posix() for path in COMMITTED.rglob("*.json"))
    assert sorted(there) == sorted(SCHEMAS)


def test_schemas_can_be_written_anywhere(tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert [path.relative_to(new).as_posix() for path in write_schemas(new)] == list(SCHEMAS)


def test_importing_the_loader_brings_no_heavy_library() -> None:
    heavy = ("torch", "transformers", "langgraph", "ruamel.yaml", "scipy", "matplotlib")
    code = f"import sys, specs.loading.loading; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
