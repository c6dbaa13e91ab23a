"""The sandbox code of a builder runs in: bubblewrap, told what to mount and nothing else.

Mounted are the system's libraries and the Python environment, the inputs, the script, all read-only, and ``/out``,
``/tmp`` and ``/dev/shm`` in memory, each with a size. Not mounted: the run folder, store, trail, keys, home, held-out
items, Peergate itself. There is no network, no other process to be seen, no variable that is not named here.

What it does not give: a second kernel. Who breaks out of Linux namespaces is out. Memory, processes and files are
counted from outside up to fifty times a second (``sessions/jobs/sandbox/recipe_job.py``), so a fast hog overshoots
before it is ended. A GPU is shared with whatever else uses it.
"""

from __future__ import annotations

import errno
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sessions.jobs.sandbox import seccomp
from specs.home import HOME, PACKAGES
from specs.stages.recipes.parameters import RecipeParameters

INPUTS, OUT, CODE, STARTER = "/inputs", "/out", "/code/recipe.py", "/code/start.py"
NOBODY = "65534"
PROBE_S = 20.0
PROBE = "import ctypes, json, socket"
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/ld.so.cache", "/etc/alternatives")
_MB = 1024 * 1024


class Host(NamedTuple):
    """What of this machine is mounted."""

    bwrap: str
    system: tuple[tuple[str, str], ...]
    """Folders of the system: path and, where it is a symbolic link, its target."""
    python: str
    environment: tuple[str, ...]
    """The folders of the Python environment."""
    hidden: tuple[str, ...] = ()
    """Folders in those that are covered: Peergate's own packages, which come with held-out items and prompts."""
    devices: tuple[str, ...] = ()
    """The devices of GPUs."""


class Work(NamedTuple):
    """What one recipe is given."""

    code: Path
    starter: Path
    inputs: Mapping[str, Path]


def this_host() -> Host | None:
    """Describe this machine; None where there is no bubblewrap."""
    bwrap = shutil.which("bwrap") if sys.platform == "linux" else None
    if bwrap is None:
        return None
    present = [Path(path) for path in _SYSTEM if Path(path).exists()]
    links = [(str(path), str(path.readlink()) if path.is_symlink() else "") for path in present]
    # Under both names where they differ: an interpreter is found through links that hold either.
    prefixes = [Path(one) for one in (sys.base_prefix, sys.prefix)]
    folders = dict.fromkeys(str(one) for prefix in prefixes for one in (prefix.resolve(), prefix))
    environment = tuple(one for one in folders if not Path(one).is_relative_to("/usr"))
    mounted = ("/usr", *environment)
    hidden = [str(HOME / name) for name in PACKAGES if any(HOME.is_relative_to(one) for one in mounted)]
    devices = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
    return Host(bwrap, (("/usr", ""), *links), sys.executable, environment, tuple(hidden), tuple(devices))


