"""What this machine keeps of a pod: its address and host key, the heads of its trail, and a copy of its session."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from reviews.trail.anchor_places import note_name
from reviews.trail.anchors import Anchor, read_anchor, read_policy
from reviews.trail.store import write_durably
from reviews.trail.trail import origin_of
from sessions.pods.connection import Connection
from sessions.pods.pod_file import PodFile, read_address
from specs.digests import Contract
from specs.errors import AuditDamage, UserError
from specs.session.session_spec import ResolvedSpec
from specs.trail.key_policy import Policy

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class PodRecord(Contract):
    """What `pod up` found and did."""

    name: str
    pod: PodFile
    root: str
    """Absolute, on the pod."""
    python: str
    """The Python of the pod that has Peergate."""
    spec: str
    """Where the spec lies on the pod, relative to what was brought there."""
    registration: str
    profile: str | None = None
    """Which of the spec's profiles was asked for."""


@dataclass(frozen=True)
class Place:
    """The folder of a pod on this machine: ``PODS/NAME``."""

    folder: Path
    name: str

    @property
    def record_path(self) -> Path:
        """What `pod up` wrote."""
        return self.folder / "pod.json"

    @property
    def resolved_path(self) -> Path:
        """The spec as it was brought."""
        return self.folder / "spec.resolved.json"

    @property
    def known_hosts(self) -> Path:
        """The one host key that is accepted."""
        return self.folder / "known_hosts"

    @property
    def heads(self) -> Path:
        """Signed heads of the pod's trail, one for each pull."""
        return self.folder / "heads"

    @property
    def policy_path(self) -> Path:
        """Whose keys may sign, as the pod said it first."""
        return self.folder / "policy.json"

    @property
    def incoming(self) -> Path:
        """What is not compared yet."""
        return self.folder / "incoming"

    @property
    def refused(self) -> Path:
        """What did not agree, kept to be looked at."""
        return self.folder / "refused"

    @property
    def run(self) -> Path:
        """The copy of the run folder; it has no keys beside it, so nobody can go on with it by mistake."""
        return self.folder / "runs" / self.name

    def read(self) -> PodRecord:
        """Return what `pod up` wrote.

        Raises:
            UserError: there is no such pod here.
        """
        try:
            return PodRecord.model_validate_json(self.record_path.read_bytes(), strict=True)
        except OSError as error:
            there = ", ".join(sorted(path.parent.name for path in self.folder.parent.glob("*/pod.json"))) or "none"
            hint = f"pods in {self.folder.parent}: {there}; `peergate pod up SPEC` makes one, --pods names the folder"
            raise UserError(f"there is no pod '{self.name}'", where=str(self.folder), hint=hint) from error
        except ValidationError as error:
            raise UserError("this was not written by this Peergate", where=str(self.record_path)) from error

    def write(self, record: PodRecord, resolved: ResolvedSpec) -> None:
        """Keep what `pod up` found, and the spec it brought."""
        write_durably(self.resolved_path, resolved.canonical())
        write_durably(self.record_path, record.canonical())

    def connection(self, pod: PodFile) -> Connection:
        """Return the way to the pod."""
        return Connection(read_address(pod.host), self.known_hosts.resolve(), pod.ssh_config)

    def anchors(self) -> list[Anchor]:
        """Return the heads that were kept, oldest first."""
        folder = self.heads / note_name(origin_of(self.name), 0).parent
        return [read_anchor(path) for path in sorted(folder.glob("*.note"))]

    def policy(self) -> Policy | None:
        """Return the policy that was kept; None before the first pull.

        Raises:
            AuditDamage: it cannot be read any more.
        """
        if not self.policy_path.exists():
            return None
        try:
            return read_policy(self.policy_path)
        except UserError as error:
            raise AuditDamage(error.message, where=error.where) from error


def place_of(pods: Path, name: str) -> Place:
    """Return the place of a pod.

    Raises:
        UserError: the name cannot be one.
    """
    if not NAME.fullmatch(name):
        raise UserError(f"'{name}' cannot be a session's name", hint="letters, digits, '_', '.', '-'; at most 64")
    return Place(pods / name, name)
