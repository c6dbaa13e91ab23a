"""A Ray cluster of one machine for one session: ``python -P -m sessions.jobs.ray.cluster_head RUN_FOLDER`` keeps it.

It listens on this machine only and asks for a token, because a dashboard without one runs anything for anybody. It ends
when no orchestrator has shown itself for a while and no job runs.
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

from reviews.trail.chain.store import write_durably
from sessions.jobs import machine_capacity
from sessions.jobs.job_environment import job_environment
from sessions.jobs.orphans import start_detached
from sessions.jobs.ray.ray_engine import Cluster, named_cluster, require_address
from sessions.run.claim import lives, read_record, this_process
from sessions.run.heartbeat import BEAT, Absence, Silence
from specs.system.errors import UserError
from specs.system.extras import install_hint
from specs.system.regular_files import read_regular

RECORD = "ray.json"
"""In the run folder: names the cluster of the session's jobs."""
READY_S = 120.0
IDLE_S = 60.0
"""How long the cluster may be unused before it ends."""
LOOK_S = 1.0
STORE_BYTES = 80_000_000
"""Ray's least object store: jobs exchange nothing through it."""
_PORTS = (
    "ray-client-server-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "metrics-export-port",
    "runtime-env-agent-port",
)


def require_ray(where: str) -> None:
    """Raise UserError if Ray is not installed, which a cluster of the session's own needs."""
    if find_spec("ray") is None:
        hint = f"{install_hint('ray')}, or name a cluster: RAY_ADDRESS=http://HOST:8265"
        raise UserError("launcher 'ray' needs Ray, which is not installed", where=where, hint=hint)


class SessionCluster:
    """The cluster of one session: named by the environment, recorded, or started for it."""

    def __init__(self, run: Path) -> None:
        self._run = run

    def __call__(self, start: bool) -> Cluster | None:
        """Return the cluster, None without one unless ``start`` allows it; raise UserError if it cannot be started."""
        named = named_cluster()
        recorded = _read_cluster_record(self._run)
        if named is not None:
            if start and recorded.get("address") != named.address:
                write_durably(self._run / RECORD, json.dumps({"address": named.address}).encode())
            return named
        if "pid" not in recorded and "address" in recorded:
            return Cluster(require_address(str(recorded["address"]), str(self._run / RECORD)))
        # Nothing would end a cluster without its keeper.
        if lives(self._run / RECORD):
            return _cluster_of(recorded)
        return self._start() if start else None

    @property
    def is_own(self) -> bool:
        """Return whether its jobs run on this machine, on a cluster that Peergate started."""
        return named_cluster() is None and (
            "address" not in (recorded := _read_cluster_record(self._run)) or "pid" in recorded
        )

    def _start(self) -> Cluster:
        require_ray(str(self._run))
        # Two processes may look at once.
        with FileLock(str(self._run / f".{RECORD}.lock")):
            if not lives(self._run / RECORD):
                words = [sys.executable, "-P", "-m", "sessions.jobs.ray.cluster_head", str(self._run)]
                keeper = start_detached(words, self._run / "ray.log", self._run, job_environment())
                until = time.monotonic() + READY_S
                while not lives(self._run / RECORD):
                    if keeper.poll() is not None or time.monotonic() > until:
                        keeper.kill()
                        raise UserError("the Ray cluster did not start", where=str(self._run / "ray.log"))
                    time.sleep(0.2)
            return _cluster_of(_read_cluster_record(self._run))


def _read_cluster_record(run: Path) -> dict[str, Any]:
    return read_record(run / RECORD) or {}


def _cluster_of(recorded: dict[str, Any]) -> Cluster:
    token = read_regular(Path(recorded["folder"], "token"), 1 << 16).decode("utf-8")
    return Cluster(recorded["address"], token)


def main() -> int:
    """Start a cluster, keep it while it is needed, and end it with everything it has started."""
    run = Path(sys.argv[1]).resolve()
    end_left_over(run)
    # A short path, because Ray makes sockets below it, whose names may have 107 bytes. Ray opens its own folder to
    # everybody, so it lies below this one.
    folder = Path(tempfile.mkdtemp(prefix="peergate-ray-", dir="/tmp"))
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda count, _frame: stop.append(count))
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
            env=job_environment() | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)},
        )
        address = f"http://127.0.0.1:{ports[0]}"
        if not _is_ready(Cluster(address, token.read_text(encoding="utf-8")), head, stop):
            print("the cluster did not become ready", file=sys.stderr)
            return 1
        own = this_process(RECORD) | {"address": address, "folder": str(folder)}
        write_durably(run / RECORD, json.dumps(own).encode())
        _keep(run, head, stop)
    finally:
        _end(head, folder)
    return 0


def command(folder: Path, dashboard: int, ports: dict[str, int]) -> list[str]:
    """Return the command that starts a head and runs as long as it."""
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port=0"),
        *("--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", "--node-ip-address=127.0.0.1"),
        *(f"--{name}={port}" for name, port in ports.items()),
        *(f"--object-store-memory={STORE_BYTES}", f"--num-cpus={machine_capacity.cpus()}", "--include-dashboard=true"),
        *("--include-log-monitor=false", "--disable-usage-stats", f"--temp-dir={folder / 'r'}"),
    ]


def _is_ready(cluster: Cluster, head: subprocess.Popen[bytes], stop: list[int]) -> bool:
    import httpx2

    until = time.monotonic() + READY_S
    with httpx2.Client(trust_env=False, timeout=5, headers={"Authorization": f"Bearer {cluster.token}"}) as client:
        while head.poll() is None and not stop and time.monotonic() < until:
            with suppress(httpx2.HTTPError):
                if client.get(f"{cluster.address}/api/version").status_code == 200:
                    return True
            time.sleep(0.2)
    return False


def _keep(run: Path, head: subprocess.Popen[bytes], stop: list[int]) -> None:
    """Wait until the cluster has ended, is asked to end, or is not needed any more."""
    absence, silence = Absence(run / BEAT), Silence()
    idle_since = time.monotonic()
    while head.poll() is None and not stop and run.is_dir():
        away = absence.seconds() > IDLE_S
        busy = any(not (folder / "exit.json").exists() and silence.of(folder) < IDLE_S for folder in run.glob("jobs/*"))
        if not away or busy:
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since > LOOK_S:
            return
        time.sleep(LOOK_S)


def end_left_over(run: Path) -> None:
    """End the cluster of a killed keeper, known by its folder in the command lines of its processes."""
    folder = _read_cluster_record(run).get("folder")
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
    """Return ports that were free a moment ago, outside of the range of Ray's workers (10002 to 19999)."""
    counts: list[int] = []
    with ExitStack() as exit_stack:
        while len(counts) < count:
            current_socket = exit_stack.enter_context(socket.socket())
            current_socket.bind(("127.0.0.1", 0))
            port = current_socket.getsockname()[1]
            if not 10_002 <= port <= 19_999:
                counts.append(port)
    return counts


if __name__ == "__main__":
    raise SystemExit(main())
