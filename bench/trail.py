"""What the trail costs: append, verify, prove, search, export; next to a plain durable insert and pymerkle.

    .venv/bin/python -m bench.trail [--entries 100000] [--folder DIR]
    .venv/bin/python -m bench.trail --verifier verify/verify --batch verify/verify-batch

Each figure is printed with its peer or its limit and whether it holds. Peers are measured in the same run, in turns
with what they are compared with: the speed of a disk and of a shared machine changes from minute to minute. Where one
core does the work, the limit is on the processor's time, which others on the machine change little; wall time is
printed next to it. pymerkle is measured when it is installed (GPL: never a dependency), the Go verifiers when they were
built (verify/README.md): ``--verifier`` checks each signature alone, ``--batch`` many at once.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reviews.audit.export import export_run, verify_export
from reviews.trail.chain import tree as merkle
from reviews.trail.integrity import TrailVerification, walk_trail
from reviews.trail.tables.open_table import read_trail, stream_trail
from reviews.trail.tables.query import TrailQuery, select
from reviews.trail.trail import Trail
from sessions.pages.report.trail_page import trail_page
from specs.trail.session_bodies import SpendEntry, WorkspaceEntry

APPENDS = 400
BODY = SpendEntry(what="settle", job="bench.stage.1", party="job", stage="stage", usd=0.25, seconds=12.5)


def print_figure(what: str, value: float, unit: str, limit: float | None = None, *, at_least: bool = False) -> bool:
    """Print a figure with its limit; returns whether it holds."""
    holds = limit is None or (value >= limit if at_least else value <= limit)
    bound = "" if limit is None else f"limit {'>=' if at_least else '<='} {limit:g}: {'holds' if holds else 'broken'}"
    print(f"{what:<52} {value:>12,.3g} {unit:<10} {bound}".rstrip())
    return holds


def time_call(action: Callable[[], Any]) -> float:
    """Return the wall time of an action in seconds."""
    return measure_processor_time(action)[0]


def measure_processor_time(action: Callable[[], Any]) -> tuple[float, float]:
    """Return the wall time of an action and the processor's time it took, here and in programs it ran, in seconds."""
    start, processor = time.perf_counter(), _processor()
    action()
    return time.perf_counter() - start, _processor() - processor


def _processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(struct_rusage.ru_utime + struct_rusage.ru_stime for struct_rusage in used)


def append(folder: Path) -> bool:
    """Append durably, in turns with a bare insert of the same bytes with the same durability.

    The third one makes two signatures before its insert, as an append does: what they alone cost on this disk.
    """
    trail = Trail(folder / "append" / "trail.sqlite", "bench")
    trail.append(WorkspaceEntry())
    size = len(read_trail(trail.path).rows[0].envelope)
    bare = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    bare.execute("PRAGMA journal_mode=WAL")
    bare.execute("PRAGMA synchronous=FULL")
    bare.execute("CREATE TABLE entry (seq INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT")
    data = b"x" * size
    key = Ed25519PrivateKey.generate()
    ours: list[float] = []
    theirs: list[float] = []
    signing: list[float] = []

    def insert() -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.execute("INSERT INTO entry (data) VALUES (?)", (data,))
        bare.execute("COMMIT")

    def insert_signed() -> None:
        key.sign(data)
        key.sign(data)
        insert()

    for n in range(APPENDS):
        theirs.append(time_call(insert))
        ours.append(time_call(lambda n=n: trail.append(BODY, f"spend/{n}")))
        signing.append(time_call(insert_signed))
    trail.close()
    bare.close()
    took, plain, signed = (statistics.median(values) for values in (ours, theirs, signing))
    print_figure("plain SQLite insert, WAL, synchronous=FULL", plain * 1e6, "us")
    print_figure("  the same with two ed25519 signatures", signed * 1e6, "us")
    print_figure("append: statement, two signatures, tree, head", took * 1e6, "us")
    print_figure("  of the insert with two signatures", took / signed, "x")
    # What is added is the processor's time, whatever the disk.
    print_figure("  1.5 x holds where a plain insert takes at least", (took - plain) * 2e6, "us")
    return print_figure("  of the plain insert", took / plain, "x", 1.5)


def synthetic(folder: Path, count: int) -> Path:
    """Make a trail of ``count`` entries through the same code, in one transaction."""
    run = folder / "synthetic"
    trail = Trail(run / "trail.sqlite", "bench")
    chance = random.Random(1)
    stages = [f"stage{n}" for n in range(20)]
    trail.append(WorkspaceEntry())
    with trail.alone():
        for n in range(count - 1):
            facts = {"stage": chance.choice(stages), "job": f"bench.{n}", "usd": round(chance.random(), 4)}
            trail.append(BODY.model_copy(update=facts), f"spend/{n}")
    trail.close()
    (run / "store").mkdir()
    return run


