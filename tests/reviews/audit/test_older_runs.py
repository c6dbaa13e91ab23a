"""Runs that an older tree recorded (5057adb): integrity is checked, what other code decided is not derived again.

``closed`` is a session with quick jobs, ``open`` one of the constitutional pipeline, in which kinds had other names.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from reviews.audit import verify
from reviews.audit.verify import Audit, verify_run
from testing.fixtures.command_sessions import called

RUNS = Path(__file__).parents[2] / "fixtures" / "older_runs"


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(RUNS / f"{name}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    (run,) = folder.iterdir()
    return run


def verified(run: Path) -> Audit:
    return verify_run(run, "trail.sqlite", "store")


@pytest.mark.parametrize(("name", "code", "unread"), [("closed", 0, "JobOrder"), ("open", 2, "unknown kind 'guard'")])
def test_a_run_of_an_older_tree_verifies_as_far_as_it_can_be_read(
    tmp_path: Path, name: str, code: int, unread: str
) -> None:
    audit = verified(unpacked(name, tmp_path))
    assert (audit.damage, audit.exit_code, audit.rederived) == ([], code, 0)
    assert [one for one in audit.not_proven if unread in one] != []
    # Its model lay in another folder of another machine: a note of its own, wherever the test runs.
    assert all("was made by other code" in one for one in audit.notes if "(decision" in one)
    assert any("was made by other code" in one for one in audit.notes)


@pytest.mark.parametrize("name", ["closed", "open"])
def test_what_cannot_be_read_is_damage_where_the_code_at_hand_recorded_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = unpacked(name, tmp_path)

    def at_hand(*_: object) -> object:
        return object()

    monkeypatch.setattr(verify, "spec_at_hand", at_hand)
    assert verified(run).exit_code == 1


def test_a_changed_byte_of_an_older_run_is_found(tmp_path: Path) -> None:
    run = unpacked("closed", tmp_path)
    kept = next(one for one in sorted((run / "store").rglob("*")) if one.is_file() and one.stat().st_size)
    kept.chmod(0o600)
    kept.write_bytes(bytes([kept.read_bytes()[0] ^ 1]) + kept.read_bytes()[1:])
    audit = verified(run)
    assert audit.exit_code == 1 and any(kept.name in one or "store" in one for one in audit.damage)


def test_a_command_that_cannot_read_an_older_run_says_so_in_one_error(tmp_path: Path) -> None:
    run = unpacked("open", tmp_path)
    done = called("status", str(run))
    assert done.returncode == 5 and "unknown kind 'guard'" in done.stderr
    assert "another version of Peergate wrote it" in done.stderr and "Traceback" not in done.stderr
