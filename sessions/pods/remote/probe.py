"""Facts about a machine as one line of JSON, before Peergate is installed there: ``python -I - ARGUMENTS``.

It is read from standard input, needs only the standard library, removes what it writes, and runs on a Python that is
too old for Peergate, so that it can report that.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable, Dict, List  # noqa: UP035

Facts = Dict[str, Any]  # noqa: UP006
PIECE = 4 << 20
SMALL_FILES = 100


def main(requests: Facts) -> Facts:
    """Gather the requested facts; a fact that fails is reported as an error, never left out."""
    root = Path(requests["root"]).expanduser().resolve()
    facts: Facts = {
        "root": str(root),
        "time": time.time(),
        "python": list(sys.version_info[:3]),
        "cores": os.cpu_count(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "venv": has_venv(),
        "host": platform.node(),
    }
    ways: Dict[str, Callable[[Facts, Path], Facts]] = {  # noqa: UP006
        "disk": disk,
        "gpus": gpus,
        "hub": hub,
        "session": session,
        "torch": torch,
    }
    for name in requests["facts"]:
        try:
            facts[name] = ways[name](requests, root)
        except Exception as error:
            facts[name] = {"error": f"{type(error).__name__}: {error}"}
    return facts


def has_venv() -> bool:
    """Return whether environments can be made: Debian packages the modules for it separately."""
    return all(importlib.util.find_spec(name) is not None for name in ("ensurepip", "venv"))


def disk(requested_facts: Facts, root: Path) -> Facts:
    """Write, because only that shows a quota; also measure free room and name the file system."""
    above = next(parent for parent in (root, *root.parents) if parent.exists())
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts: Facts = {"filesystem": filesystem(root)}
    large, small = root / f".peergate-probe-{os.getpid()}", root / f".peergate-probe-{os.getpid()}.d"
    remaining, digest, started_at = int(requested_facts["write_bytes"]), hashlib.sha256(), time.monotonic()
    try:
        with large.open("wb") as file:
            while remaining > 0:
                piece = os.urandom(min(PIECE, remaining))
                digest.update(piece)
                remaining -= file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        read = hashlib.sha256()
        with large.open("rb") as file:
            for piece in iter(lambda: file.read(PIECE), b""):
                read.update(piece)
        facts["seconds"] = time.monotonic() - started_at
        facts["whole"] = read.digest() == digest.digest()
        small.mkdir()
        for number in range(SMALL_FILES):
            (small / str(number)).write_bytes(b"1")
    finally:
        shutil.rmtree(str(small), ignore_errors=True)
        with contextlib.suppress(OSError):
            large.unlink()
        made = root
        while made != above:
            with contextlib.suppress(OSError):
                made.rmdir()
            made = made.parent
    status = os.statvfs(str(above))
    facts["free"] = status.f_bavail * status.f_frsize
    return facts


def filesystem(path: Path) -> str:
    """Return the type of a path's file system, as /proc/mounts calls it."""
    wanted = str(path.resolve())
    best = ("", "unknown")
    with Path("/proc/mounts").open(encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            where, kind = line.split(" ")[1:3]
            where = where.replace("\\040", " ")
            below = wanted == where or wanted.startswith(where.rstrip("/") + "/")
            if below and len(where) >= len(best[0]):
                best = (where, kind)
    return best[1]


def gpus(facts: Facts, root: Path) -> Facts:
    """Return name and memory of every GPU, from nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return {"list": [], "why": "nvidia-smi is not installed"}
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)
    lines = [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
    return {"list": lines, "why": ""} if done.returncode == 0 else {"list": [], "why": " ".join(lines)[:300]}


def hub(requested_facts: Facts, root: Path) -> Facts:
    """Look for a whole snapshot of the model under the root; if there is none, ask the hub."""
    folder = "models--" + requested_facts["hub"].replace("/", "--")
    snapshot = newest_snapshot(root / "home" / ".cache" / "huggingface" / "hub" / folder)
    facts: Facts = {"snapshot": str(snapshot) if snapshot else None, "lacks": lacking(snapshot) if snapshot else []}
    if snapshot and not facts["lacks"]:
        facts["reachable"] = None
        return facts
    # As huggingface_hub reads it.
    address = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    try:
        urllib.request.urlopen(address + "/api/models/" + requested_facts["hub"], timeout=15).close()
    except urllib.error.HTTPError as error:
        facts.update({"reachable": False, "why": f"the hub answered {error.code}"})
    except (OSError, ValueError) as error:
        facts.update({"reachable": False, "why": str(error)[:300]})
    else:
        facts["reachable"] = True
    return facts


def newest_snapshot(folder: Path) -> Path | None:
    """Return the snapshot that branch ``main`` names, as a download without a revision does."""
    try:
        named = folder / "snapshots" / (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return named if named.is_dir() else None


def lacking(snapshot: Path) -> List[str]:  # noqa: UP006
    """Return the missing files of a snapshot: an interrupted download leaves only some."""
    lacks = [] if (snapshot / "config.json").is_file() else ["config.json"]
    # Snapshots hold links into another folder; a broken link is not a file.
    there = [path for path in snapshot.iterdir() if path.is_file()]
    missing: List[List[str]] = []  # noqa: UP006
    for table in there:
        if table.name.endswith(".index.json"):
            named = set(json.loads(table.read_text(encoding="utf-8"))["weight_map"].values())
            missing.append(sorted(value for value in named if not (snapshot / value).is_file()))
    if not missing:
        missing.append([] if any(path.suffix in (".safetensors", ".bin") for path in there) else ["weights"])
    # Several tables are the same weights in several formats.
    return lacks + min(missing, key=len)


def session(facts: Facts, root: Path) -> Facts:
    """Return whether a session of this name exists already."""
    return {"there": (root / "runs" / facts["name"] / "trail.sqlite").exists()}


def torch(facts: Facts, root: Path) -> Facts:
    """Import torch in the session's Python, with a time limit: on some machines the import hangs."""
    code = "import json, torch; print(json.dumps([torch.__version__, torch.cuda.device_count()]))"
    started_at = time.monotonic()
    process = subprocess.Popen(
        [facts["python"], "-P", "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, data = process.communicate(timeout=facts["torch_s"])
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"hung": True}
    if process.returncode != 0:
        lines = data.decode("utf-8", "replace").strip().splitlines()
        return {"hung": False, "failed": lines[-1][:300] if lines else f"exit code {process.returncode}"}
    version, devices = json.loads(out.decode().strip().splitlines()[-1])
    return {"hung": False, "seconds": time.monotonic() - started_at, "version": version, "devices": devices}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
