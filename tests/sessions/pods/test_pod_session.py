"""A whole session on a pod over a real OpenSSH server: cut, killed, gone on with, pulled, tampered with, ended."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from reviews.audit.verify import verify_run
from reviews.trail.chain.keys import KeyFolder
from reviews.trail.tables.open_table import read_entries
from sessions.pods.connection import Channel
from sessions.pods.lifecycle import down
from sessions.pods.pod_record import PodPlace, place_of
from sessions.pods.pull import PullResult, pull, verify
from specs.system.digests import digest_bytes
from specs.system.errors import AuditDamage
from testing.factories.forgery import chained, entries_of, keys_of, put, rows_of, with_body
from testing.fixtures.command_sessions import CANARY, environment, wait_for
from testing.fixtures.mcp_client import REAL, ToolReply, over_stdio
from testing.fixtures.sshd_pod import MISSING, Pod, pod
from testing.fixtures.sshd_quick import peergate, plant_environment, write_pod_file, write_quick_spec
from tests.reviews.trail.test_attacks import (
    Attack,
    cut_and_close_again,
    flip_a_byte,
    fork,
    write_all_anew,
    write_all_anew_with_other_keys,
)

pytestmark = [pytest.mark.integration, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]
WAITS = {"session": "small", "wait_seconds": 60}
KEYS = {"OPENAI_API_KEY": CANARY, "ANTHROPIC_API_KEY": CANARY, "HF_TOKEN": CANARY}


class Finished(NamedTuple):
    """A session that ran on a pod to its end and was pulled."""

    machine: Pod
    pods: Path
    answers: dict[str, ToolReply]
    """What a managing program was answered that started it."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("finished")
    with pod(folder / "pod") as machine:
        python = plant_environment(machine)
        file = write_pod_file(folder, machine, python, f"shutdown: touch {Path(machine.root).parent}/shut")
        own = ("--pods", folder / "pods")
        answers: dict[str, ToolReply] = {}
        done = peergate("pod", "up", write_quick_spec(folder / "spec"), "--pod", file, *own)
        assert done.returncode == 0, done.stderr
        with over_stdio(folder / "spec", folder / "runs", REAL, options=("--manage", *map(str, own))) as driver:
            answers["prepared"] = driver.call("list_pods")
            answers["answered"] = driver.call("start_pod", session="small", answer="approve")
            answers["unknown"] = driver.call("start_pod", session="other")
            answers["not begun"] = driver.call("pod_status", session="small")
            answers["started"] = driver.call("start_pod", session="small")
            answers["again"] = driver.call("start_pod", session="small")
            until = time.monotonic() + 400
            while "the orchestrator there: running" in (status := driver.call("pod_status", **WAITS)).text:
                assert time.monotonic() < until, status
            answers["ended"], answers["pulled"] = status, driver.call("list_pods")
        done = peergate("pod", "attach", "small", *own)
        assert done.returncode == 0, done.stderr
        yield Finished(machine, folder / "pods", answers)


def copied(finished: Finished, name: str, *, pulled: bool = True) -> tuple[PodPlace, Path]:
    """Copy the pod's root and what is kept here; returns the place and the run folder on the pod as it is seen here."""
    target = finished.machine.durable / name
    shutil.copytree(finished.machine.seen, target, symlinks=True)
    pods = finished.pods.parent / name
    shutil.copytree(finished.pods / "small", pods / "small")
    place = place_of(pods, "small")
    if not pulled:
        for path in (place.folder / "runs", place.heads):
            shutil.rmtree(path)
        for path in ("policy.json", "pulled.json"):
            (place.folder / path).unlink()
    report = json.loads(place.record_path.read_bytes())
    report["root"] = str(Path(finished.machine.root).parent / name)
    place.record_path.write_text(json.dumps(report), encoding="utf-8")
    return place, target / "runs" / "small"


def pulled(place: PodPlace) -> PullResult:
    record = place.read()
    connection = place.connection(record.pod)
    with Channel(connection, record.python, record.root, "small") as channel:
        return pull(channel, place)


