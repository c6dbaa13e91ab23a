"""On the pod: starts the orchestrator, records how it ends, and ends the pod when a rule says so.

The keeper is a separate process in a separate session, so it outlives connections and the process that started it.
When it is killed, the orchestrator continues, and the next keeper adopts it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil
from filelock import FileLock, Timeout

from sessions.jobs.orphans import start_detached
from sessions.pods.protocol import Order, Rules
from sessions.pods.remote import process_state
from sessions.pods.remote.pod_layout import Layout
from sessions.pods.remote.process_state import ENDED, ENDING, EXIT, KEEPER, ORCHESTRATOR, PULLED
from sessions.pods.remote.process_sweep import sweep
from sessions.run.claim import lives, read_record
from sessions.run.heartbeat import Absence
from sessions.run.run_layout import TRAIL

LOOK_S = 0.1
TICK_S = 0.5
PAUSE_S = 60.0
"""How long a session may take to pause when the pod is ended."""
JOBS_S = 60.0
SHUTDOWN_S = 300.0
SAVE_EVERY_S = 30.0


def end_keeper(layout: Layout) -> None:
    """End a keeper that is to be replaced."""
    record = read_record(layout.own / KEEPER)
    if record is not None and lives(layout.own / KEEPER):
        process = psutil.Process(record["pid"])
        process.terminate()
        process.wait(10)


def keep(layout: Layout, order: Order) -> int:
    """Start the orchestrator and watch over the pod; returns the exit code of the keeper."""
    lock = FileLock(layout.own / "keeper.lock")
    try:
        lock.acquire(timeout=5)
    except Timeout:
        print("another keeper is there", file=sys.stderr)
        return 4
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for name in (ENDING, ENDED, PULLED):
        (layout.own / name).unlink(missing_ok=True)
    process_state.write(layout.own / KEEPER, process_state.identity(os.getpid()))
    orchestrator = start_or_adopt(layout, order)
    watch = RuleWatch(layout, order.rules)
    ended = False
    while not stop.is_set():
        if not ended and not orchestrator.is_running():
            ended = True
            keep_code(layout, orchestrator)
        if ended and not order.rules.any:
            return 0
        reason = watch.find_end_reason(running=not ended)
        if reason is not None:
            end_pod(layout, orchestrator, order.rules, reason, stop)
            return 0
        stop.wait(TICK_S)
    return 0


def keep_code(layout: Layout, orchestrator: Orchestrator) -> None:
    """Keep the orchestrator's exit code, or that it is unknown."""
    process_state.write(layout.own / EXIT, {"number": orchestrator.number, "code": orchestrator.code()})


class RuleWatch:
    """The rules, and since when each of them counts, by a clock that no one can set."""

    def __init__(self, layout: Layout, rules: Rules) -> None:
        self._rules = rules
        self._clock = process_state.Clock(layout)
        self._away = Absence(layout.own / process_state.ATTACHED)
        self._worked = self._saved = time.monotonic()

    def find_end_reason(self, *, running: bool) -> str | None:
        """Return why the pod is to be ended; None if no rule applies yet."""
        now = time.monotonic()
        if now - self._saved > SAVE_EVERY_S:
            self._saved = now
            with suppress(OSError):
                self._clock.save()
        if running:
            self._worked = now
        idle, away = (now - self._worked) / 60, self._away.seconds() / 60
        return why(self._rules, hours=self._clock.hours(), idle_minutes=idle, away_minutes=away)


def why(rules: Rules, *, hours: float, idle_minutes: float, away_minutes: float) -> str | None:
    """Return which rule ends the pod now. The grace before the shutdown is paid for, so it counts as spent."""
    if rules.max_cost_usd is not None and rules.usd_per_hour is not None:
        cost = (hours + rules.grace_minutes / 60) * rules.usd_per_hour
        if cost >= rules.max_cost_usd:
            return f"price: {hours:.2f} h and the grace cost {cost:.4f} USD, the cap is {rules.max_cost_usd:g}"
    if rules.idle_minutes is not None and idle_minutes >= rules.idle_minutes:
        return f"idle: the session has not run for {idle_minutes:.2f} minutes, the limit is {rules.idle_minutes:g}"
    if rules.dead_man_minutes is not None and away_minutes >= rules.dead_man_minutes:
        return f"dead man: no one was attached for {away_minutes:.2f} minutes, the limit is {rules.dead_man_minutes:g}"
    return None


