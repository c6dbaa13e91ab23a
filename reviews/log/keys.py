"""The private keys of a workspace: one ed25519 key a role, in files that only their owner can read.

They lie in ``.peergate/keys`` of the folder that holds the run folders, never in a run folder: a copied or published
run carries no private key. What this does not give: whoever may read the folder of keys can sign as any role, and
Peergate itself holds all of them in one process, so a role shows which part of Peergate signed, not that another
part could not have.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reviews.store import sync_folder
from specs.errors import UserError
from specs.policy import ROLES, Role

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FOLDER = Path(".peergate") / "keys"
# SubjectPublicKeyInfo of RFC 8410 up to the 32 bytes of the key itself.
_SPKI = bytes.fromhex("302a300506032b6570032100")


def key_id(public: bytes) -> str:
    """Return the id of a public key: the sha256 of its DER form, as ``openssl pkey -pubin -outform DER`` writes it."""
    return hashlib.sha256(_SPKI + public).hexdigest()


def public_pem(public: bytes) -> str:
    """Return a public key as openssl reads it."""
    return f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(_SPKI + public).decode()}\n-----END PUBLIC KEY-----\n"


@lru_cache(maxsize=64)
def _loaded(public: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(public)


def is_signed(public: bytes, signature: bytes, data: bytes) -> bool:
    """Say whether a signature over data is from the owner of a public key."""
    from cryptography.exceptions import InvalidSignature

    try:
        _loaded(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


class SigningKey(NamedTuple):
    """A private key with its public half."""

    private: Ed25519PrivateKey
    public: bytes

    @property
    def id(self) -> str:
        """The id of its public key."""
        return key_id(self.public)

    def sign(self, data: bytes) -> bytes:
        """Return the signature over data."""
        return self.private.sign(data)


class KeyFolder:
    """The keys of a workspace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._keys: dict[str, SigningKey] = {}

    @classmethod
    def of_trail(cls, trail: Path) -> KeyFolder:
        """Return the keys beside the run folder a trail lies in."""
        return cls(trail.resolve().parent.parent / FOLDER)

    def path(self, role: str) -> Path:
        """Return where the key of a role lies."""
        return self.folder / f"{role}.pem"

    def create(self) -> None:
        """Make the keys that are missing. Several processes may do this at once: the first one's keys stay."""
        for role in ROLES:
            if not self.path(role).exists():
                create_key(self.path(role))

    def signer(self, role: Role) -> SigningKey:
        """Return the key of a role.

        Raises:
            UserError: it is missing, unreadable, or others than its owner can read it.
        """
        if role not in self._keys:
            self._keys[role] = load_key(self.path(role))
        return self._keys[role]


def create_key(path: Path) -> None:
    """Write a new private key that only its owner can read; a key that is there already stays.

    Raises:
        OSError: the folder is not writable.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A link does not replace what another process made in the meantime.
        path.hardlink_to(partial)
    except FileExistsError:
        pass
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def load_key(path: Path) -> SigningKey:
    """Read a private key.

    Raises:
        UserError: it is missing, no ed25519 key in PEM, or others than its owner can read it.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    try:
        mode, data = stat.S_IMODE(path.stat().st_mode), path.read_bytes()
    except OSError as error:
        raise UserError(f"the signing key '{path.stem}' cannot be read: {error.strerror}", where=str(path)) from error
    if mode & 0o077:
        hint = f"chmod 600 {path}; if somebody may have read it, `peergate audit rotate {path.stem} --revoke`"
        raise UserError(
            f"the signing key '{path.stem}' has mode {mode:o}, others can read it", where=str(path), hint=hint
        )
    try:
        private = load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise UserError(f"the signing key '{path.stem}' is no private key in PEM", where=str(path)) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise UserError(f"the signing key '{path.stem}' is not an ed25519 key", where=str(path))
    return SigningKey(private, private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
