"""`peergate traces`: what is written, what is shown, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testing.factories.transcripts import long_session
from testing.fixtures.command_sessions import called


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A folder of traces of one session."""
    long_session().write(tmp_path / "project" / "s.jsonl")
    out = tmp_path / "traces"
    done = called("traces", "ingest", tmp_path / "project", "--out", out)
    assert done.returncode == 0, done
    return out


def test_ingest_says_what_became_of_every_record(tmp_path: Path) -> None:
    made = long_session()
    made.write(tmp_path / "s.jsonl")
    done = called("traces", "ingest", tmp_path / "s.jsonl", "--out", tmp_path / "traces")
    lines = [line.rsplit(maxsplit=1) for line in done.stdout.splitlines() if line[:1] in "uas" and line[-1:].isdigit()]
    counts = {name.strip(): int(count) for name, count in lines if name.strip() != "records"}
    assert counts.pop("all") == len(made.records) == sum(counts.values())
    account = json.loads((tmp_path / "traces" / "account.json").read_bytes())
    assert account["files"][0]["skipped"]["file-history-snapshot"] == [[1, 1]]
    assert f"next: peergate traces show {tmp_path / 'traces'}" in done.stdout


def test_a_folder_that_is_there_stays_as_it_is(traces: Path) -> None:
    before = (traces / "turns.jsonl").read_bytes()
    done = called("traces", "ingest", traces.parent / "project", "--out", traces)
    assert done.returncode == 2 and "already exists; nothing was written" in done.stderr
    assert (traces / "turns.jsonl").read_bytes() == before


def test_nothing_is_written_where_no_answer_was_found(tmp_path: Path) -> None:
    (tmp_path / "passwd.jsonl").write_text("root:x:0:0\n")
    done = called("traces", "ingest", tmp_path / "passwd.jsonl", "--out", tmp_path / "traces")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 2 and not (tmp_path / "traces").exists()


def test_a_state_is_shown_with_what_was_before_it(traces: Path) -> None:
    listed = called("traces", "show", traces)
    assert len(listed.stdout.splitlines()) == 2 + 5
    number = next(line.split()[0] for line in listed.stdout.splitlines() if "Edit, Bash, Bash" in line)
    process = called("traces", "show", traces, number)
    assert "No, the other one." in process.stdout and "Now change one." not in process.stdout
    whole = json.loads(called("traces", "show", traces, number, "--json").stdout)
    assert process.stdout.count(whole["state"]["id"][:8]) >= 1 and len(whole["history"]) >= 3
    assert called("traces", "show", traces, "no-such-state").returncode == 2


def test_stats_count_models_and_tools(traces: Path) -> None:
    report = json.loads(called("traces", "stats", traces, "--json").stdout)
    assert report["models"] == {"claude-test": 5} and report["tools"] == {"Read": 2, "Edit": 2, "Bash": 3}


@pytest.mark.parametrize("harm", ["edited", "line lost", "no account"])
def test_traces_that_were_changed_are_refused(traces: Path, harm: str) -> None:
    turns = traces / "turns.jsonl"
    if harm == "edited":
        turns.write_bytes(turns.read_bytes().replace(b"Changed.", b"Chanced."))
    elif harm == "line lost":
        turns.write_bytes(b"".join(turns.read_bytes().splitlines(keepends=True)[1:]))
    else:
        (traces / "account.json").unlink()
    done = called("traces", "stats", traces)
    assert done.returncode == 2 and str(traces) in done.stderr and "peergate traces ingest" in done.stderr


def test_escapes_of_a_terminal_are_not_printed(tmp_path: Path) -> None:
    made = long_session()
    made.says("\x1b[2J\x1b]0;title\x07 go \u202e on")
    made.answers("\x1b[31mred")
    made.write(tmp_path / "s.jsonl")
    called("traces", "ingest", tmp_path / "s.jsonl", "--out", tmp_path / "traces")
    process = called("traces", "show", tmp_path / "traces", "6")
    assert "red" in process.stdout and "\x1b" not in process.stdout and "\u202e" not in process.stdout
