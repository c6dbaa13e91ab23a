"""What Ray 2.60 was seen to answer, and what is made of it; on a real cluster in tests/conformance (`nightly`)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sessions.jobs.engine_launcher import EngineStatus, EngineUnavailable
from sessions.jobs.ray.ray_engine import STATES, Cluster, RayEngine
from specs.system.resources import Resources

REFUSED = (
    "Traceback (most recent call last):\n  ...\nValueError: Job with submission_id k.1 already exists. Please use a "
    "different submission_id.\n."
)
DETAILS = {"type": "SUBMISSION", "submission_id": "k.1", "status": "RUNNING", "message": "", "driver_exit_code": None}


class Dashboard(ThreadingHTTPServer):
    """Answers with what it is told to, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.requests: list[tuple[str, str, Any, str | None]] = []

    def will(self, method: str, path: str, status: int, answer: Any) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.answers[method, path] = status, data


class Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        assert isinstance(self.server, Dashboard)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = json.loads(body) if body else None
        self.server.requests.append((self.command, self.path, request, self.headers.get("Authorization")))
        status, answer = self.server.answers.get((self.command, self.path), (404, b"Job does not exist"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    with Dashboard() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def engine(dashboard: Dashboard) -> RayEngine:
    cluster = Cluster(f"http://127.0.0.1:{dashboard.server_port}", "the token")
    return RayEngine(lambda start: cluster)


def test_a_job_is_submitted_under_its_key_with_what_it_asks_for(dashboard: Dashboard, engine: RayEngine) -> None:
    dashboard.will("POST", "/api/jobs/", 200, {"submission_id": "k.1"})
    resources = Resources(cpus=2, gpus=1, gpu="H200", memory_gb=1.5)
    assert engine.submit("k.1", ["/a python", "-m", "x; rm y"], resources) == "k.1"
    ((method, path, body, token),) = dashboard.requests
    assert (method, path, token) == ("POST", "/api/jobs/", "Bearer the token")
    assert body == {
        "entrypoint": "'/a python' -m 'x; rm y'",
        "submission_id": "k.1",
        "metadata": {"peergate": "k.1"},
        "entrypoint_num_cpus": 2,
        "entrypoint_num_gpus": 1,
        "entrypoint_memory": 1_500_000_000,
        "entrypoint_resources": {"accelerator_type:H200": 0.001},
    }


def test_a_refused_second_submit_is_the_job_that_is_there(dashboard: Dashboard, engine: RayEngine) -> None:
    dashboard.will("POST", "/api/jobs/", 500, REFUSED.encode())
    dashboard.will("GET", "/api/jobs/k.1", 200, DETAILS)
    assert engine.submit("k.1", ["true"], Resources()) == "k.1"


def test_a_refusal_of_a_job_that_is_not_there_is_reported(dashboard: Dashboard, engine: RayEngine) -> None:
    dashboard.will("POST", "/api/jobs/", 500, b"first\nRuntimeError: no \x1b[31magent\n")
    with pytest.raises(EngineUnavailable, match="HTTP 500: RuntimeError: no ") as caught:
        engine.submit("k.1", ["true"], Resources())
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(("message", "meant"), STATES.items())
def test_every_status_of_ray_maps_to_a_job_state(
    dashboard: Dashboard, engine: RayEngine, message: str, meant: Any
) -> None:
    dashboard.will("GET", "/api/jobs/k.1", 200, DETAILS | {"status": message, "driver_exit_code": 3})
    assert engine.poll("k.1") == EngineStatus(meant)


def test_a_job_the_cluster_does_not_know(dashboard: Dashboard, engine: RayEngine) -> None:
    assert engine.find("k.1") is None
    assert engine.poll("k.1") == EngineStatus("lost")
    assert engine.logs("k.1") == b""
    engine.cancel("k.1")


def test_logs_are_bytes(dashboard: Dashboard, engine: RayEngine) -> None:
    dashboard.will("GET", "/api/jobs/k.1/logs", 200, {"logs": "größer\n"})
    assert engine.logs("k.1") == "größer\n".encode()


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"null", b'{"status": "NEW"}', b'{"status": null}', b"{}"])
def test_an_answer_of_another_kind_is_no_status(dashboard: Dashboard, engine: RayEngine, answer: bytes) -> None:
    dashboard.will("GET", "/api/jobs/k.1", 200, answer)
    with pytest.raises(EngineUnavailable):
        engine.poll("k.1")


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_reported(dashboard: Dashboard, engine: RayEngine, status: int) -> None:
    dashboard.will("GET", "/api/jobs/k.1", status, b"")
    with pytest.raises(EngineUnavailable, match="refuses the token") as caught:
        engine.find("k.1")
    assert "the token\n" not in str(caught.value)


def test_a_server_that_fails_is_no_unknown_job(dashboard: Dashboard, engine: RayEngine) -> None:
    dashboard.will("GET", "/api/jobs/k.1", 503, b"busy")
    with pytest.raises(EngineUnavailable, match="HTTP 503: busy"):
        engine.find("k.1")