def peers(folder: Path, leaves: int) -> None:
    """Measure pymerkle on as many entries, if it is here."""
    if importlib.util.find_spec("pymerkle") is None:
        print("pymerkle is not installed: not measured")
        return
    import pymerkle  # pyright: ignore[reportMissingImports]

    tree: Any = pymerkle.InmemoryTree(algorithm="sha256")
    data = [b"entry %d" % n for n in range(leaves)]
    print_figure(
        "pymerkle InmemoryTree, append",
        time_call(lambda: [tree.append_entry(datum) for datum in data]) / leaves * 1e6,
        "us",
    )
    own = merkle.Frontier()
    took = time_call(lambda: [own.append(merkle.leaf_hash(datum)) for datum in data])
    print_figure("our tree, append", took / leaves * 1e6, "us")
    whole = merkle.MerkleTree([merkle.leaf_hash(datum) for datum in data])
    places = [random.Random(2).randrange(leaves) for _ in range(300)]
    took = time_call(lambda: [tree.prove_inclusion(place + 1, leaves) for place in places])
    print_figure("pymerkle, prove inclusion", took / len(places) * 1e6, "us")
    took = time_call(lambda: [merkle.prove_inclusion(whole, place) for place in places])
    print_figure("our tree, prove inclusion", took / len(places) * 1e6, "us")


def main() -> None:
    """Measure everything; ends with 1 when a limit is broken."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--entries", type=int, default=100_000)
    options.add_argument("--folder", type=Path, default=None, help="where to work; on the disk to be measured")
    options.add_argument("--verifier", type=Path, default=Path("verify/verify"), help="the Go verifier, built")
    options.add_argument("--batch", type=Path, default=Path("verify/verify-batch"), help="the same with -tags batch")
    namespace = options.parse_args()
    count: int = namespace.entries
    folder = Path(tempfile.mkdtemp(prefix="trail-bench-", dir=namespace.folder))
    holds: list[bool] = []
    try:
        holds.append(append(folder))
        peers(folder, count)
        made: list[Path] = []
        took = time_call(lambda: made.append(synthetic(folder, count)))
        run = made[0]
        print_figure(f"{count:,} entries in one transaction, each", took / count * 1e6, "us")
        holds += verify(run, count)
        holds += search(run, count)
        holds += export(run, folder / "export", count, namespace.verifier, namespace.batch)
    finally:
        shutil.rmtree(folder)
    raise SystemExit(0 if all(holds) else 1)


def verify(run: Path, count: int) -> list[bool]:
    """Check every signature and the tree."""
    wall, busy = time_walk(run)
    print_figure("verify, wall time", count / wall, "entries/s")
    return [print_figure("verify, per second of one core", count / busy, "entries/s", 10_000, at_least=True)]


def time_walk(run: Path) -> tuple[float, float]:
    """Verify a trail; return the wall and the processor's time, in seconds."""
    walks: list[TrailVerification] = []

    def walk() -> None:
        with stream_trail(run / "trail.sqlite") as trail:
            walks.append(walk_trail(trail))

    times = measure_processor_time(walk)
    assert not walks[0].damage
    return times


def search(run: Path, count: int) -> list[bool]:
    """List and search in this process, and through the command line."""
    path = run / "trail.sqlite"
    wanted = {
        "list by stage, newest 1,000": TrailQuery(stage="stage7"),
        "list by cost": TrailQuery(min_usd=0.999),
        "list, newest 1,000": TrailQuery(),
        "search a text": TrailQuery(text=f"spend/{count - 5}"),
        "search a text that is not there": TrailQuery(text="nothing like this"),
    }
    flags: list[bool] = []
    for what, value in wanted.items():
        runs = [measure_processor_time(lambda element=value: select(path, element, 1000)) for _ in range(5)]
        print_figure(f"{what}, of {count:,}, wall time", min(wall for wall, _ in runs), "s")
        flags.append(print_figure("  processor's time", min(busy for _, busy in runs), "s", 0.3))
    command = [sys.executable, "-m", "sessions.commands.cli", "audit", "list", str(run)]
    command += ["--stage", "stage7", "--limit", "20"]
    best = min(time_call(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(3))
    start = [sys.executable, "-m", "sessions.commands.cli", "audit", "list", "--help"]
    bare = min(time_call(lambda: subprocess.run(start, check=True, capture_output=True)) for _ in range(3))
    print_figure("  the same through the command line", best, "s")
    print_figure("  of which the start of the command line", bare, "s")
    return flags


def export(run: Path, target: Path, count: int, verifier: Path, batch: Path) -> list[bool]:
    """Export with the page, verify the export with Peergate and with the Go program."""
    flags: list[bool] = []
    wall, busy = measure_processor_time(lambda: export_run(run, "trail.sqlite", "store", target, trail_page))
    print_figure(f"export of {count:,} entries, wall time", wall, "s")
    flags.append(print_figure("  processor's time", busy, "s", 60))
    print_figure("verify the export with Peergate", time_call(lambda: verify_export(target)), "s")
    ways = (
        (verifier, [], "every signature alone", None),
        (batch, [], "every signature, in batches", 2),
        (verifier, ["-tree"], "head, tree and tiles", 2),
    )
    for program, arguments, what, limit in ways:
        if not program.is_file():
            print(f"{program} is not built: Go, {what}, was not measured")
            continue
        command = [str(program.resolve()), *arguments, str(target)]
        runs = [
            measure_processor_time(lambda command=command: subprocess.run(command, check=True, capture_output=True))
            for _ in "123"
        ]
        flags.append(print_figure(f"verify the export with Go, {what}", min(wall for wall, _ in runs), "s", limit))
        print_figure("  processor's time, on all cores", min(busy for _, busy in runs), "s")
    return flags


if __name__ == "__main__":
    main()
