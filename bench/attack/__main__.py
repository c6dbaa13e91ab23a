"""Attack Peergate: ``python -m bench.attack [--seed N] [--family NAME ...]``.

Exit code 0 only if every family ran and nothing was missed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path

from bench.attack.outcome import Outcome

FAMILIES = {
    "evidence": "bench.attack.evidence",
    "exports": "bench.attack.exports",
    "files": "bench.attack.files",
    "flood": "bench.attack.flood",
    "paths": "bench.attack.paths",
    "rows": "bench.attack.rows",
    "sandbox": "bench.attack.sandbox",
    "secrets": "bench.attack.secrets",
    "strangers": "bench.attack.strangers",
}
"""By name of the family, its module; ``run(seed, folder)`` there returns an :class:`Outcome`."""


def main() -> int:
    """Run the chosen families and print a table: attempts, found, missed, seconds."""
    parser = argparse.ArgumentParser(prog="python -m bench.attack", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), help="default: all")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}")
    print(f"{'family':<16}{'attempts':>10}{'found':>8}{'missed':>8}{'seconds':>9}")
    clean = True
    for name in chosen.family or sorted(FAMILIES):
        with tempfile.TemporaryDirectory(prefix="peergate-attack-") as folder:
            began = time.perf_counter()
            outcome: Outcome = importlib.import_module(FAMILIES[name]).run(chosen.seed, Path(folder))
            seconds = time.perf_counter() - began
        if outcome.not_run:
            print(f"{name:<16}  not run: {outcome.not_run}")
        else:
            print(f"{name:<16}{outcome.attempts:>10}{outcome.detected:>8}{len(outcome.missed):>8}{seconds:>9.1f}")
        for line in outcome.missed:
            print(f"  missed: {line}")
        clean = clean and not outcome.not_run and not outcome.missed and outcome.attempts > 0
        sys.stdout.flush()
    return 0 if clean else 1


if __name__ == "__main__":
    raise SystemExit(main())
