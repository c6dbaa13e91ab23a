"""What a person says about a pod: where it is, what it costs and what ends it, in a small YAML file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from specs.digests import Contract
from specs.errors import UserError
from specs.session.explain import validate
from specs.session.problems import LintProblem, printable
from specs.session.yaml_positions import read_document

MINUTES_A_DAY = 24 * 60
_HOST = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
_ADDRESS = re.compile(
    rf"(?:(?P<user>[A-Za-z_][A-Za-z0-9_.-]{{0,63}})@)?(?P<host>{_HOST}|\[[0-9a-fA-F:]+\])(?::(?P<port>\d+))?"
)
_PART = "/[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*"
_FOLDER = rf"^(~|{_PART})({_PART})*$"
Folder = Annotated[str, StringConstraints(pattern=_FOLDER, max_length=200)]
Minutes = Annotated[float, Field(gt=0, le=365 * MINUTES_A_DAY)]


class PodFile(Contract):
    """One pod. Only ``host`` has to be said; what is not said does not end the pod."""

    schema_version: Literal[1] = 1
    host: str
    """``user@host:port``, or a Host of your SSH configuration."""
    host_key: Annotated[str, StringConstraints(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")] | None = None
    """Fingerprint of its host key. Without it the first key is shown and has to be confirmed."""
    ssh_config: str | None = None
    """An SSH configuration other than yours, relative to this file."""
    root: Folder = "~/peergate"
    """Folder on the pod for everything: it has to outlast a restart of the pod."""
    environment: Folder | None = None
    """A Python of the pod that has Peergate; without it an environment is made under ``root``."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    min_disk_gb: Annotated[float, Field(gt=0)] = 10.0
    """Free room under ``root`` (10**9 bytes)."""
    torch_import_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    usd_per_hour: Annotated[float, Field(ge=0)] | None = None
    """What the machine costs, as your provider bills it."""
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """What the machine may cost from its first `pod up` on; needs ``usd_per_hour``."""
    idle_minutes: Minutes | None = None
    """It is ended when the session has not run for this long."""
    dead_man_minutes: Minutes | None = None
    """It is ended when nobody was attached for this long."""
    grace_minutes: Annotated[float, Field(ge=0, le=MINUTES_A_DAY)] = 10.0
    """Between the end of the session and the shutdown, for whoever is attached to pull what is there."""
    shutdown: Annotated[str, StringConstraints(min_length=1, max_length=2000)] | None = None
    """Shell command that ends the machine, run there. Without it Peergate ends its processes only."""


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
    """Read ``user@host:port``, with user and port as they are wanted.

    Raises:
        UserError: it is none: whatever begins with a dash or holds a space is never handed to ssh.
    """
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"]) if found and found["port"] else None
    if found is None or (port is not None and not 0 < port < 65536):
        raise UserError(f"'{printable(text)}' is no address of a pod", where=where, hint="user@host or user@host:port")
    return Address(user=found["user"], host=found["host"].strip("[]"), port=port)


def read_pod_file(path: Path) -> PodFile:
    """Read a pod file.

    Raises:
        SpecError: it is wrong; holds every problem found.
        UserError: it cannot be read.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"the pod file cannot be read: {error.strerror or error}", where=str(path)) from error
    document = read_document(path, raw)
    pod = validate(document.data, PodFile)
    if isinstance(pod, list):
        raise document.error(path, pod)
    if pod.max_cost_usd is not None and pod.usd_per_hour is None:
        message, hint = "it needs usd_per_hour, which is not there", "say what the machine costs by the hour"
        raise document.error(path, [LintProblem(("max_cost_usd",), message, hint)])
    read_address(pod.host, f"{path}: host")
    if pod.ssh_config is not None:
        config = (path.parent / pod.ssh_config).resolve()
        if not config.is_file():
            raise UserError("there is no such SSH configuration", where=str(config))
        pod = pod.model_copy(update={"ssh_config": str(config)})
    return pod
