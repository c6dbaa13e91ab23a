"""Is the demo's improvement luck of one seed? Runs the shipped demo once per seed and prints what was measured.

    .venv/bin/python -m bench.demo_seeds            # three seeds, about 6 minutes each on two cores

The peer is the untouched model on the same items. The limit: every seed's session has to be accepted by its own
last comparison (exact McNemar p < 0.01 and gain >= 0.15). Exit code 1 when one is not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(__file__).parent.parent
LIBRARY = HOME / "specs" / "library"


def write_spec(folder: Path, seed: int) -> Path:
    """Write the demo spec with another seed, and the files it names next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(LIBRARY / "data", folder / "data", dirs_exist_ok=True)
    shutil.copyfile(HOME / "constitution.yaml", folder / "constitution.yaml")
    text = (LIBRARY / "demo.yaml").read_text(encoding="utf-8").replace("../../constitution.yaml", "constitution.yaml")
    text = text.replace("seed: 11}", f"seed: {seed}}}").replace("seeds: [11]", f"seeds: [{seed}]")
    path = folder / f"seed{seed}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def main() -> int:
    """Run the sessions and print one line each."""
    parser = argparse.ArgumentParser(description="The demo over several seeds.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    namespace = parser.parse_args()
    print(f"{'seed':>6} {'before':>8} {'after':>8} {'gain':>8} {'95 % interval':>18} {'p':>9} {'minutes':>8}  outcome")
    accepted = 0
    for seed in namespace.seeds:
        spec, run = write_spec(namespace.runs / "seeds", seed), namespace.runs / f"demo-seed{seed}"
        shutil.rmtree(run, ignore_errors=True)
        began = time.monotonic()
        command = [sys.executable, "-m", "sessions.commands.cli", "start", str(spec), "--name", run.name]
        subprocess.run([*command, "--runs", str(run.parent)], capture_output=True, check=False)
        minutes = (time.monotonic() - began) / 60
        report = json.loads((run / "report" / "report.json").read_bytes())
        if (comparison := report["comparison"]) is None:
            print(f"{seed:>6} {report['result']}")
            continue
        gain, p = comparison["metrics"]["accuracy_gain"], comparison["metrics"]["mcnemar_p"]["value"]
        before, after = comparison["baseline_accuracy"], comparison["treatment_accuracy"]
        interval = "[{:+.3f}, {:+.3f}]".format(*gain["interval"])
        figures = f"{before:>8.3f} {after:>8.3f} {gain['value']:>+8.3f} {interval:>18} {p:>9.2g} {minutes:>8.1f}"
        print(f"{seed:>6} {figures}  {report['outcome']}", flush=True)
        accepted += report["outcome"] == "approve"
    print(f"accepted: {accepted} of {len(namespace.seeds)} (limit: all)")
    return 0 if accepted == len(namespace.seeds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
