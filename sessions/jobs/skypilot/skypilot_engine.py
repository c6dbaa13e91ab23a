"""SkyPilot as an engine: a machine for each job, rented or found by SkyPilot, which ends itself when it is idle.

``PEERGATE_SKY_PYTHON`` names the interpreter of SkyPilot's environment, which conflicts with Peergate's, and
``PEERGATE_SKY_TASK`` the user's part of a task. Tested on the real library; no machine was ever rented.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sessions.jobs.engine_launcher import EngineState, EngineStatus
from sessions.jobs.job_state import EngineUnavailable
from sessions.jobs.skypilot.sky_interpreter import ACTIVE
from specs.system.errors import BlockedError, UserError
from specs.system.regular_files import read_regular
from specs.system.resources import Resources
from specs.system.text import plain

ASK_S = 90.0
"""Importing SkyPilot alone takes 3 s, and more on a busy machine."""
ASK_EVERY_S = 60.0
TERM_S = 60
CLUSTERS: dict[str, EngineState] = {
    "INIT": "pending",
    "PENDING": "pending",
    "STOPPED": "lost",
    "AUTOSTOPPING": "exited",
}
"""States of a machine that determine the state of its job."""
JOBS: dict[str, EngineState] = {
    "INIT": "pending",
    "PENDING": "pending",
    "SETTING_UP": "pending",
    "RUNNING": "running",
    "SUCCEEDED": "exited",
    "FAILED": "exited",
    "FAILED_SETUP": "exited",
    "FAILED_DRIVER": "exited",
    "CANCELLED": "exited",
}
NO_MACHINE = "ResourcesUnavailableError"
"""The failure of a launch when no one offers such a machine below the cap now. Other failures are final."""
_SIDE = Path(__file__).with_name("sky_interpreter.py")
_OURS = ("name", "run", "num_nodes", "service")
_OUR_RESOURCES = ("accelerators", "cpus", "memory", "use_spot", "max_hourly_cost", "autostop", "any_of", "ordered")


class SkyEngine:
    """An engine whose handle is the job's machine; ``template`` is the user's part of a task, ``python`` SkyPilot's."""

    name = "skypilot"
    rents = True

    def __init__(self, python: str, template: dict[str, Any]) -> None:
        self._python = python
        self._template = template

    def submit(self, key: str, argv: Sequence[str], resources: Resources) -> str:
        """Have a machine rented for a command, unless one exists, is being launched, or never can be."""
        name = machine_name(key)
        answered = self._ask({"do": "find", "name": name}, key)
        if not answered["exists"] and _may_be_launched(answered.get("launch")):
            self._ask({"do": "submit", "name": name, "task": self.task(key, argv, resources)}, key)
        return name

    def find(self, key: str) -> str | None:
        """Return the machine's name if SkyPilot knows the machine or its launch."""
        answered = self._ask({"do": "find", "name": machine_name(key)}, key)
        return machine_name(key) if answered["exists"] or answered.get("launch") else None

    def poll(self, handle: str) -> EngineStatus:
        """Return what SkyPilot says of the machine and its newest job."""
        answered = self._ask({"do": "poll", "name": handle}, handle)
        cluster, job, launch = answered["cluster"], answered["job"], answered.get("launch")
        if launch is not None and launch["status"] == "FAILED":
            # A machine whose launch failed begins nothing, and is paid for.
            again = cluster is None and launch["kind"] == NO_MACHINE
            return EngineStatus("unknown" if again else "lost", plain(launch["error"], 300))
        if cluster is None:
            return EngineStatus("pending" if launch is not None and launch["status"] in ACTIVE else "unknown")
        if cluster == "UP" and job is None:
            return EngineStatus("pending")
        state = JOBS.get(job) if cluster == "UP" else CLUSTERS.get(cluster)
        if state is None:
            raise EngineUnavailable(
                f"SkyPilot reports an unknown state {plain(f'{cluster}, {job}', 80)!r} of a job", where=handle
            )
        return EngineStatus(state)

    def cancel(self, handle: str) -> None:
        """End the machine."""
        self._ask({"do": "cancel", "name": handle}, handle)

    def logs(self, handle: str) -> bytes:
        """Return what the command printed."""
        text = self._ask({"do": "logs", "name": handle}, handle).get("logs")
        return text.encode() if isinstance(text, str) else b""

    def task(self, key: str, argv: Sequence[str], resources: Resources) -> dict[str, Any]:
        """Return the SkyPilot task of a job; raise Blocked if its price cap or the kind of its GPUs is missing."""
        if resources.max_usd_per_hour is None:
            raise BlockedError("a rented machine needs a price cap", where=key, hint="resources.max_usd_per_hour")
        requests: dict[str, Any] = {
            "use_spot": resources.spot,
            "max_hourly_cost": resources.max_usd_per_hour,
            # It ends without an orchestrator too.
            "autostop": {"idle_minutes": 5, "down": True},
        }
        if resources.gpus:
            if resources.gpu is None:
                raise BlockedError(
                    "SkyPilot rents machines by the kind of their GPU", where=key, hint="resources.gpu: H200"
                )
            requests["accelerators"] = f"{resources.gpu}:{resources.gpus}"
        if resources.cpus:
            requests["cpus"] = f"{resources.cpus}+"
        if resources.memory_gb:
            requests["memory"] = f"{resources.memory_gb:g}+"
        command = shlex.join(argv)
        if resources.max_hours is not None:
            command = f"timeout --kill-after={TERM_S} {resources.max_hours * 3600:.0f} {command}"
        input_resources: dict[str, Any] = self._template.get("resources", {})
        return self._template | {
            "name": machine_name(key),
            "num_nodes": 1,
            "resources": input_resources | requests,
            "run": command,
        }

    def _ask(self, requests: dict[str, Any], where: str) -> dict[str, Any]:
        try:
            done = subprocess.run(
                [self._python, "-I", str(_SIDE)],
                input=json.dumps(requests).encode(),
                capture_output=True,
                timeout=ASK_S,
                check=False,
            )
            answered = json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired as error:
            raise EngineUnavailable(f"SkyPilot did not answer in {ASK_S:.0f} s", where=where) from error
        except (OSError, IndexError, ValueError) as error:
            raise EngineUnavailable(
                f"SkyPilot did not answer: {type(error).__name__}", where=where, hint=f"its interpreter: {self._python}"
            ) from error
        if not isinstance(answered, dict) or "error" in answered:
            statement = answered.get("error") if isinstance(answered, dict) else answered
            raise EngineUnavailable(f"SkyPilot: {plain(str(statement), 300)}", where=where)
        return answered


