"""Is this pod fit for this session? Each check has a status, a reason and a hint; FAIL stops."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sessions.pods.connection import PodConnection, shell
from sessions.pods.pod_file import PodFile
from sessions.pods.protocol import PROTOCOL
from specs.session.needed_packages import NeededPackage
from specs.system.confinement.bubblewrap import HOW_TO_INSTALL
from specs.system.text import plain

Status = Literal["PASS", "WARN", "FAIL"]
Answer = tuple[Status, str] | tuple[Status, str, str]
"""Status, detail and hint of a check."""
Facts = Mapping[str, Any]
PYTHONS = ("python3.13", "python3.12", "python3.11", "python3")
OLDEST = (3, 11)
WRITE_BYTES = 64 << 20
OPEN_FILES = 1024
MOST_SKEW_S = 300.0
GONE_WITH_A_RESTART = ("tmpfs", "ramfs", "devtmpfs")
PERHAPS_GONE = ("overlay", "aufs")
_ROOM = "make room, or name another root in the pod file"


class PodCheck(NamedTuple):
    """The result of one check."""

    id: str
    status: Status
    detail: str
    hint: str = ""


def python_of_machine(connection: PodConnection) -> str | None:
    """Return the first of :data:`PYTHONS` that the pod has; None if it has none."""
    script = 'for one in "$@"; do command -v "$one" && exit 0; done; exit 1'
    done = connection.run(shell("/bin/sh", "-c", script, "sh", *PYTHONS))
    return done.out.decode("utf-8", "replace").strip() if done.code == 0 else None


def facts(connection: PodConnection, python: str, requested_facts: Facts, seconds: float = 180.0) -> dict[str, Any]:
    """Run the probe on the pod and return its facts, or raise PeergateError if it gave none."""
    source = (Path(__file__).parent / "remote" / "probe.py").read_bytes()
    words = shell(python, "-I", "-", json.dumps(dict(requested_facts)))
    return connection.run_json(words, source, "the probe of the pod gave no facts", seconds=seconds)


def machine(facts: Facts, pod: PodFile, hub: str | None) -> list[PodCheck]:
    """Judge the facts that need no installation."""
    checks = [
        _run_guarded("python", facts, lambda: _python(facts, pod)),
        _run_guarded("clock", facts, lambda: _clock(facts)),
        _run_guarded("open_files", facts, lambda: _open_files(facts)),
        *_disk(facts, pod),
    ]
    if pod.gpus:
        checks.append(_run_guarded("gpu", facts, lambda: _gpus(facts["gpus"], pod.gpus)))
    if hub is not None:
        checks.append(_run_guarded("model", facts, lambda: _hub(facts["hub"], hub)))
    return checks


def environment(
    facts: Facts,
    version: Facts | str,
    here: str,
    pod: PodFile,
    *,
    plugins: Mapping[str, str],
    packages: Sequence[NeededPackage] = (),
    sandboxed: Sequence[str] = (),
) -> list[PodCheck]:
    """Judge the Python that is going to run the session.

    ``version`` is what Peergate on the pod says of itself, or why it says nothing; ``here`` is this machine's digest of
    the measuring code, ``plugins`` what the spec uses of other distributions, by their identity on this machine.
    """
    more: list[PodCheck] = []
    if not isinstance(version, str) and packages:
        more.append(_check("packages", _packages(version, packages)))
    if not isinstance(version, str) and sandboxed:
        more.append(_check("bubblewrap", _bubblewrap(version, sandboxed)))
    torch = _run_guarded("torch", facts, lambda: _torch(facts["torch"], pod))
    return [_check("peergate", _peergate(version, here, plugins)), *more, torch]


def _check(id: str, answer: Answer) -> PodCheck:
    status, detail, *hint = answer
    return PodCheck(id, status, detail, *hint)


def _run_guarded(id: str, facts: Facts, judge: Callable[[], Answer]) -> PodCheck:
    """Fail a check whose answer is missing or malformed."""
    try:
        return _check(id, judge())
    except (KeyError, TypeError, ValueError, IndexError):
        result = facts.get(id)
        why = plain(str(result.get("error", "")), 300) if isinstance(result, dict) else ""
        return PodCheck(id, "FAIL", f"the pod gave no answer{f': {why}' if why else ''}", "look at it over ssh")


def _python(facts: Facts, pod: PodFile) -> Answer:
    counts = tuple(int(value) for value in facts["python"])
    text = ".".join(map(str, counts))
    if counts < OLDEST:
        return "FAIL", f"Python {text}, 3.11 is needed", "install it, or name an environment in the pod file"
    if not pod.environment and facts["venv"] is not True:
        return "FAIL", f"Python {text} has no venv and ensurepip", "Debian: apt-get install python3-venv"
    return "PASS", f"Python {text}, {int(facts['cores'])} cores"


def _clock(facts: Facts) -> Answer:
    skew = float(facts["time"]) - time.time()
    if abs(skew) > MOST_SKEW_S:
        return "WARN", f"its clock differs by {skew:.0f} s", "the trail will hold the pod's times"
    return "PASS", f"differs by {abs(skew):.0f} s"


def _open_files(facts: Facts) -> Answer:
    limit = int(facts["files"])
    if 0 <= limit < OPEN_FILES:
        return "FAIL", f"a process may open {limit} files, {OPEN_FILES} are needed", "ulimit -n"
    return "PASS", f"{limit if limit >= 0 else 'any number'} a process"


def _disk(facts: Facts, pod: PodFile) -> list[PodCheck]:
    disk = facts.get("disk")
    if not isinstance(disk, dict) or "error" in disk:
        why = plain(str(disk.get("error")), 300) if isinstance(disk, dict) else "the pod gave no answer"
        return [PodCheck("write", "FAIL", f"{facts.get('root')} cannot be written: {why}", _ROOM)]
    return [
        _run_guarded("root", facts, lambda: _durable(plain(str(facts["root"]), 200), str(disk["filesystem"]))),
        _run_guarded("write", facts, lambda: _judge_write_speed(disk)),
        _run_guarded("free", facts, lambda: _free(float(disk["free"]), pod.min_disk_gb)),
    ]


def _durable(root: str, filesystem: str) -> Answer:
    if filesystem in GONE_WITH_A_RESTART:
        hint = "name a folder on a volume as root in the pod file"
        return "FAIL", f"{root} lies in memory ({filesystem}): a restart loses it", hint
    if filesystem in PERHAPS_GONE:
        return "WARN", f"{root} lies in the container's own layer ({filesystem})", "a volume outlasts the container"
    return "PASS", f"{root} on {plain(filesystem, 40)}"


def _judge_write_speed(disk: Facts) -> Answer:
    seconds = float(disk["seconds"])
    if disk["whole"] is not True:
        return "FAIL", "the probe read back other bytes than it wrote", _ROOM
    size = WRITE_BYTES / 1e6
    return "PASS", f"{size:.0f} MB and 100 small files written and read, {size / max(seconds, 1e-6):.0f} MB/s"


def _free(free: float, wanted_gb: float) -> Answer:
    message = f"{free / 1e9:.1f} GB are free, the pod file wants {wanted_gb:g}"
    return ("FAIL", message, _ROOM) if free < wanted_gb * 1e9 else ("PASS", message)


def _gpus(gpus: Facts, wanted: int) -> Answer:
    texts = [plain(str(value), 80) for value in gpus["list"]]
    if len(texts) < wanted:
        why = f" ({plain(str(gpus['why']), 200)})" if gpus.get("why") else ""
        hint = "rent another machine, or lower gpus in the pod file"
        return "FAIL", f"{len(texts)} GPUs{why}, {wanted} are wanted", hint
    return "PASS", "; ".join(texts)


def _hub(hub: Facts, name: str) -> Answer:
    if hub["snapshot"] and not hub["lacks"]:
        return "PASS", f"a snapshot of {name} is there"
    lacks = ", ".join(plain(str(lack), 80) for lack in hub["lacks"][:3])
    there = f"the snapshot of {name} there lacks {lacks}" if hub["snapshot"] else f"no snapshot of {name} there"
    if hub["reachable"] is True:
        return "PASS", f"{there}; the hub answers, it is fetched in the end"
    why = plain(str(hub.get("why", "no reason")), 200)
    hint = f"bring a snapshot into its cache: hf download {name}, with HF_HOME under the root"
    return "FAIL", f"{there}, and the hub is not reached: {why}", hint


def _peergate(version: Facts | str, here: str, plugins: Mapping[str, str]) -> Answer:
    if isinstance(version, str):
        return "FAIL", f"it does not run there: {version}", "name an environment that has it, or none"
    text = plain(str(version.get("version")), 40)
    if version.get("protocol") != PROTOCOL:
        message = f"Peergate {text} speaks protocol {plain(str(version.get('protocol')), 20)}, this one {PROTOCOL}"
        return "FAIL", message, "install this version there, or name no environment"
    if version.get("measuring") != here:
        hint = "the audit here reports which code computed each number"
        return "WARN", f"Peergate {text}, whose measuring code differs from the code here", hint
    there = version.get("plugins")
    other = [what for what in plugins if not isinstance(there, dict) or there.get(what) != plugins[what]]
    if other:
        hint = "install there what is installed here: the spec is registered with it"
        return "WARN", f"Peergate {text}, other plug-ins than here: {', '.join(other)}", hint
    return "PASS", f"Peergate {text}, the same measuring code"


def _packages(version: Facts, packages: Sequence[NeededPackage]) -> Answer:
    there = version.get("modules")
    missing = [package for package in packages if not isinstance(there, list) or package.module not in there]
    if missing:
        extras = ",".join(dict.fromkeys(package.extra for package in missing))
        named = ", ".join(f"{package.module} ({package.where})" for package in missing)
        return (
            "FAIL",
            f"not installed there: {named}",
            f"install the extras {extras} there, or name no environment",
        )
    return "PASS", f"all {len(packages)} packages of the stages are installed"


def _bubblewrap(version: Facts, sandboxed: Sequence[str]) -> Answer:
    why = version.get("sandbox")
    if why != "":
        text = plain(str(why), 300) if isinstance(why, str) else "the pod does not say whether it is there"
        return "FAIL", f"{', '.join(sandboxed)} run code in a sandbox: {text}", HOW_TO_INSTALL
    return "PASS", "bubblewrap makes sandboxes"


def _torch(torch: Facts, pod: PodFile) -> Answer:
    if torch["hung"]:
        hint = "a driver or a network disk that hangs; try `python -c 'import torch'` there, or raise torch_import_s"
        return "FAIL", f"importing torch did not end within {pod.torch_import_s:g} s", hint
    if "failed" in torch:
        return "FAIL", f"torch cannot be imported: {plain(str(torch['failed']), 300)}", "install it there"
    seconds, devices = float(torch["seconds"]), int(torch["devices"])
    text = f"torch {plain(str(torch['version']), 40)} in {seconds:.1f} s"
    if devices < pod.gpus:
        hint = "this build of torch does not see them: a build for the CPU, or a driver that is too old"
        return "FAIL", f"{text}, it sees {devices} GPUs, {pod.gpus} are wanted", hint
    return "PASS", f"{text}, {devices} GPUs"
