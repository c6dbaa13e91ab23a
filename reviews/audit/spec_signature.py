"""A person's signature on a spec: over its registration, with the workspace's key for people, good for one session."""

from __future__ import annotations

import time
from collections.abc import Iterator

from reviews.history.recorded_history import RecordedHistory
from reviews.trail.chain.keys import Signer, is_signed
from specs.system.digests import canonical_bytes
from specs.trail.key_policy import Policy
from specs.trail.session_bodies import OpenEntry, SpecSignature

FORM = "peergate-spec-signature-v1"


def _statement(registration: str, by: str, time_ns: str) -> bytes:
    return canonical_bytes({"form": FORM, "registration": registration, "by": by, "time_ns": time_ns})


def sign_spec(signer: Signer, registration: str, by: str) -> SpecSignature:
    """Return the signature of a person on a registration, as of now."""
    now = str(time.time_ns())
    signature = signer.sign(_statement(registration, by, now)).hex()
    return SpecSignature(by=by, time_ns=now, key=signer.public.hex(), signature=signature)


def is_spec_signed(signed: SpecSignature, registration: str) -> bool:
    """Return whether the signature is over this registration, by the key that it names."""
    data = _statement(registration, signed.by, signed.time_ns)
    return is_signed(bytes.fromhex(signed.key), bytes.fromhex(signed.signature), data)


def signature_damage(history: RecordedHistory) -> Iterator[str]:
    """Check that a signature in the first entry is over what it registers, by a key that the trail has for people."""
    opened = history.find(OpenEntry)
    if opened is None or opened.body.signed is None:
        return
    signed = opened.body.signed
    keys = Policy.model_validate(opened.entry.policy).keys if opened.entry.policy is not None else ()
    if signed.key not in {key.public for key in keys if key.role == "human"}:
        yield "entry 0 (open): the spec is signed with a key that this trail does not have for people"
    elif not is_spec_signed(signed, opened.body.registration):
        yield "entry 0 (open): the signature on the spec is not over what was registered"
