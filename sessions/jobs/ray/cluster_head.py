"""A Ray cluster of one machine for one session: ``python -P -m sessions.jobs.ray.cluster_head RUN_FOLDER`` keeps it.

It listens on this machine for whoever has its token, which lies in a file only its user can read: whoever reaches a
dashboard without one can run anything. It ends when no orchestrator has been there for a while and no job runs, so
that jobs outlive the orchestrator here too. It never touches other clusters of the machine.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock

from reviews.trail.store import write_durably
from sessions.jobs import machine_capacity
from sessions.jobs.heartbeat import Absence, Silence
from sessions.jobs.local_launcher import job_environment
from sessions.jobs.ray.ray_engine import Cluster, named_cluster, require_address
from specs.errors import UserError

RECORD = "ray.json"
"""In the run folder: which cluster the session's jobs went to."""
READY_S = 120.0
IDLE_S = 60.0
"""How long nobody may need the cluster before it ends."""
LOOK_S = 1.0
STORE_BYTES = 80_000_000
"""Of Ray's object store, at its least: jobs exchange nothing through it."""
_PORTS = (
    "ray-client-server-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "metrics-export-port",
    "runtime-env-agent-port",
)


_started: list[subprocess.Popen[bytes]] = []
"""Keepers that this process started: they outlive it, and those that ended before have to be waited for."""


class SessionCluster:
    """The cluster of one session: the one the environment names, the one recorded, or one started for it."""

    def __init__(self, run: Path) -> None:
        self._run = run

    def __call__(self, start: bool) -> Cluster | None:
        """Return the cluster; start one where none is there and it may be.

        Raises:
            UserError: Ray is not installed, or the environment names no dashboard.
        """
        named = named_cluster()
        recorded = _recorded(self._run)
        if named is not None:
            if start and recorded.get("address") != named.address:
                write_durably(self._run / RECORD, json.dumps({"address": named.address}).encode())
            return named
        if "pid" not in recorded and "address" in recorded:
            return Cluster(require_address(str(recorded["address"]), str(self._run / RECORD)))
        if _is_kept(recorded):
            return _cluster_of(recorded)
        return self._start() if start else None

    @property
    def is_own(self) -> bool:
        """Whether its jobs run on this machine, on a cluster of the session's own."""
        return named_cluster() is None and ("address" not in (told := _recorded(self._run)) or "pid" in told)

    def _start(self) -> Cluster:
        if find_spec("ray") is None:
            raise UserError(
                "launcher 'ray' needs Ray, which is not installed",
                where=str(self._run),
                hint="`pip install 'peergate[ray]'`, or name a cluster: RAY_ADDRESS=http://HOST:8265",
            )
        # Two processes may look at once.
        with FileLock(str(self._run / f".{RECORD}.lock")), (self._run / "ray.log").open("ab") as log:
            recorded = _recorded(self._run)
            if not _is_kept(recorded):
                keeper = subprocess.Popen(
                    [sys.executable, "-P", "-m", "sessions.jobs.ray.cluster_head", str(self._run)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._run,
                    env=job_environment(),
                    start_new_session=True,
                )
                _started[:] = [keeper, *(one for one in _started if one.poll() is None)]
                until = time.monotonic() + READY_S
                while not _is_kept(recorded := _recorded(self._run)):
                    if keeper.poll() is not None or time.monotonic() > until:
                        keeper.kill()
                        raise UserError("the Ray cluster did not start", where=str(self._run / "ray.log"))
                    time.sleep(0.2)
            return _cluster_of(recorded)


def _recorded(run: Path) -> dict[str, Any]:
    try:
        told = json.loads((run / RECORD).read_bytes())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _is_kept(recorded: dict[str, Any]) -> bool:
    """Say whether the recorded keeper lives. A cluster without its keeper is one nobody ends."""
    try:
        process = psutil.Process(recorded["pid"])
        return abs(process.create_time() - recorded["started"]) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except (KeyError, TypeError, ValueError, psutil.Error):
        return False


def _cluster_of(recorded: dict[str, Any]) -> Cluster:
    token = Path(recorded["folder"], "token").read_text(encoding="utf-8")
    return Cluster(recorded["address"], token)


def main() -> int:
    """Start a cluster, keep it while it is needed, and end it with everything it has started."""
    run = Path(sys.argv[1]).resolve()
    end_left_over(run)
    # Short: Ray makes sockets below it, whose names may have 107 bytes. Ray opens its own folder to everybody, so that
    # is one below this one.
    folder = Path(tempfile.mkdtemp(prefix="peergate-ray-", dir="/tmp"))
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda found, _frame: stop.append(found))
    head = None
    try:
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32), encoding="utf-8")
        ports = _free_ports(len(_PORTS) + 1)
        head = subprocess.Popen(
            command(folder, ports[0], dict(zip(_PORTS, ports[1:], strict=True))),
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=job_environment()
            | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"},
        )
        address = f"http://127.0.0.1:{ports[0]}"
        if not _is_ready(Cluster(address, token.read_text(encoding="utf-8")), head, stop):
            print("the cluster did not become ready", file=sys.stderr)
            return 1
        own = {"pid": os.getpid(), "started": psutil.Process().create_time()}
        write_durably(run / RECORD, json.dumps(own | {"address": address, "folder": str(folder)}).encode())
        _keep(run, head, stop)
    finally:
        _end(head, folder)
    return 0


