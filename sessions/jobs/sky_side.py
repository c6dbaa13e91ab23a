"""The side of SkyPilot: run by the interpreter of SkyPilot's own environment, which has nothing of Peergate.

One request as JSON on stdin, one answer as JSON on the last line of stdout. Every call to SkyPilot stands in
:data:`CALLS` with its arguments, so that a test can compare them with the installed version.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import operator
import sys
from typing import Any

CALLS: dict[str, dict[str, Any]] = {
    "launch": {"task": None, "cluster_name": "", "idle_minutes_to_autostop": 5, "down": True, "retry_until_up": False},
    "status": {"cluster_names": []},
    "queue": {"cluster_name": ""},
    "down": {"cluster_name": ""},
    "tail_logs": {"cluster_name": "", "job_id": None, "follow": False, "output_stream": None},
    "get": {"request_id": None},
}
"""What is called of ``sky``, and with which arguments by name."""


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Carry a request out."""
    sky: Any = importlib.import_module("sky")

    def call(name: str, **given: Any) -> Any:
        return getattr(sky, name)(**(CALLS[name] | given))

    name = asked.get("name", "")
    match asked["do"]:
        case "check":
            # What the command line does with a file of a task, up to where it would look for a cloud.
            return {"task": sky.Task.from_yaml_config(asked["task"]).to_yaml_config()}
        case "submit":
            call("launch", task=sky.Task.from_yaml_config(asked["task"]), cluster_name=name)
            return {}
        case "find":
            return {"found": bool(call("get", request_id=call("status", cluster_names=[name])))}
        case "poll":
            found = call("get", request_id=call("status", cluster_names=[name]))
            if not found:
                return {"cluster": None, "job": None}
            cluster = found[0]["status"].name
            jobs = call("get", request_id=call("queue", cluster_name=name)) if cluster == "UP" else []
            newest: Any = max(jobs, key=operator.itemgetter("job_id"), default=None)
            return {"cluster": cluster, "job": newest["status"].name if newest else None}
        case "cancel":
            call("down", cluster_name=name)
            return {}
        case "logs":
            text = io.StringIO()
            call("tail_logs", cluster_name=name, output_stream=text)
            return {"logs": text.getvalue()}
        case other:
            raise ValueError(f"{other!r} is nothing to ask")


def main() -> int:
    """Answer the request on stdin."""
    asked = json.load(sys.stdin)
    try:
        # Progress bars and hints of the library go to stderr, not into the answer.
        with contextlib.redirect_stdout(sys.stderr):
            told = answer(asked)
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
