"""The software bill of materials: all that ``make setup`` installs, with hashes and what needs what."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from release.sbom import NO_HASH, WEIGHTS, Needs, complete, needs_in, read_declared
from tests.docs.test_requirements import HOME, TEXT, hashed, pinned

TORCH = re.findall(r"^torch==.*", (HOME / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)[0]
LISTED = f"{TEXT}{TORCH}\n"
VERSIONS = pinned(LISTED)
TOOLS = HOME / ".venv-release" / "bin"
PACKAGES = Path(sysconfig.get_path("purelib"))


@cache
def installed() -> Needs:
    return needs_in(PACKAGES)


def listed() -> dict[str, Any]:
    """Return the document that ``cyclonedx-py requirements`` makes of the pinned versions."""
    components: list[dict[str, Any]] = []
    for name, version in VERSIONS.items():
        distribution: dict[str, Any] = {"type": "distribution", "url": f"https://pypi.org/simple/{name}/"}
        if hashes := hashed(LISTED)[name]:
            distribution["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in hashes]
        purl = f"pkg:pypi/{name}@{version}"
        components.append({"name": name, "version": version, "purl": purl, "externalReferences": [distribution]})
        components[-1] |= {"bom-ref": f"requirements-L{len(components)}", "description": "a line", "type": "library"}
    root = {"bom-ref": "root-component", "name": "peergate", "type": "application"}
    return {"components": components, "metadata": {"component": root}, "dependencies": []}


def completed(document: dict[str, Any]) -> dict[str, Any]:
    direct = [*read_declared(HOME / "pyproject.toml"), Requirement(WEIGHTS)]
    return complete(document, direct, installed())


def judge(document: dict[str, Any]) -> None:
    """Fail unless all is there."""
    parts = {component["name"]: component for component in document["components"]}
    assert {name: part["version"] for name, part in parts.items()} == VERSIONS
    for name, hashes in hashed(LISTED).items():
        results = [value["content"] for place in parts[name]["externalReferences"] for value in place.get("hashes", [])]
        assert sorted(results) == sorted(hashes)
        assert [value["value"] for value in parts[name].get("properties", [])] == ([] if hashes else [NO_HASH[name]])
    graph = {dependency["ref"]: dependency["dependsOn"] for dependency in document["dependencies"]}
    refs = {name: part["bom-ref"] for name, part in parts.items()}
    root = graph.pop("root-component")
    assert {refs[text] for text in ("pydantic", "torch", "pytest", WEIGHTS)} <= set(root)
    assert refs["pydantic-core"] not in root and refs["pydantic-core"] in graph[refs["pydantic"]]
    assert refs["psycopg-binary"] in graph[refs["psycopg"]], "what an extra brings"
    reached, waiting = set[str](), list(root)
    while waiting:
        if (item := waiting.pop()) not in reached:
            reached.add(item)
            waiting += graph.get(item, [])
    assert set(graph) <= reached <= set(refs.values())


def test_all_versions_hashes_and_dependencies_are_in_it() -> None:
    judge(completed(listed()))


def test_a_component_without_a_hash_is_refused() -> None:
    document = listed()
    next(component for component in document["components"] if component["name"] == "pydantic")[
        "externalReferences"
    ] = []
    with pytest.raises(ValueError, match="pydantic has no hash"):
        completed(document)


def test_a_missing_component_is_refused() -> None:
    document = listed()
    document["components"] = [component for component in document["components"] if component["name"] != "pydantic"]
    with pytest.raises(ValueError, match=r"not among the components: \['pydantic'\]"):
        completed(document)


def test_a_component_that_nothing_needs_is_refused() -> None:
    direct = [requirement for requirement in read_declared(HOME / "pyproject.toml") if requirement.name != "pystemmer"]
    with pytest.raises(ValueError, match=r"nothing needs \['pystemmer'\]"):
        complete(listed(), [*direct, Requirement(WEIGHTS)], installed())


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the tool writes at the Makefile's options."""
    if not (TOOLS / "cyclonedx-py").exists():
        pytest.skip("the tools of a release are not installed: make .venv-release")
    makefile = (HOME / "Makefile").read_text(encoding="utf-8")
    command = shlex.split(re.findall(r"^COMPONENTS := (.*)", makefile, re.MULTILINE)[0])
    path = tmp_path_factory.mktemp("sbom") / "listed.json"
    command = [str(TOOLS / command[0]), *command[1:], "-o", str(path), "-"]
    subprocess.run(command, cwd=HOME, input=LISTED.encode(), check=True)
    return path.read_bytes()


@pytest.mark.parametrize("valid", [True, False])
def test_the_document_of_a_release_meets_the_schema(generated: bytes, tmp_path: Path, valid: bool) -> None:
    path = tmp_path / "peergate.cdx.json"
    path.write_bytes(generated if valid else generated.replace(b'"SHA-256"', b'"SHA-2"'))
    before = path.read_bytes()
    command = [TOOLS / "python", HOME / "release" / "sbom.py", path, PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == valid, done.stderr
    if valid:
        judge(json.loads(path.read_bytes()))
    else:
        assert "SHA-2" in done.stderr and path.read_bytes() == before
