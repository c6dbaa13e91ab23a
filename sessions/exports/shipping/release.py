"""The signed list of a release: every file with its digest, in a DSSE envelope of an in-toto statement."""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Any, NamedTuple

from reviews.trail.chain.envelope import PAYLOAD_TYPE, pae
from reviews.trail.chain.keys import Signer, is_signed, key_id
from specs.system.digests import canonical_bytes, digest_file, list_tree
from training.rules.packaging.bounded_json import WrongFile, parse_object, read_object

RELEASE, SUMS = "release.json", "SHA256SUMS"
PREDICATE = "urn:peergate:release:v1"
_MOST_BYTES = 16_000_000


class Release(NamedTuple):
    """What a release says of itself, once its signature holds."""

    files: dict[str, str]
    """Path -> digest, without the list itself."""
    session: str
    key_id: str
    """The id of the signing key; its owner must be known from elsewhere."""


def write_release(folder: Path, about: dict[str, Any], signer: Signer) -> Release:
    """Write the sums and the signed list of all files in a folder; raises OSError, or ValueError at a link."""
    sums = "".join(f"{digest.removeprefix('sha256:')}  {name}\n" for name, digest in _digest_files(folder).items())
    (folder / SUMS).write_text(sums, encoding="utf-8")
    files = _digest_files(folder)
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": text.removeprefix("sha256:")}} for name, text in files.items()],
        "predicateType": PREDICATE,
        "predicate": about | {"public": signer.public.hex()},
    }
    payload = canonical_bytes(statement)
    envelope = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": signer.id, "sig": base64.b64encode(signer.sign(pae(payload))).decode()}],
    }
    (folder / RELEASE).write_text(json.dumps(envelope, indent=2) + "\n", encoding="utf-8")
    return Release(files, str(about.get("session", "")), signer.id)


def _digest_files(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in list_tree(folder)}


def read_release(folder: Path) -> Release | None:
    """Return the signed list of a folder; None without one. Raises WrongFile if it is damaged or its signature false.

    The list is signed by the key that it names. That proves that nothing was changed since by anyone without it.
    """
    path = folder / RELEASE
    if not path.exists() and not path.is_symlink():
        return None
    envelope = read_object(path, _MOST_BYTES)
    try:
        payload = base64.b64decode(envelope["payload"], validate=True)
        (signature,) = envelope["signatures"]
        signed = base64.b64decode(signature["sig"], validate=True)
        statement = parse_object(payload, RELEASE)
        public = bytes.fromhex(statement["predicate"]["public"])
        files = {str(value["name"]): f"sha256:{value['digest']['sha256']}" for value in statement["subject"]}
        session = str(statement["predicate"]["session"])
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise WrongFile(RELEASE, "is not a signed list of a release") from error
    ours = envelope.get("payloadType") == PAYLOAD_TYPE and statement.get("predicateType") == PREDICATE
    if not ours or not is_signed(public, signed, pae(payload)):
        raise WrongFile(RELEASE, "has a signature that does not hold: the list was changed after it was signed")
    # What is signed does not hold the digest of itself.
    return Release(files, session, key_id(public))
