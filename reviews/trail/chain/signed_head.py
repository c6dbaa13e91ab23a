"""Checkpoint notes: a signed statement of how long a log is and what its root is (C2SP signed-note, tlog-checkpoint).

The log signs the text (key type 0x01); witnesses and people cosign it with the time (key type 0x04, C2SP
tlog-cosignature). Lines of unknown keys are kept and ignored, as the format asks.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from reviews.trail.chain.keys import is_signed
from specs.system.errors import UserError

Sign = Callable[[bytes], bytes]
LOG_KEY, COSIGNER_KEY = 1, 4
MAX_NOTE_BYTES = 1_000_000
_NAME = re.compile(r"[^\s+]+")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")


class NoteKey(NamedTuple):
    """A public key under the name it signs notes with."""

    name: str
    kind: int
    public: bytes

    @property
    def id(self) -> bytes:
        """The four bytes that distinguish keys of one name."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(bytes([self.kind]) + self.public).decode()}"


class Signature(NamedTuple):
    """One signature line."""

    name: str
    key_id: bytes
    data: bytes

    def line(self) -> str:
        """Return the line of the note."""
        return f"\u2014 {self.name} {base64.b64encode(self.key_id + self.data).decode()}\n"


@dataclass(frozen=True)
class Checkpoint:
    """A head of a log: its name, its number of entries and its root, with the signatures."""

    origin: str
    size: int
    root: bytes
    signatures: tuple[Signature, ...] = ()

    @property
    def text(self) -> str:
        """What is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    def __str__(self) -> str:
        return f"{self.text}\n{''.join(signature.line() for signature in self.signatures)}"

    def with_signatures(self, *added: Signature) -> Checkpoint:
        """Return the checkpoint with more signatures."""
        return Checkpoint(self.origin, self.size, self.root, (*self.signatures, *added))


def cosigned_text(text: str, seconds: int) -> bytes:
    """Return what a cosigner signs: the text of a note, at a time."""
    return f"cosignature/v1\ntime {seconds}\n{text}".encode()


def sign_text(key: NoteKey, sign: Sign, text: str) -> Signature:
    """Sign the text of a note as a log."""
    return Signature(key.name, key.id, sign(text.encode()))


def cosign_text(key: NoteKey, sign: Sign, text: str, seconds: int) -> Signature:
    """Cosign the text of a note as a witness, at a time in seconds since 1970."""
    return Signature(key.name, key.id, struct.pack(">Q", seconds) + sign(cosigned_text(text, seconds)))


def parse_key(text: str) -> NoteKey:
    """Read ``name+id+key``; raises UserError if it is not a public key of a note, or its id does not fit the key."""
    name, _, rest = text.strip().partition("+")
    parts, _, encoded = rest.partition("+")
    data = _decode_base64(encoded)
    if not _NAME.fullmatch(name) or data is None or len(data) != 33 or data[0] not in (LOG_KEY, COSIGNER_KEY):
        raise UserError("not the public key of a log or witness: name+8 hex digits+base64 of an ed25519 key")
    key = NoteKey(name, data[0], data[1:])
    if key.id.hex() != parts:
        raise UserError(f"the key of '{name}' has the id {key.id.hex()}, but the line says {parts[:16]!r}")
    return key


def parse_note(data: bytes, where: str = "") -> Checkpoint:
    """Read a checkpoint note, unverified; raises UserError if it is not in the only allowed form."""

    def refuse(why: str) -> UserError:
        return UserError(f"not a checkpoint note: {why}", where=where)

    if len(data) > MAX_NOTE_BYTES:
        raise refuse(f"{len(data)} bytes, the limit is {MAX_NOTE_BYTES}")
    try:
        whole = data.decode()
    except UnicodeDecodeError as error:
        raise refuse("it is not UTF-8 text") from error
    text, gap, lines = whole.rpartition("\n\n")
    if not gap or not lines.endswith("\n") or re.search(r"[\x00-\x09\x0b-\x1f]", whole):
        raise refuse("text, an empty line and signature lines were expected")
    parts = text.split("\n")
    if len(parts) != 3 or not parts[0] or not _DECIMAL.fullmatch(parts[1]):
        raise refuse("the name of a log, its size and its root were expected, and nothing else")
    root = _decode_base64(parts[2])
    if root is None or len(root) != 32:
        raise refuse("the root is not the base64 of 32 bytes")
    signatures = tuple(_signature(line, refuse) for line in lines[:-1].split("\n"))
    return Checkpoint(parts[0], int(parts[1]), root, signatures)


def _signature(line: str, refuse: Callable[[str], UserError]) -> Signature:
    mark, _, rest = line.partition(" ")
    name, _, encoded = rest.partition(" ")
    data = _decode_base64(encoded)
    if mark != "\u2014" or not _NAME.fullmatch(name) or data is None or len(data) < 5:
        raise refuse("a signature line is not '\u2014 name base64'")
    return Signature(name, data[:4], data[4:])


def _decode_base64(text: str) -> bytes | None:
    """Return the bytes of standard base64 in its one canonical spelling."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64.b64encode(data).decode() == text else None


class NoteSigner(NamedTuple):
    """A key that signed a note, and when it says it did (a log says no time)."""

    key: NoteKey
    seconds: int | None


def who_signed(note: Checkpoint, keys: Iterable[NoteKey]) -> list[NoteSigner]:
    """Return which of the keys truly signed a note. A wrong signature counts as none."""
    results: list[NoteSigner] = []
    for key in keys:
        for signature in note.signatures:
            if (signature.name, signature.key_id) != (key.name, key.id):
                continue
            if key.kind == LOG_KEY:
                if is_signed(key.public, signature.data, note.text.encode()):
                    results.append(NoteSigner(key, None))
            elif len(signature.data) == 72:
                seconds = int(struct.unpack(">Q", signature.data[:8])[0])
                if is_signed(key.public, signature.data[8:], cosigned_text(note.text, seconds)):
                    results.append(NoteSigner(key, seconds))
    return results
