"""The command of a verifier's process: what of this machine it sees."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from specs.system.confinement import bubblewrap
from specs.system.digests import Contract
from specs.system.home import HOME

SERVER = "training.rules.tasks.verifier_server"
PEERGATE = "/code/peergate"
READABLE = ("specs", "training/__init__.py", "training/rules")
"""What a task may import of Peergate; the rest stays outside."""
COVERED = ("specs/library",)
"""Held-out items lie there."""
_SEEDS = ("0", "1")
"""Seeds of Python's hashes, in the process that judges and in the process that judges again."""


class NoSandbox(Exception):
    """No sandbox works here; the message says why."""


class Command(NamedTuple):
    """A command to start."""

    line: list[str]
    variables: dict[str, str]
    passed: tuple[int, ...]
    """Descriptors that it needs; none without a sandbox."""


@contextmanager
def open_confined_command(packages: Sequence[Path], *, again: bool, anyway: bool) -> Generator[Command]:
    """Yield the command, which can be started as long as the context lasts.

    Args:
        packages: folders of the distribution that brings the task.
        again: of the process that is asked again.
        anyway: without a sandbox where none can be made.

    Raises:
        NoSandbox: there is none, or it would show the user's home.
    """
    python = [sys.executable, "-s", "-P", "-B", "-m", SERVER]
    host = bubblewrap.this_host()
    why = bubblewrap.why_missing(host)
    if host is None or why or (anyway and _cannot(host)):
        if not anyway:
            raise NoSandbox(why)
        yield Command(python, _variables([HOME, *(package.parent for package in packages)], again), ())
        return
    if seen_paths := bubblewrap.find_uncovered(host, [Path.home()]):
        raise NoSandbox(f"it would show {seen_paths[0]}")
    with bubblewrap.refused_calls(alone=True) as refusing:
        # Those of the environment are mounted with it.
        elsewhere = [path for path in packages if not bubblewrap.find_uncovered(host, [path])]
        variables = _variables([Path(PEERGATE), *(path.parent for path in elsewhere)], again)
        line = bubblewrap.opening(host, "verifier", variables, refusing)
        line += bubblewrap.environment(host)
        for name in READABLE:
            line += ["--ro-bind", str(HOME / name), f"{PEERGATE}/{name}"]
        for name in COVERED:
            line += ["--tmpfs", f"{PEERGATE}/{name}", "--remount-ro", f"{PEERGATE}/{name}"]
        for path in elsewhere:
            line += ["--ro-bind", str(path), str(path)]
        line += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
        yield Command([*line, "--", *python], {}, (refusing,))


def _variables(paths: Sequence[Path], again: bool) -> dict[str, str]:
    """Return the whole environment of the process, which imports from these folders first."""
    value = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    places = ":".join([*map(str, paths), *bubblewrap.libraries()])
    return {"PYTHONPATH": places, "PYTHONHASHSEED": _SEEDS[again], "LANG": "C.UTF-8", **dict.fromkeys(value, "1")}


def _cannot(host: bubblewrap.Host) -> bool:
    """Return whether bubblewrap fails here, where the spec allows to do without it."""
    with bubblewrap.refused_calls(alone=True) as refusing:
        command = bubblewrap.opening(host, "probe", {}, refusing) + bubblewrap.environment(host)
        return bool(bubblewrap.why_not([*command, "--", host.python, "-I", "-c", ""], refusing))


class VerifierLimits(Contract):
    """The limits of a verifier's process."""

    seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """The longest it may take for one answer, of wall time and of processor time."""
    memory_mb: Annotated[int, Field(ge=128, le=1_048_576)] = 512
    """MiB of memory its process may hold."""
    sandbox: bool = True
    """False: without a working sandbox it may run with your rights, and the checks say so."""


class OwnVerifier(VerifierLimits):
    """A task of the user's own: the limits of its verifier, and whether the builder may read it."""

    builder_reads: bool = False
    """Whether the builder may read the task's file."""

    def limits(self) -> VerifierLimits:
        """Return what the order of a job carries."""
        return VerifierLimits(seconds=self.seconds, memory_mb=self.memory_mb, sandbox=self.sandbox)
