"""Ray Jobs as an engine, over the documented REST interface of a Ray dashboard.

Ray's own client asks without a time limit, and hangs while the cluster's control store is gone; nothing of Ray is
imported here. Measured with Ray 2.60: a second submit under the same id is refused with HTTP 500, which here means that
the job is there; a job whose process was killed is FAILED; a restarted cluster knows no earlier job.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from sessions.jobs.engine_launcher import EngineState, EngineStatus
from sessions.jobs.job_state import EngineUnavailable
from specs.system.errors import BlockedError, UserError
from specs.system.regular_files import read_regular
from specs.system.resources import Resources
from specs.system.text import plain

ANSWER_S = 10.0
SUBMIT_S = 60.0
"""The first submit to a new cluster waits for the processes that start it."""
STATES: dict[str, EngineState] = {
    "PENDING": "pending",
    "RUNNING": "running",
    "STOPPED": "exited",
    "SUCCEEDED": "exited",
    "FAILED": "exited",
}
MESSAGE_CHARACTERS = 300


class Cluster(NamedTuple):
    """The address of a cluster's dashboard, and the token it asks for."""

    address: str
    token: str | None = None


class RayEngine:
    """A :class:`sessions.jobs.engine_launcher.JobEngine` on a Ray cluster; its handle is the key.

    ``cluster`` returns None without a cluster, and its argument says whether it may start one. ``lacking`` returns
    what the cluster can never give, if that is known beforehand.
    """

    name = "ray"
    rents = False

    def __init__(
        self, cluster: Callable[[bool], Cluster | None], lacking: Callable[[Resources], list[str]] | None = None
    ) -> None:
        self._cluster = cluster
        self._lacking = lacking

    def submit(self, key: str, argv: Sequence[str], resources: Resources) -> str:
        """Submit a command under the key as its submission id."""
        if self._lacking is not None and (lacking := self._lacking(resources)):
            raise BlockedError(
                f"the cluster has {', '.join(lacking)}",
                where=key,
                hint="ask for less under `resources:`, or name a larger cluster with RAY_ADDRESS",
            )
        body: dict[str, Any] = {
            "entrypoint": shlex.join(argv),
            "submission_id": key,
            "metadata": {"peergate": key},
            **_to_ray_resources(resources),
        }
        status, answer = self._ask("POST", "/api/jobs/", body, start=True)
        if status == 200 or (status >= 400 and self.find(key) is not None):
            return key
        raise EngineUnavailable(f"the job was rejected with HTTP {status}: {_last_line(answer)}", where=key)

    def find(self, key: str) -> str | None:
        """Return the key if the cluster knows it."""
        return None if self._of_job("GET", key) is None else key

    def poll(self, handle: str) -> EngineStatus:
        """Return the cluster's state of the job; a job it does not know any more is lost to it."""
        answered = self._of_job("GET", handle)
        if answered is None:
            return EngineStatus("lost")
        state = STATES.get(str(answered.get("status")))
        if state is None:
            raise EngineUnavailable(
                f"Ray reports an unknown state {plain(str(answered.get('status')), 40)!r} of a job", where=handle
            )
        return EngineStatus(state, plain(str(answered.get("message") or ""), MESSAGE_CHARACTERS))

    def cancel(self, handle: str) -> None:
        """Have the cluster end the job: SIGTERM, and SIGKILL three seconds later."""
        self._of_job("POST", handle, "/stop")

    def logs(self, handle: str) -> bytes:
        """Return the output with Ray's own lines; raise EngineUnavailable also if it is not UTF-8 (HTTP 500)."""
        text = (self._of_job("GET", handle, "/logs") or {}).get("logs")
        return text.encode() if isinstance(text, str) else b""

    def _of_job(self, method: str, key: str, what: str = "") -> dict[str, Any] | None:
        """Return the cluster's answer about a job; None if it does not know it."""
        status, answer = self._ask(method, f"/api/jobs/{quote(key, safe='')}{what}")
        if status == 404:
            return None
        answered = None
        with suppress(ValueError):
            answered = json.loads(answer) if status == 200 else None
        if not isinstance(answered, dict):
            raise EngineUnavailable(f"Ray answered with HTTP {status}: {_last_line(answer)}", where=key)
        return answered

    def _ask(self, method: str, path: str, body: Any = None, *, start: bool = False) -> tuple[int, bytes]:
        import httpx2

        cluster = self._cluster(start)
        if cluster is None:
            return 404, b""
        headers = {"Authorization": f"Bearer {cluster.token}"} if cluster.token else {}
        # The environment's proxy is not for this machine.
        away = urlsplit(cluster.address).hostname not in ("127.0.0.1", "localhost", "::1")
        try:
            with httpx2.Client(trust_env=away, timeout=SUBMIT_S if start else ANSWER_S) as client:
                answer = client.request(method, cluster.address + path, json=body, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise EngineUnavailable(
                f"the Ray cluster does not answer: {type(error).__name__}",
                where=cluster.address,
                hint="resume when it answers again; running jobs continue",
            ) from error
        if answer.status_code in (401, 403):
            raise EngineUnavailable(
                f"the Ray cluster refuses the token (HTTP {answer.status_code})",
                where=cluster.address,
                hint="RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH names it",
            )
        return answer.status_code, answer.content


def named_cluster() -> Cluster | None:
    """Return the cluster that the environment names, None without one; raise UserError for a malformed address."""
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        if address := os.environ.get(name, "").rstrip("/"):
            return Cluster(require_address(address, name), _token())
    return None


def require_address(address: str, where: str) -> str:
    """Return a dashboard's address without its last slash; raise UserError if it is malformed or holds a password."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            f"invalid Ray dashboard address '{plain(address, 100)}'", where=where, hint="expected http://HOST:8265"
        )
    if parts.username or parts.password or parts.query:
        raise UserError("the address holds a password or a query", where=where, hint="put the token in RAY_AUTH_TOKEN")
    return address.rstrip("/")


def _token() -> str | None:
    """Return the token that Ray's own tools would send: from the environment, or from the user's file."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        return read_regular(path, 1 << 16).decode("utf-8").strip() or None
    except OSError:
        return None


def _to_ray_resources(resources: Resources) -> dict[str, Any]:
    """Return a job's resources in Ray's words; without any of them a job runs on the head's machine."""
    counts = {
        "entrypoint_num_cpus": resources.cpus,
        "entrypoint_num_gpus": resources.gpus,
        "entrypoint_memory": int((resources.memory_gb or 0) * 10**9),
        # In Ray any share of this resource asks for this kind of GPU.
        "entrypoint_resources": {f"accelerator_type:{resources.gpu}": 0.001} if resources.gpu else None,
    }
    return {name: value for name, value in counts.items() if value}


def _last_line(answer: bytes) -> str:
    lines = answer.decode("utf-8", "replace").strip().splitlines() or ["nothing"]
    return plain(lines[-1], MESSAGE_CHARACTERS)
