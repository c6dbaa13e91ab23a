"""Packages that conflict with those of Peergate, in a folder: scripts import from it first, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessions.jobs.sandbox.sandbox import script_host
from specs.stages.recipes.script_file import PACKAGES, find_installed_versions, lacking, packages
from specs.system.errors import BlockedError
from specs.system.home import HOME
from testing.factories.recipe_session import RecipeSession, recipe_session
from testing.fixtures.recipe_process import run
from testing.fixtures.sandbox import needs_sandbox

SCRIPT = """\
import importlib.metadata as metadata, json, sys
import acme_loud, packaging
print(json.dumps({"name": __name__, "arguments": sys.argv, "packaging": packaging.__version__,
                  "said": acme_loud.SAID, "version": metadata.version("acme-loud")}), file=open("rows.jsonl", "w"))
open("try.txt", "w").write("x")
try:
    open(acme_loud.__file__, "a")
except OSError as error:
    print("read-only", error)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as `pip install --target` makes it, with a package of its own and one that Peergate has too."""
    made = tmp_path / "packages"
    for name, version, text in (("acme_loud", "2.1", "SAID = 'hello'"), ("packaging", "0.1", "__version__ = 'theirs'")):
        (made / name).mkdir(parents=True)
        (made / name / "__init__.py").write_text(f"{text}\n", encoding="utf-8")
        about = made / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    return made


def test_what_lies_there_is_installed_for_scripts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacking(("acme-loud>=2",)) == ["acme-loud>=2"] and "packaging" in find_installed_versions(("packaging>=20",))
    monkeypatch.setenv(PACKAGES, str(folder))
    assert find_installed_versions(("acme-loud>=2", "packaging")) == {"acme-loud": "2.1", "packaging": "0.1"}
    assert lacking(("packaging>=20", "pydantic")) == ["packaging>=20"], "the folder's is the one that would be imported"


@pytest.mark.parametrize(("named", "output"), [("gone", "is not a folder"), (str(HOME.parent), "holds Peergate")])
def test_a_folder_that_cannot_be_given_is_one_error(named: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PACKAGES, named)
    for item in (packages, script_host):
        with pytest.raises(BlockedError, match=output):
            item()


@needs_sandbox
@pytest.mark.integration
@pytest.mark.parametrize("sandboxed", [True, False])
def test_a_script_imports_from_it_first_and_cannot_write_there(folder: Path, sandboxed: bool, tmp_path: Path) -> None:
    session: RecipeSession = recipe_session(tmp_path)
    named = f"import os; os.environ[{PACKAGES!r}] = {str(folder)!r}"
    ended = run(session, SCRIPT, sandboxed=sandboxed, change=named, requires=("acme-loud>=2",))
    assert ended.code == 0, ended.log
    (row,) = ended.rows
    assert (row["name"], row["packaging"], row["said"], row["version"]) == ("__main__", "theirs", "hello", "2.1")
    assert [Path(argument).name for argument in row["arguments"]] == ["recipe.py"]
    assert ended.manifest.facts["requires"] == {"acme-loud": "2.1"}
    assert ("read-only" in ended.log) == sandboxed
    assert json.loads((ended.folder / "manifest.json").read_bytes())["packages"].get("packaging") != "0.1"