def command(folder: Path, dashboard: int, ports: dict[str, int]) -> list[str]:
    """Return the command that starts a head and stays."""
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port=0"),
        *("--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", "--node-ip-address=127.0.0.1"),
        *(f"--{name}={port}" for name, port in ports.items()),
        *(f"--object-store-memory={STORE_BYTES}", f"--num-cpus={machine_capacity.cpus()}", "--include-dashboard=true"),
        *("--include-log-monitor=false", "--disable-usage-stats", f"--temp-dir={folder / 'r'}"),
    ]


def _is_ready(cluster: Cluster, head: subprocess.Popen[bytes], stop: list[int]) -> bool:
    import httpx

    until = time.monotonic() + READY_S
    with httpx.Client(trust_env=False, timeout=5, headers={"Authorization": f"Bearer {cluster.token}"}) as client:
        while head.poll() is None and not stop and time.monotonic() < until:
            with suppress(httpx.HTTPError):
                if client.get(f"{cluster.address}/api/version").status_code == 200:
                    return True
            time.sleep(0.2)
    return False


def _keep(run: Path, head: subprocess.Popen[bytes], stop: list[int]) -> None:
    """Wait until the cluster has ended, is told to, or is needed by nobody."""
    absence, silence = Absence(run, IDLE_S), Silence()
    idle_since = time.monotonic()
    while head.poll() is None and not stop and run.is_dir():
        away = absence.is_too_long()
        busy = any(not (folder / "exit.json").exists() and silence.of(folder) < IDLE_S for folder in run.glob("jobs/*"))
        if not away or busy:
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since > LOOK_S:
            return
        time.sleep(LOOK_S)


def end_left_over(run: Path) -> None:
    """End the cluster of a keeper that was killed. Its folder stands in the command lines of its processes."""
    folder = _recorded(run).get("folder")
    if isinstance(folder, str) and Path(folder).name.startswith("peergate-ray-"):
        _end(None, Path(folder))


def _end(head: subprocess.Popen[bytes] | None, folder: Path) -> None:
    """End a head with everything below it, and remove its folder."""
    family: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and any(str(folder) in part for part in process.cmdline()):
                family += [process, *process.children(recursive=True)]
    for process in family:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(family, timeout=5)
    if head is not None:
        head.kill()
        head.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, outside of those Ray gives its workers (10002 to 19999)."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            if not 10_002 <= port <= 19_999:
                found.append(port)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
