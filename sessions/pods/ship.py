"""Bring files to the pod: the spec with everything it names, in the places it names them, compared by digest there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sessions.pods.connection import SSH_FAILED, Connection, end, failure, shell
from specs.digests import digest_file
from specs.errors import PeergateError, UserError
from specs.session.session_spec import ResolvedSpec
from specs.task_file import is_file, path_of
from specs.text import plain

_RECEIVE = """
import hashlib, os, sys
target, wanted = sys.argv[1:]
os.umask(0o077)
os.makedirs(os.path.dirname(target), exist_ok=True)
partial, found = target + ".partial", hashlib.sha256()
try:
    with open(partial, "wb") as file:
        for piece in iter(lambda: sys.stdin.buffer.read(1 << 20), b""):
            found.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if found.hexdigest() != wanted:
        sys.exit("what came has the digest " + found.hexdigest())
    os.replace(partial, target)
finally:
    if os.path.exists(partial):
        os.unlink(partial)
"""
_HAVE = """
import hashlib, json, sys
told = {}
for path in json.load(sys.stdin):
    try:
        with open(path, "rb") as file:
            found = hashlib.sha256()
            for piece in iter(lambda: file.read(1 << 20), b""):
                found.update(piece)
            told[path] = found.hexdigest()
    except OSError:
        pass
print(json.dumps(told))
"""
_UPLOAD_S = 6 * 3600.0


class Bundle(NamedTuple):
    """What a session starts from: files by their place below one folder, and which of them is the spec."""

    files: dict[str, Path]
    spec: str

    @property
    def size(self) -> int:
        """How many bytes that is."""
        return sum(path.stat().st_size for path in self.files.values())


def bundle_of(spec: Path, resolved: ResolvedSpec) -> Bundle:
    """Gather a spec and the files it names, below the folder that holds all of them.

    Raises:
        UserError: it names a file by an absolute path, which leads elsewhere on the pod.
    """
    source = resolved.spec
    named = [source.constitution, source.heldout.path, *(one.path for one in source.data.values())]
    if is_file(source.task):
        named.append(path_of(source.task))
    model = source.model.source.removeprefix("path:") if source.model.source.startswith("path:") else None
    for one in (*named, *([model] if model else [])):
        if Path(one).is_absolute():
            raise UserError(
                f"the spec names '{one}', which need not be there on the pod", hint="name it from the spec on"
            )
    paths = [spec.resolve(), *(resolved.path(one) for one in named)]
    if model is not None:
        paths += sorted(one for one in resolved.path(model).iterdir() if one.is_file())
    above = Path(os.path.commonpath([str(one.parent) for one in paths]))
    return Bundle({one.relative_to(above).as_posix(): one for one in paths}, paths[0].relative_to(above).as_posix())


def ship(connection: Connection, python: str, files: Mapping[str, Path]) -> int:
    """Bring files to their absolute places on the pod, those that are not there already; returns how many that were.

    Raises:
        ConnectionLost: the connection ended.
        PeergateError: the pod could not keep a file, or keeps another one.
    """
    wanted = {target: digest_file(path).removeprefix("sha256:") for target, path in files.items()}
    asked = connection.run(shell(python, "-I", "-c", _HAVE), json.dumps(list(wanted)).encode(), seconds=600)
    try:
        have = json.loads(asked.out)
    except ValueError as error:
        raise PeergateError(f"the pod does not say which files it has: {asked.told}") from error
    missing = [target for target, digest in wanted.items() if have.get(target) != digest]
    for target in missing:
        _send(connection, python, files[target], target, wanted[target])
    return len(missing)


def _send(connection: Connection, python: str, path: Path, target: str, digest: str) -> None:
    with path.open("rb") as file:
        process = connection.start(shell(python, "-I", "-c", _RECEIVE, target, digest), file)
        try:
            _, told = process.communicate(timeout=_UPLOAD_S)
        finally:
            end(process)
    said = told.decode("utf-8", "replace")
    if process.returncode == SSH_FAILED:
        raise failure(said, connection.address)
    if process.returncode:
        raise PeergateError(f"the pod could not keep it: {plain(said.strip(), 400)}", where=target)
