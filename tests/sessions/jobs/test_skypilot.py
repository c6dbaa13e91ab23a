"""SkyPilot's engine: its tasks and states, compared with the real library where its environment is named."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sessions.jobs.engine_launcher import EngineLauncher, EngineStatus, EngineUnavailable, key_of
from sessions.jobs.job_state import read_order
from sessions.jobs.skypilot import skypilot_engine
from sessions.jobs.skypilot.sky_interpreter import CALLS, find_launch
from sessions.jobs.skypilot.skypilot_engine import CLUSTERS, JOBS, SkyEngine, machine_name, read_template
from sessions.runtime import wiring
from specs.system.errors import BlockedError, UserError
from specs.system.resources import Resources
from testing.factories.sessions_on_disk import first_order
from testing.factories.spec_files import loads, write_spec
from testing.fixtures.houses import IMPATIENT, House, settled

RESOURCES = Resources(gpus=1, gpu="H200", cpus=8, memory_gb=64, spot=True, max_usd_per_hour=3.5, max_hours=2)
ARGV = [
    "/venv/bin/python",
    "-P",
    "-m",
    "sessions.jobs.transfer.remote_entry",
    "--place",
    "s3://b/p x",
    "small.base.1.abc",
]
TEMPLATE = {
    "setup": "pip install peergate\n", "envs": {"AWS_PROFILE": "jobs"},
    "resources": {"infra": "runpod", "image_id": "docker:me/peergate", "disk_size": 100},
}  # fmt: skip

needs_sky = pytest.mark.skipif(
    "PEERGATE_SKY_PYTHON" not in os.environ,
    reason="SkyPilot's environment is not named: `make -f more.mk test-sky` does it",
)


def answering(folder: Path, answer: str) -> SkyEngine:
    """Return an engine whose interpreter answers so, and keeps what it was asked."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\ncat >> {folder}/asked\necho >> {folder}/asked\n{answer}\n", encoding="utf-8")
    path.chmod(0o755)
    return SkyEngine(str(path), TEMPLATE)


def test_a_task_has_the_users_part_and_the_jobs() -> None:
    task = SkyEngine("none", TEMPLATE).task("small.base.1.abc", ARGV, RESOURCES)
    assert task == {
        "name": machine_name("small.base.1.abc"),
        "setup": "pip install peergate\n",
        "num_nodes": 1,
        "resources": {
            "infra": "runpod", "image_id": "docker:me/peergate", "disk_size": 100, "accelerators": "H200:1",
            "cpus": "8+", "memory": "64+", "use_spot": True, "max_hourly_cost": 3.5,
            "autostop": {"idle_minutes": 5, "down": True},
        },
        "envs": {"AWS_PROFILE": "jobs"},
        "run": "timeout --kill-after=60 7200 /venv/bin/python -P -m sessions.jobs.transfer.remote_entry "
        "--place 's3://b/p x' "
        "small.base.1.abc",
    }  # fmt: skip


def test_a_machine_without_a_price_cap_is_not_rented() -> None:
    with pytest.raises(BlockedError, match="needs a price cap"):
        SkyEngine("none", {}).task("k", ARGV, Resources(cpus=1))


def test_the_name_of_a_machine_follows_from_the_key() -> None:
    assert machine_name("a.b.1") == machine_name("a.b.1") != machine_name("a.b.2")
    assert len(machine_name("x" * 200)) == 23


@pytest.mark.parametrize(
    ("cluster", "job", "state"),
    [("UP", name, state) for name, state in JOBS.items()]
    + [(name, None, state) for name, state in CLUSTERS.items()]
    + [(None, None, "unknown"), ("UP", None, "pending")],
)
def test_every_state_maps_to_a_job_state(tmp_path: Path, cluster: str | None, job: str | None, state: Any) -> None:
    engine = answering(tmp_path, f"echo '{json.dumps({'cluster': cluster, 'job': job})}'")
    assert engine.poll("pg-1") == EngineStatus(state)


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ('echo \'{"cluster": "UP", "job": "NEW"}\'', "SkyPilot reports an unknown state 'UP, NEW' of a job"),
        ('echo \'{"error": "NotSupportedError: no cloud"}\'', "SkyPilot: NotSupportedError: no cloud"),
        ("echo words", "did not answer: JSONDecodeError"),
        ("exit 1", "did not answer: IndexError"),
        ("sleep 5", "did not answer in 0 s"),
    ],
)
def test_what_is_no_state_is_none(tmp_path: Path, answer: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skypilot_engine, "ASK_S", 0.3 if "sleep" in answer else 30)
    with pytest.raises(EngineUnavailable, match=output):
        answering(tmp_path, answer).poll("pg-1")


def test_a_machine_that_is_there_is_not_rented_again(tmp_path: Path) -> None:
    engine = answering(tmp_path, "echo '{\"exists\": true}'")
    assert engine.submit("k", ARGV, RESOURCES) == machine_name("k")
    requests = [json.loads(line) for line in (tmp_path / "asked").read_text().split("\n") if line]
    assert [item["do"] for item in requests] == ["find"]
    engine = answering(tmp_path, "echo '{\"exists\": false}'")
    assert engine.find("k") is None
    engine.submit("k", ARGV, RESOURCES)
    last = [json.loads(line) for line in (tmp_path / "asked").read_text().split("\n") if line][-1]
    assert (last["do"], last["name"], last["task"]["name"]) == ("submit", machine_name("k"), machine_name("k"))


