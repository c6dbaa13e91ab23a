"""Forks wrappers on request: ``python -P -m sessions.jobs.host_process STARTED_NS ROOM``.

:mod:`sessions.jobs.job_host` starts it. It imports the libraries of jobs, never a job's own code, and computes nothing:
a fork has the state of a process that has just imported them. The wrapper, its guard and the stage are the processes
that a fresh interpreter would make, with the same parents, sessions, files, words and variables. A fork becomes a fresh
interpreter after all if a file of the imported code has changed, or if it would lack a thread or share a file.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from sessions.jobs import orphans, wrapper
from specs.jobs.job_records import JobOrder
from specs.system.home import HOME
from training.engines.checkpoint import import_libraries
from training.running_code import code_files

LOOK_S = 5.0
"""How often the host looks whether its owner lives: another process may hold the pipe open."""
WAIT_S = 0.02
_STANDARD = {"0", "1", "2"}


def main() -> NoReturn:
    """Import, then fork a wrapper for each line of standard input until it ends."""
    owner, started_ns = os.getppid(), int(sys.argv[1])
    environment = {name: value for name, value in os.environ.items() if name != orphans.VARIABLE}
    importlib.import_module("training.jobs.job")
    import_libraries()
    stamps = _stamps()
    # Also a file that took the place of another with an old date.
    is_pristine = max(os.stat(path).st_ctime_ns for path in stamps) < started_ns and _is_pristine()  # noqa: PTH116
    # What is here is shared by all forks: the collector of none is to touch, and so copy, it.
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for words in _requests(owner):
        if not os.fork():
            _become_wrapper(words, environment, is_fresh=not is_pristine or _stamps(stamps) != stamps)
    os._exit(0)


def _stamps(named: dict[str, tuple[int, ...]] | None = None) -> dict[str, tuple[int, ...]]:
    """Return date, size and number of the files of the imported code, and of the code of jobs.

    Not the time of the last change: a further name for the same file, as installers make them, is none.
    """
    loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = {*map(str, code_files(HOME)), *(named or filter(None, loaded))}
    stamps: dict[str, tuple[int, ...]] = {}
    for path in paths:
        # Some modules of torch name a file that does not exist.
        with suppress(FileNotFoundError, NotADirectoryError):
            stat_result = os.stat(path)  # noqa: PTH116
            stamps[path] = (stat_result.st_mtime_ns, stat_result.st_size, stat_result.st_ino)
    return stamps


def _is_pristine() -> bool:
    """Return whether a fork of this process lacks nothing that it has: threads, and files that are not the job's."""
    # OpenBLAS ends its threads before a fork, and starts them again with the first product.
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)
    # The listing has a file open itself, which is closed afterwards.
    files = {name for name in os.listdir("/proc/self/fd") if Path(f"/proc/self/fd/{name}").exists()}  # noqa: PTH208
    threads = os.listdir("/proc/self/task")  # noqa: PTH208
    return len(threads) == threading.active_count() == 1 and files == _STANDARD


def _requests(owner: int) -> Iterator[list[str]]:
    """Yield the words of each wrapper that is asked for, until the owner ends or asks for no more."""
    rest = b""
    while select.select([0], [], [], LOOK_S)[0] or os.getppid() == owner:
        if not select.select([0], [], [], 0)[0]:
            continue
        if not (data := os.read(0, 1 << 16)):
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)


def _become_wrapper(words: list[str], environment: dict[str, str], *, is_fresh: bool) -> NoReturn:
    """Be the process that the words start, as :func:`sessions.jobs.orphans.start_detached` starts it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    folder = Path(words[-1])
    os.setsid()
    os.chdir(folder)
    _take_files(os.open(os.devnull, os.O_RDONLY), os.open("wrapper.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666))
    if is_fresh or not _rename(words, environment):
        os.execve(words[0], words, environment)
    sys.argv = [str(wrapper.__file__), str(folder)]
    code = wrapper.main(partial(ForkedStage, environment=environment))
    os._exit(code)


def _take_files(reading: int, writing: int) -> None:
    """Make two open files the standard ones, and close all others."""
    for number, file in enumerate((reading, writing, writing)):
        os.dup2(file, number)
    os.closerange(3, 1 << 16)


def _rename(words: list[str], environment: dict[str, str]) -> bool:
    """Take words and variables, and show them in ``/proc``, where jobs are looked for; return whether they fit."""
    # The library's own strings then lie elsewhere than in the places that are written over.
    os.environ.clear()
    os.environ.update(environment)
    sys.orig_argv = words
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    places = [int(field) for field in fields[45:49]]
    texts = words, [f"{name}={value}" for name, value in environment.items()]
    for start, end, parts in zip(places[::2], places[1::2], texts, strict=True):
        data = b"".join(os.fsencode(part) + b"\0" for part in parts)
        if not start or len(data) > end - start:
            return False
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, data, len(data))
    return True


class ForkedStage:
    """A stage below its guard, as the wrapper starts it with ``Popen``, forked."""

    def __init__(self, order: JobOrder, folder: Path, writing: int, environment: dict[str, str]) -> None:
        parent = os.getpid()
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid:
            # The group is there for both, whichever comes first.
            with suppress(OSError):
                os.setpgid(self.pid, self.pid)
            return
        variables = environment | {orphans.VARIABLE: str(folder.resolve())}
        _become_stage(parent, wrapper.stage_command(order, folder), variables, writing)

    def poll(self) -> int | None:
        """Return the exit code once the stage has ended."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float) -> int:
        """Return the exit code; raise TimeoutExpired if the stage takes longer."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("stage", timeout)
            time.sleep(WAIT_S)
        return code


def _become_stage(parent: int, words: list[str], environment: dict[str, str], writing: int) -> NoReturn:
    """Be the process that the words of a stage start, to its end."""
    code: object = 1
    try:
        os.setpgid(0, 0)
        os.chdir(words[-1])
        _take_files(os.open(os.devnull, os.O_RDONLY), writing)
        orphans.stand_guard(parent)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if words[:3] != [sys.executable, "-P", "-m"] or not _rename(words, environment):
            os.execve(words[0], words, environment)
        import numpy

        # Python's own generator is seeded with each fork, torch's has a fixed seed.
        numpy.random.seed()
        sys.argv = words[3:]
        runpy.run_module(words[3], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    # As an interpreter ends, except that it does not free what the host holds: that would copy it first.
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
