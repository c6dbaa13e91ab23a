"""Composes and signs the entry and the head that follow in a trail, with the keys that its policy names."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from reviews.trail.chain import envelope
from reviews.trail.chain import tree as merkle
from reviews.trail.chain.envelope import MAX_ENTRY_BYTES, RecordedEntry
from reviews.trail.chain.keys import APART, KeyFolder, Signer, key_id
from reviews.trail.chain.signed_head import LOG_KEY, Checkpoint, NoteKey, sign_text
from reviews.trail.tables.trail_file import StoredEntry
from specs.system.digests import digest_bytes
from specs.system.errors import PeergateError, UserError
from specs.system.masking import current
from specs.system.steady_clock import SteadyClock
from specs.trail.bodies import VERSION, misfit
from specs.trail.entry import Entry, EntryKind, Role
from specs.trail.key_policy import ROLES, SIGNERS, Policy, PolicyKey


class SignerApart(Signer, Protocol):
    """The process that holds the reviewer's key."""

    def close(self) -> None:
        """End it."""


class New(NamedTuple):
    """An entry to append; ``policy`` is set where it begins or changes the keys."""

    kind: EntryKind
    key: str
    body: dict[str, Any]
    policy: Policy | None = None


class TrailEnd(NamedTuple):
    """The end of a trail, where the next entry goes."""

    version: int
    """The table's number for what others have appended: while it stays, the rest does too."""
    tree: merkle.Frontier
    root: bytes
    newest: RecordedEntry | None
    policy: Policy | None
    signers: dict[str, Signer]
    """The keys that were looked up, by kind of entry."""


def new_policy(session: str, keys: KeyFolder) -> Policy:
    """Return the policy of a new trail: the keys of its workspace, in their roles."""

    def make_policy_key(role: Role) -> PolicyKey:
        public = keys.public(role)
        return PolicyKey(id=key_id(public), role=role, public=public.hex())

    return Policy(origin=origin_of(session), keys=tuple(make_policy_key(role) for role in ROLES), roles=SIGNERS)


def origin_of(session: str) -> str:
    """Return the name of a session's log in its checkpoint notes."""
    return f"peergate/{session}"


def signer_of(policy: Policy, what: str, seq: int, keys: KeyFolder, reviewer: SignerApart | None) -> Signer:
    """Return the key that may sign entry ``seq``, which signs as a kind of entry.

    Raises:
        UserError: the policy names no key for it, or the workspace has another one.
        PeergateError: the reviewer's process is missing.
    """
    able = [policy.current(role, seq) for role in policy.roles_of(what)]
    wanted = next((policy_key for policy_key in able if policy_key is not None), None)
    if wanted is None:
        raise UserError(f"the policy of this trail lets no one sign a '{what}' entry", where=policy.origin)
    own = reviewer if wanted.role in APART else keys.signer(wanted.role)
    if own is None:
        raise PeergateError("no reviewer's process is running to sign with", where=policy.origin)
    return _own(wanted, own, keys)


def _own(wanted: PolicyKey, own: Signer, keys: KeyFolder) -> Signer:
    if own.id != wanted.id:
        raise UserError(
            f"this workspace signs as '{wanted.role}' with the key {own.id[:16]}, the trail's is {wanted.id[:16]}",
            where=str(keys.path(wanted.role)),
            hint="continue the session in the workspace where it began, or with that workspace's keys next to it",
        )
    return own


def signed_note(policy: Policy, size: int, root: bytes, keys: KeyFolder) -> str:
    """Return the signed head of a tree; raises UserError if the workspace lacks the key of the log in the policy."""
    wanted = policy.current("log", size - 1)
    if wanted is None:
        raise UserError("the policy of this trail names no key of the log", where=policy.origin)
    signer = _own(wanted, keys.signer("log"), keys)
    head = Checkpoint(policy.origin, size, root)
    return str(head.with_signatures(sign_text(NoteKey(policy.origin, LOG_KEY, signer.public), signer.sign, head.text)))


def signed_entry(
    edge: TrailEnd, session: str, new: New, signer: Signer, clock: SteadyClock
) -> tuple[RecordedEntry, StoredEntry]:
    """Return the entry that follows and its row.

    Raises:
        ValueError: it could not be read back as written, or does not have the form of its kind.
        PeergateError: it is too large.
    """
    newest = edge.newest
    try:
        written, statements = envelope.canonical_body(new.body)
        if (masked := current().value(statements)) is not statements:
            written, statements = envelope.canonical_body(masked)
        entry = Entry(
            seq=edge.tree.size,
            kind=new.kind,
            version=VERSION,
            session=session,
            key=new.key,
            # Verifiers want times in order, and hours are counted by them: no clock that is set changes either.
            time_ns=str(clock.after(newest.time_ns if newest else 0)),
            previous=f"sha256:{edge.root.hex()}",
            body=statements,
            policy=new.policy.model_dump(mode="json") if new.policy else None,
        )
        payload = envelope.payload_of(entry, written)
        # Readers stop at some depth.
        if envelope.read_statement(payload) != entry:
            raise ValueError("it reads back as something else")
    except (ValueError, RecursionError) as error:
        what = f"trail entry '{new.key}' is refused, it could not be read back as written: {error}"
        raise ValueError(what) from error
    if problem := misfit(new.kind, entry.version, written):
        raise ValueError(f"trail entry '{new.key}' is refused, it does not have the form of a '{new.kind}': {problem}")
    signature = envelope.EnvelopeSignature(signer.id, signer.sign(envelope.pae(payload)))
    row = StoredEntry(entry.seq, payload, envelope.signatures_text(signature))
    data = row.envelope
    if len(data) > MAX_ENTRY_BYTES:
        what = f"a trail entry has {len(data)} bytes, the limit is {MAX_ENTRY_BYTES}"
        raise PeergateError(what, where=new.key, hint="keep evidence in the content store and record its digest")
    return RecordedEntry(entry, digest_bytes(data)), row
