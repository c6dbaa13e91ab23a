"""How long do commands take that do no work of a session? Prints minimum and median, the peer, the ratio and the limit.

    .venv/bin/python -m bench.startup

The peer is the Python interpreter starting up and doing nothing. The limit of `peergate --help` is 0.3 s at the
minimum. Taken are seconds of the processor, which others on the machine change little.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from functools import partial

from bench.trail import measure_processor_time

LIMIT_S = 0.3
RUNS = 15
PEER = (sys.executable, "-c", "pass")
COMMANDS = (("--help",), ("list",), ("spec", "check", "demo"))


def time_command(*arguments: str, runs: int = RUNS) -> list[float]:
    """Return the processor's time of each run of `peergate` with these arguments, in seconds."""
    return time_program(sys.executable, "-m", "sessions.commands.cli", *arguments, runs=runs)


def time_program(*command: str, runs: int = RUNS) -> list[float]:
    """Return the processor's time of each run of a program in seconds; a first run is not counted."""
    times: list[float] = []
    for _ in range(runs + 1):
        run = partial(subprocess.run, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        times.append(measure_processor_time(run)[1])
    return times[1:]


def main() -> int:
    """Print the figures; exit code 1 where `--help` is above its limit."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    peer = time_program(*PEER)
    print(f"python -c pass  min {min(peer):.3f} s  median {statistics.median(peer):.3f} s")
    best: dict[str, float] = {}
    for arguments in COMMANDS:
        name, times = " ".join(arguments), time_command(*arguments)
        best[name] = min(times)
        print(f"peergate {name}  min {min(times):.3f} s  median {statistics.median(times):.3f} s", end="  ")
        print(f"ratio {min(times) / min(peer):.1f}")
    print(f"limit of --help {LIMIT_S} s: {'kept' if best['--help'] < LIMIT_S else 'broken'}")
    return 0 if best["--help"] < LIMIT_S else 1


if __name__ == "__main__":
    raise SystemExit(main())