def arguments(host: Host, work: Work, parameters: RecipeParameters, starter: Sequence[str], refusing: int) -> list[str]:
    """Return the command that runs the starter, and with it the recipe, in the sandbox. Pure.

    Args:
        host: what of the machine is mounted.
        work: script, starter and inputs.
        parameters: what the grant allows.
        starter: arguments of the starter.
        refusing: file descriptor of the filter of system calls.
    """
    size = str(parameters.output_mb * _MB)
    command = [host.bwrap, "--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL", "--uid", NOBODY, "--gid", NOBODY, "--hostname", "recipe", "--clearenv"]
    command += ["--seccomp", str(refusing)]
    for name, value in variables(parameters, INPUTS, OUT).items():
        command += ["--setenv", name, value]
    for path, target in host.system:
        command += ["--symlink", target, path] if target else ["--ro-bind", path, path]
    for path in _ETC:
        command += ["--ro-bind-try", path, path]
    # Where Peergate runs as root, the kernel's settings below /proc/sys belong to the script's user.
    command += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    # Its shared mappings are memory in no folder and, once a process lets go of their pages, in no process. What is
    # bound without its device cannot be opened.
    command += ["--ro-bind", "/dev/null", "/dev/zero"]
    for path in host.devices if parameters.gpu else ():
        command += ["--dev-bind", path, path]
    for path in ("/dev/shm", "/tmp", OUT):
        command += ["--size", size, "--tmpfs", path]
    # After /tmp, which would hide an environment that lies in it.
    for path in host.environment:
        command += ["--ro-bind", path, path]
    for path in host.hidden:
        command += ["--size", str(_MB), "--tmpfs", path, "--remount-ro", path]
    command += ["--ro-bind", str(work.starter), STARTER, "--ro-bind", str(work.code), CODE, "--dir", INPUTS]
    for role, path in sorted(work.inputs.items()):
        command += ["--ro-bind", str(path), f"{INPUTS}/{role}"]
    command += ["--remount-ro", "/dev"]
    # The root is a writable tmpfs without a size until now.
    command += ["--remount-ro", "/", "--chdir", OUT]
    return [*command, "--", host.python, "-I", "-B", STARTER, *starter]


JOB_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONHASHSEED": "0",
    # Waiting threads sleep. By default they spin, and two jobs on the same cores then slow each other down many times
    # (bench/contention.py).
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Of every job, in a sandbox or not."""


def variables(parameters: RecipeParameters, inputs: str, out: str) -> dict[str, str]:
    """Return the whole environment of a recipe."""
    found = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "USER": "recipe",
        "LANG": "C.UTF-8",
        "INPUTS": inputs,
        "OUT": out,
        "SEED": str(parameters.seed),
        "MPLCONFIGDIR": "/tmp",
        **JOB_VARIABLES,
    }
    return found if parameters.gpu else found | {"CUDA_VISIBLE_DEVICES": ""}


def why_not(host: Host | None) -> str:
    """Say why nothing can be run in a sandbox here; empty when it can. A command is really run in one."""
    if host is None:
        return "bubblewrap (bwrap) is not installed" if sys.platform == "linux" else "bubblewrap runs on Linux only"
    if seccomp.program() is None:
        return f"there is no filter of system calls for {platform.machine()}"
    itself = Path(__file__)
    try:
        with refused_calls() as refusing:
            work = Work(itself, itself, {"probe": itself})
            command = arguments(host, work, RecipeParameters(output_mb=1), (), refusing)
            command = [*command[: command.index("--") + 1], host.python, "-I", "-c", PROBE]
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={},
                pass_fds=(refusing,),
                check=False,
                timeout=PROBE_S,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run: {error}"
    if done.returncode == 0:
        return ""
    said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
    return f"bubblewrap cannot make a sandbox: {said[-1][:300]}"


@contextmanager
def refused_calls() -> Generator[int]:
    """Yield a file descriptor that holds the filter of system calls.

    Raises:
        OSError: there is no filter for this machine, or no temporary file.
    """
    filter = seccomp.program()
    if filter is None:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    with tempfile.TemporaryFile() as file:
        file.write(filter)
        file.seek(0)
        yield file.fileno()


def uncovered(host: Host, kept: Sequence[Path]) -> list[Path]:
    """Return those of the files and folders that must not be seen which lie in a mounted folder and are not covered."""
    mounted = [Path(path).resolve() for path in (*(path for path, _ in host.system), *host.environment)]
    covered = [Path(path) for path in host.hidden]
    return [
        path
        for path in (one.resolve() for one in kept)
        if any(path.is_relative_to(one) for one in mounted) and not any(path.is_relative_to(one) for one in covered)
    ]


def version(host: Host) -> str:
    """Return what bubblewrap says of itself, for the manifest."""
    done = subprocess.run([host.bwrap, "--version"], capture_output=True, text=True, env={}, check=False, timeout=10)
    return done.stdout.strip()[:80] or "bubblewrap"
