"""What does a verifier's own process cost an answer? Prints it beside the same function called in this process.

    .venv/bin/python -m bench.verifier_process [--answers 2000]

The peer is the call itself. Measured are answers asked one by one, and all at once as measurers and jobs ask.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import psutil

from specs import task_file
from specs.confinement import verifier_process
from specs.confinement.verifier_limits import VerifierLimits
from specs.stages.artifacts import Item
from training.rules.tasks import judged, verifier

CODE = """import json

def verify(item, answer):
    return set(json.loads(answer)) == set(item.constraint["keys"].split())
"""
RUNS = 5


def microseconds(work: Callable[[], object], answers: int) -> float:
    """Return the best of several runs, by answer."""
    values: list[float] = []
    for _ in range(RUNS):
        began = time.perf_counter()
        work()
        values.append((time.perf_counter() - began) / answers * 1e6)
    return min(values)


def processor_time(process: psutil.Process) -> float:
    """Return the processor time, in seconds, of a process and of what it started."""
    times = [child.cpu_times() for child in (process, *process.children(recursive=True))]
    return sum(pcputimes.user + pcputimes.system for pcputimes in times)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=2000)
    answers: int = parser.parse_args().answers
    item = Item(id="i", group="g", kind="keys", prompt="Give JSON with the keys a and b.", constraint={"keys": "a b"})
    pairs = [(item, json.dumps({"a": number, "b": "x" * (number % 200)})) for number in range(answers)]
    own: dict[str, Callable[[Item, str], bool]] = {}
    exec(CODE, own)  # type: ignore[arg-type]
    name = task_file.pinned("./verify.py", CODE)
    task_file.remember(name, CODE, VerifierLimits())
    task_file.allow(name)
    starts: list[float] = []
    for _ in range(RUNS):
        verifier_process.end_all()
        began = time.perf_counter()
        verifier_process.described(name)
        starts.append(time.perf_counter() - began)
    judge = verifier(name)
    here = psutil.Process()
    used = processor_time(here)
    list(judged(name, pairs))
    used = (processor_time(here) - used) / answers * 1e6
    peer = microseconds(lambda: [own["verify"](*pair) for pair in pairs], answers)
    each = microseconds(lambda: [judge(*pair) for pair in pairs], answers)
    together = microseconds(lambda: list(judged(name, pairs)), answers)
    print(f"in this process  {peer:8.1f} us an answer")
    print(f"one by one       {each:8.1f} us, {each / peer:.1f} times as long")
    print(f"all at once      {together:8.1f} us, {together / peer:.1f} times as long")
    print(f"                 {used:8.1f} us of processor time, both sides")
    print(f"to start one     {statistics.median(starts):8.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
