"""One entry as bytes: a DSSE envelope (1.0.0) of an in-toto Statement v1, in one canonical form that the tree hashes.

The statement's predicate is the entry; its subjects are the tree before it and every digest the entry names.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from json.encoder import encode_basestring
from typing import Any, Generic, NamedTuple, cast

from pydantic import ValidationError
from pydantic_core import from_json
from typing_extensions import TypeVar

from specs.system.digests import canonical_bytes, digest_bytes
from specs.system.errors import AuditDamage
from specs.trail.bodies import read_body
from specs.trail.entry import Body, Entry, UnknownBody

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MAX_ENTRY_BYTES = 65_535
"""Entry bundles give the length in two bytes."""
MAX_DEPTH = 64
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_SAME_NAMES = ("schema_version", "seq", "kind", "session", "key", "time_ns", "body")
_FIELDS = ("seq", "kind", "session", "key", "_payload", "digest")
_TIME = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


BodyT_co = TypeVar("BodyT_co", bound=Body, covariant=True, default=Body)
FormT = TypeVar("FormT", bound=Body)


@dataclass(frozen=True)
class RecordedEntry(Generic[BodyT_co]):
    """An entry of the trail, with its digest."""

    entry: Entry
    digest: str

    @classmethod
    def decoded_later(cls, entry: Entry, payload: bytes, digest: str) -> RecordedEntry:
        """Return an entry that keeps its payload and is decoded again when it is read: a fraction of the memory."""
        result = cls.__new__(cls)
        names = sys.intern(entry.kind), sys.intern(entry.session)
        for name, value in zip(_FIELDS, (entry.seq, *names, entry.key, payload, digest), strict=True):
            object.__setattr__(result, name, value)
        return result

    def __getattr__(self, name: str) -> Any:
        if name != "entry" or "_payload" not in self.__dict__:
            raise AttributeError(name)
        return read_statement(self.__dict__["_payload"])

    @cached_property
    def body(self) -> BodyT_co:
        """What the entry records; raises AuditDamage if it does not have the form of its kind."""
        try:
            entry = self.entry
            return cast(BodyT_co, read_body(entry.kind, entry.version, entry.body))
        except ValidationError as error:
            raise AuditDamage(
                f"the body of '{self.key}' does not have the form of its kind", where=self.session
            ) from error

    @property
    def fits(self) -> bool:
        """Return whether the body has the form of its kind: that of an unverified entry may not."""
        try:
            return not isinstance(self.body, UnknownBody)
        except AuditDamage:
            return False

    @property
    def raw(self) -> dict[str, Any]:
        """The entry's body as plain JSON."""
        return self.entry.body

    @cached_property
    def seq(self) -> int:
        """The entry's number in its trail, from 0."""
        return self.entry.seq

    @cached_property
    def kind(self) -> str:
        """The entry's kind."""
        return self.entry.kind

    @cached_property
    def key(self) -> str:
        """The entry's idempotency key."""
        return self.entry.key

    @cached_property
    def session(self) -> str:
        """The name of the session."""
        return self.entry.session

    @cached_property
    def time_ns(self) -> int:
        """Nanoseconds since 1970."""
        return int(self.entry.time_ns)


def entries_of(entries: Iterable[RecordedEntry], *forms: type[FormT]) -> list[RecordedEntry[FormT]]:
    """Return the entries of some kinds, in order."""
    kinds = {form.KIND for form in forms}
    return [cast(RecordedEntry[FormT], entry) for entry in entries if entry.kind in kinds]


def as_entry_of(entry: RecordedEntry, *forms: type[FormT]) -> RecordedEntry[FormT]:
    """Return an entry whose kind must be one of some; raises AuditDamage if it is another."""
    if not any(entry.kind == form.KIND for form in forms):
        kinds = " or ".join(f"'{form.KIND}'" for form in forms)
        raise AuditDamage(f"entry '{entry.key}' is of kind '{entry.kind}', not {kinds}", where=entry.session)
    return cast(RecordedEntry[FormT], entry)


class EnvelopeSignature(NamedTuple):
    """A signature over an entry: the id of the key and the 64 bytes."""

    key_id: str
    data: bytes


class OpenedEnvelope(NamedTuple):
    """An envelope taken apart: the signed bytes and the signatures, neither believed yet."""

    payload: bytes
    signatures: tuple[EnvelopeSignature, ...]


def payload_of(entry: Entry, body: bytes | None = None) -> bytes:
    """Return the canonical statement of an entry, the bytes that are signed; ``body`` are those of its body if known.

    Raises:
        ValueError: the entry holds what canonical JSON refuses, or is nested deeper than 64 levels.
    """
    # Members are in the order RFC 8785 sorts them into.
    text = encode_basestring
    subjects = [("trail", entry.previous)]
    _add_digests(subjects, "body", entry.body, 0)
    policy = b',"policy":' + canonical_bytes(entry.policy) if entry.policy is not None else b""
    named = ",".join([f'{{"digest":{{"sha256":{text(digest[7:])}}},"name":{text(name)}}}' for name, digest in subjects])
    form = text(f"urn:peergate:trail:{entry.kind}:v{entry.version}")
    return b"".join(
        (
            b'{"_type":"https://in-toto.io/Statement/v1","predicate":{"body":',
            canonical_bytes(entry.body) if body is None else body,
            f',"key":{text(entry.key)},"kind":{text(entry.kind)}'.encode(),
            policy,
            f',"prev_root":{text(entry.previous)},"schema_version":1,"seq":{entry.seq:d}'.encode(),
            f',"session":{text(entry.session)},"time_ns":{text(entry.time_ns)}}}'.encode(),
            f',"predicateType":{form},"subject":[{named}]}}'.encode(),
        )
    )