def launch(status: str, kind: str = "", error: str = "") -> dict[str, str]:
    return {"id": "1", "status": status, "kind": kind, "error": f"{kind}: {error}" if kind else ""}


UNAVAILABLE = launch("FAILED", "ResourcesUnavailableError", "no H200 below 3.5 USD")
REFUSED = launch("FAILED", "NoCloudAccessError", "Cloud access is not set up. Run: \x1b[1msky check\x1b[0m")


@pytest.mark.parametrize(
    ("cluster", "newest", "state", "is_launched"),
    [
        (None, launch("PENDING"), EngineStatus("pending"), False),
        (None, launch("WAITING"), EngineStatus("pending"), False),
        (None, launch("RUNNING"), EngineStatus("pending"), False),
        ("INIT", launch("RUNNING"), EngineStatus("pending"), False),
        (None, launch("CANCELLED"), EngineStatus("unknown"), True),
        (None, launch("SUCCEEDED"), EngineStatus("unknown"), True),
        (None, UNAVAILABLE, EngineStatus("unknown", UNAVAILABLE["error"]), True),
        (None, REFUSED, EngineStatus("lost", "NoCloudAccessError: Cloud access is not set up. Run: sky check"), False),
        ("INIT", UNAVAILABLE, EngineStatus("lost", UNAVAILABLE["error"]), False),
    ],
)
def test_how_a_launch_went_is_reported_and_one_that_failed_for_good_is_not_repeated(
    tmp_path: Path, cluster: str | None, newest: Any, state: EngineStatus, is_launched: bool
) -> None:
    report = {"cluster": cluster, "job": None, "launch": newest, "exists": cluster is not None}
    engine = answering(tmp_path, f"cat <<'END'\n{json.dumps(report)}\nEND")
    assert engine.find("k") == machine_name("k") and engine.poll("pg-1") == state
    engine.submit("k", ARGV, RESOURCES)
    requests = [json.loads(line)["do"] for line in (tmp_path / "asked").read_text().split("\n") if line]
    assert ("submit" in requests) == is_launched


def test_logs_are_given_from_a_byte_on(tmp_path: Path) -> None:
    engine = answering(tmp_path, 'echo \'{"logs": "first\\\\nsecond"}\'')
    assert engine.logs("pg-1") == b"first\nsecond"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("run: rm -rf /\n", "run: Peergate sets that"),
        ("num_nodes: 8\n", "num_nodes: Peergate sets that"),
        ("resources: {max_hourly_cost: 100}\n", "resources.max_hourly_cost: Peergate sets that"),
        ("resources: {any_of: [{infra: aws}]}\n", "resources.any_of: Peergate sets that"),
        ("[]\n", "cannot be read: the top level must hold keys and values"),
        ("resources: []\n", "is not a task"),
        ("a: [\n", "cannot be read"),
    ],
)
def test_a_users_part_says_only_what_is_its_to_say(tmp_path: Path, text: str, output: str) -> None:
    path = tmp_path / "task.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=output):
        read_template(path)


def test_what_it_needs_is_said_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PEERGATE_PLACE", "PEERGATE_SKY_PYTHON", "PEERGATE_SKY_TASK"):
        monkeypatch.delenv(name, raising=False)
    capped = ("budget:\n", "launcher: skypilot\nresources: {max_usd_per_hour: 1}\nbudget:\n")
    spec = loads(write_spec(tmp_path, capped)).spec
    with pytest.raises(UserError, match="PEERGATE_PLACE"):
        wiring.make_launcher(spec, tmp_path)
    monkeypatch.setenv("PEERGATE_PLACE", str(tmp_path / "place"))
    with pytest.raises(UserError, match="needs the interpreter of SkyPilot's environment"):
        wiring.make_launcher(spec, tmp_path)
    (tmp_path / "task.yaml").write_text("resources: {infra: k8s}\n", encoding="utf-8")
    monkeypatch.setenv("PEERGATE_SKY_PYTHON", "/bin/sh")
    monkeypatch.setenv("PEERGATE_SKY_TASK", str(tmp_path / "task.yaml"))
    launcher = wiring.make_launcher(spec, tmp_path)
    assert isinstance(launcher, EngineLauncher) and launcher.name == "skypilot"


class Sky:
    """What ``sky_side`` calls, with the answers of SkyPilot 0.14.1; a real one is asked below."""

    def __init__(self, *requests: tuple[str, str, str]) -> None:
        self.requests = [
            SimpleNamespace(request_id=request, name=name, status=status, created_at=number)
            for number, (request, name, status) in enumerate(requests)
        ]
        self.called: list[tuple[str, Any]] = []

    def __call__(self, name: str, **arguments: Any) -> Any:
        self.called.append((name, arguments))
        if name == "api_status":
            return self.requests[::-1]
        if name == "get":
            raise PermissionError(arguments["request_id"])
        return name


