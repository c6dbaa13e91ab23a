"""The sandbox for a builder's code: bubblewrap with a fixed list of mounts, variables and limits, and no network.

Not mounted are the run folder, store, trail, keys, home, held-out items and Peergate itself. It shares the kernel, and
a GPU with its other users. ``recipe_job.py`` counts memory, processes and files up to fifty times a second, so a fast
process overshoots before it is ended.
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

from sessions.jobs.job_environment import JOB_VARIABLES
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
    """The mounted parts of this machine."""

    bwrap: str
    system: tuple[tuple[str, str], ...]
    """Folders of the system: path and, for a symbolic link, its target."""
    python: str
    environment: tuple[str, ...]
    """The folders of the Python environment."""
    hidden: tuple[str, ...] = ()
    """Covered folders in those: Peergate's own packages, which hold held-out items and prompts."""
    devices: tuple[str, ...] = ()
    """The devices of GPUs."""


class Work(NamedTuple):
    """The files of one recipe."""

    code: Path
    starter: Path
    inputs: Mapping[str, Path]


def this_host(python: str = "", prefixes: Sequence[str] = ()) -> Host | None:
    """Describe this machine; None if it has no bubblewrap.

    ``python`` is the interpreter that scripts get, in the environment that lies in the folders ``prefixes``; Peergate's
    own where none is named.
    """
    bwrap = shutil.which("bwrap") if sys.platform == "linux" else None
    if bwrap is None:
        return None
    present = [Path(path) for path in _SYSTEM if Path(path).exists()]
    links = [(str(path), str(path.readlink()) if path.is_symlink() else "") for path in present]
    # Under both names if they differ: links to the interpreter may hold either.
    places = [Path(one) for one in (prefixes or (sys.base_prefix, sys.prefix))]
    folders = dict.fromkeys(str(one) for prefix in places for one in (prefix.resolve(), prefix))
    environment = tuple(one for one in folders if not Path(one).is_relative_to("/usr"))
    mounted = ("/usr", *environment)
    hidden = [str(HOME / name) for name in PACKAGES if any(HOME.is_relative_to(one) for one in mounted)]
    devices = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
    return Host(bwrap, (("/usr", ""), *links), python or sys.executable, environment, tuple(hidden), tuple(devices))


def arguments(host: Host, work: Work, parameters: RecipeParameters, starter: Sequence[str], refusing: int) -> list[str]:
    """Return the command that runs a starter with its arguments; ``refusing`` is a descriptor of the call filter."""
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
    # If Peergate runs as root, the kernel's settings below /proc/sys belong to the script's user.
    command += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    # Shared mappings of /dev/zero are memory in no folder and, once a process releases their pages, in no process. A
    # file that is bound without its device cannot be opened.
    command += ["--ro-bind", "/dev/null", "/dev/zero"]
    for path in host.devices if parameters.gpu else ():
        command += ["--dev-bind", path, path]
    for path in ("/dev/shm", "/tmp", OUT):
        command += ["--size", size, "--tmpfs", path]
    # After /tmp, which would hide an environment in it.
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
    """Run a command in a sandbox, and say why that fails here; empty if it works."""
    if host is None:
        return "bubblewrap (bwrap) is not installed" if sys.platform == "linux" else "bubblewrap runs on Linux only"
    if seccomp.program() is None:
        return f"there is no filter of system calls for {platform.machine()}"
    itself = Path(__file__)
    try:
        with refused_calls() as refusing:
            work = Work(itself, itself, {"probe": itself})
            command = arguments(host, work, RecipeParameters(output_mb=1), (), refusing)
            done = subprocess.run(
                [*command[: command.index("--") + 1], host.python, "-I", "-c", PROBE],
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
    """Yield a file descriptor of the filter of system calls; raise OSError if there is none for this machine."""
    filter = seccomp.program()
    if filter is None:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    with tempfile.TemporaryFile() as file:
        file.write(filter)
        file.seek(0)
        yield file.fileno()


def uncovered(host: Host, kept: Sequence[Path]) -> list[Path]:
    """Return the secret files and folders that lie in a mounted folder and are not covered."""
    mounted = [Path(path).resolve() for path in (*(path for path, _ in host.system), *host.environment)]
    covered = [Path(path) for path in host.hidden]
    return [
        path
        for path in (one.resolve() for one in kept)
        if any(path.is_relative_to(one) for one in mounted) and not any(path.is_relative_to(one) for one in covered)
    ]


def version(host: Host) -> str:
    """Return bubblewrap's version, for the manifest."""
    done = subprocess.run([host.bwrap, "--version"], capture_output=True, text=True, env={}, check=False, timeout=10)
    return done.stdout.strip()[:80] or "bubblewrap"
