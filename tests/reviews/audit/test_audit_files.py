"""Every file of a run folder is covered by the audit or listed as not covered, and nothing ends in a traceback."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.attack.files import attack_folder, closed_session, verified_run
from bench.attack.outcome import Outcome
from reviews.audit.audit_files import UNNAMED, named_in_store, tree_of
from reviews.audit.export import export_run, verify_export
from reviews.audit.verify import Audit, verify_run
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.tables.open_table import read_entries
from sessions.pages.report.trail_page import trail_page
from specs.system.digests import canonical_bytes, digest_file
from specs.system.errors import AuditDamage


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return closed_session(tmp_path_factory.mktemp("closed"))


@pytest.fixture
def run(closed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(closed, tmp_path / "small", symlinks=True)


def audit_of(run: Path) -> Audit:
    return verify_run(run, "trail.sqlite", "store")


def exported(run: Path, target: Path) -> None:
    export_run(run, "trail.sqlite", "store", target, trail_page)


def stored(run: Path, kind: str, name: str) -> Path:
    digest = next(entry.raw[name] for entry in read_entries(run / "trail.sqlite") if entry.kind == kind)
    return run / "store" / digest[7:9] / digest[9:]


# ---- the seal ----------------------------------------------------------------------------------------------------


def test_the_seal_of_a_closed_session_covers_all_entries(run: Path) -> None:
    """A seal taken earlier agrees with the entries it covers, and says nothing of the file as it is."""
    assert audit_of(run).exit_code == 0
    entries = read_entries(run / "trail.sqlite")
    earlier = {"size": len(entries) - 3, "digest": entries[-4].digest, "file": digest_file(run / "trail.sqlite")}
    (run / "trail.seal").write_bytes(canonical_bytes(earlier))
    assert audit_of(run).damage[0].startswith(f"seal: covers {len(entries) - 3} of the {len(entries)} entries")


def test_a_planted_write_ahead_log_does_not_skip_the_comparison_with_the_seal(run: Path) -> None:
    path = run / "trail.sqlite"
    data = bytearray(path.read_bytes())
    data[75] ^= 1  # unused bytes of SQLite's header
    path.write_bytes(data)
    (run / "trail.sqlite-wal").touch()
    assert audit_of(run).damage == ["seal: bytes of the trail file were changed outside of its entries"]


def test_what_was_written_after_the_seal_of_a_closed_session_is_damage(run: Path) -> None:
    (run / "trail.sqlite-wal").write_bytes(b"planted")
    assert audit_of(run).damage == ["seal: trail.sqlite-wal holds data written after the closed session was sealed"]


# ---- covered or listed -------------------------------------------------------------------------------------------


def test_a_file_that_no_entry_names_is_listed(run: Path) -> None:
    names = ("jobs/small.base.1/shards/answers.jsonl", "jobs/small.base.1/heartbeat.json", "state.sqlite", "claim/x")
    for name in names:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_bytes(b"x")
    audit = audit_of(run)
    assert audit.exit_code == 0 and set(names) <= audit.not_covered.keys()
    covered = {"trail.sqlite", "trail.seal", "spec.yaml", "jobs/small.base.1/out/rows.jsonl", "report/report.md"}
    assert not covered & audit.not_covered.keys()
    assert not any(text.startswith("jobs/small.train.1/out/checkpoint") for text in audit.not_covered)


def test_evidence_that_no_entry_names_is_listed_and_still_compared(run: Path) -> None:
    extra = run / "store" / "2d" / "711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    extra.parent.mkdir(exist_ok=True)
    extra.write_bytes(b"x")
    assert audit_of(run).not_covered[extra.relative_to(run).as_posix()] == UNNAMED
    extra.write_bytes(b"y")
    assert "do not match its name" in audit_of(run).damage[0]


def test_a_body_of_any_shape_names_what_has_the_form_of_a_digest(closed: Path) -> None:
    entry = read_entries(closed / "trail.sqlite")[0].entry
    good = "sha256:" + "0" * 64
    for kind, body, row in (
        ("open", {"data": {"a": good, "b": good + "\n", "c": 5}, "spec": [good], "source": good}, ["source", "data.a"]),
        ("open", {"data": [good]}, ["data.0"]),
        (
            "exit",
            {"outputs": {"a": {"digest": good, "stored": True}, "b": {"digest": good, "stored": 1}, "c": good}},
            ["outputs.a.digest"],
        ),
        ("exit", {"outputs": good}, []),
        ("report", {"files": {"a": good}}, ["files.a"]),
        ("newer", {"spec": good}, []),
    ):
        recorded = RecordedEntry(entry.model_copy(update={"kind": kind, "body": body}), "")
        assert [file.name for file in named_in_store(recorded, with_report=True)] == row


# ---- what is not a file ---------------------------------------------------------------------------------------------


def make_socket(path: Path) -> None:
    short = Path(f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY)}")
    with socket.socket(socket.AF_UNIX) as result:
        result.bind(str(short / path.name))
    os.close(int(short.name))


OTHERS: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a link": lambda path: path.symlink_to("/etc/hostname"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a FIFO": os.mkfifo,
    "a socket": make_socket,
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "what",
    [pytest.param(other, marks=[pytest.mark.slow] if other in ("a link", "a socket") else []) for other in OTHERS],
)
def test_what_is_no_file_is_reported_wherever_it_lies_and_never_opened(run: Path, what: str) -> None:
    evidence = stored(run, "verdict", "verdict")
    named = [
        *(evidence, run / "spec.yaml", run / "jobs/small.base.1/order.json", run / "report/report.md"),
        *(run / "trail.seal", run / "jobs/small.train.1/out/checkpoint/model.safetensors"),
    ]
    for path in named:
        data = path.read_bytes()
        path.unlink()
        OTHERS[what](path)
        assert audit_of(run).exit_code == 1, path
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        path.write_bytes(data)
    for name in ("store/x", f"store/{evidence.parent.name}/x", "trail.sqlite-wal"):
        OTHERS[what](run / name)
        if what == "a folder":
            (run / name / "x").write_bytes(b"x")
        audit = audit_of(run)
        assert audit.exit_code == 1 or name.startswith("trail") and audit.not_covered, (name, audit.damage)
        shutil.rmtree(run / name) if what == "a folder" else (run / name).unlink()
    OTHERS[what](run / "more")
    assert audit_of(run).exit_code == 0
    assert what == "a folder" or "more" in audit_of(run).not_covered


def test_a_store_that_is_no_folder_is_damage(run: Path) -> None:
    shutil.rmtree(run / "store")
    assert "is missing from the store" in audit_of(run).damage[0]
    (run / "store").write_bytes(b"x")
    assert audit_of(run).damage[0] == "store: is a file, not the folder of the store"


def test_a_folder_that_cannot_be_listed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    scandir = os.scandir

    def refused(path: Path) -> object:
        if str(path).endswith("/a"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refused)
        tree = tree_of(tmp_path)
    assert tree.others == {"a": "a folder that cannot be listed (Permission denied)"}
    assert tree_of(tmp_path).others == {}


# ---- exports of what does not hold -------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["gone", "changed", "a report gone", "a report changed", "a FIFO in the store"])
def test_a_run_whose_evidence_does_not_hold_is_not_exported(run: Path, tmp_path: Path, what: str) -> None:
    path = run / "report" / "report.json" if "report" in what else stored(run, "call", "arguments")
    if "gone" in what:
        path.unlink()
    elif "changed" in what:
        path.write_bytes(b"changed")
    else:
        os.mkfifo(run / "store" / "x")
    with pytest.raises(
        AuditDamage, match=r"missing from the store|do not match its name|recorded|cannot be read|not evidence"
    ):
        exported(run, tmp_path / "out")
    assert sorted(file_path.name for file_path in tmp_path.iterdir()) == ["small"]


def test_a_run_that_holds_is_exported_with_all_it_names(run: Path, tmp_path: Path) -> None:
    """The control of the test above."""
    exported(run, tmp_path / "out")
    audit = verify_export(tmp_path / "out")
    assert (audit.exit_code, audit.integrity, audit.not_covered) == (0, "holds", {})
    named = json.loads((run / "report" / "report.json").read_bytes())
    assert named and (tmp_path / "out" / "report.html").is_file()


# ---- the attacks of bench/attack/files.py ------------------------------------------------------------------------


def test_changed_and_planted_files_are_found_or_listed(run: Path) -> None:
    outcome = Outcome()
    attack_folder(outcome, run, verified_run, random.Random(1), flips=0, more=15)
    assert outcome.detected >= 10 and not outcome.missed


def test_an_audit_that_looks_at_the_trail_only_misses_them(run: Path) -> None:
    """The control: with the comparison of files off, the family reports misses."""

    def blind(place: Path) -> Audit:
        audit = verified_run(place)
        audit.damage = [text for text in audit.damage if text.startswith(("trail", "seal"))]
        return audit

    outcome = Outcome()
    attack_folder(outcome, run, blind, random.Random(1), flips=0, more=15)
    assert outcome.missed