def test_the_newest_launch_counts_and_only_one_that_has_failed_is_asked_for_its_error() -> None:
    sky = Sky(("a", "sky.launch", "FAILED"), ("b", "sky.launch", "RUNNING"), ("c", "sky.status", "FAILED"))
    assert find_launch(sky, "pg-1") == {"id": "b", "status": "RUNNING", "kind": "", "error": ""}
    # Asking for what runs would wait for its end.
    assert [name for name, _ in sky.called] == ["api_status"]
    failed = find_launch(Sky(("a", "sky.launch", "RUNNING"), ("b", "sky.launch", "FAILED")), "pg-1")
    assert failed == {"id": "b", "status": "FAILED", "kind": "PermissionError", "error": "PermissionError: b"}
    assert find_launch(Sky(("c", "sky.status", "FAILED")), "pg-1") is None


# ---- the real library -----------------------------------------------------------------------------------------


def real(code: str, folder: Path) -> Any:
    """Run code with SkyPilot, in a home of its own and without a server."""
    done = subprocess.run(
        [os.environ["PEERGATE_SKY_PYTHON"], "-c", f"import json, sky\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])


@needs_sky
@pytest.mark.nightly
def test_sky_reads_a_task_as_it_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(skypilot_engine, "ASK_S", 300)
    engine = SkyEngine(os.environ["PEERGATE_SKY_PYTHON"], TEMPLATE | {"resources": {"disk_size": 100}})
    task = engine.task("small.base.1.abc", ARGV, RESOURCES)
    read = engine._ask({"do": "check", "task": task}, "task")["task"]  # pyright: ignore[reportPrivateUsage]
    for key in ("name", "num_nodes", "setup", "run", "envs"):
        assert read[key] == task[key]
    assert read["resources"] == task["resources"] | {"accelerators": {"H200": 1}}
    # The file, as the command line reads it.
    (tmp_path / "task.yaml").write_text(json.dumps(task), encoding="utf-8")
    code = f"print(json.dumps(sky.Task.from_yaml({str(tmp_path / 'task.yaml')!r}).to_yaml_config()))"
    of_file = real(code, tmp_path)
    drop = "_user_specified_yaml"
    assert {k: v for k, v in of_file.items() if k != drop} == {k: v for k, v in read.items() if k != drop}
    with pytest.raises(EngineUnavailable, match="SkyPilot: "):
        engine._ask({"do": "check", "task": task | {"resources": {"unheard_of": 1}}}, "task")  # pyright: ignore[reportPrivateUsage]


@needs_sky
@pytest.mark.nightly
def test_every_state_of_sky_has_a_meaning(tmp_path: Path) -> None:
    code = "print(json.dumps([[one.name for one in kind] for kind in (sky.ClusterStatus, sky.JobStatus)]))"
    clusters, jobs = real(code, tmp_path)
    assert sorted(clusters) == sorted([*CLUSTERS, "UP"]) and sorted(jobs) == sorted(JOBS)


@needs_sky
@pytest.mark.nightly
def test_what_is_called_can_be_called(tmp_path: Path) -> None:
    code = (
        f"import inspect\ncalls = json.loads({json.dumps(json.dumps({k: sorted(v) for k, v in CALLS.items()}))})\n"
        "for name, given in calls.items(): inspect.signature(getattr(sky, name)).bind(**dict.fromkeys(given))\n"
        "print(json.dumps(sorted(calls)))"
    )
    assert real(code, tmp_path) == sorted(CALLS)


def port_is_taken() -> bool:
    with socket.socket() as result:
        return result.connect_ex(("127.0.0.1", 46580)) == 0


@needs_sky
@pytest.mark.nightly
@pytest.mark.skipif(port_is_taken(), reason="a server of SkyPilot runs on this machine, and this test is not for it")
def test_a_launch_without_credentials_is_lost_in_skys_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real server of SkyPilot on this machine, in a home of its own, where no one has an account with anybody."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
    monkeypatch.setattr(skypilot_engine, "ASK_S", 300)
    house = House("processes", tmp_path)
    folder = house.job(first_order(tmp_path / "session" / "run"), "print('ran')")
    order = read_order(folder)
    job_order = order.model_copy(
        update={"grant": order.grant.model_copy(update={"resources": Resources(cpus=2, max_usd_per_hour=1.0)})}
    )
    (folder / "order.json").write_bytes(job_order.canonical())
    engine = SkyEngine(os.environ["PEERGATE_SKY_PYTHON"], {})
    launcher = EngineLauncher(engine, patience=IMPATIENT, ask_every_s=1)
    try:
        assert engine.find(key_of(folder)) is None
        launcher.start(folder)
        assert launcher.poll(folder).state == "pending"
        state = settled(launcher, folder, 300)
        assert state.state == "lost" and "NoCloudAccessError: Cloud access is not set up" in state.message
        assert "NoCloudAccessError" in (folder / "wrapper.log").read_text()
        # Nothing is launched any more.
        launcher.start(folder)
        assert launcher.poll(folder) == state
    finally:
        real("sky.api_stop(); print(1)", tmp_path)
