"""The Python environment of inspect_ai, whose pins conflict with Peergate's: made once, from a list of hashes.

``python -m sessions.jobs.benchmarks.environment`` makes it too, and prints its interpreter. A machine without a network
names another in ``PEERGATE_INSPECT_PYTHON``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
from filelock import FileLock

from specs.session.session_spec import SessionSpec
from specs.stages.registry import kind_of
from specs.system.digests import digest_bytes, digest_value
from specs.system.errors import BlockedError
from specs.system.extras import install_hint

VARIABLE = "PEERGATE_INSPECT_PYTHON"
REQUIREMENTS = Path(__file__).with_name("inspect_requirements.txt")
LEAST = (0, 3, 285)
"""The oldest version that was tried."""
MAKE_S, ASK_S = 1800.0, 120.0
_READY = ".made"
_ASK = """
import json, sys
from hashlib import sha256
from importlib import metadata
packages, files = {}, {}
for distribution in metadata.distributions():
    name = distribution.metadata["Name"].lower().replace("_", "-")
    packages[name] = distribution.version
    files[name] = sha256((distribution.read_text("RECORD") or "").encode()).hexdigest()
print(json.dumps({"prefix": sys.prefix, "base": sys.base_prefix, "packages": packages, "files": files}))
"""


class Environment(NamedTuple):
    """An environment that is there."""

    python: str
    prefixes: tuple[str, ...]
    """The folders that hold it."""
    packages: dict[str, str]
    digest: str
    """The digest of the file lists of its installed packages, which hold the digest of each file."""
    library: str = "inspect-ai"

    @property
    def version(self) -> str:
        """The version of the library."""
        return self.packages[self.library]

    def describe_for_manifest(self) -> dict[str, Any]:
        """Return what a manifest says of it."""
        return {"version": self.version, "environment": self.digest, "packages": self.packages}


def find() -> Environment:
    """Return the environment of inspect_ai; raises Blocked if there is none, or it cannot be used."""
    named = os.environ.get(VARIABLE)
    python = Path(named) if named else _own() / "bin" / "python"
    where = VARIABLE if named else "inspect_ai"
    if not named and not (_own() / _READY).is_file():
        hint = f"{sys.executable} -m sessions.jobs.benchmarks.environment makes it, and so does `peergate start`"
        raise BlockedError(
            "its Python environment is not on this machine", where=where, hint=f"{hint}; or name {VARIABLE}"
        )
    try:
        facts = _query_python(str(python))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        hint = f"name the interpreter of an environment with inspect_ai in {VARIABLE}"
        raise BlockedError(f"'{python}' does not run: {type(error).__name__}", where=where, hint=hint) from error
    version = facts["packages"].get("inspect-ai")
    if version is None or _numbers(version) < LEAST:
        least = ".".join(map(str, LEAST))
        has = f"has inspect_ai {version}" if version else "has no inspect_ai"
        raise BlockedError(f"'{python}' {has}, at least {least} is needed", where=where, hint="install it there")
    return Environment(
        str(python),
        tuple(dict.fromkeys((facts["prefix"], facts["base"]))),
        facts["packages"],
        digest_value(facts["files"]),
    )


def _query_python(python: str) -> dict[str, Any]:
    done = subprocess.run([python, "-I", "-c", _ASK], capture_output=True, env={}, check=True, timeout=ASK_S, text=True)
    return json.loads(done.stdout)


def own(library: str) -> Environment:
    """Return Peergate's own environment, which has to hold a library; raises Blocked if it does not."""
    if find_spec(library.replace("-", "_")) is None:
        message = f"{library} is not installed in Peergate's environment"
        raise BlockedError(message, where=library, hint=install_hint(library))
    facts = _query_python(sys.executable)
    digest = digest_value(facts["files"])
    return Environment(sys.executable, (facts["prefix"], facts["base"]), facts["packages"], digest, library)


def prepare(spec: SessionSpec, say: Callable[[str], None]) -> None:
    """Make the environment if a stage that runs on this machine needs it and it is missing; raises Blocked."""
    needed = {kind_of(stage).environment for stage in spec.stages if spec.launcher_of(stage.name) == "local"}
    if "inspect" in needed:
        make(say)


def make(say: Callable[[str], None]) -> Environment:
    """Return the environment, made now if it is missing; raises Blocked if it cannot be made."""
    if os.environ.get(VARIABLE) or (_own() / _READY).is_file():
        return find()
    folder = _own()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / _READY).is_file():
            count = REQUIREMENTS.read_text(encoding="utf-8").count("==")
            say(f"making the Python environment of inspect_ai, once: {count} pinned packages into {folder}")
            _install(folder)
            say("the environment of inspect_ai is ready")
    return find()


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    steps = (
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(REQUIREMENTS)],
    )
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=MAKE_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _unmade(str(error)) from error
        if done.returncode:
            raise _unmade((done.stderr.strip().splitlines() or ["no message"])[-1])
    (folder / _READY).touch()


def _unmade(why: str) -> BlockedError:
    return BlockedError(
        f"its Python environment cannot be made: {why[:300]}",
        where="inspect_ai",
        hint=f"without a network, name the interpreter of an environment that has it in {VARIABLE}",
    )


def _own() -> Path:
    named = os.environ.get("PEERGATE_CACHE")
    cache = Path(named).resolve() if named else Path(platformdirs.user_cache_dir("peergate"))
    digest = digest_bytes(REQUIREMENTS.read_bytes()).removeprefix("sha256:")[:16]
    return cache / "inspect" / f"{digest}-{sys.version_info[0]}.{sys.version_info[1]}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())


if __name__ == "__main__":
    print(make(lambda line: print(line, file=sys.stderr, flush=True)).python)
