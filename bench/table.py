"""Prints the table of what is measured: the median, the limit that is wanted, and the peer in the same run.

    .venv/bin/python -m bench.table            # minutes; what the benches print goes to stderr
    .venv/bin/python -m bench.table --quick    # seconds
    .venv/bin/python -m bench.table --whole    # over an hour: also set-up, demo, tests in a fresh clone
    .venv/bin/python -m bench.table --json

The figures are those of the other benches, which take more options. A line that cannot be measured here says why. An
interval covers the median with 93 %; of fewer than five values it is the smallest and the largest.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import generate, orchestrate, plain_demo, startup, train, witness
from bench import trail as trails
from bench.attack.exports import build_verifier
from bench.composer import step
from reviews.audit.export import export_run
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.report.trail_page import trail_page
from sessions.pages.result import witness_time
from sessions.run.run_layout import STORE, TRAIL
from specs.system.home import HOME
from specs.system.text import one_line
from specs.trail.session_bodies import CloseEntry

DEMO = HOME / "runs" / "demo"


@dataclass(frozen=True)
class Line:
    """One line: what was measured, or why it was not."""

    what: str
    unit: str
    values: Sequence[float] = ()
    limit: float | None = None
    at_least: bool = False
    of_peer: bool = False
    """The limit is on the ratio of the medians, ours by the peer's."""
    peer: str = ""
    peers: Sequence[float] = ()
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the line with its median, interval, ratio and result."""
        fields: dict[str, Any] = {"what": self.what, "unit": self.unit, "result": self.result}
        if self.values:
            fields |= {"median": statistics.median(self.values), "interval": step.median_interval(self.values)}
        if self.limit is not None:
            fields["limit"] = f"{'>=' if self.at_least else '<='} {self.limit:g}{' x' if self.of_peer else ''}"
        if self.peers:
            fields |= {"peer": self.peer, "peer_median": statistics.median(self.peers), "ratio": self.ratio}
        return fields

    @property
    def ratio(self) -> float:
        """Our median by the peer's."""
        return statistics.median(self.values) / statistics.median(self.peers)

    @property
    def result(self) -> str:
        """Whether the limit is reached, or why nothing was measured."""
        if not self.values:
            return f"not run ({self.why})"
        if self.limit is None:
            return ""
        value = self.ratio if self.of_peer else statistics.median(self.values)
        reached = value >= self.limit if self.at_least else value <= self.limit
        return "reached" if reached else "not reached"


def measure_demo(run: Path = DEMO) -> Iterator[Line]:
    """Read the time and the share of the witnesses from the trail of a demo."""
    why = "make demo" if not (run / TRAIL).exists() else "the demo has not ended"
    minutes, share = list[float](), list[float]()
    if (run / TRAIL).exists():
        entries = read_entries(run / TRAIL)
        history = History(entries, Store(run / STORE))
        if history.of(CloseEntry):
            minutes, share = [(entries[-1].time_ns - entries[0].time_ns) / 6e10], [100 * witness_time(history)]
    yield Line("make demo after the install, by its trail", "min", minutes, 4, why=why)
    yield Line("share of the witnesses in the jobs' time", "%", share, 10, why=why)


def measure_startup() -> Iterator[Line]:
    """Time commands that do no work of a session."""
    peers = startup.time_program(*startup.PEER)
    for arguments, limit in ((("--help",), 0.15), (("list",), None), (("spec", "check", "demo"), 1.0)):
        times = startup.time_command(*arguments, runs=5)
        what = f"peergate {' '.join(arguments)}, processor time"
        yield Line(what, "s", times, limit, peer="python -c pass", peers=peers)


def measure_gate() -> Iterator[Line]:
    """Time gates whose models and jobs take no time."""
    times = orchestrate.measure(calls=30)
    busy = [sum(parts) for parts in zip(*(times.processor[name] for name in orchestrate.GATE), strict=False)]
    peer = "five empty nodes of LangGraph"
    yield Line("a gate without models and jobs", "ms", times.gates, 25, peer=peer, peers=[times.bare])
    yield Line("  of it the processor", "ms", busy)


