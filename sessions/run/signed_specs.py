"""Signatures of people on specs, kept next to the run folders until a session takes each of them, once."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from reviews.audit.spec_signature import is_spec_signed, sign_spec
from reviews.trail.chain.keys import FOLDER, KeyFolder
from reviews.trail.chain.store import write_durably
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.stage import TASKS
from specs.stages.registry import kind_of
from specs.system.confinement import task_file
from specs.system.errors import BlockedError
from specs.system.regular_files import read_regular
from specs.trail.session_bodies import SpecSignature

SIGNED = Path(".peergate") / "signed"
DRAFT = ".draft.yaml"
"""How the names of specs end that a program wrote: none of them starts without a person's signature."""


def needs_signature(spec: Path, *, signed: bool = False) -> bool:
    """Return whether a session of this spec needs a person's signature."""
    return signed or spec.name.endswith(DRAFT)


def trust_spec(resolved: ResolvedSpec, *, sandbox: bool) -> None:
    """Let this user's processes run the tasks and programs of a spec that the user checked, started or signed.

    ``sandbox`` is False if the tasks may run without one.
    """
    for task in resolved.spec.tasks() - {*TASKS}:
        task_file.trust(task, sandbox=sandbox)
    trust_programs(resolved)


def trust_programs(resolved: ResolvedSpec) -> None:
    """Let this user's processes run the programs that a session's model writes, in a sandbox."""
    if any(kind_of(stage).judged_in_sandbox for stage in resolved.spec.stages):
        task_file.trust(resolved.programs())


def keep_signature(runs: Path, registration: str, by: str) -> Path:
    """Sign a registration with the workspace's key for people, which is made if it is missing; return the file.

    Raises:
        UserError: the key cannot be read, or others can read it.
        OSError: the folder cannot be written.
    """
    keys = KeyFolder(runs.resolve() / FOLDER)
    keys.create()
    path = _place(runs, registration)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(path, sign_spec(keys.signer("human"), registration, by).canonical(), mode=0o600)
    return path


def find_signature(runs: Path, registration: str) -> SpecSignature | None:
    """Return the unused signature on a registration by the workspace's key for people; None without one."""
    try:
        signed = SpecSignature.model_validate_json(read_regular(_place(runs, registration)))
    except (OSError, ValidationError):
        return None
    ours = KeyFolder(runs.resolve() / FOLDER).public("human").hex()
    return signed if signed.key == ours and is_spec_signed(signed, registration) else None


def require_signature(spec: Path, runs: Path, registration: str) -> SpecSignature:
    """Return the unused signature on a spec; raises Blocked without one."""
    signed = find_signature(runs, registration)
    if signed is None:
        message = f"no person has signed this spec for one more session (registration {registration})"
        raise BlockedError(message, where=str(spec), hint=f"a person reads and signs it: `peergate spec sign {spec}`")
    return signed


def use_signature(spec: Path, runs: Path, registration: str) -> None:
    """Take a signature away; raises Blocked if another session took it meanwhile."""
    try:
        _place(runs, registration).unlink()
    except FileNotFoundError:
        message = "another session has used the signature on this spec"
        raise BlockedError(message, where=str(spec), hint=f"`peergate spec sign {spec}` again") from None


def _place(runs: Path, registration: str) -> Path:
    return runs.resolve() / SIGNED / f"{registration.removeprefix('sha256:')}.json"