def end_pod(layout: Layout, orchestrator: Orchestrator, rules: Rules, reason: str, stop: threading.Event) -> None:
    """Pause the session, end its jobs, leave time for a pull, and shut the machine down unless stopped."""
    process_state.write(layout.own / ENDING, {"reason": reason, "time": time.time()})
    say(f"ending: {reason}")
    pause(orchestrator, PAUSE_S)
    keep_code(layout, orchestrator)
    end_jobs(layout, f"the pod was ended: {reason}")
    sweep(layout, everything=True)
    entries = process_state.TrailProgress(layout).read_progress()["entries"]
    deadline = time.monotonic() + rules.grace_minutes * 60
    while time.monotonic() < deadline and not is_pulled(layout, entries):
        if stop.wait(TICK_S):
            say("stopped; another process ends the pod")
            return
    say("everything was pulled" if is_pulled(layout, entries) else "no one pulled the newest entries within the grace")
    shut_down(layout, rules.shutdown, reason)


def is_pulled(layout: Layout, entries: int) -> bool:
    """Return whether an attached client reported that it keeps this many entries and their files."""
    record = read_record(layout.own / PULLED)
    return entries == 0 or (record is not None and record.get("entries") == entries)


def shut_down(layout: Layout, command: str | None, reason: str) -> int | None:
    """Run the declared command and record its exit code; None if no command was declared."""
    code: int | None = None
    if command is not None:
        say(f"shutdown: {command}")
        try:
            code = subprocess.run(
                ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False, timeout=SHUTDOWN_S
            ).returncode
        except subprocess.TimeoutExpired:
            code = 124
    process_state.write(layout.own / ENDED, {"reason": reason, "time": time.time(), "code": code})
    say(f"ended, the shutdown command {'was not declared' if code is None else f'ended with {code}'}")
    return code


def end_jobs(layout: Layout, reason: str) -> None:
    """Ask the wrappers of jobs to end them, and wait for their exit records."""
    # Imported late: the import is slow, and the orchestrator waits for this process.
    from sessions.jobs.local_launcher import LocalLauncher

    local = LocalLauncher()
    running = [claim.parent for claim in layout.run.glob("jobs/*/claim") if not (claim.parent / "exit.json").exists()]
    for folder in running:
        with suppress(OSError):
            local.cancel(folder, reason)
    deadline = time.monotonic() + JOBS_S
    while any(local.poll(folder).state == "running" for folder in running) and time.monotonic() < deadline:
        time.sleep(TICK_S)


def say(text: str) -> None:
    """Write a line to the keeper's log."""
    print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text, file=sys.stderr, flush=True)


class Orchestrator:
    """The process of the session's start ``number``: a child, or adopted from an earlier keeper, without its code."""

    def __init__(self, layout: Layout, number: int, child: subprocess.Popen[bytes] | None = None) -> None:
        self.number = number
        self._path = layout.own / ORCHESTRATOR
        self._child = child

    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._child.poll() is None if self._child else lives(self._path)

    def code(self) -> int | None:
        """Return its exit code, 128 and the number for a signal; None if it runs or the code is unknown."""
        code = self._child.poll() if self._child else None
        return None if code is None else code if code >= 0 else 128 - code

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still the same process."""
        if self._child:
            self._child.send_signal(number)
            return
        with suppress(psutil.Error):
            if self.is_running():
                psutil.Process((read_record(self._path) or {})["pid"]).send_signal(number)


def start_or_adopt(layout: Layout, order: Order) -> Orchestrator:
    """Return the running orchestrator, or start one with its keys in its environment."""
    before = read_record(layout.own / ORCHESTRATOR) or {}
    if lives(layout.own / ORCHESTRATOR):
        return Orchestrator(layout, int(before["number"]))
    number = before.get("number", 0) + 1
    words = [order.python, "-P", "-m", "sessions.commands.cli"]
    if not is_begun(layout):
        words += ["start", str(layout.specs / order.spec), "--name", layout.name]
        words += ["--profile", order.profile] if order.profile else []
    else:
        words += ["resume", layout.name]
        words += ["--answer", order.answer, "--reason", order.reason] if order.answer else []
    words += ["--runs", str(layout.runs)]
    process = start_detached(words, layout.log, layout.root, layout.environment() | order.secrets)
    process_state.write(layout.own / ORCHESTRATOR, process_state.identity(process.pid) | {"number": number})
    return Orchestrator(layout, number, process)


def is_begun(layout: Layout) -> bool:
    """Return whether the session is registered here, so that it is resumed and not started."""
    return (layout.run / TRAIL).exists()


def pause(orchestrator: Orchestrator, seconds: float) -> None:
    """Ask it to pause, ask again, and kill it."""
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        if orchestrator.is_running():
            orchestrator.send(number)
            deadline = time.monotonic() + patience
            while orchestrator.is_running() and time.monotonic() < deadline:
                time.sleep(LOOK_S)