def _may_be_launched(launch: dict[str, Any] | None) -> bool:
    """Return whether another launch may help: none runs, and the newest did not fail for good."""
    if launch is None:
        return True
    return launch["kind"] == NO_MACHINE if launch["status"] == "FAILED" else launch["status"] not in ACTIVE


def machine_name(key: str) -> str:
    """Return the name of a job's machine: short, as clouds want it, and determined by the key."""
    return f"pg-{hashlib.sha256(key.encode()).hexdigest()[:20]}"


def sky_engine() -> SkyEngine:
    """Return the engine that the environment names, or raise UserError if it names no interpreter."""
    python, named = os.environ.get("PEERGATE_SKY_PYTHON"), os.environ.get("PEERGATE_SKY_TASK")
    if not python or not Path(python).is_file():
        raise UserError(
            "launcher 'skypilot' needs the interpreter of SkyPilot's environment",
            where="PEERGATE_SKY_PYTHON",
            hint="python3 -m venv sky; sky/bin/pip install 'skypilot[CLOUD]'; PEERGATE_SKY_PYTHON=sky/bin/python",
        )
    return SkyEngine(python, read_template(Path(named)) if named else {})


def read_template(path: Path) -> dict[str, Any]:
    """Read the user's part of a task; raise UserError if it is malformed or sets what Peergate sets."""
    from specs.system.yaml.yaml_positions import UnreadableError, read_yaml

    try:
        document = read_yaml(read_regular(path))
    except (OSError, UnreadableError) as error:
        why = error.message if isinstance(error, UnreadableError) else error
        raise UserError(f"cannot be read: {why}", where=str(path)) from error
    if document.problems:
        raise UserError(document.problems[0].message, where=str(path))
    data: Any = document.data
    resources: Any = data.get("resources", {}) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(resources, dict) or not isinstance(data.get("envs", {}), dict):
        raise UserError("is not a task: task, resources and envs must be mappings", where=str(path))
    texts = [name for name in _OURS if name in data]
    texts += [f"resources.{name}" for name in _OUR_RESOURCES if name in resources]
    if texts:
        raise UserError(f"{', '.join(texts)}: Peergate sets that", where=str(path), hint="remove it")
    return data
