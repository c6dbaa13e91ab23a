"""On the pod: starts the orchestrator, learns how it ends, and ends the pod when a rule says so.

It is a process of its own, in a session of its own, so neither the loss of a connection nor the end of whoever started
it reaches it. It is the orchestrator's parent and nothing more: killed, it takes no orchestrator with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

from filelock import FileLock, Timeout

from sessions.folders import TRAIL
from sessions.pods import standing
from sessions.pods.layout import Layout
from sessions.pods.orders import Order, Rules
from sessions.pods.sweeping import sweep

TICK_S = 0.5
PAUSE_S = 60.0
"""How long a session may take to come to a safe place when the pod is ended."""
JOBS_S = 60.0
SHUTDOWN_S = 300.0
SAVE_EVERY_S = 30.0


def keep(layout: Layout, order: Order) -> int:
    """Start the orchestrator and watch over the pod; returns the exit code of the keeper."""
    lock = FileLock(layout.own / "keeper.lock")
    try:
        lock.acquire(timeout=5)
    except Timeout:
        print("another keeper is there", file=sys.stderr)
        return 4
    stop = threading.Event()

    def leave(_number: int, _frame: object) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for name in (standing.ENDING, standing.ENDED, standing.PULLED):
        (layout.own / name).unlink(missing_ok=True)
    standing.write(layout.own / standing.KEEPER, standing.identity(os.getpid()))
    child, number = start(layout, order)
    watch = Watch(layout, order.rules)
    ended = False
    while not stop.is_set():
        code = child.poll()
        if code is not None and not ended:
            ended = True
            # As a shell would say it: a signal is 128 and its number.
            standing.write(layout.own / standing.EXIT, {"number": number, "code": code if code >= 0 else 128 - code})
        if ended and not order.rules.any:
            return 0
        reason = watch.reached(running=not ended)
        if reason is not None:
            end_pod(layout, child, number, order.rules, reason, stop)
            return 0
        stop.wait(TICK_S)
    return 0


def start(layout: Layout, order: Order) -> tuple[subprocess.Popen[bytes], int]:
    """Start the orchestrator with its keys in its environment; returns the process and its number."""
    before = standing.read(layout.own / standing.ORCHESTRATOR)
    number = (before or {}).get("number", 0) + 1
    words = [order.python, "-P", "-m", "sessions.cli"]
    if not is_begun(layout):
        words += ["start", str(layout.specs / order.spec), "--name", layout.name]
        words += ["--profile", order.profile] if order.profile else []
    else:
        words += ["resume", layout.name]
        words += ["--answer", order.answer, "--reason", order.reason] if order.answer else []
    words += ["--runs", str(layout.runs)]
    with layout.log.open("ab") as log:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=layout.root,
            env=layout.environment() | order.secrets,
            start_new_session=True,
        )
    standing.write(layout.own / standing.ORCHESTRATOR, standing.identity(child.pid) | {"number": number})
    return child, number


def is_begun(layout: Layout) -> bool:
    """Say whether the session is registered here: then it goes on."""
    return (layout.run / TRAIL).exists()


class Watch:
    """The rules, and since when each of them counts. Idle time and absence are counted by a clock nobody can set."""

    def __init__(self, layout: Layout, rules: Rules) -> None:
        self._rules = rules
        self._clock = standing.Clock(layout)
        self._attached = layout.own / standing.ATTACHED
        self._mark = self._seen_attached()
        now = time.monotonic()
        self._attended = self._worked = self._saved = now

    def reached(self, *, running: bool) -> str | None:
        """Return why the pod is to be ended; None while it is not."""
        now = time.monotonic()
        if now - self._saved > SAVE_EVERY_S:
            self._saved = now
            with suppress(OSError):
                self._clock.save()
        mark = self._seen_attached()
        if mark != self._mark:
            self._mark, self._attended = mark, now
        if running:
            self._worked = now
        return why(
            self._rules,
            hours=self._clock.hours(),
            idle_minutes=(now - self._worked) / 60,
            away_minutes=(now - self._attended) / 60,
        )

    def _seen_attached(self) -> int | None:
        try:
            return self._attached.stat().st_mtime_ns
        except OSError:
            return None


def why(rules: Rules, *, hours: float, idle_minutes: float, away_minutes: float) -> str | None:
    """Return which rule ends the pod now. The grace before the shutdown is paid for too, so it counts as spent."""
    if rules.max_cost_usd is not None and rules.usd_per_hour is not None:
        cost = (hours + rules.grace_minutes / 60) * rules.usd_per_hour
        if cost >= rules.max_cost_usd:
            return f"price: {hours:.2f} h and the grace cost {cost:.4f} USD, the cap is {rules.max_cost_usd:g}"
    if rules.idle_minutes is not None and idle_minutes >= rules.idle_minutes:
        return f"idle: the session has not run for {idle_minutes:.2f} minutes, the limit is {rules.idle_minutes:g}"
    if rules.dead_man_minutes is not None and away_minutes >= rules.dead_man_minutes:
        return f"dead man: nobody was attached for {away_minutes:.2f} minutes, the limit is {rules.dead_man_minutes:g}"
    return None


def end_pod(
    layout: Layout,
    child: subprocess.Popen[bytes],
    number: int,
    rules: Rules,
    reason: str,
    stop: threading.Event,
) -> None:
    """Pause the session, end its jobs, leave time for a pull, and shut the machine down, unless somebody else does."""
    standing.write(layout.own / standing.ENDING, {"reason": reason, "time": time.time()})
    say(f"ending: {reason}")
    _pause(child)
    standing.write(layout.own / standing.EXIT, {"number": number, "code": _shell_code(child.returncode)})
    end_jobs(layout, f"the pod was ended: {reason}")
    sweep(layout, everything=True)
    entries = standing.Progress(layout).told()["entries"]
    deadline = time.monotonic() + rules.grace_minutes * 60
    while time.monotonic() < deadline and not is_pulled(layout, entries):
        if stop.wait(TICK_S):
            say("told to leave the rest to others")
            return
    say("everything was pulled" if is_pulled(layout, entries) else "nobody pulled what was left within the grace")
    shut_down(layout, rules.shutdown, reason)


def is_pulled(layout: Layout, entries: int) -> bool:
    """Say whether whoever is attached has told that this many entries, and their files, are kept elsewhere."""
    told = standing.read(layout.own / standing.PULLED)
    return entries == 0 or (told is not None and told.get("entries") == entries)


def shut_down(layout: Layout, command: str | None, reason: str) -> int | None:
    """Run the declared command and keep what it ended with; None when none was declared."""
    code: int | None = None
    if command is not None:
        say(f"shutdown: {command}")
        try:
            code = subprocess.run(
                ["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False, timeout=SHUTDOWN_S
            ).returncode
        except subprocess.TimeoutExpired:
            code = 124
    standing.write(layout.own / standing.ENDED, {"reason": reason, "time": time.time(), "code": code})
    say(f"ended, the shutdown command {'was not declared' if code is None else f'ended with {code}'}")
    return code


def _pause(child: subprocess.Popen[bytes]) -> None:
    """Ask the orchestrator to pause, ask again, and kill it."""
    for number, seconds in ((signal.SIGTERM, PAUSE_S), (signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        if child.poll() is None:
            child.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                child.wait(seconds)


def end_jobs(layout: Layout, reason: str) -> None:
    """Ask the wrappers of jobs to end them, which leaves an exit record, and wait for that."""
    # Only now: it takes long to import, and the orchestrator waits for this process.
    from sessions.jobs.local import LocalLauncher

    local = LocalLauncher()
    running = [claim.parent for claim in layout.run.glob("jobs/*/claim") if not (claim.parent / "exit.json").exists()]
    for folder in running:
        with suppress(OSError):
            local.cancel(folder, reason)
    deadline = time.monotonic() + JOBS_S
    while any(local.poll(folder).state == "running" for folder in running) and time.monotonic() < deadline:
        time.sleep(TICK_S)


def _shell_code(code: int | None) -> int:
    return 1 if code is None else code if code >= 0 else 128 - code


def say(text: str) -> None:
    """Write a line to the keeper's log."""
    print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text, file=sys.stderr, flush=True)
