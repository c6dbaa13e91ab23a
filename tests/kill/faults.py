"""Faults of the command's own process, asked for by variables: a kill at a counted step, and parts that are taken out.

Steps are what can leave something behind: an append to the trail, a file that is written durably, a process that is
started. A kill may come before or after each.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

KILL_AT = "KILL_AT"
"""The number of the moment to be killed at, counted from 1: odd ones before a step, even ones after it."""
COUNT = "KILL_COUNT"
"""A file that gets a line for every step."""
WITHOUT = "KILL_WITHOUT"
"""What is taken out: ``claim`` or ``position``."""


def arm(environ: Mapping[str, str]) -> None:
    """Put the faults in that the variables ask for."""
    if environ.get(WITHOUT) == "position":
        _without_position()
    at, path = int(environ.get(KILL_AT, "0")), environ.get(COUNT)
    if at or path:
        _count(at, path)


def without_claim() -> None:
    """Let every wrapper believe that the job is its own. It says who it is, or its stage would refuse."""
    from reviews.trail.chain.store import write_durably
    from sessions.jobs import wrapper
    from sessions.run.claim import this_process

    def claim(folder: Path, key: str) -> bool:
        write_durably(folder / "claim" / "claim.json", json.dumps(this_process(key)).encode())
        return True

    wrapper.claim = claim


def _without_position() -> None:
    """Begin the graph anew at every start, wherever the trail says that the session is."""
    from sessions.runtime import runtime

    def nowhere(_: object) -> None:
        return None

    runtime.position = nowhere  # type: ignore[assignment]


def _count(at: int, path: str | None) -> None:
    import sessions.jobs.engine_launcher
    import sessions.jobs.launcher
    import sessions.jobs.local_launcher
    from reviews.trail.chain import store
    from reviews.trail.trail import Trail

    moment = 0

    def tick(what: str) -> None:
        nonlocal moment
        moment += 1
        if path:
            with open(path, "a", encoding="utf-8") as handle:  # noqa: PTH123
                handle.write(f"{moment} {what}\n")
        if moment == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*values: Any, **named: Any) -> Any:
            output = f"{name}({values[1].KIND})" if name == "Trail.append" else name
            tick(f"before {output}")
            done = real(*values, **named)
            tick(f"after {output}")
            return done

        return step

    for owner, name in ((Trail, "append"), (store.Store, "put")):
        setattr(owner, name, counted(f"{owner.__name__}.{name}", getattr(owner, name)))
    for launcher in (sessions.jobs.local_launcher.LocalLauncher, sessions.jobs.engine_launcher.EngineLauncher):
        launcher.start = counted("start", launcher.start)  # type: ignore[method-assign]
    write = counted("write order.json", sessions.jobs.launcher.write_durably)
    sessions.jobs.launcher.write_durably = write
