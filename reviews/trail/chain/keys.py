"""The private keys of a workspace.

One ed25519 key a role, in files next to the run folders that only their owner reads.

Only the reviewer's own process (``reviews/reviewers/process``) opens the reviewer's key; here it is a path and a public
half. Not guaranteed: another program of the same user of the machine can sign as any role.
"""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from reviews.trail.chain.store import write_durably
from specs.system.errors import PeergateError, UserError
from specs.system.regular_files import read_regular
from specs.trail.entry import Role
from specs.trail.key_policy import ROLES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FOLDER = Path(".peergate") / "keys"
APART: tuple[Role, ...] = ("reviewer",)
"""Roles whose key is made and opened in a separate process."""
EARLIER = "{}.old-*.pem"
"""The names of the keys that a role had before."""
_APART_S = 60
# SubjectPublicKeyInfo of RFC 8410 up to the 32 bytes of the key itself.
_SPKI = bytes.fromhex("302a300506032b6570032100")


def key_id(public: bytes) -> str:
    """Return the id of a public key: the sha256 of its DER form, as ``openssl pkey -pubin -outform DER`` writes it."""
    return hashlib.sha256(_SPKI + public).hexdigest()


def public_pem(public: bytes) -> str:
    """Return a public key as openssl reads it."""
    return f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(_SPKI + public).decode()}\n-----END PUBLIC KEY-----\n"


@lru_cache(maxsize=64)
def _load_public_key(public: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(public)


def is_signed(public: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether a signature over data is from the owner of a public key."""
    from cryptography.exceptions import InvalidSignature

    try:
        _load_public_key(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


class Signer(Protocol):
    """Signs for a role: a key, or a process that holds one."""

    @property
    def public(self) -> bytes:
        """The public half."""
        ...

    @property
    def id(self) -> str:
        """The id of the public half."""
        ...

    def sign(self, data: bytes) -> bytes:
        """Return the signature over data."""
        ...


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
        """Return the keys next to the run folder of a trail."""
        return cls(trail.resolve().parent.parent / FOLDER)

    def path(self, role: str) -> Path:
        """Return the path of the key of a role."""
        return self.folder / f"{role}.pem"

    def create(self) -> None:
        """Make the keys that are missing. Several processes may do this at once: the first one's keys stay."""
        for role in ROLES:
            if not self.path(role).exists():
                self.make(role)

    def make(self, role: Role, name: str = "") -> bytes:
        """Make the key of a role, under another name if given, and return its public half; an existing key stays.

        Raises:
            UserError: it can neither be made nor read.
            OSError: the folder is not writable.
        """
        path = self.path(name or role)
        if role in APART:
            return key_apart(path, make=True)
        create_key(path)
        return load_key(path).public

    def public(self, role: Role) -> bytes:
        """Return the public half of the key of a role; errors as in :meth:`signer`."""
        return key_apart(self.path(role)) if role in APART else self.signer(role).public

    def signer(self, role: Role) -> SigningKey:
        """Return the key of a role.

        Raises:
            UserError: it is missing, unreadable, or others than its owner can read it.
            PeergateError: only a separate process opens it.
        """
        if role in APART:
            raise PeergateError(f"the key of '{role}' is opened by its own process only", where=str(self.path(role)))
        if role not in self._keys:
            self._keys[role] = load_key(self.path(role))
        return self._keys[role]


def key_apart(path: Path, *, make: bool = False) -> bytes:
    """Open a key in a separate process, and return its public half; ``make`` it if it is missing.

    Raises:
        UserError: the key cannot be made or read.
        PeergateError: the process did not work.
    """
    program = [sys.executable, "-P", "-m", "reviews.reviewers.process.key_process"]
    command = [*program, str(path), *(["--make"] if make else [])]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_APART_S, cwd="/")
        facts = json.loads(done.stdout)
        if "public" in facts:
            return bytes.fromhex(facts["public"])
        raise UserError(str(facts["message"]), where=str(facts["where"]), hint=str(facts["hint"]))
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        message = f"the process that opens a key did not work: {type(error).__name__} {str(error)[:200]}"
        raise PeergateError(message, where=str(path)) from error


def create_key(path: Path) -> None:
    """Write a new private key that only its owner can read; an existing key stays. Raises OSError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with suppress(FileExistsError):
        write_durably(path, data, mode=0o600, replace=False)


def load_key(path: Path) -> SigningKey:
    """Read a private key; raises UserError if it is missing, no ed25519 key in PEM, or readable by others."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    def refuse(why: str, hint: str = "") -> UserError:
        return UserError(f"the signing key '{path.stem}' {why}", where=str(path), hint=hint)

    try:
        mode, data = stat.S_IMODE(path.stat().st_mode), read_regular(path, 1 << 20)
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}") from error
    if mode & 0o077:
        hint = f"chmod 600 {path}; if someone may have read it, `peergate audit rotate {path.stem} --revoke`"
        raise refuse(f"has mode {mode:o}, others can read it", hint)
    try:
        private = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise refuse("is not a private key in PEM") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise refuse("is not an ed25519 key")
    return SigningKey(private, private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
