"""Compares a trail with what was kept elsewhere: signed heads, cosignatures on them, and a policy of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from reviews.trail.chain.signed_head import Checkpoint, parse_key, parse_note, who_signed
from reviews.trail.integrity import TrailVerification
from specs.system.errors import UserError
from specs.system.regular_files import read_regular
from specs.trail.key_policy import Policy


@dataclass(frozen=True)
class Anchor:
    """A head that was kept elsewhere, and where."""

    where: str
    head: Checkpoint


@dataclass
class Findings:
    """What an audit found; ``damage`` is empty exactly when everything agreed."""

    damage: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    anchors: list[str] = field(default_factory=list[str])
    not_proven: list[str] = field(default_factory=list[str])
    anchored: int | None = None
    """How many entries the newest anchor covers; None when none was given."""


def read_anchor(path: Path) -> Anchor:
    """Read a checkpoint note; raises UserError if it is missing, or not a checkpoint note."""
    return Anchor(str(path), parse_note(_read(path, "note"), str(path)))


def read_policy(path: Path) -> Policy:
    """Read a policy that was kept elsewhere; raises UserError if it is missing, or not a policy."""
    try:
        return Policy.model_validate_json(_read(path, "policy"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(value) for value in first["loc"])
        raise UserError(f"not a policy: {where}: {first['msg']}", where=str(path)) from error


def _read(path: Path, what: str) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise UserError(f"the {what} cannot be read: {error.strerror or error}", where=str(path)) from error


def check_policy(walk: TrailVerification, policy: Policy | None, findings: Findings) -> None:
    """Compare the trail's policy with the trusted policy, if one was passed."""
    if walk.policy is None:
        if walk.signed or policy is not None:
            findings.damage.append("policy: one was given, and the trail names no keys")
        else:
            findings.not_proven.append("who wrote: entries of this trail carry no signatures")
        return
    if policy is None:
        what = "whose keys these are: the policy came with the trail (compare its digest, or give --policy)"
        findings.not_proven.append(what)
    else:
        policy = policy.model_copy(update={"witnesses": walk.policy.witnesses})
        if policy not in walk.policies:
            findings.damage.append(
                f"policy: {policy.content_digest()} was never a policy of this trail ({walk.policy.content_digest()})"
            )
    for key in walk.policy.keys:
        if key.revoked:
            findings.notes.append(
                f"key {key.id[:16]} ({key.role}) was revoked: what it signed before entry {key.until} holds only as "
                "far as an anchor from before the theft covers it"
            )
    findings.not_proven.append(
        "that roles were apart: only the reviewer's own process opens the reviewer's key, but all keys are in one "
        "folder of one user of the machine, who can open them"
    )


def check_anchors(
    walk: TrailVerification, anchors: Sequence[Anchor], policy: Policy | None, findings: Findings
) -> None:
    """Compare the trail with heads that were kept elsewhere, and say what stays unproven."""
    trusted = policy or walk.policy
    witnesses = [parse_key(witness) for witness in trusted.witnesses] if trusted else []
    sizes: list[int] = []
    for anchor in anchors:
        if walk.policy is None:
            findings.damage.append(f"anchor {anchor.where}: the trail names no keys it could be checked with")
            continue
        problems = walk.against(anchor.head)
        findings.damage.extend(f"anchor {anchor.where}: {problem}" for problem in problems)
        if not problems:
            sizes.append(anchor.head.size)
            signed = who_signed(anchor.head, witnesses)
            cosigned = [
                f"{value.key.name} at {_moment(value.seconds)}" for value in signed if value.seconds is not None
            ]
            others = len(anchor.head.signatures) - 1 - len(cosigned)
            by = f", cosigned by {', '.join(cosigned)}" if cosigned else ""
            by += f", {others} further signatures of unknown keys" if others > 0 else ""
            findings.anchors.append(f"{anchor.where}: {anchor.head.size} entries{by}")
    if not anchors:
        findings.not_proven.append(
            "that nothing was truncated or rewritten: no anchor kept elsewhere was given (--anchor), and anyone with "
            "the keys could have done either"
        )
        return
    findings.anchored = max(sizes, default=0)
    if findings.anchored < walk.tree.size:
        findings.not_proven.append(
            f"entries {findings.anchored} to {walk.tree.size - 1}: no anchor covers them, anyone with the keys could "
            "have truncated or rewritten them"
        )
    findings.not_proven.append("that the anchors were out of reach of everyone who could write the trail")


def _moment(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"second {seconds}"