def measure_growth() -> Iterator[Line]:
    """Measure and check stages of few rows and of many: does a row cost the same?"""
    orchestrate.judge_rows(10)
    few, many = ([1e6 * orchestrate.judge_rows(rows)[0] / rows for _ in range(3)] for rows in (1_000, 10_000))
    what = "a row of 10,000 measured and checked, processor time"
    yield Line(what, "us", many, 1.2, of_peer=True, peer="a row of 1,000", peers=few)


def measure_audit(entries: int = 10_000) -> Iterator[Line]:
    """Verify a trail with Peergate and its export with the Go program."""
    with tempfile.TemporaryDirectory() as name:
        run = trails.synthetic(Path(name), entries)
        rates = [entries / trails.time_walk(run)[1] for _ in range(3)]
        yield Line(f"verify {entries:,} entries, a second of one core", "entries", rates, 10_000, at_least=True)
        what = f"verify an export of {entries:,} entries with Go"
        if shutil.which("go") is None:
            yield Line(what, "s", why="there is no Go toolchain")
            return
        target = Path(name) / "export"
        export_run(run, "trail.sqlite", "store", target, trail_page)
        command = [str(build_verifier(Path(name))), str(target)]
        times = [trails.time_call(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(3)]
        yield Line(what, "s", times, 2 * entries / 100_000)


def measure_generation() -> Iterator[Line]:
    """Time the engines that are installed against transformers' generate."""
    for engine, package in (("batched", "torch"), ("llama", "llama_cpp"), ("vllm", "vllm")):
        what = f"answers written by the engine `{engine}`"
        if importlib.util.find_spec(package) is None:
            yield Line(what, "tokens/s", why=f"{package} is not installed")
            continue
        rates = generate.measure(argparse.Namespace(instructions=16, tokens=32, compared=2, engine=engine))
        limit = generate.LIMIT if engine == "batched" else None
        peer, theirs = ("generate", rates.peer) if engine == "batched" else ("batched", rates.batched)
        yield Line(what, "tokens/s", [rates.ours], limit, at_least=True, of_peer=True, peer=peer, peers=[theirs or 0])


def measure_training() -> Iterator[Line]:
    """Train with Peergate's stages and with TRL's trainers."""
    from testing.fixtures.tiny_training import tiny_checkpoint

    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "model"
        tiny_checkpoint(model, hidden=256, layers=4)
        for kind in ("sft", "dpo"):
            runs = train.runs_of(kind, model, steps=24, repeats=3, threads=2, device="cpu")
            ours, theirs = ([run["tokens"] / run["job_cpu"] for run in runs[who]] for who in ("peergate", "trl"))
            what = f"{kind}, tokens a second of the processor, whole job"
            yield Line(what, "tokens/s", ours, 1, at_least=True, of_peer=True, peer="TRL", peers=theirs)
        small = Path(name) / "small"
        tiny_checkpoint(small, hidden=128, layers=4)
        settings = {"rows": 2, "tokens": 256, "prompt": 0, "threads": 2, "adapters": False, "device": "cpu"}
        runs = step.runs_of(step.TRAINERS, small, argparse.Namespace(**settings, repeats=3, runs=None))
        ours, theirs = ([run["seconds"] for run in runs[who]] for who in step.TRAINERS)
        yield Line("grpo, six steps", "s", ours, 1.03, of_peer=True, peer="TRL", peers=theirs)


def measure_witness() -> Iterator[Line]:
    """Read honest answers and others, as a witness does."""
    settings = {"answers": 12, "tokens": 48, "sizes": [1, 12], "dtype": "float32", "device": "cpu"}
    power = witness.measure(argparse.Namespace(**settings, engine="batched"))
    alarms = 100 * power.honest_failing / power.honest
    yield Line(f"false alarms of {power.honest} honest answers", "%", [alarms], 0)
    for what, area in power.areas.items():
        limit = None if "one projection" in what else 0.999
        yield Line(f"area under the curve: {what}", "", [area], limit, at_least=True)


def list_commands() -> Iterator[Line]:
    """Name what a fresh clone is needed for."""
    for command, limit in COMMANDS:
        yield Line(command, "min", limit=limit, why="python -m bench.table --whole")


def measure_whole() -> Iterator[Line]:
    """Run the commands of the README in a fresh clone, and what the demo's jobs do as a plain script."""
    with tempfile.TemporaryDirectory() as name:
        clone = Path(name) / "peergate"
        subprocess.run(["git", "clone", "--quiet", str(HOME), str(clone)], check=True)
        for command, limit in COMMANDS:
            began = time.perf_counter()
            code = subprocess.run(command.split(), cwd=clone, stdout=sys.stderr, check=False).returncode
            minutes = [(time.perf_counter() - began) / 60]
            yield Line(command, "min", [] if code else minutes, limit, why=f"it failed with exit code {code}")
        run = clone / "runs" / "demo"
        yield from measure_demo(run)
        session = sum(sum(parts.values()) for parts in plain_demo.seconds_of(run).values())
        peers = [sum(plain_demo.measure().values())]
        yield Line("the demo's session", "s", [session], 0.5, of_peer=True, peer="a plain script", peers=peers)


COMMANDS = (("make setup", 1 / 3), ("make demo", None), ("make test", 6), ("make test-more", 5))
QUICK = (measure_startup, measure_gate, measure_growth, measure_audit)
SLOW = (measure_generation, measure_training, measure_witness)


def _run(measure: Callable[[], Iterator[Line]]) -> Iterator[Line]:
    """Yield the lines of a bench, or a line with its error: the other benches are still wanted."""
    try:
        yield from measure()
    except (Exception, SystemExit) as error:
        yield Line(measure.__doc__ or "", "", why=f"it failed: {one_line(str(error), 200)}")


def _format_number(value: float) -> str:
    """Return a number with three digits; thousands are whole numbers."""
    return f"{float(f'{value:.3g}'):,.12g}"


def format_line(line: Line) -> str:
    """Return a line of the table."""
    fields = line.as_json()
    measured = peer = ""
    if line.values:
        median, low, high = map(_format_number, (fields["median"], *fields["interval"]))
        measured = f"{median} [{low}, {high}] {line.unit}".rstrip()
    if line.peers:
        peer = f"{fields['ratio']:.2f} x {line.peer} ({_format_number(fields['peer_median'])})"
    return f"| {line.what.strip()} | {measured} | {fields.get('limit', '')} | {peer} | {line.result} |"


def main() -> int:
    """Print the table; returns 1 where a limit is not reached."""
    parser = argparse.ArgumentParser(prog="python -m bench.table", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only what takes seconds")
    parser.add_argument("--whole", action="store_true", help="run the commands of the README in a fresh clone, too")
    parser.add_argument("--json", action="store_true", help="print a list of lines as JSON")
    namespace = parser.parse_args()
    lines: list[Line] = []
    if not namespace.json:
        print("| | measured, with interval | wanted | peer | |\n|---|---|---|---|---|", flush=True)
    clones = (measure_whole,) if namespace.whole else (measure_demo, list_commands)
    for measure in (*QUICK, *(() if namespace.quick else SLOW), *clones):
        with redirect_stdout(sys.stderr):
            measured = list(_run(measure))
        lines += measured
        if not namespace.json:
            print("\n".join(map(format_line, measured)), flush=True)
    if namespace.json:
        print(json.dumps([line.as_json() for line in lines], indent=1))
    return int(any(line.result == "not reached" for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
