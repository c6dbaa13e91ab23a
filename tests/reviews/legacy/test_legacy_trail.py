"""Whole trails of older reviews: what shows only between files, and what a folder may do to whoever reads it."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from reviews.legacy import reader
from reviews.legacy.dates import stamp_of
from reviews.legacy.folder import read_folder
from reviews.legacy.history import commits_of
from reviews.legacy.reader import read_bytes
from sessions.commands.review import older
from sessions.commands.review.older import Counter, import_folder, print_trail
from specs.trail.verdict import Verdict

HOME = Path(__file__).parents[3]
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

SHORT = """Decision: ITERATE

Concerns:
- HIGH: stop strings are cut to one token (scripts/generate.py:12-14)

Action Items:
1. Re-run 100 items.
"""
LONG = """# Pilot QC review

Date: October 29, 2025

Summary: \u2705 Approved with minor notes

### \U0001f6a8 CRITICAL
None

### \u26a0\ufe0f HIGH
- The heuristic counts periods (`scripts/generate.py:400`)
- ~~The seed is missing~~

### \U0001f4a1 SUGGESTION
- Name the seed.
"""
YELLOW = "Overall: \U0001f7e1 YELLOW LIGHT\n"
REQUEST = """# REVIEW REQUEST: data scale

## Review Questions
1. Is n large enough?
2. May we relax the margin?
3. Who pays?
"""
ANSWER = """model: some-model-1
reasoning effort: high

## Decision
GO

## Conditions
- At least 30 items per type before the full evaluation.

