"""Bubblewrap on this machine: which parts of it are mounted, and what every sandbox has in common."""

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

from specs.confinement import seccomp
from specs.home import HOME, PACKAGES

NOBODY = "65534"
PROBE_S = 20.0
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


def this_host(python: str = "", prefixes: Sequence[str] = ()) -> Host | None:
    """Describe this machine; None if it has no bubblewrap.

    ``python`` is the interpreter that scripts get, in the environment that lies in the folders ``prefixes``; this
    process's own without.
    """
    bwrap = shutil.which("bwrap") if sys.platform == "linux" else None
    if bwrap is None:
        return None
    present = [Path(path) for path in _SYSTEM if Path(path).exists()]
    links = [(str(path), str(path.readlink()) if path.is_symlink() else "") for path in present]
    # Under both names if they differ: links to the interpreter may hold either.
    places = [Path(one) for one in prefixes or (sys.base_prefix, sys.prefix)]
    folders = dict.fromkeys(str(one) for place in places for one in (place.resolve(), place))
    own = [] if python else libraries()
    folders |= dict.fromkeys(one for one in own if not any(Path(one).is_relative_to(path) for path in folders))
    environment = tuple(one for one in folders if not Path(one).is_relative_to("/usr"))
    mounted = ("/usr", *environment)
    hidden = [str(HOME / name) for name in PACKAGES if any(HOME.is_relative_to(one) for one in mounted)]
    devices = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
    return Host(bwrap, (("/usr", ""), *links), python or sys.executable, environment, tuple(hidden), tuple(devices))


def libraries() -> list[str]:
    """Return the folders of installed packages that this process imports from: a user's own lies in no prefix."""
    return [one for one in sys.path if Path(one).name in ("site-packages", "dist-packages") and Path(one).is_dir()]


def opening(host: Host, name: str, variables: Mapping[str, str], refusing: int) -> list[str]:
    """Return the command's beginning: namespaces, user, variables, system and devices, but nothing of a user's."""
    command = [host.bwrap, "--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session"]
    command += ["--cap-drop", "ALL", "--uid", NOBODY, "--gid", NOBODY, "--hostname", name, "--clearenv"]
    command += ["--seccomp", str(refusing)]
    for variable, value in variables.items():
        command += ["--setenv", variable, value]
    for path, target in host.system:
        command += ["--symlink", target, path] if target else ["--ro-bind", path, path]
    for path in _ETC:
        command += ["--ro-bind-try", path, path]
    # Shared mappings of /dev/zero are memory in no folder and, once a process releases their pages, in no process. A
    # file that is bound without its device cannot be opened.
    return [*command, "--dev", "/dev", "--ro-bind", "/dev/null", "/dev/zero"]


def environment(host: Host) -> list[str]:
    """Return the mounts of the Python environment, Peergate's own packages covered; an empty /tmp comes before them."""
    command: list[str] = []
    for path in host.environment:
        command += ["--ro-bind", path, path]
    for path in host.hidden:
        command += ["--size", str(_MB), "--tmpfs", path, "--remount-ro", path]
    return command


def why_missing(host: Host | None) -> str:
    """Return why this machine can have no sandbox; empty if nothing is missing. Nothing is started."""
    if host is None:
        return "bubblewrap (bwrap) is not installed" if sys.platform == "linux" else "bubblewrap runs on Linux only"
    return "" if seccomp.program() else f"there is no filter of system calls for {platform.machine()}"


def why_refused(said: bytes) -> str:
    """Return why bubblewrap made no sandbox, by what it printed."""
    lines = said.decode("utf-8", "replace").strip().splitlines() or ["no message"]
    return f"bubblewrap cannot make a sandbox: {lines[-1][:300]}"


def why_not(command: Sequence[str], refusing: int) -> str:
    """Run a command in a sandbox, and say why that fails here; empty if it works."""
    try:
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
    return "" if done.returncode == 0 else why_refused(done.stderr)


@contextmanager
def refused_calls(*, alone: bool = False) -> Generator[int]:
    """Yield a file descriptor of the filter of system calls; ``alone``: it refuses to start processes too.

    Raises OSError if there is none for this machine.
    """
    filter = seccomp.program(alone=alone)
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
