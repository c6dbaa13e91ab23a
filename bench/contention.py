"""What two jobs on the same cores cost each other, with spinning and with sleeping threads (OMP_WAIT_POLICY).

    .venv/bin/python -m bench.contention [--rounds 3000]

Runs the matrix products of a small model's layers alone and twice at once, under both policies, each in a process of
its own, and prints seconds and ratios. The peer is OpenMP's default; jobs run with PASSIVE
(sessions/jobs/local_launcher.py).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

_WORK = """
import time, torch
x, up, down = torch.randn(64, 576), torch.randn(576, 1536), torch.randn(1536, 576)
began = time.perf_counter()
with torch.no_grad():
    for _ in range({rounds}):
        torch.nn.functional.silu(x @ up) @ down
print(time.perf_counter() - began)
"""


def seconds(policy: str | None, processes: int, rounds: int) -> float:
    """Return the time of the slowest of so many processes at once."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if policy:
        environment["OMP_WAIT_POLICY"] = policy
    command = [sys.executable, "-c", _WORK.format(rounds=rounds)]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return max(float(popen.communicate()[0]) for popen in started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3000)
    rounds = parser.parse_args().rounds
    print(f"{os.cpu_count()} cores, {rounds} rounds")
    for processes in (1, 2):
        default, passive = seconds(None, processes, rounds), seconds("PASSIVE", processes, rounds)
        print(f"{processes} at once: default {default:.2f} s, PASSIVE {passive:.2f} s, ratio {default / passive:.2f}")


if __name__ == "__main__":
    main()
