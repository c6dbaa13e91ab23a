"""Is this pod fit for this session? Each question has an answer, a reason and what to do; FAIL stops."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sessions.pods.connection import Connection, shell
from sessions.pods.pod_file import PodFile
from sessions.pods.protocol import PROTOCOL
from specs.errors import PeergateError
from specs.text import plain

Status = Literal["PASS", "WARN", "FAIL"]
PYTHONS = ("python3.13", "python3.12", "python3.11", "python3")
OLDEST = (3, 11)
WRITE_BYTES = 64 << 20
OPEN_FILES = 1024
MOST_SKEW_S = 300.0
GONE_WITH_A_RESTART = ("tmpfs", "ramfs", "devtmpfs")
PERHAPS_GONE = ("overlay", "aufs")


class Check(NamedTuple):
    """One answer."""

    id: str
    status: Status
    detail: str
    hint: str = ""


def python_of_machine(connection: Connection) -> str | None:
    """Return the first Python of the pod that is new enough, or at least there."""
    script = 'for one in "$@"; do command -v "$one" && exit 0; done; exit 1'
    done = connection.run(shell("/bin/sh", "-c", script, "sh", *PYTHONS))
    return done.out.decode("utf-8", "replace").strip() if done.code == 0 else None


def facts(connection: Connection, python: str, asked: Mapping[str, Any], seconds: float = 180.0) -> dict[str, Any]:
    """Run the probe on the pod.

    Raises:
        PeergateError: it did not answer.
    """
    source = (Path(__file__).parent / "remote" / "probe.py").read_bytes()
    done = connection.run(shell(python, "-I", "-", json.dumps(dict(asked))), source, seconds=seconds)
    try:
        found = json.loads(done.out)
        if not isinstance(found, dict):
            raise ValueError("no object")
    except ValueError as error:
        raise PeergateError(f"the probe of the pod gave no facts, it ended with {done.code}: {done.told}") from error
    return found


def machine(told: Mapping[str, Any], pod: PodFile, hub: str | None) -> list[Check]:
    """Judge what can be asked before anything is installed."""
    checks = [_guarded("python", told, lambda: _python(told, pod)), _guarded("clock", told, lambda: _clock(told))]
    checks.append(_guarded("open_files", told, lambda: _open_files(told)))
    checks += _disk(told, pod)
    if pod.gpus:
        checks.append(_guarded("gpu", told, lambda: _gpus(told["gpus"], pod.gpus)))
    if hub is not None:
        checks.append(_guarded("model", told, lambda: _hub(told["hub"], hub)))
    return checks


def environment(
    told: Mapping[str, Any], version: Mapping[str, Any] | str, here: str, pod: PodFile, *, wants_ray: bool = False
) -> list[Check]:
    """Judge the Python that is going to run the session.

    Args:
        told: the facts of the probe.
        version: what Peergate there says of itself, or why it says nothing.
        here: the digest of the measuring code on this machine.
        pod: what was asked for.
        wants_ray: whether a stage's job runs on Ray.
    """
    ray = [_ray(version)] if wants_ray and not isinstance(version, str) else []
    return [_peergate(version, here), *ray, _guarded("torch", told, lambda: _torch(told["torch"], pod))]


def _guarded(id: str, told: Mapping[str, Any], judge: Callable[[], Check]) -> Check:
    """Turn an answer that is missing or has another form into a failure of its check."""
    try:
        return judge()
    except (KeyError, TypeError, ValueError, IndexError):
        found = told.get(id) if isinstance(told.get(id), dict) else {}
        why = plain(str(found.get("error", "")), 300) if isinstance(found, dict) else ""
        return Check(id, "FAIL", f"the pod gave no answer{f': {why}' if why else ''}", "look at it over ssh")


def _python(told: Mapping[str, Any], pod: PodFile) -> Check:
    found = tuple(int(one) for one in told["python"])
    text = ".".join(map(str, found))
    if found < OLDEST:
        return Check(
            "python", "FAIL", f"Python {text}, 3.11 is needed", "install it, or name an environment in the pod file"
        )
    if not pod.environment and told["venv"] is not True:
        return Check(
            "python", "FAIL", f"Python {text} has no venv and ensurepip", "Debian: apt-get install python3-venv"
        )
    return Check("python", "PASS", f"Python {text}, {int(told['cores'])} cores")


def _clock(told: Mapping[str, Any]) -> Check:
    skew = float(told["time"]) - time.time()
    if abs(skew) > MOST_SKEW_S:
        return Check("clock", "WARN", f"its clock differs by {skew:.0f} s", "times in the trail will be its own")
    return Check("clock", "PASS", f"differs by {abs(skew):.0f} s")


def _open_files(told: Mapping[str, Any]) -> Check:
    limit = int(told["files"])
    if 0 <= limit < OPEN_FILES:
        return Check("open_files", "FAIL", f"a process may open {limit} files, {OPEN_FILES} are needed", "ulimit -n")
    return Check("open_files", "PASS", f"{limit if limit >= 0 else 'any number'} a process")


def _disk(told: Mapping[str, Any], pod: PodFile) -> list[Check]:
    disk = told.get("disk")
    hint = "make room, or name another root in the pod file"
    if not isinstance(disk, dict) or "error" in disk:
        why = plain(str(disk.get("error")), 300) if isinstance(disk, dict) else "the pod gave no answer"
        return [Check("write", "FAIL", f"{told.get('root')} cannot be written: {why}", hint)]
    return [
        _guarded("root", told, lambda: _durable(str(told["root"]), str(disk["filesystem"]))),
        _guarded("write", told, lambda: _written(disk, hint)),
        _guarded("free", told, lambda: _free(float(disk["free"]), pod.min_disk_gb, hint)),
    ]


def _durable(root: str, filesystem: str) -> Check:
    if filesystem in GONE_WITH_A_RESTART:
        hint = "name a folder on a volume as root in the pod file"
        return Check("root", "FAIL", f"{plain(root, 200)} lies in memory ({filesystem}): a restart loses it", hint)
    if filesystem in PERHAPS_GONE:
        hint = "a folder on a volume outlasts the container"
        return Check("root", "WARN", f"{plain(root, 200)} lies in the container's own layer ({filesystem})", hint)
    return Check("root", "PASS", f"{plain(root, 200)} on {plain(filesystem, 40)}")


def _written(disk: Mapping[str, Any], hint: str) -> Check:
    seconds = float(disk["seconds"])
    if disk["whole"] is not True:
        return Check("write", "FAIL", "what was written does not read back as it was", hint)
    rate = WRITE_BYTES / 1e6 / max(seconds, 1e-6)
    return Check("write", "PASS", f"{WRITE_BYTES / 1e6:.0f} MB and {100} small files written and read, {rate:.0f} MB/s")


def _free(free: float, wanted_gb: float, hint: str) -> Check:
    if free < wanted_gb * 1e9:
        return Check("free", "FAIL", f"{free / 1e9:.1f} GB are free, the pod file wants {wanted_gb:g}", hint)
    return Check("free", "PASS", f"{free / 1e9:.1f} GB are free, the pod file wants {wanted_gb:g}")


def _gpus(gpus: Mapping[str, Any], wanted: int) -> Check:
    found = [plain(str(one), 80) for one in gpus["list"]]
    if len(found) < wanted:
        why = f" ({plain(str(gpus['why']), 200)})" if gpus.get("why") else ""
        hint = "rent another machine, or lower gpus in the pod file"
        return Check("gpu", "FAIL", f"{len(found)} GPUs{why}, {wanted} are wanted", hint)
    return Check("gpu", "PASS", "; ".join(found))


def _hub(hub: Mapping[str, Any], name: str) -> Check:
    if hub["snapshot"] and not hub["lacks"]:
        return Check("model", "PASS", f"a snapshot of {name} is there")
    lacks = ", ".join(plain(str(one), 80) for one in hub["lacks"][:3])
    there = f"the snapshot of {name} there lacks {lacks}" if hub["snapshot"] else f"no snapshot of {name} there"
    if hub["reachable"] is True:
        return Check("model", "PASS", f"{there}; the hub answers, it is fetched in the end")
    why = plain(str(hub.get("why", "no reason")), 200)
    hint = f"bring a snapshot into its cache: hf download {name}, with HF_HOME under the root"
    return Check("model", "FAIL", f"{there}, and the hub is not reached: {why}", hint)


def _peergate(version: Mapping[str, Any] | str, here: str) -> Check:
    if isinstance(version, str):
        return Check(
            "peergate", "FAIL", f"it does not run there: {version}", "name an environment that has it, or none"
        )
    text = plain(str(version.get("version")), 40)
    if version.get("protocol") != PROTOCOL:
        told = f"Peergate {text} speaks protocol {plain(str(version.get('protocol')), 20)}, this one {PROTOCOL}"
        return Check("peergate", "FAIL", told, "install this version there, or name no environment")
    if version.get("measuring") != here:
        hint = "the audit here says of every number which code computed it"
        return Check("peergate", "WARN", f"Peergate {text}, whose measuring code is another than here", hint)
    return Check("peergate", "PASS", f"Peergate {text}, the same measuring code")


def _ray(version: Mapping[str, Any]) -> Check:
    if version.get("ray") is not True:
        hint = "pip install 'peergate[ray]' there, or name no environment"
        return Check("ray", "FAIL", "a stage has launcher 'ray', and Ray is not installed there", hint)
    return Check("ray", "PASS", "Ray is installed; the session starts a cluster of its own there")


def _torch(torch: Mapping[str, Any], pod: PodFile) -> Check:
    if torch["hung"]:
        hint = "a driver or a network disk that hangs; try `python -c 'import torch'` there, or raise torch_import_s"
        return Check("torch", "FAIL", f"importing torch did not end within {pod.torch_import_s:g} s", hint)
    if "failed" in torch:
        return Check(
            "torch", "FAIL", f"torch cannot be imported: {plain(str(torch['failed']), 300)}", "install it there"
        )
    seconds, devices = float(torch["seconds"]), int(torch["devices"])
    text = f"torch {plain(str(torch['version']), 40)} in {seconds:.1f} s"
    if devices < pod.gpus:
        hint = "this build of torch does not see them: a build for the CPU, or a driver that is too old"
        return Check("torch", "FAIL", f"{text}, it sees {devices} GPUs, {pod.gpus} are wanted", hint)
    return Check("torch", "PASS", f"{text}, {devices} GPUs")
