from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.trail.chain.envelope import (
    MAX_ENTRY_BYTES,
    EnvelopeSignature,
    RecordedEntry,
    entry_of,
    open_envelope,
    open_sealed,
    pae,
    payload_of,
    seal,
    signatures_text,
)
from reviews.trail.chain.keys import KeyFolder, key_id, public_pem
from specs.system.digests import canonical_bytes
from specs.trail.entry import EMPTY_ROOT, Entry

DIGEST = f"sha256:{'ab' * 32}"


def entry(**changes: Any) -> Entry:
    whole: dict[str, Any] = {
        "seq": 3, "kind": "verdict", "session": "demo", "key": "verdict/sft.1", "time_ns": "1700000000000000001",
        "previous": EMPTY_ROOT, "body": {"verdict": DIGEST, "members": [{"packet": DIGEST}], "usd": 0.25},
    }  # fmt: skip
    return Entry(**(whole | changes))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyFolder:
    folder = KeyFolder(tmp_path_factory.mktemp("keys") / "keys")
    folder.create()
    return folder


def test_an_entry_is_an_in_toto_statement_about_the_tree_and_its_evidence() -> None:
    statement = json.loads(payload_of(entry()))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "urn:peergate:trail:verdict:v1"
    assert statement["subject"] == [
        {"name": "trail", "digest": {"sha256": EMPTY_ROOT[7:]}},
        {"name": "body.members.0.packet", "digest": {"sha256": "ab" * 32}},
        {"name": "body.verdict", "digest": {"sha256": "ab" * 32}},
    ]
    assert statement["predicate"]["prev_root"] == EMPTY_ROOT
    assert statement["predicate"]["time_ns"] == "1700000000000000001"


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e15, 1e15)
        | st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.just(DIGEST),
        max_size=5,
    )
)  # fmt: skip
def test_what_is_written_is_canonical_and_reads_back(body: dict[str, Any]) -> None:
    """Against rfc8785, which shares no code with the pieces the statement is put together from."""
    written = payload_of(entry(body=body))
    assert written == canonical_bytes(json.loads(written))
    assert entry_of(written).body == body


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"seq":3', b'"seq": 3'),
        (b'"seq":3', b'"seq":"3"'),
        (b'"seq":3', b'"seq":3.0'),
        (b'"seq":3', b'"seq":true'),
        (b'"usd":0.25', b'"usd":0.250'),
        (b'"usd":0.25', b'"usd":25e-2'),
        (b'"usd":0.25', b'"usd":NaN'),
        (b'"usd":0.25', b'"usd":Infinity'),
        (b'"usd":0.25', b'"usd":9007199254740992'),
        (b'"usd":0.25', b'"usd":' + b"9" * 5000),
        (b'"usd":0.25', b'"usd":1e400'),
        (b'"usd":0.25', b'"usd":-0'),
        (b'"usd":0.25', b'"usd":0.25,"usd":0.25'),
        (b'"usd":0.25', b'"us\\u0064":0.25'),
        (b'"usd":0.25', b'"usd":"\\ud800"'),
        (b'"usd":0.25', b'"usd":' + b"[" * 70 + b"]" * 70),
        (b'"usd":0.25', b'"usd":' + b"[" * 9000 + b"]" * 9000),
        (b'"kind":"verdict"', b'"kind":"override"'),
        (b":verdict:v1", b":override:v1"),
        (b":verdict:v1", b":verdict:v"),
        (b'"name":"trail"', b'"name":"trial"'),
        (b"Statement/v1", b"Statement/v2"),
        (b'"schema_version":1', b'"schema_version":3'),
        (b'"session":"demo"', b'"session":null'),
        (b'"time_ns":"1', b'"time_ns":"x'),
        (b'{"_type"', b'{"a":1,"_type"'),
        (b'{"_type"', b' {"_type"'),
        (b'{"_type"', b"\xef\xbb\xbf" + b'{"_type"'),
        (b'{"_type"', b'["_type"'),
    ],
)
def test_another_spelling_of_a_statement_is_refused(old: bytes, new: bytes) -> None:
    payload = payload_of(entry())
    changed = payload.replace(old, new)
    assert changed != payload
    with pytest.raises(ValueError, match=r"."):
        entry_of(changed)


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**53, -(2**53), "\ud800", {1: 1}, b"x"])
def test_what_canonical_json_refuses_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        payload_of(entry().model_copy(update={"body": {"x": value}}))