## Answers
1. Yes, the power is 0.99.
2. No.
"""


def trail_of(folder: Path) -> dict[str, Any]:
    return {one["source"]: one for one in read_folder(folder).as_json()["records"]}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def commit(folder: Path, when: str) -> None:
    stamped = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "GIT_CONFIG_GLOBAL": os.devnull}
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    for words in (["add", "-A"], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True, env=os.environ | stamped)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a trail of two layouts, committed on the day of the first review."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path / "project"
    write(
        folder,
        {
            "reviews/autonomous/20251007_182314_pilot_qc_gate.txt": SHORT,
            "reviews/20251008_pilot_qc_codex.md": LONG,
            "reviews/requests/20251009_data_scale_request.md": REQUEST,
            "reviews/responses/20251009_data_scale_codex.md": ANSWER,
            "reviews/responses/20251009_data_scale_gemini.md": YELLOW,
            "scripts/generate.py": "pass\n" * 40,
        },
    )
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    commit(folder, "2025-10-07T20:00:00+00:00")
    return folder


def test_a_short_and_a_long_form_are_one_review_and_contradict_each_other(tmp_path: Path) -> None:
    write(tmp_path, {"autonomous/20251007_182314_pilot_qc_gate.txt": SHORT, "20251008_pilot_qc_codex.md": LONG})
    trail = read_folder(tmp_path)
    assert [(one.kind, one.sources) for one in trail.pairs] == [
        ("duplicate", ("20251008_pilot_qc_codex.md", "autonomous/20251007_182314_pilot_qc_gate.txt"))
    ]
    assert {"topic", "time"} <= set(trail.pairs[0].by)
    assert [(one.verdicts, one.opposite) for one in trail.contradictions] == [
        (("approve_with_conditions", "revise"), True)
    ]


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("20251007_182314_pilot_qc.txt", "20251009_pilot_qc_codex.md", "duplicate"),
        ("20251007_182314_pilot_qc.txt", "20251029_pilot_qc_codex.md", "duplicate"),
        ("20251007_182314_pilot_qc.txt", "20260329_pilot_qc_codex.md", None),
        ("20251007_182314_pilot_qc.txt", "20251007_budget_codex.md", None),
        ("20251007_182314_pilot_qc.txt", "20251009_101010_pilot_qc.txt", None),
        ("responses/20251004_dry_policy_gemini.md", "cycle/20251004_dry_policy_gemini.md", "other version"),
        ("20251004_dry_policy_gemini.md", "20251004_dry_policy_codex.md", "other reviewer"),
        ("20251004_dry_policy_request.md", "20251004_dry_policy_codex.md", None),
    ],
)
def test_names_tell_which_files_belong_together(tmp_path: Path, one: str, other: str, kind: str | None) -> None:
    write(tmp_path, {one: "Decision: GO", other: "Decision: NO-GO"})
    found = read_folder(tmp_path).pairs
    assert [pair.kind for pair in found] == ([kind] if kind else [])


def test_equal_bytes_are_a_copy_whatever_their_names(tmp_path: Path) -> None:
    write(tmp_path, {"a/x.md": "Decision: GO", "b/y.md": "Decision: GO"})
    trail = read_folder(tmp_path)
    assert [one.kind for one in trail.pairs] == ["copy"] and trail.contradictions == ()


def test_two_attempts_keep_their_own_long_form(tmp_path: Path) -> None:
    names = (
        "20251007_100000_pilot_qc.txt",
        "20251012_100000_pilot_qc.txt",
        "20251007_pilot_qc_codex.md",
        "20251012_pilot_qc_codex.md",
    )
    write(tmp_path, {name: f"Decision: GO\n\n{name}\n" for name in names})
    found = {one.sources for one in read_folder(tmp_path).pairs}
    assert found == {(names[0], names[2]), (names[1], names[3])}


@needs_git
def test_a_commit_pairs_what_shares_no_topic(tmp_path: Path) -> None:
    write(tmp_path, {"20251007_182314_next_steps.txt": SHORT})
    write(tmp_path, {"20251007_scaling_codex.md": "Decision: GO"})
    assert read_folder(tmp_path).pairs == ()
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    commit(tmp_path, "2025-10-07T20:00:00+00:00")
    assert [(one.kind, one.by) for one in read_folder(tmp_path).pairs] == [("duplicate", ("commit", "time"))]


def test_a_light_that_is_not_green_stands_against_a_go(checkout: Path) -> None:
    found = read_folder(checkout / "reviews").contradictions
    assert [(one.verdicts, one.opposite) for one in found[1:]] == [(("approve_with_conditions", "undetermined"), False)]


@needs_git
def test_times_come_from_names_and_commits_never_from_the_reviewer(checkout: Path) -> None:
    found = trail_of(checkout / "reviews")
    long = found["20251008_pilot_qc_codex.md"]["time"]
    assert (long["value"], long["from"], long["stated"]) == ("2025-10-08", "name", [{"line": 3, "date": "2025-10-29"}])
    assert long["conflicts"] == ["line 3 dates it 2025-10-29, but its name says 2025-10-08"]
    assert found["autonomous/20251007_182314_pilot_qc_gate.txt"]["time"]["value"] == "2025-10-07T18:23:14"
    assert long["commit"]["time"] == "2025-10-07T20:00:00+00:00"


@needs_git
def test_a_name_that_is_younger_than_its_commit_is_not_believed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "20251102_topic_codex.md": "Decision: GO",
            "20241201_other_codex.md": "Decision: GO",
            "plain.md": "Decision: GO",
        },
    )
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    commit(tmp_path, "2025-10-15T12:00:00+00:00")
    found = trail_of(tmp_path)
    late = found["20251102_topic_codex.md"]["time"]
    assert (late["value"], late["from"]) == ("2025-10-15T12:00:00+00:00", "commit")
    assert "committed before that" in late["conflicts"][0]
    early = found["20241201_other_codex.md"]["time"]
    assert early["from"] == "name" and "committed much later" in early["conflicts"][0]
    assert found["plain.md"]["time"]["from"] == "commit"


@needs_git
def test_git_follows_a_rename(checkout: Path) -> None:
    reviews = checkout / "reviews"
    (reviews / "responses" / "20251009_data_scale_codex.md").rename(reviews / "moved_data_scale_codex.md")
    commit(checkout, "2025-10-20T12:00:00+00:00")
    write(reviews, {"new.md": "Decision: GO"})
    found = trail_of(reviews)
    assert found["moved_data_scale_codex.md"]["time"]["commit"]["time"] == "2025-10-07T20:00:00+00:00"
    assert found["new.md"]["time"]["commit"] is None


@needs_git
def test_a_cut_history_gives_no_times(checkout: Path, tmp_path: Path) -> None:
    commit_again = write(checkout, {"x.txt": "x"})
    commit(commit_again, "2025-10-20T12:00:00+00:00")
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "-q", "--depth", "1", checkout.as_uri(), str(copy)], check=True)
    trail = read_folder(copy / "reviews")
    assert "shallow" in trail.history and all(one.time.commit is None for one in trail.records)


@needs_git
def test_no_program_of_a_foreign_checkout_runs(checkout: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    signs = "echo '[GNUPG:] SIG_CREATED D 1 8 00 0 X' >&2; echo '-----BEGIN PGP SIGNATURE-----'; echo"
    signs += "; echo '-----END PGP SIGNATURE-----'"
    script.write_text(f"#!/bin/sh\ncat > /dev/null\ntouch {marker}\n{signs}\n", encoding="utf-8")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "gpg.program", "diff.external", "core.sshCommand", "filter.x.clean"):
        subprocess.run(["git", "config", key, str(script)], cwd=checkout, check=True)
    subprocess.run(["git", "config", "log.showSignature", "true"], cwd=checkout, check=True)
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *who, "commit", "-q", "-S", "--allow-empty", "-m", "signed"], cwd=checkout, check=True)
    (checkout / ".gitattributes").write_text("*.md filter=x diff=x\n", encoding="utf-8")
    subprocess.run(["git", "log", "-1"], cwd=checkout, check=True, capture_output=True)
    assert marker.exists()
    marker.unlink()
    assert commits_of(checkout / "reviews")[0] and not marker.exists()


def test_a_folder_outside_of_any_checkout_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.md": "Decision: GO"})
    monkeypatch.setenv("PATH", str(tmp_path))
    trail = read_folder(tmp_path)
    assert "git is not there" in trail.history and trail.records[0].verdict == "approve"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("20251007_182314_x.txt", "2025-10-07T18:23:14"),
        ("2025-10-07_x.md", "2025-10-07"),
        ("x_20251007.md", "2025-10-07"),
        ("20251399_x.md", None),
        ("120251007_x.md", None),
        ("x.md", None),
    ],
)
def test_stamps(name: str, told: str | None) -> None:
    found = stamp_of(name)
    assert (str(found) if found else None) == told


def test_an_approval_beside_an_open_critical_finding_is_not_read() -> None:
    text = "Summary: \u2705 Approved\n\n## \U0001f6a8 CRITICAL\n- {}\n"
    assert read_bytes(text.format("The split leaks.").encode(), "a").verdict is None
    assert read_bytes(text.format("None").encode(), "a").verdict == "approve"


@pytest.mark.parametrize(
    ("text", "binding"),
    [
        ("Before scaling you must repair the rows.", True),
        ("Abort if any shard is above 5 %.", True),
        ("The sentinels have to be repeated prior to the DPO stage.", True),
        ("Do not change the seed.", True),
        ("Make sure that the seed is logged.", False),
    ],
)
def test_conditions_make_an_approval_conditional(text: str, binding: bool) -> None:
    found = read_bytes(f"Decision: GO\n\n{text}\n".encode(), "a")
    assert found.verdict == ("approve_with_conditions" if binding else "approve")


def test_hidden_folders_are_passed_over_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        tmp_path,
        {
            ".git/a.txt": "Decision: GO",
            ".old/a.md": "Decision: GO",
            "b/.x/a.md": "Decision: GO",
            "c.md": "Decision: GO",
        },
    )
    (tmp_path / "out").symlink_to(HOME)
    trail = read_folder(tmp_path)
    assert [one.source for one in trail.records] == ["c.md"]
    assert set(trail.passed_over) == {".git/", ".old/", "b/.x/", "out/"}
    import_folder(tmp_path, as_json=False)
    assert "passed over: " in capsys.readouterr().out
    assert [one.source for one in read_folder(tmp_path / ".old").records] == ["a.md"]


def test_files_of_one_name_are_records_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, {"a/one.md": "Decision: GO", "b/one.md": "Decision: NO-GO"})
    assert [(one.source, one.verdict) for one in read_folder(tmp_path).records] == [
        ("a/one.md", "approve"),
        ("b/one.md", "reject"),
    ]


def test_what_cannot_be_read_is_a_record_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "big.md").write_bytes(b"Decision: GO\n" * 100)
    (tmp_path / "link.md").symlink_to(tmp_path / "big.md")
    (tmp_path / "noise.txt").write_bytes(bytes(range(128, 256)) * 4)
    write(tmp_path, {"locked.txt": "Decision: GO", "many.md": "Decision: GO\n" + "x\n" * 5000})
    os.mkfifo(tmp_path / "pipe.log")
    monkeypatch.setattr(reader, "MAX_BYTES", 1000)
    whole = Path.read_bytes

    def refuse(path: Path, *_: int) -> bytes:
        if path.name == "locked.txt":
            raise PermissionError(13, "Permission denied")
        return whole(path)

    monkeypatch.setattr(reader, "read_regular", refuse)
    found = {one.source: one for one in read_folder(tmp_path).records}
    told = {
        "big.md": ("undetermined", "at most 1000"),
        "link.md": ("undetermined", "symbolic link"),
        "noise.txt": ("transport_error", "not text"),
        "pipe.log": ("undetermined", "not a regular"),
        "locked.txt": ("transport_error", "Permission denied"),
    }
    assert all(
        (found[name].status, words in found[name].evidence) == (status, True) for name, (status, words) in told.items()
    )
    assert all(one.verdict is None for one in found.values())
    assert found["big.md"].digest == f"sha256:{hashlib.sha256(whole(tmp_path / 'big.md')).hexdigest()}"
    monkeypatch.setattr(reader, "MAX_BYTES", 1_000_000)
    assert "5002 lines" in read_bytes(whole(tmp_path / "many.md"), "a").why


def test_a_folder_that_cannot_be_listed_is_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.md": "Decision: GO", "shut/b.md": "Decision: GO"})
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert [(one.source, one.status) for one in read_folder(tmp_path).records] == [
        ("a.md", "verdict"),
        ("shut/", "transport_error"),
    ]


def test_progress_is_told_after_two_seconds_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(older.time, "monotonic", lambda: now)
    counter = Counter()
    counter(1, 9)
    now = 101.9
    counter(2, 9)
    assert capsys.readouterr().err == ""
    now = 102.1
    counter(3, 9)
    counter(4, 9)
    said = capsys.readouterr()
    assert (said.err, said.out) == ("read 3 of 9 files\n", "")


def test_a_person_sees_table_counts_and_contradictions(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import_folder(checkout / "reviews", as_json=False)
    said = capsys.readouterr().out.split("\n")
    order = (
        "source ",
        "5 records: ",
        "contradictions: 2",
        "conflicts of time: 1",
        "read-only: ",
    )
    places = [next(at for at, line in enumerate(said) if line.startswith(one)) for one in order]
    assert places == sorted(places)


def test_a_trail_without_reviews_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_trail(read_folder(tmp_path))
    assert "0 records: none" in capsys.readouterr().out


def test_the_command_reads_a_trail_whatever_its_names(tmp_path: Path) -> None:
    write(tmp_path, {"20251007_x.md": "Decision: GO"})
    (tmp_path / os.fsdecode(b"bad\xff\x1b[2J.md")).write_text("Decision: NO-GO", encoding="utf-8")
    words = ["peergate", "review", "import", str(tmp_path), "--json"]
    code = f"import sys; sys.argv = {words!r}; from sessions.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=HOME, check=True)
    told = json.loads(done.stdout)
    assert told["schema_version"] == 1 and [one["verdict"] for one in told["records"]] == ["approve", "reject"]
    assert "\x1b" not in done.stdout.decode()


def test_nothing_that_a_gate_reads_knows_of_older_reviews() -> None:
    readers: set[str] = set()
    for package in ("agents", "reviews", "sessions", "specs", "training"):
        for path in (HOME / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "legacy" in text else ():
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
                if any(name.startswith("reviews.legacy") for name in names) and "legacy" not in path.parts:
                    readers.add(path.relative_to(HOME).as_posix())
    assert readers == {"sessions/commands/review/older.py"}


def test_a_record_is_no_verdict_of_the_gate() -> None:
    record = read_bytes(b"Decision: GO", "a")
    assert record.verdict == "approve" and record.as_json()["opens_a_gate"] is False
    with pytest.raises(ValidationError):
        Verdict.model_validate(record.as_json())
