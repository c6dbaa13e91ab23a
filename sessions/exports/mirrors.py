"""Shows a session in trackers while it runs. A tracker never stops a session, and gets no key but its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.exports.formats import FORMATS
from sessions.exports.source import ExportSource
from sessions.exports.tracked_run import TrackedRun
from sessions.exports.tracking import make_tracked_run
from sessions.jobs.job_environment import job_environment
from sessions.pages.overview import is_waiting
from sessions.run.terminal import masked_line
from specs.notices.trackers import TrackerName
from specs.session.session_spec import ResolvedSpec
from specs.system.errors import EvidenceMissing
from specs.trail.session_bodies import CloseEntry

FOLDER = "trackers"
"""In the run folder: no evidence."""
RECORD = "trackers.jsonl"
"""Next to it: what was shown where, and what failed."""
EVERYWHERE = "PEERGATE_TRACKERS"
"""The variable that names trackers for all sessions of this environment, and alone lets one send: ``wandb:online``."""
WITHIN_S = 120.0
"""The longest that a tracker may take for one part."""
AT_AN_END_S = 30.0
"""The longest that a session waits for all trackers where it ends or asks a person."""
_MIRRORED_KINDS = ("metrics", "decision", "close")
_SHARED = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


class Mirrors:
    """The trackers of one session."""

    def __init__(
        self,
        run: Path,
        trail: Trail,
        store: Store,
        resolved: ResolvedSpec,
        say: Callable[[str], None],
        *,
        environ: Mapping[str, str] | None = None,
        within_s: float = WITHIN_S,
    ) -> None:
        """Know the trackers: those of the spec, and those of the environment."""
        input_environ = os.environ if environ is None else environ
        self._run, self._trail, self._store, self._say = run, trail, store, say
        named: dict[str, bool] = dict.fromkeys(resolved.spec.trackers, False)
        for text in filter(None, map(str.strip, input_environ.get(EVERYWHERE, "").split(","))):
            name, _, how = text.partition(":")
            if name in get_args(TrackerName) and how in ("", "online"):
                named[name] = how == "online"
            else:
                say(
                    f"{EVERYWHERE}: '{masked_line(text, 100)}' is ignored; expected NAME or NAME:online, separated by ,"
                )
        self._mirrors = [_Mirror(name, online, run, input_environ, within_s) for name, online in named.items()]
        self._mirrored_count = -1

    def look(self) -> None:
        """Show what is new. Raises nothing: what fails is said and recorded."""
        if not self._mirrors:
            return
        try:
            history = History(self._trail.iterate(), self._store)
            ends = history.newest(CloseEntry) is not None or is_waiting(history)
            count = sum(entry.kind in _MIRRORED_KINDS for entry in history)
            if count == self._mirrored_count and not ends:
                return
            self._mirrored_count = count
            run = make_tracked_run(ExportSource(self._run, history))
            deadline = time.monotonic() + AT_AN_END_S
            for mirror in self._mirrors:
                if ends:
                    mirror.wait(deadline - time.monotonic())
                mirror.show(run)
            for mirror in self._mirrors:
                if ends:
                    mirror.wait(deadline - time.monotonic())
                for line in mirror.take_failures():
                    self._say(line)
        except EvidenceMissing:
            # Nothing was measured yet.
            return
        except Exception as error:
            # A mirror is never worth a session.
            self._say(f"trackers: {type(error).__name__}, nothing was shown there")


class _Mirror:
    """One tracker, fed by one process at a time."""

    def __init__(self, name: str, online: bool, run: Path, environ: Mapping[str, str], within_s: float) -> None:
        self._name, self._online, self._run, self._within_s = name, online, run, within_s
        self._environ = environ
        self._sent = frozenset[str]()
        self._thread: threading.Thread | None = None
        self._lines: list[str] = []

    def show(self, run: TrackedRun) -> None:
        """Begin to show what is new, unless the last part is still on its way."""
        parts = frozenset(run.parts())
        if parts <= self._sent or (self._thread is not None and self._thread.is_alive()):
            return

        def work() -> None:
            why = self._show_run(run)
            if why:
                self._lines.append(f"tracker {self._name}: {why}")
            else:
                self._sent = parts
            line = {"time": time.time(), "tracker": self._name, "online": self._online, "parts": len(parts)}
            path = self._run / RECORD
            with path.open("a", encoding="utf-8") as handle:
                path.chmod(0o600)
                handle.write(json.dumps(line | {"shown": not why, "why": why}) + "\n")

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until the last part was shown, or was not."""
        if self._thread is not None:
            self._thread.join(max(0.0, seconds))

    def take_failures(self) -> list[str]:
        """Return what failed since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def _show_run(self, run: TrackedRun) -> str:
        """Return why a run was not shown; empty if it was."""
        wanted = FORMATS[self._name].sends
        if self._online and not wanted:
            return "it sends nothing: leave ':online' out"
        if self._online and not self._environ.get(wanted):
            return f"variable {wanted} is not set"
        folder = self._run / FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        command = [sys.executable, "-P", "-m", "sessions.exports.mirror_process", self._name]
        command += ["online"] if self._online else []
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=self._variables(),
            start_new_session=True,
        )
        try:
            _, errors = process.communicate(run.as_json(), timeout=self._within_s)
        except subprocess.TimeoutExpired:
            # With what it started: libraries keep processes of their own.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"not done within {self._within_s:g} s"
        texts = errors.decode("utf-8", "replace").strip().splitlines()
        return (
            masked_line(texts[-1] if texts else f"it ended with {process.returncode}", 300)
            if process.returncode
            else ""
        )

    def _variables(self) -> dict[str, str]:
        """Return the environment of a tracker's process: of keys only its own, and only if it may send."""
        if not self._online:
            return job_environment()
        prefix = f"{self._name.upper()}_"
        own = {name: value for name, value in self._environ.items() if name.startswith(prefix)}
        return job_environment() | own | {name: self._environ[name] for name in _SHARED if name in self._environ}