@pytest.mark.slow
def test_a_session_survives_a_cut_connection_and_a_killed_orchestrator(tmp_path: Path) -> None:
    with pod(tmp_path / "pod") as machine:
        python = plant_environment(machine)
        shut = f"{Path(machine.root).parent}/shut"
        file = write_pod_file(tmp_path, machine, python, f"shutdown: touch {shut}")
        own = ("--pods", tmp_path / "pods")
        hold = machine.seen / "runs" / "hold"
        done = peergate("pod", "up", write_quick_spec(tmp_path / "spec"), "--pod", file, *own, **KEYS)
        assert done.returncode == 0, done.stderr
        hold.parent.mkdir(parents=True)
        hold.touch()
        done = peergate("pod", "start", "small", *own, **KEYS)
        assert done.returncode == 0 and "small started on pod" in done.stderr, done.stderr
        folder = tmp_path / "attach.log"
        with folder.open("wb") as log:
            words = [sys.executable, "-u", "-m", "sessions.commands.cli", "pod", "attach", "small", *map(str, own)]
            attached = subprocess.Popen(words, stdout=log, stderr=log, env=environment(), stdin=subprocess.DEVNULL)
        try:
            wait_for(lambda: "launch_stage" in folder.read_text() and "the head is kept" in folder.read_text(), 300)
            (orchestrator,) = machine.processes("testing.fixtures.sshd_quick", "start")
            mark = machine.seen / "pods" / "small" / "attached"
            assert machine.cut() >= 1
            wait_for(lambda: "trying again in 1 s" in folder.read_text(), 120)
            assert orchestrator.is_running() and attached.poll() is None
            before = mark.stat().st_mtime_ns
            wait_for(lambda: mark.stat().st_mtime_ns > before, 120)
            orchestrator.kill()
            assert attached.wait(300) == 4
        finally:
            attached.kill()
            attached.wait()
        assert "was killed by signal 9; nothing is lost" in folder.read_text()
        assert "`peergate pod start small" in folder.read_text()
        hold.unlink()
        done = peergate("pod", "start", "small", *own, **KEYS)
        assert done.returncode == 0 and "small continues on pod" in done.stderr, done.stderr
        done = peergate("pod", "attach", "small", *own, **KEYS)
        assert done.returncode == 0 and "small: closed, approve" in done.stdout, done.stderr
        place = place_of(tmp_path / "pods", "small")
        kinds = [entry.kind for entry in read_entries(place.run / "trail.sqlite")]
        assert kinds.count("resume") == 1 and kinds.count("launch") == kinds.count("exit") == 5
        assert len(place.anchors()) >= 3
        assert verify(place).exit_code == 0
        there = verify_run(machine.seen / "runs" / "small", "trail.sqlite", "store", anchors=place.anchors())
        assert there.exit_code == 0 and there.anchored == there.entries == len(kinds)
        done = peergate("pod", "down", "small", *own, **KEYS)
        assert done.returncode == 0 and (machine.durable / "shut").exists(), done.stderr
        wait_for(lambda: not machine.processes("sessions.pods.remote.pod_entry"), 300)
        assert not machine.processes("sshd_quick")
        everywhere = [path for path in tmp_path.rglob("*") if path.is_file() and "root" not in path.parts]
        everywhere = [path for path in everywhere if path.is_relative_to(tmp_path / "pods") or "durable" in path.parts]
        assert len(everywhere) > 100
        assert not [path for path in [*everywhere, folder] if CANARY.encode() in path.read_bytes()]
        # Signing keys were made there and stay there.
        assert (machine.seen / "runs" / ".peergate" / "keys" / "log.pem").exists()
        assert not list((tmp_path / "pods").rglob("*.pem"))


