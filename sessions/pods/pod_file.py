"""The pod file: where a pod is, what it costs and what ends it, in YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from sessions.pods.protocol import Rules
from specs.stages.explain import validate
from specs.system.digests import Contract
from specs.system.errors import UserError
from specs.system.regular_files import read_regular
from specs.system.yaml.problems import LintProblem, printable
from specs.system.yaml.yaml_positions import read_document

_HOST = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
_ADDRESS = re.compile(
    rf"(?:(?P<user>[A-Za-z_][A-Za-z0-9_.-]{{0,63}})@)?(?P<host>{_HOST}|\[[0-9a-fA-F:]+\])(?::(?P<port>\d+))?"
)
_PART = "/[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*"
_FOLDER = rf"^(~|{_PART})({_PART})*$"
Folder = Annotated[str, StringConstraints(pattern=_FOLDER, max_length=200)]


class PodFile(Rules):
    """One pod. Only ``host`` is required; a rule that is missing does not end the pod."""

    schema_version: Literal[1] = 1
    host: str
    """``user@host:port``, or a Host of your SSH configuration."""
    host_key: Annotated[str, StringConstraints(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")] | None = None
    """Fingerprint of its host key. Without it the first key is shown, and a person confirms it."""
    ssh_config: str | None = None
    """An SSH configuration other than yours, relative to this file."""
    root: Folder = "~/peergate"
    """Folder on the pod for everything; it must outlast a restart of the pod."""
    environment: Folder | None = None
    """A Python of the pod that has Peergate; without it an environment is made under ``root``."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    min_disk_gb: Annotated[float, Field(gt=0)] = 10.0
    """Free room under ``root`` (10**9 bytes)."""
    torch_import_s: Annotated[float, Field(gt=0, le=3600)] = 120.0


class Address(Contract):
    """Where SSH connects to."""

    user: str | None
    host: str
    port: int | None

    @property
    def destination(self) -> str:
        """The argument of ssh."""
        return f"{self.user}@{self.host}" if self.user else self.host


def read_address(text: str, where: str = "--host") -> Address:
    """Read ``user@host:port``, or raise UserError: text with a leading dash or a space must never reach ssh."""
    match = _ADDRESS.fullmatch(text)
    port = int(match["port"]) if match and match["port"] else None
    if match is None or (port is not None and not 0 < port < 65536):
        raise UserError(
            f"invalid pod address '{printable(text)}'", where=where, hint="expected user@host or user@host:port"
        )
    return Address(user=match["user"], host=match["host"].strip("[]"), port=port)


def read_pod_file(path: Path) -> PodFile:
    """Read a pod file; raise SpecError with all its problems, or UserError if it cannot be read."""
    try:
        raw = read_regular(path)
    except OSError as error:
        raise UserError(f"the pod file cannot be read: {error.strerror or error}", where=str(path)) from error
    document = read_document(path, raw)
    pod = validate(document.data, PodFile)
    if isinstance(pod, list):
        raise document.error(path, pod)
    if pod.max_cost_usd is not None and pod.usd_per_hour is None:
        message, hint = "needs usd_per_hour, which is missing", "say what the machine costs by the hour"
        raise document.error(path, [LintProblem(("max_cost_usd",), message, hint)])
    read_address(pod.host, f"{path}: host")
    if pod.ssh_config is not None:
        config = (path.parent / pod.ssh_config).resolve()
        if not config.is_file():
            raise UserError("no such SSH configuration", where=str(config))
        pod = pod.model_copy(update={"ssh_config": str(config)})
    return pod
