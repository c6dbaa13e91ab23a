"""Ray Jobs as an engine, over the documented REST interface of a Ray dashboard.

Without Ray's own client: that asks without a time limit, and a status call hangs for as long as the cluster's control
store is gone. Nothing of Ray is imported here, so only whoever starts a cluster needs it installed.

Measured with Ray 2.60: a second submit under the same id is refused with HTTP 500, which here is the answer "it is
there"; a job whose process was killed is FAILED; a cluster that was started anew knows of no earlier job.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from sessions.jobs.engine_launcher import EngineState, EngineStatus, EngineUnavailable
from specs.errors import Blocked, UserError
from specs.resources import Resources
from specs.text import plain

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
TOLD = 300


class Cluster(NamedTuple):
    """Where a cluster's dashboard listens, and the token it asks for."""

    address: str
    token: str | None = None


class RayEngine:
    """A :class:`sessions.jobs.engine_launcher.Engine` on a Ray cluster; its handle is the key.

    Args:
        cluster: returns the cluster, or None where none is there; told whether one may be started for it.
        lacking: returns what the cluster can never give, where that is known beforehand.
    """

    name = "ray"
    rents = False

    def __init__(
        self, cluster: Callable[[bool], Cluster | None], lacking: Callable[[Resources], list[str]] | None = None
    ) -> None:
        self._cluster = cluster
        self._lacking = lacking

    def submit(self, key: str, argv: Sequence[str], env: dict[str, str], resources: Resources) -> str:
        """Submit a command under the key as its submission id."""
        if self._lacking is not None and (lacking := self._lacking(resources)):
            raise Blocked(
                f"the cluster has {', '.join(lacking)}",
                where=key,
                hint="ask for less under `resources:`, or name a larger cluster with RAY_ADDRESS",
            )
        body: dict[str, Any] = {
            "entrypoint": shlex.join(argv),
            "submission_id": key,
            "runtime_env": {"env_vars": env},
            "metadata": {"peergate": key},
            **_asked(resources),
        }
        status, answer = self._ask("POST", "/api/jobs/", body, start=True)
        if status == 200 or (status >= 400 and self.find(key) is not None):
            return key
        raise EngineUnavailable(f"the job was refused with HTTP {status}: {_last_line(answer)}", where=key)

    def find(self, key: str) -> str | None:
        """Return the key where the cluster knows it."""
        status, answer = self._ask("GET", f"/api/jobs/{quote(key, safe='')}")
        if status == 404:
            return None
        self._require_ok(status, answer, key)
        return key

    def poll(self, handle: str) -> EngineStatus:
        """Return the cluster's state of the job; one it does not know any more is lost to it."""
        status, answer = self._ask("GET", f"/api/jobs/{quote(handle, safe='')}")
        if status == 404:
            return EngineStatus("lost")
        told = self._require_ok(status, answer, handle)
        state = STATES.get(str(told.get("status")))
        code = told.get("driver_exit_code")
        if state is None:
            raise EngineUnavailable(f"Ray says {plain(str(told.get('status')), 40)!r} of a job", where=handle)
        said = plain(str(told.get("message") or ""), TOLD)
        return EngineStatus(state, code if isinstance(code, int) and state == "exited" else None, said)

    def cancel(self, handle: str, reason: str) -> None:
        """Have the cluster end the job: SIGTERM, and SIGKILL three seconds later."""
        status, answer = self._ask("POST", f"/api/jobs/{quote(handle, safe='')}/stop")
        if status != 404:
            self._require_ok(status, answer, handle)

    def logs(self, handle: str, offset: int) -> bytes:
        """Return what the command printed from a byte on, Ray's own lines included.

        Raises:
            EngineUnavailable: also where that is no UTF-8, which Ray answers with HTTP 500.
        """
        status, answer = self._ask("GET", f"/api/jobs/{quote(handle, safe='')}/logs")
        if status == 404:
            return b""
        told = self._require_ok(status, answer, handle).get("logs")
        return told.encode()[offset:] if isinstance(told, str) else b""

    def _require_ok(self, status: int, answer: bytes, where: str) -> dict[str, Any]:
        try:
            told = json.loads(answer) if status == 200 else None
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise EngineUnavailable(f"Ray answered with HTTP {status}: {_last_line(answer)}", where=where)
        return told

    def _ask(self, method: str, path: str, body: Any = None, *, start: bool = False) -> tuple[int, bytes]:
        import httpx

        cluster = self._cluster(start)
        if cluster is None:
            return 404, b""
        headers = {"Authorization": f"Bearer {cluster.token}"} if cluster.token else {}
        # A proxy of the environment is none for this machine.
        away = urlsplit(cluster.address).hostname not in ("127.0.0.1", "localhost", "::1")
        try:
            with httpx.Client(trust_env=away, timeout=SUBMIT_S if start else ANSWER_S) as client:
                answer = client.request(method, cluster.address + path, json=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineUnavailable(
                f"the Ray cluster does not answer: {type(error).__name__}",
                where=cluster.address,
                hint="resume when it is there again; jobs that run go on",
            ) from error
        if answer.status_code in (401, 403):
            raise EngineUnavailable(
                f"the Ray cluster refuses the token (HTTP {answer.status_code})",
                where=cluster.address,
                hint="RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH names it",
            )
        return answer.status_code, answer.content


def named_cluster() -> Cluster | None:
    """Return the cluster that the environment names, as Ray's own tools read it; None where it names none.

    Raises:
        UserError: what it names is no address of a dashboard.
    """
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        address = os.environ.get(name, "").rstrip("/")
        if not address:
            continue
        return Cluster(require_address(address, name), _token())
    return None


def require_address(address: str, where: str) -> str:
    """Return an address of a dashboard without its last slash.

    Raises:
        UserError: it is none, or holds a password.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            f"'{plain(address, 100)}' is no address of a Ray dashboard", where=where, hint="as in http://HOST:8265"
        )
    if parts.username or parts.password or parts.query:
        raise UserError("the address holds a password or a query", where=where, hint="put the token in RAY_AUTH_TOKEN")
    return address.rstrip("/")


def _token() -> str | None:
    """Return the token Ray's own tools would send: of the environment, or of the user's file."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _asked(resources: Resources) -> dict[str, Any]:
    """Write what a job asks for as Ray does; without any of it a job runs on the head's machine."""
    body: dict[str, Any] = {}
    if resources.cpus:
        body["entrypoint_num_cpus"] = resources.cpus
    if resources.gpus:
        body["entrypoint_num_gpus"] = resources.gpus
    if resources.memory_gb:
        body["entrypoint_memory"] = int(resources.memory_gb * 10**9)
    if resources.gpu:
        # Ray's way to say that a kind of GPU is there: any share of this resource.
        body["entrypoint_resources"] = {f"accelerator_type:{resources.gpu}": 0.001}
    return body


def _last_line(answer: bytes) -> str:
    lines = answer.decode("utf-8", "replace").strip().splitlines() or ["nothing"]
    return plain(lines[-1], TOLD)