@pytest.mark.slow
def test_a_model_builds_on_a_pod_and_asks_its_reviewer_there(tmp_path: Path) -> None:
    """Both models are in the pod's network, which has no way out; only their keys come from here."""
    with pod(tmp_path / "pod") as machine, machine.beside("-m", "testing.fixtures.pod_models") as models:
        assert models.stdout is not None and models.stdin is not None
        builder, reviewer = models.stdout.readline().split()
        free = "usd_per_million_tokens: {input: 0, output: 0}"
        parties = (
            ("builder: {vendor: playbook}", f"builder: {{vendor: openai, model: one, base_url: '{builder}', {free}}}"),
            (
                "reviewer: {vendor: checklist}",
                f"reviewer: {{vendor: anthropic, model: two, base_url: '{reviewer}', {free}}}",
            ),
        )
        file = write_pod_file(tmp_path, machine, plant_environment(machine))
        own = ("--pods", tmp_path / "pods")
        keys = {"PEERGATE_BUILDER_KEY": CANARY, "PEERGATE_REVIEWER_KEY": f"{CANARY}-too"}
        spec = write_quick_spec(tmp_path / "spec", *parties)
        for words in (("up", spec, "--pod", file), ("start", "small"), ("attach", "small")):
            done = peergate("pod", *words, *own, **keys)
            assert done.returncode == 0, done.stderr
        models.stdin.close()
        assert json.loads(models.stdout.read()) == []
    place = place_of(tmp_path / "pods", "small")
    every = [entry.entry for entry in read_entries(place.run / "trail.sqlite")]
    (requests,) = (entry.body for entry in every if entry.kind == "question")
    (report,) = (entry.body for entry in every if entry.kind == "answer")
    assert (requests["by"], requests["reviewer"], report["by"], report["error"]) == (
        "openai:one",
        "anthropic:two",
        "model",
        "",
    )
    judged = [entry.body for entry in every if entry.kind == "verdict"]
    assert len(judged) == 6 and {row["reviewer"] for row in judged} == {"anthropic:two"}
    turns = [entry.body for entry in every if entry.kind == "turn"]
    assert len(turns) >= 11 and every[-1].kind == "close" and verify(place).exit_code == 0
    assert not [path for path in place.folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


def test_a_program_starts_and_watches_the_session_of_a_prepared_pod(finished: Finished) -> None:
    answers = finished.answers
    assert [name for name, answer in answers.items() if answer.is_error] == ["answered", "unknown", "again"]
    (prepared,), (pulled,) = (json.loads(answers[name].text)["pods"] for name in ("prepared", "pulled"))
    assert (prepared["name"], prepared["host"], prepared["last_pulled"]) == ("small", "pod", None)
    assert pulled["last_pulled"]["state"] == "closed" and pulled["last_pulled"]["decision"] == "approve"
    assert "malformed arguments: answer" in answers["answered"].text
    assert "unknown pod 'other'" in answers["unknown"].text
    assert answers["not begun"].text == "the orchestrator there: never; nothing was started there yet"
    assert "small started on pod" in answers["started"].text
    assert "the pod did not start it" in answers["again"].text
    assert answers["ended"].text.startswith("the orchestrator there: ended, exit code 0\n{")
    # What the program reads holds no held-out text; the copy that was pulled for it is the session.
    assert json.loads(answers["ended"].text.partition("\n")[2])["name"] == "small"


def test_a_pull_is_the_whole_session_and_the_next_one_brings_nothing(finished: Finished) -> None:
    place, _ = copied(finished, "again")
    audit = verify(place)
    assert audit.exit_code == 0 and audit.closed and not audit.damage, audit.damage
    witnesses = [entry.raw for entry in read_entries(place.run / "trail.sqlite") if entry.kind == "witness"]
    assert len(witnesses) == 5 and all(witness["rows"] and not witness["why"] for witness in witnesses)
    assert "answers of 'base' recomputed" in (place.run / "report" / "report.md").read_text(encoding="utf-8")
    paths = [path.relative_to(place.run) for path in sorted(place.run.rglob("*"))]
    result = pulled(place)
    # A head for each pull that brought entries; a session that ends before the second pull leaves one.
    assert result.closed and result.files == 0 and place.anchors()
    assert [path.relative_to(place.run) for path in sorted(place.run.rglob("*"))] == paths
    place, run = copied(finished, "first", pulled=False)
    result = pulled(place)
    assert result.files > 50 and verify(place).exit_code == 0
    for name in ("report/report.md", "jobs/small.train.1/out/checkpoint/model.safetensors", "trail.seal"):
        assert (place.run / name).read_bytes() == (run / name).read_bytes()
    assert not list(place.incoming.iterdir())


def test_a_transfer_that_was_broken_off_goes_on_and_one_that_went_wrong_begins_again(finished: Finished) -> None:
    for name, begin in (("half", lambda data: data[:100]), ("wrong", lambda data: b"x" * 100)):  # type: ignore[misc]
        place, run = copied(finished, name, pulled=False)
        relative = "jobs/small.base.1/out/rows.jsonl"
        data = (run / relative).read_bytes()
        part = place.incoming / digest_bytes(relative.encode()).removeprefix("sha256:")
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(begin(data))
        before = pulled(place).size
        assert (place.run / relative).read_bytes() == data
        whole = sum(path.stat().st_size for path in place.run.rglob("*") if path.is_file())
        assert before < whole


@pytest.mark.parametrize(
    ("attack", "output"),
    [
        (flip_a_byte, "damaged"),
        (cut_and_close_again, "entries were cut off"),
        pytest.param(write_all_anew, "this is another history", marks=pytest.mark.nightly),
        (fork, "this is another history"),
        pytest.param(write_all_anew_with_other_keys, "damaged", marks=pytest.mark.nightly),
    ],
)
def test_a_trail_that_was_changed_between_two_pulls_is_found(finished: Finished, attack: Attack, output: str) -> None:
    place, run = copied(finished, attack.__name__)
    path = run / "trail.sqlite"
    keys = keys_of(path)
    other = attack is write_all_anew_with_other_keys
    put(
        path,
        attack(rows_of(path), keys, random.Random(3)),
        KeyFolder(keys.folder.parent / "strangers") if other else keys,
    )
    before = (place.run / "trail.sqlite").read_bytes()
    heads = len(place.anchors())
    with pytest.raises(AuditDamage, match=output) as caught:
        pulled(place)
    assert "damaged" in str(caught.value) and list(place.refused.iterdir())
    assert (place.run / "trail.sqlite").read_bytes() == before and len(place.anchors()) == heads
    # Nothing is ended as long as what is there does not hold.
    record = place.read()
    with pytest.raises(AuditDamage):
        down(place.connection(record.pod), place, record, print, pause=False)
    assert not (finished.machine.durable / "shut").exists()


def test_damage_ends_attach_with_5(finished: Finished) -> None:
    place, run = copied(finished, "attach5")
    path = run / "trail.sqlite"
    put(path, rows_of(path)[:40], keys_of(path))
    done = peergate("pod", "attach", "small", "--pods", place.folder.parent)
    assert done.returncode == 5 and "entries were cut off" in done.stderr and "Traceback" not in done.stderr


def named(file: str, run: Path) -> None:
    """Have the pod, with its own keys, sign a report of such files."""
    path = run / "trail.sqlite"
    rows, keys = rows_of(path), keys_of(path)
    digests = {file: digest_bytes(b"evil")}
    put(
        path,
        chained(
            [with_body(entry, files=digests) if entry.kind == "report" else entry for entry in entries_of(rows)], keys
        ),
        keys,
    )


def changed(relative: str, data: bytes | None, run: Path) -> None:
    """Have other bytes in a file of the pod, or none."""
    path = next(run.glob(relative))
    path.unlink()
    if data is not None:
        path.write_bytes(data)


def linked(run: Path) -> None:
    (run / "report" / "report.md").unlink()
    (run / "report" / "report.md").symlink_to("/etc/passwd")


def grown(run: Path) -> None:
    (run / "jobs" / "small.train.1" / "out" / "checkpoint" / "extra\x1b]0;owned\x07").write_bytes(b"1")


TAMPERING: dict[str, tuple[Callable[[Path], None], str | None]] = {
    "above": (partial(named, "../../../evil"), "not a path below a run folder"),
    "above-jobs": (partial(named, "jobs/../../evil"), "not a path below a run folder"),
    "absolute": (partial(named, "/etc/cron.d/evil"), None),
    "trail": (partial(named, "trail.sqlite"), "not a place of a run folder"),
    "absent": (partial(named, "jobs/evil"), "the pod does not have it"),
    "rows": (partial(changed, "jobs/small.base.1/out/rows.jsonl", b"other"), "on the pod has the digest"),
    "gone": (partial(changed, "jobs/small.base.1/log.txt", None), "the pod does not have it"),
    "store": (partial(changed, "store/*/*", b"other"), "on the pod has the digest"),
    "link": (linked, "the pod does not have it"),
    "grown": (grown, "on the pod has the digest|not a path below a run folder"),
}


NIGHTLY = ("above-jobs", "absolute", "gone", "link")


@pytest.mark.parametrize(
    "what", [pytest.param(text, marks=[pytest.mark.nightly] if text in NIGHTLY else []) for text in TAMPERING]
)
def test_what_a_pod_names_comes_to_its_place_or_not_at_all(finished: Finished, what: str) -> None:
    tamper, output = TAMPERING[what]
    place, run = copied(finished, f"t-{what}", pulled=False)
    tamper(run)
    above = finished.pods.parent

    def elsewhere() -> set[Path]:
        durable = finished.machine.folder
        return {
            path
            for path in above.rglob("*")
            if not path.is_relative_to(place.folder) and not path.is_relative_to(durable)
        }

    before = elsewhere()
    if output is None:
        pulled(place)
    else:
        with pytest.raises(AuditDamage, match=output):
            pulled(place)
    assert elsewhere() == before and not Path("/etc/cron.d/evil").exists()
    assert not [path for path in place.folder.rglob("*") if path.is_symlink() or "evil" in path.name]


@pytest.mark.nightly
def test_keys_go_into_the_environment_of_the_orchestrator_and_nowhere_else(tmp_path: Path) -> None:
    # The reviewer's endpoint is not there: the session asks for as long as it may, which is long enough to look.
    pair = (
        "reviewer: {vendor: checklist}",
        "reviewer: {vendor: openai, model: m, base_url: 'http://127.0.0.1:9/v1',"
        " usd_per_million_tokens: {input: 0.1, output: 0.1}}",
    )
    with pod(tmp_path / "pod") as machine:
        file = write_pod_file(tmp_path, machine, plant_environment(machine))
        own = ("--pods", tmp_path / "pods")
        key = {"PEERGATE_REVIEWER_KEY": CANARY, "OPENAI_API_KEY": f"{CANARY}-unwanted"}
        for words in (("up", write_quick_spec(tmp_path / "spec", pair), "--pod", file), ("start", "small")):
            done = peergate("pod", *words, *own, **key)
            assert done.returncode == 0 and CANARY not in done.stdout + done.stderr, done.stderr
        (orchestrator,) = machine.processes("testing.fixtures.sshd_quick", "start")
        wait_for(lambda: bool(machine.processes("reviews.reviewers.process")), 120)
        own_variables = orchestrator.environ()
        assert own_variables["PEERGATE_REVIEWER_KEY"] == CANARY and "OPENAI_API_KEY" not in own_variables
        assert own_variables["HOME"] == f"{machine.root}/home" and own_variables["HF_HOME"].startswith(machine.root)
        for process in machine.processes():
            holds = process.pid == orchestrator.pid or "reviews.reviewers.process" in " ".join(process.cmdline())
            views = [*process.cmdline(), *([] if holds else process.environ().values())]
            assert not [text for text in views if CANARY in text], process
        files = [path for path in [*machine.durable.rglob("*"), *(tmp_path / "pods").rglob("*")] if path.is_file()]
        assert not [path for path in files if CANARY.encode() in path.read_bytes()]
        orchestrator.kill()
        missing = peergate("pod", "start", "small", *own, OPENAI_API_KEY="")
        assert missing.returncode == 0, "an endpoint of one's own may want no key"
        assert psutil.pid_exists(machine.processes("testing.fixtures.sshd_quick")[0].pid)
