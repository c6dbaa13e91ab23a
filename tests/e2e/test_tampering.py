"""Whatever is edited afterwards, `peergate audit verify` finds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testing.fixtures.command_sessions import copy_run, entries, replace_bytes, verify

pytestmark = pytest.mark.model


def _row_in_store(run: Path) -> None:
    """Turn one wrong answer of the treatment into a right one."""
    ended = next(entry for entry in entries(run, "exit") if entry.raw["stage"] == "after")
    digest = ended.raw["outputs"]["rows"]["digest"].removeprefix("sha256:")
    replace_bytes(
        run / "store" / digest[:2] / digest[2:], lambda data: data.replace(b'"truncated":false', b'"truncated":true', 1)
    )


def _row_in_job(run: Path) -> None:
    replace_bytes(
        run / "jobs/small.after.1/out/rows.jsonl", lambda data: data.replace(b'"output":"', b'"output":"x', 1)
    )


def _metric(run: Path) -> None:
    measured = next(entry for entry in entries(run, "metrics") if entry.raw["stage"] == "after")
    digest = measured.raw["metrics"].removeprefix("sha256:")
    replace_bytes(run / "store" / digest[:2] / digest[2:], lambda data: data.replace(b'"value":', b'"value":1', 1))


def _order(run: Path) -> None:
    replace_bytes(run / "jobs/small.train.1/order.json", lambda data: data.replace(b"0.0003", b"0.0002"))


def _weights(run: Path) -> None:
    def flip(data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1])

    replace_bytes(run / "jobs/small.train.1/out/checkpoint/model.safetensors", flip)


def _report(run: Path) -> None:
    replace_bytes(run / "report/report.md", lambda data: data.replace(b"accepted", b"ACCEPTED", 1))


def _spec(run: Path) -> None:
    replace_bytes(run / "spec.yaml", lambda data: data.replace(b"minimum_effect: 0.4", b"minimum_effect: 0.1"))


def _missing_evidence(run: Path) -> None:
    digest = entries(run, "verdict")[2].raw["verdict"].removeprefix("sha256:")
    (run / "store" / digest[:2] / digest[2:]).unlink()


def _trail_byte(run: Path) -> None:
    replace_bytes(run / "trail.sqlite", lambda data: data.replace(b'"outcome":"approve"', b'"outcome":"approvE"', 1))


def _slack_byte(run: Path) -> None:
    """Change a byte of the database that no entry uses."""

    def change(data: bytes) -> bytes:
        # Bytes 72 to 91 of the header are reserved and unused.
        return data[:75] + bytes([data[75] ^ 1]) + data[76:]

    replace_bytes(run / "trail.sqlite", change)


def _no_seal(run: Path) -> None:
    (run / "trail.seal").unlink()


TAMPERING: dict[str, Callable[[Path], None]] = {
    "one raw row in the store": _row_in_store,
    "one raw row in the job folder": _row_in_job,
    "one metric": _metric,
    "a granted parameter": _order,
    "one bit of the weights": _weights,
    "a word of the report": _report,
    "the registered spec": _spec,
    "a verdict deleted": _missing_evidence,
    "one byte of a trail entry": _trail_byte,
    "one unused byte of the trail file": _slack_byte,
    "the seal deleted": _no_seal,
}


ELSEWHERE_TOO = (
    *("one raw row in the store", "one raw row in the job folder", "one metric", "a word of the report"),
    *("the registered spec", "a verdict deleted", "one byte of a trail entry", "one unused byte of the trail file"),
)
"""What test_attacks.py, test_claims.py and test_audit_files.py find in sessions without weights."""


@pytest.mark.parametrize(
    "what", [pytest.param(text, marks=[pytest.mark.slow] if text in ELSEWHERE_TOO else []) for text in TAMPERING]
)
def test_tampering_is_found(finished: Path, tmp_path: Path, what: str) -> None:
    run = copy_run(finished, tmp_path)
    TAMPERING[what](run)
    code, answer = verify(run)
    assert (code, answer["verdict"]) == (1, "tampered"), answer
    assert answer["damage"]


@pytest.mark.slow
def test_an_untouched_copy_verifies(finished: Path, tmp_path: Path) -> None:
    """The control of the tests above: copying alone is not damage."""
    assert verify(copy_run(finished, tmp_path))[0] == 0


@pytest.mark.parametrize("content", [b"", b"not a database at all"])
def test_what_is_no_trail_is_unreadable(tmp_path: Path, content: bytes) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "trail.sqlite").write_bytes(content)
    assert verify(run)[0] == 3


def test_a_folder_without_a_session_is_unreadable(tmp_path: Path) -> None:
    assert verify(tmp_path)[0] == 3
