"""Run by the interpreter of SkyPilot's environment, which lacks Peergate: a request on stdin, an answer on stdout.

The answer is the last line, as JSON. :data:`CALLS` lists every call to SkyPilot with its arguments, so that a test can
compare them with the installed version.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import operator
import sys
from collections.abc import Callable
from typing import Any

CALLS: dict[str, dict[str, Any]] = {
    "launch": {"task": None, "cluster_name": "", "idle_minutes_to_autostop": 5, "down": True, "retry_until_up": False},
    "status": {"cluster_names": []},
    "queue": {"cluster_name": ""},
    "down": {"cluster_name": ""},
    "tail_logs": {"cluster_name": "", "job_id": None, "follow": False, "output_stream": None},
    "get": {"request_id": None},
    "api_status": {"cluster_name": "", "all_status": True, "limit": 50},
    "api_cancel": {"request_ids": [], "silent": True},
}
"""The called functions of ``sky``, with their arguments by name."""
ACTIVE = ("PENDING", "WAITING", "RUNNING")
"""Statuses of a request that has not ended."""


def answer(requests: dict[str, Any]) -> dict[str, Any]:
    """Answer one request."""
    sky: Any = importlib.import_module("sky")

    def call(name: str, **arguments: Any) -> Any:
        return getattr(sky, name)(**(CALLS[name] | arguments))

    name = requests.get("name", "")
    match requests["do"]:
        case "check":
            # What SkyPilot's command line does with a task file before it looks for a cloud.
            return {"task": sky.Task.from_yaml_config(requests["task"]).to_yaml_config()}
        case "submit":
            call("launch", task=sky.Task.from_yaml_config(requests["task"]), cluster_name=name)
            return {}
        case "find":
            there = bool(call("get", request_id=call("status", cluster_names=[name])))
            return {"exists": there, "launch": None if there else find_launch(call, name)}
        case "poll":
            result = call("get", request_id=call("status", cluster_names=[name]))
            cluster = result[0]["status"].name if result else None
            if cluster in (None, "INIT"):
                return {"cluster": cluster, "job": None, "launch": find_launch(call, name)}
            jobs = call("get", request_id=call("queue", cluster_name=name)) if cluster == "UP" else []
            newest: Any = max(jobs, key=operator.itemgetter("job_id"), default=None)
            return {"cluster": cluster, "job": newest["status"].name if newest else None}
        case "cancel":
            launch = find_launch(call, name)
            if launch is not None and launch["status"] in ACTIVE:
                # Otherwise it continues, and rents the machine after all.
                call("api_cancel", request_ids=[launch["id"]])
            call("down", cluster_name=name)
            return {}
        case "logs":
            if not call("get", request_id=call("status", cluster_names=[name])):
                launch = find_launch(call, name)
                return {"logs": f"{launch['error']}\n" if launch and launch["error"] else ""}
            text = io.StringIO()
            call("tail_logs", cluster_name=name, output_stream=text)
            return {"logs": text.getvalue()}
        case other:
            raise ValueError(f"unknown request {other!r}")


def find_launch(call: Callable[..., Any], name: str) -> dict[str, Any] | None:
    """Return the state of the newest launch of a machine, which runs in SkyPilot's server; None if there is none."""
    requests = [value for value in call("api_status", cluster_name=name) if value.name == "sky.launch"]
    if not requests:
        return None
    newest: Any = max(requests, key=operator.attrgetter("created_at"))
    facts = {"id": newest.request_id, "status": newest.status, "kind": "", "error": ""}
    if newest.status == "FAILED":
        try:
            # It has ended, so this does not wait: it raises what the launch did.
            call("get", request_id=newest.request_id)
        except Exception as error:
            facts |= {"kind": type(error).__name__, "error": f"{type(error).__name__}: {error}"}
    return facts


def main() -> int:
    """Answer the request on stdin."""
    request = json.load(sys.stdin)
    try:
        # Progress bars and hints of the library go to stderr, not into the answer.
        with contextlib.redirect_stdout(sys.stderr):
            answered = answer(request)
    except Exception as error:
        answered = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answered))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
