"""How long does a job take to begin, its weights digested before its imports or beside? `python -m bench.job_begin`.

Processes in turn, each with a random model of a published shape that the page cache holds: seconds from the start of
the interpreter until the inputs are compared and the libraries imported, until the weights are loaded on the CPU, and
of the processor. Where no processor is free, nothing can be gained: the last figure says what a process needs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.random_models import SHAPES, random_checkpoint
from specs.digests import digest_path

_IMPORTS = """
import sys, time
from pathlib import Path
import training.jobs.job
from specs.digests import digest_path, digesting
from training.engines.checkpoint import import_libraries, load
folder = Path(sys.argv[1])
"""
_BEFORE = "found = digest_path(folder); import_libraries()"
_BESIDE = """
with digesting({"model": folder}) as digests:
    import_libraries()
found = digests["model"].result()
"""
_LOAD = """
ready = time.time()
load(folder)
print(found, ready, time.time(), time.process_time())
"""


def begins(how: str, folder: Path, digest: str) -> tuple[float, float, float]:
    """Return the seconds until a process may read its weights, until it has loaded them, and of the processor."""
    began = time.time()
    command = [sys.executable, "-P", "-c", f"{_IMPORTS}{how}{_LOAD}", str(folder)]
    text, ready, loaded, cpu = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert text == digest, "the weights changed meanwhile"
    return float(ready) - began, float(loaded) - began, float(cpu)


def main() -> int:
    """Print the shortest of each as JSON: other processes only make it longer."""
    parser = argparse.ArgumentParser(description="How long a job takes to begin.")
    parser.add_argument("--shape", choices=list(SHAPES), default="1B")
    parser.add_argument("--runs", type=int, default=3)
    namespace = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = random_checkpoint(Path(name) / namespace.shape, SHAPES[namespace.shape])
        began = time.time()
        digest = digest_path(folder)
        took, results = time.time() - began, dict[str, list[tuple[float, float, float]]]()
        for _ in range(namespace.runs):
            for label, how in (("before", _BEFORE), ("beside", _BESIDE)):
                results.setdefault(label, []).append(begins(how, folder, digest))
        count = sum(path.stat().st_size for path in folder.iterdir())
    for label, runs in results.items():
        ready, loaded, cpu = (round(min(value), 2) for value in zip(*runs, strict=True))
        print(json.dumps({"digest": label, "ready_s": ready, "loaded_s": loaded, "cpu_s": cpu}))
    print(json.dumps({"GB": round(count / 1e9, 2), "digest_s": round(took, 2)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
