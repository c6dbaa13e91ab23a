"""A Ray cluster of a session's own: who may use it, when it ends, and what a job is when it is gone. Needs Ray."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from sessions.jobs.engine_launcher import EngineLauncher, EngineUnavailable, key_of
from sessions.jobs.job_state import read_owner
from sessions.jobs.launcher import JobState
from sessions.jobs.ray.cluster_head import SessionCluster, end_left_over
from sessions.jobs.ray.ray_engine import Cluster, RayEngine, named_cluster, require_address
from sessions.run.heartbeat import beat, present
from specs.jobs.job_records import JobOrder
from specs.system.errors import BlockedError, UserError
from specs.system.resources import Resources
from testing.factories.sessions_on_disk import open_session
from testing.fixtures.houses import IMPATIENT, House, ended, is_gone, kill, running, settled, until

pytestmark = pytest.mark.integration

NAMES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: `pip install -c constraints.txt 'peergate[ray]'`"
)


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def order(tmp_path: Path) -> JobOrder:
    session = open_session(tmp_path / "session")
    session.decide(None, 1, "approve")
    order = session.order(session.mint())
    session.trail.close()
    return order


def recorded(run: Path) -> dict[str, str | float]:
    return json.loads((run / "ray.json").read_bytes())


def of_cluster(folder: str) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(folder in part for part in process.info["cmdline"] or ())
    ]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    run = tmp_path / "run"
    run.mkdir()
    yield run
    if (run / "ray.json").exists() and "pid" in recorded(run):
        keeper = int(recorded(run)["pid"])
        if not is_gone(keeper):
            os.kill(keeper, signal.SIGTERM)
            until(lambda: is_gone(keeper))
    # Also what a test left when it failed between a keeper and the next one.
    end_left_over(run)


# ---- without a cluster ----------------------------------------------------------------------------------------


def test_the_environment_names_a_cluster_as_for_rays_own_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert named_cluster() is None
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265/")
    assert named_cluster() == Cluster("http://head:8265")
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("of a file\n")
    assert named_cluster() == Cluster("http://head:8265", "of a file")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the environment")
    assert named_cluster() == Cluster("http://head:8265", "of the environment")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "https://other")
    assert named_cluster() == Cluster("https://other", "of the environment")


@pytest.mark.parametrize(
    ("address", "output"),
    [
        ("auto", "invalid Ray dashboard address"),
        ("head:6379", "invalid Ray dashboard address"),
        ("http://user:secret@head:8265", "password"),
    ],
)
def test_what_is_no_dashboard_is_refused(address: str, output: str) -> None:
    with pytest.raises(UserError, match=output) as caught:
        require_address(address, "RAY_ADDRESS")
    assert "secret" not in str(caught.value)


def test_a_cluster_that_does_not_answer_is_unavailable_in_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr("sessions.jobs.ray.ray_engine.ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        cluster = Cluster(f"http://127.0.0.1:{deaf.getsockname()[1]}")
        engine = RayEngine(lambda start: cluster)
        began = time.monotonic()
        with pytest.raises(EngineUnavailable, match="does not answer: ReadTimeout"):
            engine.find("key")
        assert time.monotonic() - began < 10
    with pytest.raises(EngineUnavailable, match="does not answer: ConnectError"):
        engine.poll("key")


def test_what_the_own_machine_lacks_is_refused_before_anything_starts(run: Path) -> None:
    engine = RayEngine(SessionCluster(run), lambda resources: ["1 of 64 requested cores"])
    with pytest.raises(BlockedError, match="the cluster has 1 of 64 requested cores"):
        engine.submit("key", ["true"], Resources(cpus=64))
    assert not (run / "ray.json").exists()


def test_a_named_cluster_is_recorded_for_those_who_resume(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265")
    assert SessionCluster(run)(False) == Cluster("http://head:8265")
    assert not (run / "ray.json").exists()
    SessionCluster(run)(True)
    monkeypatch.delenv("RAY_ADDRESS")
    assert SessionCluster(run)(True) == Cluster("http://head:8265")
    assert not SessionCluster(run).is_own


def test_nothing_is_there_before_a_job_needs_it(run: Path) -> None:
    assert SessionCluster(run)(False) is None
    assert RayEngine(SessionCluster(run)).find("key") is None


# ---- with one -------------------------------------------------------------------------------------------------


@needs_ray
@pytest.mark.nightly
def test_a_cluster_accepts_no_one_without_its_token(run: Path) -> None:
    with present(run):
        cluster = SessionCluster(run)(True)
        assert cluster is not None and cluster.token is not None
        token = Path(str(recorded(run)["folder"])) / "token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
        for wrong in (None, "x" * 64):
            with pytest.raises(EngineUnavailable, match=r"refuses the token \(HTTP 40[13]\)"):
                RayEngine(lambda start, wrong=wrong: Cluster(cluster.address, wrong)).find("key")
        assert RayEngine(lambda start: cluster).find("key") is None
        # The token is in no command line, environment or file of the run.
        for process in psutil.process_iter():
            try:
                assert not any(cluster.token in part for part in process.cmdline())
            except psutil.Error:
                continue
        assert not [path for path in run.rglob("*") if path.is_file() and cluster.token.encode() in path.read_bytes()]
        # Asked again, by another process as it were, it is the same one.
        assert SessionCluster(run)(True) == cluster


@needs_ray
@pytest.mark.nightly
def test_a_job_ends_well_though_the_clusters_control_store_is_killed(
    run: Path, tmp_path: Path, order: JobOrder
) -> None:
    with present(run):
        cluster = SessionCluster(run)(True)
        assert cluster is not None and cluster.token is not None
        house = House("ray", tmp_path / "house", (cluster.address, cluster.token))
        house.folder.mkdir()
        program = "import sys, time; open(sys.argv[1] + '/began', 'w').close(); time.sleep(12); sys.exit(5)"
        folder = house.job(order, program)
        # As patient as a session is: a silence while the control store dies is none of the job.
        launcher = EngineLauncher(house.engine(), python=house.python)
        launcher.start(folder)
        running(launcher, folder)
        (store,) = [
            process for process in of_cluster(str(recorded(run)["folder"])) if process.name().startswith("gcs_server")
        ]
        store.kill()
        slowest = 0.0
        while (state := launcher.poll(folder)).state != "exited":
            assert state.state == "running"
            began = time.monotonic()
            time.sleep(0.2)
            launcher.poll(folder)
            slowest = max(slowest, time.monotonic() - began)
        assert state.exit is not None and state.exit.code == 5
        assert slowest < 60
        house.close()


@needs_ray
@pytest.mark.nightly
def test_a_killed_keeper_leaves_a_cluster_that_the_next_one_ends(run: Path, tmp_path: Path, order: JobOrder) -> None:
    with present(run):
        assert SessionCluster(run)(True) is not None
        first = recorded(run)
        kill(int(first["pid"]))
        assert of_cluster(str(first["folder"]))
        until(lambda: SessionCluster(run)(False) is None)
        cluster = SessionCluster(run)(True)
        assert cluster is not None and cluster.token is not None
        assert recorded(run)["folder"] != first["folder"]
        assert not of_cluster(str(first["folder"])) and not Path(str(first["folder"])).exists()
        # The new one runs jobs, and knows nothing of those before.
        house = House("ray", tmp_path / "house", (cluster.address, cluster.token))
        house.folder.mkdir()
        folder = house.job(order, "print('ran')")
        launcher = EngineLauncher(house.engine(), python=house.python, patience=IMPATIENT)
        launcher.start(folder)
        assert ended(launcher, folder).code == 0


@needs_ray
@pytest.mark.nightly
def test_a_job_outlives_a_cluster_that_was_restarted_and_forgot_it(run: Path, tmp_path: Path, order: JobOrder) -> None:
    """A cluster is killed whole but for the job's own processes, and the session's next one is asked for the job."""
    with present(run):
        cluster = SessionCluster(run)(True)
        assert cluster is not None and cluster.token is not None
        first = recorded(run)
        house = House("ray", tmp_path / "house", (cluster.address, cluster.token))
        house.folder.mkdir()
        program = (
            "import os, sys, time; os.write(os.open(sys.argv[1] + '/ran', 1090), b'x')\n"
            "open(sys.argv[1] + '/began', 'w').close(); time.sleep(30); sys.exit(6)"
        )
        folder = house.job(order, program)
        launcher = EngineLauncher(house.engine(), python=house.python)
        launcher.start(folder)
        pids = running(launcher, folder)
        kill(int(first["pid"]))
        for process in of_cluster(str(first["folder"])):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        until(lambda: not of_cluster(str(first["folder"])))
        assert not is_gone(pids["wrapper"])
        again = SessionCluster(run)(True)
        assert again is not None and again.token is not None and recorded(run)["folder"] != first["folder"]
        restarted = House("ray", house.folder, (again.address, again.token))
        assert restarted.engine().find(key_of(folder)) is None
        # Handed in once more, as a session that goes on does: its claim is taken.
        watcher = EngineLauncher(restarted.engine(), python=house.python)
        watcher.start(folder)
        # On a busy machine it ends before the new cluster is there.
        assert watcher.poll(folder).state in ("running", "exited")
        assert ended(watcher, folder, 120).code == 6
        assert (folder / "ran").read_bytes() == b"x"
        house.close()


@needs_ray
@pytest.mark.nightly
def test_a_job_whose_engine_says_done_without_a_record_is_lost_on_ray(
    run: Path, tmp_path: Path, order: JobOrder
) -> None:
    """Ray says SUCCEEDED of a command that ended well and never was a wrapper."""
    with present(run):
        cluster = SessionCluster(run)(True)
        assert cluster is not None and cluster.token is not None
        house = House("ray", tmp_path / "house", (cluster.address, cluster.token))
        house.folder.mkdir()
        folder = house.job(order, "open('/nowhere', 'w')")
        engine = house.engine()
        handle = engine.submit(key_of(folder), ["echo", "all went well"], Resources())
        until(lambda: engine.poll(handle).state == "exited", 120)
        launcher = EngineLauncher(engine, python=house.python, patience=IMPATIENT, ask_every_s=0.2)
        state = settled(launcher, folder)
        assert state == JobState("lost") and "ray says 'exited'" in state.message
        assert "all went well" in (folder / "wrapper.log").read_text()


@needs_ray
@pytest.mark.nightly
def test_what_a_named_cluster_never_has_is_reported_and_lost_in_time(
    run: Path, tmp_path: Path, order: JobOrder
) -> None:
    with present(run):
        cluster = SessionCluster(run)(True)
        assert cluster is not None and cluster.token is not None
        house = House("ray", tmp_path / "house", (cluster.address, cluster.token))
        house.folder.mkdir()
        resources = Resources(gpus=64, max_wait_hours=15 / 3600)
        grant = order.grant.model_copy(update={"resources": resources})
        folder = house.job(order.model_copy(update={"grant": grant}), "print('ran')")
        # As for a cluster of others: what it has is not looked at beforehand.
        launcher = EngineLauncher(house.engine(), python=house.python, patience=IMPATIENT, ask_every_s=0.2)
        launcher.start(folder)
        until(lambda: "ray says 'pending'" in launcher.poll(folder).message)
        state = settled(launcher, folder)
        assert state == JobState("lost") and "ray says 'pending'" in state.message
        # Ray keeps it in its queue for 15 minutes more; a wrapper that is started then finds its claim taken.
        assert read_owner(folder)


@needs_ray
@pytest.mark.nightly
def test_a_cluster_no_one_needs_any_more_ends_with_all_it_started(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The keeper itself, in a process of its own, with less patience; anyone who is there shows it more often than that.
    monkeypatch.setattr("sessions.run.heartbeat.BEAT_EVERY_S", 0.2)
    code = (
        "import sys; from sessions.jobs.ray import cluster_head as h; h.IDLE_S = 2.0; "
        f"sys.argv = ['h', {str(run)!r}]; raise SystemExit(h.main())"
    )
    beat(run)
    keeper = psutil.Popen([sys.executable, "-c", code], start_new_session=True)
    with present(run):
        until(lambda: (run / "ray.json").exists(), 120)
        folder = str(recorded(run)["folder"])
        time.sleep(4)
        assert keeper.poll() is None and of_cluster(folder)
    assert keeper.wait(300) == 0
    assert not of_cluster(folder) and not Path(folder).exists()