def _add_digests(subjects: list[tuple[str, str]], name: str, value: Any, depth: int) -> None:
    """Add every digest in a body with the path of keys that leads to it, sorted by path."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        if _DIGEST.fullmatch(value):
            subjects.append((name, value))
    elif isinstance(value, dict):
        for key in sorted(value):
            _add_digests(subjects, f"{name}.{key}", value[key], depth + 1)
    elif isinstance(value, list):
        for number, element in enumerate(value):
            _add_digests(subjects, f"{name}.{number}", element, depth + 1)


def _text(value: str) -> bytes:
    return encode_basestring(value).encode()


def canonical_body(body: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return the canonical bytes of a body and the value read from them; raises ValueError if the two would differ."""
    written = canonical_bytes(body)
    statement = json.loads(written)
    # Floats of 2**53 and beyond come back as integers JSON refuses.
    if canonical_bytes(statement) != written:
        raise ValueError("it reads back as something else")
    return written, statement


def read_statement(payload: bytes) -> Entry:
    """Read the entry out of a statement without comparing its form; raises ValueError if it holds no entry."""
    try:
        # Half the time of ``json``; what it might read otherwise is not in canonical form.
        statement = from_json(payload)
        predicate = statement["predicate"]
        entry = Entry(
            **{name: predicate[name] for name in _SAME_NAMES},
            version=int(statement["predicateType"].rpartition(":v")[2]),
            previous=predicate["prev_root"],
            policy=predicate.get("policy"),
        )
        if not _VERSION.fullmatch(str(entry.version)) or not _TIME.fullmatch(entry.time_ns):
            raise ValueError("its version or its time is not a number as it is written here")
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"invalid statement of a trail entry: {type(error).__name__} {str(error)[:100]}") from error
    return entry


def entry_of(payload: bytes) -> Entry:
    """Read the entry out of a statement; raises ValueError if it is not the canonical statement of an entry."""
    return entry_and_body(payload)[0]


def entry_and_body(payload: bytes) -> tuple[Entry, bytes]:
    """Read the entry, and the canonical bytes of its body, out of a statement; errors as :func:`entry_of`."""
    entry = read_statement(payload)
    try:
        body = canonical_bytes(entry.body)
        again = payload_of(entry, body)
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"invalid statement of a trail entry: {type(error).__name__} {str(error)[:100]}") from error
    if again != payload:
        raise ValueError("bytes are not in canonical form")
    return entry, body


def pae(payload: bytes) -> bytes:
    """Return what a signature is over (DSSE pre-authentication encoding)."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def signatures_text(*signatures: EnvelopeSignature) -> bytes:
    """Return the signatures as the envelope holds them."""
    encoded_signatures = (
        b'{"keyid":%s,"sig":"%s"}' % (_text(signature.key_id), base64.b64encode(signature.data))
        for signature in signatures
    )
    return b"[%s]" % b",".join(encoded_signatures)


def seal(payload: bytes, signatures: bytes) -> bytes:
    """Return the envelope of a payload and :func:`signatures_text`."""
    return b'{"payload":"%s","payloadType":"%s","signatures":%s}' % (
        base64.b64encode(payload),
        PAYLOAD_TYPE.encode(),
        signatures,
    )


def open_envelope(data: bytes) -> OpenedEnvelope:
    """Take an envelope apart; raises ValueError if it is not a DSSE envelope in its one canonical form."""
    _limit_size(data)
    try:
        envelope = json.loads(data)
        payload = base64.b64decode(envelope["payload"], validate=True)
        signatures = _read_signatures(envelope["signatures"])
        again = seal(payload, signatures_text(*signatures))
    except (KeyError, TypeError, AttributeError, binascii.Error, ValueError, RecursionError) as error:
        raise ValueError(f"invalid signed envelope: {type(error).__name__} {str(error)[:100]}") from error
    if again != data:
        raise ValueError("the envelope is not in canonical form")
    return OpenedEnvelope(payload, signatures)


def open_sealed(data: bytes, payload: bytes, signatures: bytes) -> OpenedEnvelope:
    """Return what :func:`open_envelope` returns of ``data``, which :func:`seal` made of the other two."""
    _limit_size(data)
    if match := _SIGNED_ONCE.fullmatch(signatures):
        return OpenedEnvelope(payload, (EnvelopeSignature(match[1].decode(), binascii.a2b_base64(match[2])),))
    try:
        opened = OpenedEnvelope(payload, _read_signatures(json.loads(signatures)))
        again = signatures_text(*opened.signatures)
    except (KeyError, TypeError, AttributeError, binascii.Error, ValueError, RecursionError) as error:
        raise ValueError(f"invalid signed envelope: {type(error).__name__} {str(error)[:100]}") from error
    if again != signatures:
        raise ValueError("the envelope is not in canonical form")
    return opened


def _limit_size(data: bytes) -> None:
    if len(data) > MAX_ENTRY_BYTES:
        raise ValueError(f"{len(data)} bytes, the limit is {MAX_ENTRY_BYTES}")


_SIGNED_ONCE = re.compile(rb'\[\{"keyid":"([0-9a-f]{64})","sig":"([A-Za-z0-9+/]{85}[AQgw]==)"\}\]')
"""What :func:`signatures_text` writes of one signature."""


def _read_signatures(values: Any) -> tuple[EnvelopeSignature, ...]:
    return tuple(EnvelopeSignature(value["keyid"], base64.b64decode(value["sig"], validate=True)) for value in values)


def restore_entry(payload: bytes, signatures: bytes) -> RecordedEntry:
    """Return the entry of a stored payload with the digest of its envelope, unverified; errors as :func:`entry_of`."""
    return RecordedEntry(entry_of(payload), digest_bytes(seal(payload, signatures)))
