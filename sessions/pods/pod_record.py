"""What this machine keeps of a pod: its address and host key, the heads of its trail, and a copy of its session."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from reviews.trail.anchor_places import note_name
from reviews.trail.anchors import Anchor, read_anchor, read_policy
from reviews.trail.chain.store import write_durably
from reviews.trail.signing import origin_of
from sessions.pods.connection import PodConnection
from sessions.pods.pod_file import PodFile, read_address
from specs.session.session_spec import ResolvedSpec
from specs.system.digests import Contract
from specs.system.errors import AuditDamage, UserError
from specs.system.regular_files import read_regular
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
    """The path of the spec on the pod, relative to the files that were sent."""
    registration: str
    profile: str | None = None
    """The profile of the spec that was chosen."""


class PodPlace:
    """The folder of a pod on this machine: ``PODS/NAME``."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        # Written by `pod up`; the second is the spec that was sent.
        self.record_path, self.resolved_path = folder / "pod.json", folder / "spec.resolved.json"
        # The one host key that is accepted.
        self.known_hosts = folder / "known_hosts"
        # Signed heads of the pod's trail, one for each pull, and its first statement of whose keys may sign.
        self.heads, self.policy_path = folder / "heads", folder / "policy.json"
        # Files that are not compared yet, and refused files, kept for inspection.
        self.incoming, self.refused = folder / "incoming", folder / "refused"
        # The copy of the run folder. No keys lie next to it, so it cannot be resumed by mistake.
        self.run = folder / "runs" / name

    def read(self) -> PodRecord:
        """Return what `pod up` wrote, or raise UserError if there is no such pod here."""
        try:
            return PodRecord.model_validate_json(read_regular(self.record_path), strict=True)
        except OSError as error:
            there = ", ".join(sorted(path.parent.name for path in self.folder.parent.glob("*/pod.json"))) or "none"
            hint = f"pods in {self.folder.parent}: {there}; `peergate pod up SPEC` makes one, --pods names the folder"
            raise UserError(f"unknown pod '{self.name}'", where=str(self.folder), hint=hint) from error
        except ValidationError as error:
            raise UserError("this file was not written by this Peergate", where=str(self.record_path)) from error

    def write(self, record: PodRecord, resolved: ResolvedSpec) -> None:
        """Keep what `pod up` found, and the spec it sent."""
        write_durably(self.resolved_path, resolved.canonical())
        write_durably(self.record_path, record.canonical())

    def connection(self, pod: PodFile) -> PodConnection:
        """Return the way to the pod."""
        return PodConnection(read_address(pod.host), self.known_hosts.resolve(), pod.ssh_config)

    def anchors(self) -> list[Anchor]:
        """Return the kept heads, oldest first."""
        folder = self.heads / note_name(origin_of(self.name), 0).parent
        return [read_anchor(path) for path in sorted(folder.glob("*.note"))]

    def policy(self) -> Policy | None:
        """Return the kept policy, None before the first pull; raise AuditDamage if it has become unreadable."""
        if not self.policy_path.exists():
            return None
        try:
            return read_policy(self.policy_path)
        except UserError as error:
            raise AuditDamage(error.message, where=error.where) from error


def place_of(pods: Path, name: str) -> PodPlace:
    """Return the place of a pod, or raise UserError if a session cannot have this name."""
    if not NAME.fullmatch(name):
        raise UserError(f"invalid session name '{name}'", hint="at most 64 letters, digits, '_', '.' and '-'")
    return PodPlace(pods / name, name)