def test_an_envelope_is_taken_apart_and_only_in_one_spelling(keys: KeyFolder) -> None:
    payload = payload_of(entry())
    signer = keys.signer("log")
    signature = EnvelopeSignature(signer.id, signer.sign(pae(payload)))
    data = seal(payload, signatures_text(signature))
    assert data == canonical_bytes(json.loads(data))
    assert open_envelope(data) == (payload, (signature,))
    for changed in (
        data + b" ",
        data.replace(b'"payload":', b'"payload": '),
        data.replace(b"vnd.in-toto", b"vnd.other"),
        data.replace(b'"keyid"', b'"hint":1,"keyid"'),
        data[:-1] + b',"x":1}',
        b"[]",
        b"null",
        b"",
        b'{"payload":1,"signatures":[]}',
        b'{"payload":"","payloadType":"application/vnd.in-toto+json","signatures":[{}]}',
        b"[" * 60_000,
        data + b" " * MAX_ENTRY_BYTES,
    ):
        with pytest.raises(ValueError, match=r"."):
            open_envelope(changed)


def test_a_stored_row_is_taken_apart_as_its_envelope_is(keys: KeyFolder) -> None:
    payload, signer = payload_of(entry()), keys.signer("log")
    whole, short = EnvelopeSignature(signer.id, signer.sign(pae(payload))), EnvelopeSignature("k", b"short")
    right = signatures_text(whole)
    for signatures in (right, signatures_text(), signatures_text(whole, short), signatures_text(short)):
        data = seal(payload, signatures)
        assert open_sealed(data, payload, signatures) == open_envelope(data)
    for signatures in (
        right.replace(b'"sig":', b'"sig": '),
        # The same 64 bytes: bits that no byte has are set.
        re.sub(rb"[AQgw]==", lambda match: bytes([match[0][0] + 1]) + b"==", right),
        right.replace(b'"keyid":"', b'"keyid":"\\u0061'),
        right + b" ",
        right[:-1] + b",{}]",
        b'[{"keyid":1,"sig":""}]',
        b"null",
        b"",
        b"[" * 60_000,
        right + b" " * MAX_ENTRY_BYTES,
    ):
        for opened in (
            lambda text=signatures: open_envelope(seal(payload, text)),
            lambda text=signatures: open_sealed(seal(payload, text), payload, text),
        ):
            with pytest.raises(ValueError, match=r"."):
                opened()


def test_an_entry_that_is_decoded_later_is_the_same() -> None:
    first = entry()
    now, later = RecordedEntry(first, "sha256:0"), RecordedEntry.decoded_later(first, payload_of(first), "sha256:0")
    for name in ("seq", "kind", "session", "key", "time_ns", "raw", "entry", "digest"):
        assert getattr(later, name) == getattr(now, name), name
    assert later == now
    assert not hasattr(later, "others")


def test_openssl_alone_checks_a_signature(keys: KeyFolder, tmp_path: Path) -> None:
    """A verifier that shares nothing with ours: the key as PEM, what is signed written by hand, openssl."""
    payload = payload_of(entry())
    signer = keys.signer("human")
    (tmp_path / "key.pem").write_text(public_pem(signer.public), encoding="ascii")
    kind = b"application/vnd.in-toto+json"
    (tmp_path / "signed").write_bytes(b"DSSEv1 28 " + kind + b" " + str(len(payload)).encode() + b" " + payload)
    (tmp_path / "signature").write_bytes(signer.sign(pae(payload)))

    def check() -> int:
        command = "openssl pkeyutl -verify -pubin -inkey key.pem -rawin -in signed -sigfile signature"
        return subprocess.run(command.split(), cwd=tmp_path, capture_output=True, check=False).returncode

    assert check() == 0
    output = subprocess.run(
        "openssl pkey -pubin -in key.pem -outform DER | sha256sum",
        shell=True, cwd=tmp_path, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    assert output.split()[0] == signer.id == key_id(signer.public)
    (tmp_path / "signed").write_bytes((tmp_path / "signed").read_bytes().replace(b"sft.1", b"sft.2"))
    assert check() != 0


def test_securesystemslib_accepts_our_envelopes_and_we_its(keys: KeyFolder) -> None:
    dsse = pytest.importorskip("securesystemslib.dsse")
    signers = pytest.importorskip("securesystemslib.signer")
    payload = payload_of(entry())
    signer = keys.signer("log")
    data = seal(payload, signatures_text(EnvelopeSignature(signer.id, signer.sign(pae(payload)))))
    key = signers.SSlibKey(signer.id, "ed25519", "ed25519", {"public": signer.public.hex()})
    parsed = dsse.Envelope.from_dict(json.loads(data))
    assert parsed.verify([key], threshold=1)
    theirs = dsse.Envelope(payload, "application/vnd.in-toto+json", {})
    theirs.sign(signers.CryptoSigner(signer.private, key))
    assert theirs.pae() == pae(payload)
    assert bytes.fromhex(next(iter(theirs.signatures.values())).signature) == signer.sign(pae(payload))
