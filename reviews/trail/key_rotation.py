"""Give a role of a workspace a new key; the human key records that in every trail that is still open."""

from __future__ import annotations

from pathlib import Path

from reviews.trail.chain.keys import KeyFolder, key_id
from reviews.trail.chain.store import sync_folder
from reviews.trail.trail import Trail
from specs.system.errors import UserError
from specs.trail.entry import Role
from specs.trail.key_policy import Policy, PolicyKey
from specs.trail.session_bodies import KeysEntry


def rotate(keys: KeyFolder, trails: list[tuple[Path, str]], role: Role, *, by: str, reason: str, revoke: bool) -> str:
    """Replace the key of a role; returns the id of the new one. After a crash, repeating it continues.

    ``trails`` are path and session of every open trail of the workspace; ``revoke`` if the old key may be stolen.
    Raises UserError if the workspace has no key of this role.
    """
    old = key_id(keys.public(role))
    waiting = keys.path(f"{role}.next")
    public = keys.make(role, f"{role}.next")
    new = key_id(public)
    listed = PolicyKey(id=new, role=role, public=public.hex())
    body = KeysEntry(role=role, old=old, new=new, revoked=revoke, by=by, reason=reason)
    for path, session in trails:
        trail = Trail(path, session)
        try:
            trail.verify_chain()
            with trail.alone():
                policy, size = trail.policy(), trail.head().size
                if policy is not None and policy.current(role, size - 1) is not None:
                    rotated = _rotate_policy(policy, old, listed, size, revoke)
                    trail.append(body, KeysEntry.key_of(new[:16]), rotated)
        finally:
            trail.close()
    # The old key gets another name first, so that there is always a key.
    kept_path = keys.path(f"{role}.old-{old[:16]}")
    if not kept_path.exists():
        kept_path.hardlink_to(keys.path(role))
    waiting.replace(keys.path(role))
    sync_folder(keys.folder)
    return new


def _rotate_policy(policy: Policy, old: str, new: PolicyKey, seq: int, revoke: bool) -> Policy:
    if all(key.id != old for key in policy.keys):
        raise UserError(f"the trail '{policy.origin}' was not signed with the key {old[:16]} of this workspace")
    ended = {"until": seq + 1, "revoked": revoke}
    before = tuple(key.model_copy(update=ended) if key.id == old and key.until is None else key for key in policy.keys)
    return policy.model_copy(update={"keys": (*before, new.model_copy(update={"since": seq + 1}))})
