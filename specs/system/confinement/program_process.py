"""The process of a program that a model wrote: no network, no files, no other process, limits of time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from specs.system.confinement import bubblewrap, program_runner
from specs.system.confinement.verifier_command import NoSandbox
from specs.system.digests import digest_value
from specs.system.text import plain

Step = Literal["invalid", "empty", "failed", "overtime", "passed"]
_RUNNER = Path(program_runner.__file__)
"""Imported, so that it is part of the measuring code; run from its text, so that nothing of Peergate is mounted."""
_LINE = 1 << 20
"""The longest arguments or result of a call, as bytes of JSON."""
_STDERR = 4096
_ROOM_MB = 256
"""What Python reserves next to what the program may hold."""
_MOST_KNOWN = 20_000
"""Outcomes that are remembered: measurer, checks and packet ask for the same."""
_TOGETHER = 4


class Program(NamedTuple):
    """A program, what it has to define, and what tests it."""

    text: str
    entry_point: str
    tests: str
    prompt: str = ""
    """The problem's own text, of which the tests may use what it defines."""


class ProgramLimits(NamedTuple):
    """What a program may take."""

    seconds: int
    """Processor time; wall time is limited to four times as much, plus five."""
    memory_mb: int


class ProgramEnding(NamedTuple):
    """How a program ended."""

    step: Step
    why: str
    """The name of an exception, untrusted; empty if it passed."""

    @property
    def valid(self) -> bool:
        """Return whether it is a program with the function asked for."""
        return self.step not in ("invalid", "empty")


def run_all(programs: Sequence[Program], limits: ProgramLimits) -> list[ProgramEnding]:
    """Run programs, a few at a time, and return how each ended; raises NoSandbox where none can be made."""
    require_sandbox()
    with ThreadPoolExecutor(_TOGETHER) as pool:
        return list(pool.map(_run_cached, programs, [limits] * len(programs)))


def require_sandbox() -> None:
    """Raise NoSandbox where a program would run unconfined."""
    host = _host()
    why = bubblewrap.why_missing(host)
    if host is None or why:
        raise NoSandbox(why)
    if seen_paths := bubblewrap.find_uncovered(host, [Path.home()]):
        raise NoSandbox(f"it would show {seen_paths[0]}")


def _host() -> bubblewrap.Host | None:
    """Return this machine with Python alone: an installed package may hold the solutions of a benchmark."""
    host = bubblewrap.this_host(os.path.realpath(sys.executable), [sys.base_prefix])
    return host._replace(hidden=(*host.hidden, *_packages(*host.environment))) if host else None


@cache
def _packages(*environment: str) -> tuple[str, ...]:
    """Return the folders of installed packages in what is mounted."""
    places = (Path(text) for text in (*environment, "/usr", "/usr/local"))
    paths = (path.resolve() for place in places for path in place.glob("lib*/python3*/*-packages"))
    return tuple(dict.fromkeys(str(path) for path in paths if path.is_dir()))


def _run_cached(program: Program, limits: ProgramLimits) -> ProgramEnding:
    key = digest_value([*program, *limits])
    with _LOCK:
        if (known := _KNOWN.get(key)) is not None:
            return known
    result = _run(program, limits)
    with _LOCK:
        _KNOWN[key] = result
        while len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return result


_KNOWN: OrderedDict[str, ProgramEnding] = OrderedDict()
_LOCK = threading.Lock()


def _run(program: Program, limits: ProgramLimits) -> ProgramEnding:
    late = threading.Event()
    started: list[_Child] = []

    def start() -> _Child:
        started.append(_Child(late))
        if late.is_set():
            started[-1].process.kill()
        return started[-1]

    def end() -> None:
        late.set()
        for child in started:
            child.process.kill()

    watch = threading.Timer(4 * limits.seconds + 5, end)
    watch.start()
    try:
        return _exchange(start, program, limits)
    except _Broken as broken:
        return broken.ended
    finally:
        watch.cancel()
        for child in started:
            child.close()


def _exchange(start: Callable[[], _Child], program: Program, limits: ProgramLimits) -> ProgramEnding:
    """Carry calls and values between the two processes; that of the tests alone says whether they passed."""
    mb = 1024 * 1024
    count = (limits.memory_mb + _ROOM_MB) * mb
    limited = {"CPU": limits.seconds, "AS": count, "FSIZE": 0, "CORE": 0, "NOFILE": 32}
    arguments: dict[str, Any] = {"limits": limited, "entry_point": program.entry_point}
    runs = start()
    runs.send(arguments | {"program": program.text})
    statements = runs.read("valid", "invalid", "empty")
    if statements["step"] == "valid":
        statements = runs.read("ran", "failed")
    if statements["step"] == "ran":
        tests = start()
        tests.send(arguments | {"tests": program.tests, "prompt": program.prompt})
        while (statements := tests.read("call", "failed", "passed"))["step"] == "call":
            runs.send({"call": statements["call"]})
            tests.send(runs.read("called"))
    return ProgramEnding(statements["step"], plain(str(statements.get("why", "")), 100))


class _Broken(Exception):
    """A process that ended, or said what it was not asked."""

    def __init__(self, ended: ProgramEnding) -> None:
        super().__init__(ended.why)
        self.ended = ended


class _Child:
    """The runner in its own sandbox."""

    def __init__(self, late: threading.Event) -> None:
        self._late, self._heard = late, False
        host = _host()
        assert host is not None  # As run_all found.
        with bubblewrap.refused_calls(alone=True) as refusing:
            line = bubblewrap.opening(host, "program", {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8"}, refusing)
            line += [*bubblewrap.environment(host), "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                [*line, "--", host.python, "-I", "-S", "-B", "-c", _RUNNER.read_text(encoding="utf-8")],
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env={},
                cwd="/",
                pass_fds=(refusing,),
                start_new_session=True,
            )

    def send(self, statements: dict[str, Any]) -> None:
        """Write a line; who does not read is found when nothing is answered."""
        data = memoryview(json.dumps(statements).encode() + b"\n")
        with suppress(BrokenPipeError):
            while self.process.stdin and data:
                data = data[os.write(self.process.stdin.fileno(), data) :]

    def read(self, *steps: str) -> dict[str, Any]:
        """Return the next line, which has to be one of these steps; raises _Broken and NoSandbox."""
        line = self.process.stdout.readline(_LINE) if self.process.stdout else b""
        if not line:
            raise _Broken(self._how())
        self._heard = True
        with suppress(ValueError, RecursionError):
            statement = json.loads(line)
            if isinstance(statement, dict) and statement.get("step") in steps:
                return statement
        raise _Broken(ProgramEnding("failed", "it sent an unrequested message"))

    def _how(self) -> ProgramEnding:
        code = self.process.wait()
        statement = self.process.stderr.read(_STDERR) if self.process.stderr and not self._heard else b""
        if statement.startswith(b"bwrap:"):
            raise NoSandbox(bubblewrap.why_refused(statement))
        # The system ends what took its time of the processor, and a timer what waits.
        if self._late.is_set() or code in (-24, 128 + 24, 128 + 9, -9):
            return ProgramEnding("overtime", "it took longer than allowed")
        return ProgramEnding("failed", f"its process ended with code {code}")

    def close(self) -> None:
        """End it, and whatever is left of it."""
        self.process.kill()
        self.process.wait()
        for io in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError):
                if io:
                    io.close()
