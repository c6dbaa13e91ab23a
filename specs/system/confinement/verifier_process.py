"""The process of a verifier that is not Peergate's own: no network, no files of the user, limits, one line an answer.

``training/rules/tasks/verifier_server.py`` is what runs in it. Whatever it sends is untrusted. A process that hangs,
ends or breaks the form of its answers is killed, and the fault closes the gate.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, NoReturn

from specs.system import plugins
from specs.system.confinement import bubblewrap, task_file
from specs.system.confinement.verifier_command import Command, NoSandbox, VerifierLimits, open_confined_command
from specs.system.errors import PluginFault, UnconfinedTask
from specs.system.text import plain

GROUP: plugins.Group = "peergate.tasks"
MOST_LIVE = 4
"""Processes that wait for the next answers; the process unused for longest ends first."""
START_S = 40.0
"""Next to the time that its import may take, on a busy machine."""
MOST_SENT = 64 * 1024 * 1024
MOST_ANSWERED = 16 * 1024 * 1024
"""Bytes of one line to and from it."""
_PIECE = 64 * 1024
_SLOW = "make it quicker, or register a longer time: `verifier: {seconds: 60}`"
_ROOM_MB = 1024
"""What a process may reserve next to what it may hold: libraries are mapped, not held."""


class TaskDescription(NamedTuple):
    """What a task brings, as its process says."""

    parts: frozenset[str]
    """The names of :data:`specs.system.confinement.task_file.PARTS` that it has."""
    own_items: bool
    """Whether it has a form for its items."""


def describe_task(task: str) -> TaskDescription:
    """Return what a task brings; raises PluginFault as :func:`ask`."""
    return _live(task, again=False).described


def ask(task: str, requests: Sequence[Mapping[str, Any]], *, again: bool = False) -> list[dict[str, Any]]:
    """Return a task's answers to requests, in their order.

    ``again`` asks another process, whose hashes have another seed.

    Raises:
        KeyError: no one has read a spec or an order with this task file.
        TaskFault: the user has not named this file, or it cannot be used.
        PluginFault: the task breaks, takes too long or too much memory, or no sandbox works here.
    """
    return _live(task, again=again).ask(requests) if requests else []


def end_all() -> None:
    """End all processes of verifiers."""
    with _LOCK:
        while _LIVE:
            _LIVE.popitem()[1].end()


def _live(task: str, *, again: bool) -> _Process:
    limits = task_file.limits_of(task)
    key = (task, limits.model_dump_json(), again)
    with _LOCK:
        process = _LIVE.pop(key, None)
        if process is None or process.ended:
            process = _Process(task, limits, again)
        _LIVE[key] = process
        for old in [key for key, process in _LIVE.items() if not process.busy][: max(0, len(_LIVE) - MOST_LIVE)]:
            _LIVE.pop(old).end()
        return process


class _Process:
    """One process of one task."""

    def __init__(self, task: str, limits: VerifierLimits, again: bool) -> None:
        self._limits = limits
        self._count = 0
        self._buffer = bytearray()
        self._current_request: Mapping[str, Any] = {}
        self._lock = threading.Lock()
        self.ended = False
        text, point = None, None
        if task_file.is_file(task):
            text, self._where = task_file.trusted_text(task), task_file.path_of(task)
        else:
            point = plugins.find(GROUP, task)
            self._where = plugins.where(point) if point else task
        with ExitStack() as exit_stack:
            packages = () if point is None else plugins.packages_of(point)
            try:
                anyway = not limits.sandbox and task_file.may_run_unconfined(task)
                started = exit_stack.enter_context(open_confined_command(packages, again=again, anyway=anyway))
            except NoSandbox as error:
                raise self._make_unconfined_error(str(error)) from error
            self._process = _start_process(started)
            self._in, self._out = (io.fileno() for io in (self._process.stdin, self._process.stdout) if io)
            for value in (self._in, self._out):
                os.set_blocking(value, False)
            hello = {
                "task": task,
                "text": text,
                "point": point and [point.value, self._where],
                "load_seconds": plugins.LOAD_SECONDS,
                "limits": _rlimits(limits),
                "seconds": limits.seconds,
            }
            (statements,) = self._exchange([hello], plugins.LOAD_SECONDS + START_S)
        if "fault" in statements:
            self.end()
        self.described = self._read_description(_or_fault(statements, self._where))

    @property
    def busy(self) -> bool:
        """Return whether another thread waits for its answers."""
        return self._lock.locked()

    def ask(self, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the answers; raises PluginFault if the process gives none, or if an answer is a fault."""
        with self._lock:
            return [_or_fault(value, self._where) for value in self._exchange(requests, self._limits.seconds)]

    def end(self) -> None:
        """Kill the process."""
        self.ended = True
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(OSError):
                if pipe:
                    pipe.close()

    def _make_unconfined_error(self, why: str) -> UnconfinedTask:
        hint = "install bubblewrap 0.8 or newer, or let it make user namespaces here"
        if self._limits.sandbox:
            hint += (
                "; or register `verifier: {sandbox: false}`, and `peergate start` runs the verifier with your rights"
            )
        else:
            hint += "; only a session that you start or sign honours `sandbox: false`, commands that read never do: "
            hint += "`peergate spec check --unconfined` tries the verifier with your rights, as `start` does"
        return UnconfinedTask(f"its verifier would run without a sandbox: {why}", where=self._where, hint=hint)

    def _read_description(self, statements: dict[str, Any]) -> TaskDescription:
        match statements:
            case {"parts": list(parts), "own_items": bool(own)}:
                return TaskDescription(frozenset(str(part) for part in parts) & task_file.PARTS.keys(), own)
            case _:
                self._fail("its verifier's process wrote a malformed answer")

    def _exchange(self, requests: Sequence[Mapping[str, Any]], seconds: float) -> list[dict[str, Any]]:
        """Send requests and read the answers as they come; ``seconds`` is the longest that one of them may take."""
        if self.ended:
            self._fail("its verifier's process ended")
        first, sending = self._count, bytearray()
        for request in requests:
            line = json.dumps({"n": self._count, **request}).encode()
            if len(line) > MOST_SENT:
                self._fail(f"a request to its verifier has {len(line)} bytes, the most is {MOST_SENT}", request)
            sending += line + b"\n"
            self._count += 1
        results: list[dict[str, Any]] = []
        data = memoryview(bytes(sending))
        with selectors.DefaultSelector() as both:
            both.register(self._out, selectors.EVENT_READ)
            both.register(self._in, selectors.EVENT_WRITE)
            due_at = time.monotonic() + seconds
            while len(results) < len(requests):
                self._current_request = requests[len(results)]
                before = len(results)
                for key, _ in both.select(max(0.0, due_at - time.monotonic())):
                    if key.fd == self._in:
                        data = self._send(data)
                        if not data:
                            both.unregister(self._in)
                    else:
                        results += self._lines(first + len(results))
                now = time.monotonic()
                if len(results) > before:
                    due_at = now + seconds
                elif now >= due_at:
                    self._fail(f"its verifier takes more than {seconds:g} s", hint=_SLOW)
        if len(results) > len(requests) or self._buffer:
            self._fail("its verifier answers more than it was asked")
        return results

    def _send(self, data: memoryview) -> memoryview:
        with suppress(BlockingIOError):
            try:
                return data[os.write(self._in, data[:_PIECE]) :]
            except BrokenPipeError:
                # What it said before it ended, if anything, is read next.
                return data[len(data) :]
        return data

    def _lines(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield the answers that have arrived; ``number`` is due next."""
        piece = os.read(self._out, _PIECE)
        if not piece:
            self._died()
        self._buffer += piece
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        if len(self._buffer) > MOST_ANSWERED:
            self._fail(f"its verifier answers with more than {MOST_ANSWERED} bytes")
        for line in lines:
            statement = None
            with suppress(ValueError, RecursionError):
                statement = json.loads(line)
            if not isinstance(statement, dict) or statement.get("n") != number:
                self._fail(f"its verifier's process wrote a malformed answer: {plain(repr(bytes(line[:60])), 80)}")
            number += 1
            yield statement

    def _died(self) -> NoReturn:
        """Return how the process ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        statement = b""
        with suppress(OSError, ValueError):
            if self._process.stderr:
                os.set_blocking(self._process.stderr.fileno(), False)
                statement = os.read(self._process.stderr.fileno(), 4096)
        if statement.startswith(b"bwrap:"):
            self.end()
            raise self._make_unconfined_error(bubblewrap.why_refused(statement))
        code = self._process.returncode
        number = -code if code is not None and code < 0 else (code or 0) - 128
        if number == signal.SIGXCPU:
            self._fail(f"its verifier takes more than {self._limits.seconds:g} s of processor time", hint=_SLOW)
        how = f"signal {number}" if number > 0 else f"code {code}"
        lines = statement.decode("utf-8", "replace").strip().splitlines()
        self._fail(f"its verifier's process ended with {how}" + (f": {plain(lines[-1], 200)}" if lines else ""))

    def _fail(self, text: str, request: Mapping[str, Any] | None = None, hint: str = "") -> NoReturn:
        self.end()
        item = (self._current_request if request is None else request).get("item")
        at = f" on item '{plain(str(item.get('id')), 60)}'" if isinstance(item, dict) else ""
        raise PluginFault(text + at, where=self._where, hint=hint)


_LIVE: dict[tuple[str, str, bool], _Process] = {}
_LOCK = threading.RLock()
atexit.register(end_all)


def _or_fault(statements: dict[str, Any], where: str) -> dict[str, Any]:
    """Return an answer; raises the fault that it is."""
    match statements:
        case {"fault": {"message": str(message), "place": [str(path), int(line), int(column)]}}:
            raise task_file.TaskFault(plain(message, 400), plain(path, 200), line, column)
        case {"fault": {"message": str(message), "where": str(place)}}:
            raise PluginFault(plain(message, 400), where=plain(place, 400))
        case {"fault": other}:
            raise PluginFault(f"fails without a valid reason: {plain(repr(other), 100)}", where=where)
        case _:
            return statements


def _start_process(command: Command) -> subprocess.Popen[bytes]:
    """Start the process in a thread that lives as long: bubblewrap ends with the thread that started it.

    It has its own process session: Ctrl-C at the terminal pauses Peergate, which may still be judging.
    """
    started: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()

    def run() -> None:
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                command.line,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=command.variables,
                cwd="/",
                pass_fds=command.passed,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            started.put(error)
            return
        started.put(process)
        process.wait()

    threading.Thread(target=run, name="verifier", daemon=True).start()
    result = started.get()
    if isinstance(result, OSError):
        raise PluginFault(f"a verifier's process cannot be started: {plain(str(result), 200)}")
    return result


def _rlimits(limits: VerifierLimits) -> dict[str, int]:
    """Return the limits that the process sets for itself before it runs the task.

    Processes are not number: a filter refuses them, and the stacks of threads are memory.
    """
    mb = 1024 * 1024
    counts = {"FSIZE": 0, "CORE": 0, "NOFILE": 64, "DATA": limits.memory_mb * mb}
    return counts | {"AS": counts["DATA"] + _ROOM_MB * mb}
