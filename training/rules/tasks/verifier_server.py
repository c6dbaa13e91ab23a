"""Runs a task's module in the process of its verifier: ``python -m training.rules.tasks.verifier_server``.

The first line of the input says which task, with its text and limits; every other one asks something, and is answered
by one line. ``specs/system/confinement/verifier_process.py`` is the other side.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from collections.abc import Callable, Mapping
from typing import Any

Request = Mapping[str, Any]
Answer = dict[str, Any]


def main() -> int:
    """Answer requests until the input ends; returns the exit code."""
    asking, answering = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    hello = json.loads(asking.readline())
    _limit(hello["limits"])
    # What the task prints is not an answer.
    for used in (0, 1, 2):
        os.dup2(nothing, used)
    os.close(nothing)
    serve = _Serving(hello)
    _send(answering, hello, serve.describe)
    while line := asking.readline():
        request = json.loads(line)
        _processor_time(hello["seconds"])
        _send(answering, request, lambda to=request: serve.answer(to))
    return 0


class _Serving:
    """One task, whose module is run when it is first asked."""

    def __init__(self, hello: Request) -> None:
        self._hello = hello

    def describe(self) -> Answer:
        """Import the task and say what it brings; raises PluginFault if it cannot be used."""
        from specs.system import plugins
        from specs.system.confinement import task_file
        from specs.system.confinement.verifier_command import VerifierLimits
        from training.rules.tasks.task_module import task_module

        plugins.LOAD_SECONDS = self._hello["load_seconds"]
        task: str = self._hello["task"]
        task_file.remember(task, self._hello["text"], VerifierLimits())
        task_file.allow(task)
        self._task = task_module(task, self._hello["point"])
        return {"parts": self._task.parts, "own_items": self._task.own_items}

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request; raises PluginFault."""
        from specs.stages.base.artifacts import Item

        def item() -> Item:
            return Item.model_validate(request["item"])

        match request["do"]:
            case "verify":
                judgement = self._task.verify(item(), request["answer"])
            case "verify_right":
                judgement = self._task.verify_right(item(), request["answer"])
            case "worked_example":
                return {"example": self._task.worked_example(item())}
            case "known_answers":
                known = self._task.known_answers()
                return {"known": [[item.model_dump(), text, right] for item, text, right in known]}
            case _:
                return {"misfits": self._task.misfits(item())}
        return {"passed": bool(judgement.passed), "reason": str(judgement.reason)[:1000], "span": judgement.span}


def _send(to: int, request: Request, answer: Callable[[], Answer]) -> None:
    """Write one answer as a line; what goes wrong is one too."""
    from specs.system.confinement.task_file import TaskFault
    from specs.system.errors import PluginFault

    try:
        reported_answer = answer()
    except TaskFault as fault:
        reported_answer = {"fault": {"message": fault.message, "place": fault.place}}
    except PluginFault as fault:
        reported_answer = {"fault": {"message": fault.message, "where": fault.where}}
    except Exception as error:
        reported_answer = {
            "fault": {"message": f"its verifier breaks: {type(error).__name__}: {error}", "where": "verifier"}
        }
    line = json.dumps({"n": request.get("n"), **reported_answer}).encode() + b"\n"
    while line:
        line = line[os.write(to, line) :]


def _limit(limits: Mapping[str, int]) -> None:
    """Set limits for this process, hard ones: it cannot lift them."""
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _processor_time(seconds: float) -> None:
    """Let the process end itself when the next answer takes so much processor time, anyone who is there to end it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + seconds) + 1, hard))


if __name__ == "__main__":
    sys.exit(main())
