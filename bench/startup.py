"""How long does `peergate --help` take? Prints minimum and median of several runs, the peer, the ratio and the limit.

    .venv/bin/python -m bench.startup

The peer is the Python interpreter starting up and doing nothing. The limit is 0.3 s at the minimum.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

LIMIT_S = 0.3
RUNS = 15


def time_of(command: list[str]) -> list[float]:
    """Return the wall time of each run, in seconds."""
    times: list[float] = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - began)
    return times


def main() -> int:
    """Print the figures; exit code 1 above the limit."""
    command = Path(sys.executable).parent / "peergate"
    ours, peer = time_of([str(command), "--help"]), time_of([sys.executable, "-c", "pass"])
    print(f"peergate --help  min {min(ours):.3f} s  median {statistics.median(ours):.3f} s")
    print(f"python -c pass   min {min(peer):.3f} s  median {statistics.median(peer):.3f} s")
    print(f"ratio {min(ours) / min(peer):.1f}; limit {LIMIT_S} s: {'kept' if min(ours) < LIMIT_S else 'broken'}")
    return 0 if min(ours) < LIMIT_S else 1


if __name__ == "__main__":
    raise SystemExit(main())
