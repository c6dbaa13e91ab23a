from __future__ import annotations

import base64
import re

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.trail.chain.signed_head import (
    COSIGNER_KEY,
    LOG_KEY,
    Checkpoint,
    NoteKey,
    NoteSigner,
    cosign_text,
    parse_key,
    parse_note,
    sign_text,
    who_signed,
)
from specs.system.errors import UserError

# A note and a key of the documentation of Go's golang.org/x/mod/sumdb/note: text that our own code never signed.
GO_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)  # fmt: skip
GO_SIGNATURE = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="

SECRET = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
WITNESS = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
LOG = NoteKey("peergate/demo", LOG_KEY, SECRET.public_key().public_bytes_raw())
OTHER = NoteKey("peergate/demo", LOG_KEY, WITNESS.public_key().public_bytes_raw())
COSIGNER = NoteKey("witness.example", COSIGNER_KEY, WITNESS.public_key().public_bytes_raw())
HEAD = Checkpoint("peergate/demo", 74, bytes(range(32)))
SIGNED = HEAD.with_signatures(sign_text(LOG, SECRET.sign, HEAD.text))
NOTE = str(SIGNED).encode()


def test_a_key_of_the_reference_implementation_is_read_and_its_signature_holds() -> None:
    from reviews.trail.chain.keys import is_signed

    key = parse_key(GO_KEY)
    assert (key.name, key.kind, str(key)) == ("PeterNeumann", LOG_KEY, GO_KEY)
    data = base64.b64decode(GO_SIGNATURE)
    assert data[:4] == key.id
    assert is_signed(key.public, data[4:], GO_TEXT.encode())
    assert not is_signed(key.public, data[4:], GO_TEXT.encode() + b"\n")


def test_a_signed_note_reads_back_and_names_its_signer() -> None:
    assert parse_note(NOTE) == SIGNED
    assert who_signed(SIGNED, [LOG]) == [NoteSigner(LOG, None)]
    assert who_signed(SIGNED, [OTHER, COSIGNER]) == []


def test_a_cosignature_covers_the_note_and_its_time() -> None:
    both = SIGNED.with_signatures(cosign_text(COSIGNER, WITNESS.sign, SIGNED.text, 1_700_000_000))
    assert who_signed(parse_note(str(both).encode()), [LOG, COSIGNER]) == [
        NoteSigner(LOG, None),
        NoteSigner(COSIGNER, 1_700_000_000),
    ]
    last = both.signatures[-1]
    later = last._replace(data=(1_700_000_001).to_bytes(8, "big") + last.data[8:])
    assert who_signed(HEAD.with_signatures(later), [COSIGNER]) == []
    # A log's signature is not a cosignature, nor the other way round.
    as_cosigner = NoteKey(LOG.name, COSIGNER_KEY, LOG.public)
    assert as_cosigner.id != LOG.id
    assert who_signed(SIGNED, [as_cosigner]) == []


@pytest.mark.parametrize(
    "changed",
    [
        Checkpoint("peergate/demo", 73, HEAD.root),
        Checkpoint("peergate/dem0", 74, HEAD.root),
        Checkpoint("peergate/demo", 74, bytes(32)),
    ],
)
def test_a_signature_is_for_one_head_only(changed: Checkpoint) -> None:
    assert who_signed(changed.with_signatures(*SIGNED.signatures), [LOG]) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        NOTE[:-1],
        NOTE + b"\n",
        NOTE + b"x\n",
        NOTE.replace(b"\n\n", b"\n"),
        NOTE.replace(b"\n74\n", b"\n074\n"),
        NOTE.replace(b"\n74\n", b"\n-74\n"),
        NOTE.replace(b"\n74\n", b"\n74 \n"),
        NOTE.replace(b"\n74\n", "\n٧٤\n".encode()),
        NOTE.replace(b"\n74\n", b"\n" + b"9" * 30 + b"\n"),
        NOTE.replace(b"\n74\n", b"\n74\nmore\n"),
        NOTE.replace(b"peergate/demo\n74", b"\n74"),
        NOTE.replace(b"peergate/demo\n", b"peergate/demo\r\n"),
        NOTE.replace(b"AAEC", b"AAE"),
        NOTE.replace(b"AAEC", b"AA C"),
        NOTE.replace("—".encode(), b"-"),
        NOTE + "— peergate/demo AAAA\n".encode(),
        NOTE + "— a b AAAAAAAAAA==\n".encode(),
        b"\xff" + NOTE,
        NOTE * 100_000,
    ],
)
def test_what_is_no_checkpoint_note_is_refused(data: bytes) -> None:
    with pytest.raises(UserError, match="not a checkpoint note"):
        parse_note(data)


def test_base64_has_one_spelling() -> None:
    root = base64.b64encode(HEAD.root).decode()
    assert root.endswith("8=")
    with pytest.raises(UserError, match="the root is not the base64 of 32 bytes"):
        parse_note(NOTE.replace(root.encode(), root.replace("8=", "9=").encode()))


@pytest.mark.parametrize(
    "text", ["", "a+b", "a+00000000+AAAA", GO_KEY.replace("+c7", "+c8"), GO_KEY + "A", "x" + GO_KEY]
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_key(text)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_changed_byte_leaves_no_valid_signature(data: st.DataObject) -> None:
    changed = bytearray(NOTE)
    changed[data.draw(st.integers(0, len(NOTE) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        note = parse_note(bytes(changed))
    except UserError:
        return
    assert who_signed(note, [LOG]) == []


def test_a_signature_line_has_the_form_of_the_standard() -> None:
    assert re.fullmatch("— peergate/demo [A-Za-z0-9+/]+=*\n", SIGNED.signatures[0].line())
