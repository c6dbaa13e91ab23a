"""The command line without any model: usage errors, reading commands, and the leaky spec that is stopped at once."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from reviews.audit.verify import verify_run
from testing.factories.spec_files import write_spec
from testing.fixtures import command_sessions as sessions
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.command_sessions import entries, verify

HOME = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    # A process, as a person starts it; the tests below ask in this one.
    done = sessions.peergate("start", "demo_leaky", "--runs", runs)
    assert done.returncode == 3, done.stderr
    (runs / "stdout").write_text(done.stdout, encoding="utf-8")
    return runs / "demo_leaky"


def test_the_leaky_spec_is_stopped_before_anything_is_paid_for(leaky: Path) -> None:
    text = (leaky.parent / "stdout").read_text(encoding="utf-8")
    assert "rejected at the gate of 'design', before anything was paid for" in text
    # Each way the rows leaked is shown, with both rows.
    assert all(f"design.overlap: {how} (" in text for how in ("exact", "normalised", "near"))
    assert "held-out heldout-elephants-lowercase" in text
    assert not (leaky / "jobs").exists() and not entries(leaky, "spend", "grant", "launch", "model")
    assert entries(leaky)[-1].raw["decision"] == "reject"
    assert verify(leaky)[0] == 0
    report = json.loads((leaky / "report" / "report.json").read_bytes())
    assert report["outcome"] == "reject" and report["spent_usd"] == 0
    assert report["not_reached"] == ["baseline", "pilot", "generate", "sft", "evaluate", "package"]


def test_a_rejected_session_keeps_its_exit_code(leaky: Path) -> None:
    assert peergate("resume", "demo_leaky", "--runs", leaky.parent).returncode == 3


def test_an_answer_to_a_closed_session_is_refused(leaky: Path) -> None:
    answer = ("--answer", "approve", "--reason", "I like it")
    done = peergate("resume", "demo_leaky", "--runs", leaky.parent, *answer)
    assert done.returncode == 2 and "not waiting for an answer" in done.stderr
    assert not entries(leaky, "human")


def test_an_entry_is_shown_with_what_it_points_to(leaky: Path) -> None:
    data = json.loads(peergate("audit", "show", leaky, "decision/design.1", "--json").stdout)
    assert data["points_to"]["decision"]["outcome"] == "reject"
    digest = data["body"]["decision"]
    output = peergate("audit", "show", leaky, digest).stdout
    assert all(line.startswith("| ") for line in output.splitlines()), "nobody's words begin a line"
    assert json.loads("".join(line.removeprefix("| ") for line in output.splitlines()))["outcome"] == "reject"


@pytest.mark.parametrize("arguments", [("accuracy_gain",), ("metric", "accuracy_gain")])
def test_a_number_that_is_asked_for_as_an_entry_names_the_right_command(
    leaky: Path, arguments: tuple[str, ...]
) -> None:
    done = peergate("audit", "show", leaky, *arguments)
    assert done.returncode == 2 and f"`peergate audit show {leaky} claim accuracy_gain`" in done.stderr


def test_a_wrong_spec_is_reported_with_its_place_and_starts_nothing(tmp_path: Path) -> None:
    path = write_spec(
        tmp_path, ("    gate:\n      stakes: low\n      criteria:", "    gate:\n      stakes: low\n      critera:")
    )
    done = peergate("start", path, "--runs", tmp_path / "runs")
    assert done.returncode == 2
    assert "unknown key 'critera'" in done.stderr and "did you mean 'criteria'?" in done.stderr
    assert f"{path}:" in done.stderr and not (tmp_path / "runs").exists()
    checked = json.loads(peergate("spec", "check", path, "--json").stdout)
    assert checked["ok"] is False and checked["problems"][0]["line"] > 0


def test_a_builder_without_a_known_price_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    text = path.read_text(encoding="utf-8")
    output = next(line for line in text.splitlines() if line.startswith("builder:"))
    path.write_text(text.replace(output, "builder: {vendor: anthropic, model: some-model}"), encoding="utf-8")
    done = peergate("start", path, "--runs", tmp_path / "runs")
    assert done.returncode == 2 and "no price is known" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (
            ("start", "no_such_spec"),
            2,
            "specs: cai_demo, cai_leave_one_out, cai_preferences, composer_demo, demo, demo_leaky, demo_models, demo_",
        ),
        (("resume", "nobody"), 2, "no session"),
        (("status", "nobody"), 2, "no session"),
        (("report", "nobody"), 2, "no session"),
        (("cancel", "nobody"), 2, "no session"),
        (("start", "demo", "--name", "../out"), 2, "invalid session name"),
        (("frobnicate",), 2, "No such command"),
        (("audit", "show", "nowhere", "0"), 2, "no trail"),
    ],
)
def test_a_wrong_request_has_one_clear_message_and_its_code(
    tmp_path: Path, arguments: tuple[str, ...], code: int, output: str
) -> None:
    runs = (
        ("--runs", str(tmp_path / "runs")) if arguments[0] in ("start", "resume", "status", "report", "cancel") else ()
    )
    done = peergate(*arguments, *runs, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert output in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_has_no_sessions(tmp_path: Path) -> None:
    done = peergate("list", "--runs", tmp_path, "--json")
    assert json.loads(done.stdout) == {"schema_version": 1, "sessions": []}


def test_a_damaged_trail_is_a_state_and_its_session_does_not_resume(leaky: Path, tmp_path: Path) -> None:
    run = tmp_path / "broken"
    shutil.copytree(leaky, run)
    data = (run / "trail.sqlite").read_bytes()
    (run / "trail.sqlite").write_bytes(data.replace(b'"outcome":"reject"', b'"outcome":"rejecT"', 1))
    listed = json.loads(peergate("list", "--runs", tmp_path, "--json").stdout)
    assert listed["sessions"][0]["state"] in ("closed", "damaged")
    done = peergate("resume", "broken", "--runs", tmp_path)
    assert done.returncode == 5 and "audit verify" in done.stderr


def test_the_graph_is_printed_as_mermaid() -> None:
    done = peergate("graph")
    assert done.returncode == 0 and "graph TD" in done.stdout and "design_gate" in done.stdout


def test_help_names_every_exit_code() -> None:
    message = " ".join(peergate("--help").stdout.split())
    assert all(
        word in message for word in ("0 done", "2 usage or spec", "3 rejected", "4 blocked", "6 budget", "130 paused")
    )


def test_any_flipped_bit_of_trail_store_report_or_spec_is_found(leaky: Path, tmp_path: Path) -> None:
    generator = random.Random(1)
    assert verify_run(leaky, "trail.sqlite", "store").exit_code == 0
    for number in range(40):
        run = tmp_path / str(number)
        shutil.copytree(leaky, run)
        # Nothing is decided from LangGraph's own checkpoints, and the lock file is empty.
        places = [
            path for path in sorted(run.rglob("*")) if path.is_file() and not path.name.startswith(("state.", "lease"))
        ]
        path = run / "trail.sqlite" if number % 2 else generator.choice(places)
        data = bytearray(path.read_bytes())
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        path.write_bytes(data)
        assert verify_run(run, "trail.sqlite", "store").exit_code == 1, path.relative_to(run)
