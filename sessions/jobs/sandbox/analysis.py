"""Runs a short script over files in a sandbox and returns what it prints: no network, no GPU, no child process."""

from __future__ import annotations

import resource
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from specs.system.confinement import bubblewrap
from specs.system.errors import BlockedError

SECONDS = 60.0
MEMORY_MB = 2048
OUTPUT_BYTES = 64_000
_MB = 1024 * 1024
_CODE = "/code/analysis.py"


class ScriptOutput(NamedTuple):
    """What a script printed, and how it ended."""

    text: str
    code: int
    """The exit code of the process; below 0 the signal that ended it."""
    timed_out: bool


def analyse(script: str, inputs: Mapping[str, str], seconds: float = SECONDS) -> ScriptOutput:
    """Run a script that finds each text at ``/inputs/NAME``; raises Blocked if no sandbox works here."""
    host = bubblewrap.this_host()
    if (why := bubblewrap.why_missing(host)) or host is None:
        raise BlockedError(f"no sandbox here: {why}", hint="query_rows, compare_rows and grep need none")
    with (
        tempfile.TemporaryDirectory(prefix="peergate-run-") as made,
        bubblewrap.refused_calls(alone=True) as calls,
    ):
        folder = Path(made)
        (folder / "code.py").write_text(script, encoding="utf-8")
        for name, text in inputs.items():
            (folder / f"in-{name}").write_text(text, encoding="utf-8")
        command = bubblewrap.opening(host, "analysis", {"PATH": "/usr/bin:/bin", "HOME": "/tmp"}, calls)
        command += ["--proc", "/proc", "--remount-ro", "/proc", "--size", str(64 * _MB), "--tmpfs", "/tmp"]
        command += bubblewrap.environment(host)
        command += ["--ro-bind", str(folder / "code.py"), _CODE, "--dir", "/inputs"]
        for name in inputs:
            command += ["--ro-bind", str(folder / f"in-{name}"), f"/inputs/{name}"]
        command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
        with (folder / "printed").open("w+b") as printed:
            process = subprocess.Popen(
                [*command, "--", host.python, "-I", "-B", _CODE],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env={},
                pass_fds=(calls,),
                preexec_fn=_limit,
            )
            timed_out = False
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)
                process.wait()
            printed.seek(0)
            return ScriptOutput(printed.read(OUTPUT_BYTES).decode("utf-8", "replace"), process.returncode, timed_out)


def _limit() -> None:
    """Set what the script may take at most; bubblewrap itself needs little of it."""
    for name, most in (
        (resource.RLIMIT_CPU, int(SECONDS) + 1),
        (resource.RLIMIT_DATA, MEMORY_MB * _MB),
        (resource.RLIMIT_FSIZE, OUTPUT_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(name, (most, most))
