"""Give a role of a workspace a new key, and record that in every trail that is still open.

The human key signs the change in each trail. A key that ends early because it may be stolen is marked as revoked: of
what it signed, only what an anchor from before covers can be believed.
"""

from __future__ import annotations

from pathlib import Path

from reviews.trail.keys import KeyFolder, key_id
from reviews.trail.store import sync_folder
from reviews.trail.trail import Trail
from specs.errors import UserError
from specs.trail.key_policy import Policy, PolicyKey, Role


def rotate(keys: KeyFolder, trails: list[tuple[Path, str]], role: Role, *, by: str, reason: str, revoke: bool) -> str:
    """Replace the key of a role; returns the id of the new one. Repeating it after a crash goes on where it was.

    Args:
        keys: the keys of the workspace.
        trails: path and session of every trail in it that is still open.
        role: whose key is replaced.
        by: who decides this.
        reason: why; recorded.
        revoke: the old key may be stolen.

    Raises:
        UserError: the workspace has no key of this role.
    """
    old = key_id(keys.public(role))
    waiting = keys.path(f"{role}.next")
    public = keys.make(role, f"{role}.next")
    new = key_id(public)
    listed = PolicyKey(id=new, role=role, public=public.hex())
    body = {"role": role, "old": old, "new": new, "revoked": revoke, "by": by, "reason": reason}
    for path, session in trails:
        trail = Trail(path, session)
        try:
            trail.verify_chain()
            with trail.alone():
                policy, size = trail.policy(), trail.head().size
                if policy is not None and policy.current(role, size - 1) is not None:
                    trail.change_policy(f"keys/{new[:16]}", body, _changed(policy, old, listed, size, revoke))
        finally:
            trail.close()
    # The old key is kept under another name; at no moment is there none.
    kept = keys.path(f"{role}.old-{old[:16]}")
    if not kept.exists():
        kept.hardlink_to(keys.path(role))
    waiting.replace(keys.path(role))
    sync_folder(keys.folder)
    return new


def _changed(policy: Policy, old: str, new: PolicyKey, seq: int, revoke: bool) -> Policy:
    if all(one.id != old for one in policy.keys):
        raise UserError(f"the trail '{policy.origin}' was not signed with the key {old[:16]} of this workspace")
    ended = {"until": seq + 1, "revoked": revoke}
    before = tuple(one.model_copy(update=ended) if one.id == old and one.until is None else one for one in policy.keys)
    return policy.model_copy(update={"keys": (*before, new.model_copy(update={"since": seq + 1}))})
