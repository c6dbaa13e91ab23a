"""The process of a program that a model wrote: no network, no files, no other process, limits of time and memory."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from specs.confinement import bubblewrap, program_runner
from specs.confinement.verifier_command import NoSandbox
from specs.digests import digest_value
from specs.text import plain

Step = Literal["invalid", "empty", "failed", "overtime", "passed"]
_STEPS = ("valid", "ran", "invalid", "empty", "failed", "passed")
_RUNNER = Path(program_runner.__file__)
"""Imported, so that it is part of the measuring code; run from its text, so that nothing of Peergate is mounted."""
_LINE = 4096
_ROOM_MB = 256
"""What Python reserves beside what the program may hold."""
_KEPT = 20_000
"""Outcomes that are remembered: measurer, checks and packet ask for the same."""
_TOGETHER = 4


class Program(NamedTuple):
    """A program, what it has to define, and what tests it."""

    text: str
    entry_point: str
    tests: str


class Limits(NamedTuple):
    """What a program may take."""

    seconds: int
    """Of processor time; four times as much, and five, by the clock."""
    memory_mb: int


class Ended(NamedTuple):
    """How a program ended."""

    step: Step
    why: str
    """The name of an exception, untrusted; empty if it passed."""

    @property
    def valid(self) -> bool:
        """Whether it is a program with the function asked for."""
        return self.step not in ("invalid", "empty")


def run_all(programs: Sequence[Program], limits: Limits) -> list[Ended]:
    """Run programs, a few at a time, and return how each ended; raises NoSandbox where none can be made."""
    require_sandbox()
    with ThreadPoolExecutor(_TOGETHER) as pool:
        return list(pool.map(_remembered, programs, [limits] * len(programs)))


def require_sandbox() -> None:
    """Raise NoSandbox where a program would run unconfined."""
    host = bubblewrap.this_host()
    why = bubblewrap.why_missing(host)
    if host is None or why:
        raise NoSandbox(why)
    if seen := bubblewrap.uncovered(host, [Path.home()]):
        raise NoSandbox(f"it would show {seen[0]}")


def _remembered(program: Program, limits: Limits) -> Ended:
    key = digest_value([*program, *limits])
    with _LOCK:
        if (known := _KNOWN.get(key)) is not None:
            return known
    found = _run(program, limits)
    with _LOCK:
        _KNOWN[key] = found
        while len(_KNOWN) > _KEPT:
            _KNOWN.popitem(last=False)
    return found


_KNOWN: OrderedDict[str, Ended] = OrderedDict()
_LOCK = threading.Lock()


def _run(program: Program, limits: Limits) -> Ended:
    host = bubblewrap.this_host()
    assert host is not None  # As run_all found.
    with bubblewrap.refused_calls(alone=True) as refusing:
        line = bubblewrap.opening(host, "program", {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8"}, refusing)
        line += [*bubblewrap.environment(host), "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*line, "--", host.python, "-I", "-S", "-B", "-c", _RUNNER.read_text(encoding="utf-8")],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={},
            cwd="/",
            pass_fds=(refusing,),
            bufsize=0,
            start_new_session=True,
        )
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    watch = threading.Timer(4 * limits.seconds + 5, end)
    watch.start()
    try:
        return _exchange(process, program, limits, late)
    finally:
        watch.cancel()
        process.kill()
        process.wait()
        for one in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError):
                if one:
                    one.close()


def _exchange(process: subprocess.Popen[bytes], program: Program, limits: Limits, late: threading.Event) -> Ended:
    mb = 1024 * 1024
    held = (limits.memory_mb + _ROOM_MB) * mb
    limited = {"CPU": limits.seconds, "AS": held, "FSIZE": 0, "CORE": 0, "NOFILE": 32}
    _send(process, {"program": program.text, "entry_point": program.entry_point, "limits": limited})
    said, word = _read(process), ""
    if said is None:
        _require_started(process)
    if said is not None and said["step"] == "valid":
        said = _read(process)
        if said is not None and said["step"] == "ran":
            word = secrets.token_hex(16)
            _send(process, {"tests": program.tests, "word": word})
            said = _read(process)
    if said is None:
        # The system ends what took its time of the processor, and a timer what waits.
        code = process.wait()
        if late.is_set() or code in (-24, 128 + 24, 128 + 9, -9):
            return Ended("overtime", "it took longer than allowed")
        return Ended("failed", f"its process ended with code {code}")
    step = said["step"]
    if step == "passed" and (not word or said.get("word") != word):
        return Ended("failed", "it ended before its tests")
    if step in ("valid", "ran"):
        return Ended("failed", "it says what it has said")
    return Ended(step, "" if step == "passed" else plain(str(said.get("why", "")), 100))


def _send(process: subprocess.Popen[bytes], said: dict[str, Any]) -> None:
    left = memoryview(json.dumps(said).encode() + b"\n")
    with suppress(BrokenPipeError):
        while process.stdin and left:
            left = left[os.write(process.stdin.fileno(), left) :]


def _read(process: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """Return the next line; None where there is none, or none of the runner's form."""
    line = process.stdout.readline(_LINE) if process.stdout else b""
    with suppress(ValueError, RecursionError):
        said = json.loads(line)
        if isinstance(said, dict) and said.get("step") in _STEPS:
            return said
    return None


def _require_started(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    said = process.stderr.read(_LINE) if process.stderr else b""
    if said.startswith(b"bwrap:"):
        raise NoSandbox(bubblewrap.why_refused(said))
