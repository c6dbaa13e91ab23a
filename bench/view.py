"""How long the page of `peergate view` takes with many sessions, and with a hundred thousand samples.

    .venv/bin/python -m bench.view [--sessions 1000] [--samples 100000] [--folder DIR]

Sessions copy a session that ran with quick jobs. Samples are rows of both arms in files, read, paired and judged
as the page and the report do it, next to a plain read of the same files as JSON. ``0`` leaves a part out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.gather import gather
from reviews.history.history import History
from reviews.stages.evaluation.judged_answers import both_sides
from reviews.trail.file_seal import seal_path
from reviews.trail.tables.open_table import read_entries
from sessions.pages.report.samples.judged_samples import JudgedSample, Samples
from sessions.pages.report.session_list import INDEX
from sessions.pages.view import samples as view_samples
from sessions.pages.view.places import Read, Scope
from sessions.pages.view.samples import SampleReader
from sessions.pages.view.trail_state import checked_trail
from testing.fixtures.quick_session import drive, no_plots, open_quick, quick_session
from testing.fixtures.view_client import Client

PORTION = 25
"""Sessions that the page of the list asks for at once."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000, help="sessions in the list")
    parser.add_argument("--samples", type=int, default=100_000, help="items with answers of both arms")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; a temporary folder by default")
    namespace = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="view-bench-", dir=namespace.folder))
    try:
        with no_plots():
            run = open_quick(folder)
            drive(quick_session(run))
            if namespace.sessions:
                many_sessions(run, folder / "many", namespace.sessions)
            if namespace.samples:
                many_samples(run, folder, namespace.samples)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def time_call(what: str, step: Callable[[], Any]) -> float:
    """Print how long the second of two calls takes, as the first may import or compile; return its processor time."""
    step()
    started_at, cpu = time.perf_counter(), time.process_time()
    step()
    took, used = time.perf_counter() - started_at, time.process_time() - cpu
    print(f"{what}: {took:.3f} s, of the processor {used:.3f} s", flush=True)
    return used


def many_sessions(run: Path, runs: Path, count: int) -> None:
    """Measure the list of many sessions."""
    for number in range(count):
        copy = runs / f"session-{number:05}"
        copy.mkdir(parents=True)
        for name in ("trail.sqlite", seal_path(run / "trail.sqlite").name, "spec.resolved.json"):
            if (run / name).is_file():
                shutil.copyfile(run / name, copy / name)
        (copy / "store").symlink_to(run / "store")
    client = Client(Scope(runs))
    names = [f"session-{number:05}" for number in range(count)]
    portions = iter([names[at : at + PORTION] for at in range(0, count, PORTION)])

    def portion() -> None:
        facts = client.get("/sessions.json?" + "&".join(f"name={text}" for text in next(portions))).json()
        assert all(fact["gain"] and not fact["damaged"] for fact in facts.values())

    def anew() -> None:
        (runs / INDEX).unlink(missing_ok=True)
        assert client.get("/").text.count("<tr data-name") == count

    time_call(f"list of {count} sessions, read for the first time", anew)
    time_call(f"list of {count} sessions", lambda: client.get("/"))
    if count >= 2 * PORTION:
        time_call(f"effect, money and damage of {PORTION} of them, asked for by the page afterwards", portion)


def many_samples(run: Path, folder: Path, count: int) -> None:
    """Measure pages of many samples next to a plain read of their files."""
    entries = read_entries(run / "trail.sqlite")
    place = Scope(run.parent).place(run.name)
    read = Read(run.name, place, place.history())
    time_call(f"verifying a trail of {len(entries)} entries", lambda: checked_trail(place))
    evidence = gather(run, History(entries, read.store), "tuned", 1)
    items = [evidence.heldout[number % len(evidence.heldout)] for number in range(count)]
    items = [item.model_copy(update={"id": f"{item.id}-{number}"}) for number, item in enumerate(items)]
    paths: list[Path] = []
    for name, source in (("before", evidence.baseline_rows), ("after", evidence.outputs["rows"])):
        assert source is not None
        rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
        path = folder / f"{name}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number, item in enumerate(items):
                file.write(json.dumps(rows[number % len(rows)] | {"item": item.id}) + "\n")
        paths.append(path)
    large = replace(evidence, heldout=tuple(items))

    def plainly() -> list[Any]:
        return [json.loads(line) for path in paths for line in path.open(encoding="utf-8")]

    def judge_page() -> Samples:
        pairs = both_sides(large, *paths)
        return Samples(tuple(JudgedSample(number, *pair) for number, pair in enumerate(pairs, 1)), ("base", "tuned"))

    plain = time_call(f"plain read of 2 x {count} rows as JSON", plainly)
    judged_s = time_call(f"read, paired and judged, once for all pages of {count} samples", judge_page)
    print(f"  ratio: {judged_s / plain:.1f}")
    samples = judge_page()

    reader = SampleReader()

    def again(*_: object) -> Samples:
        return samples

    view_samples.samples_of = again
    time_call("a page of 60 rows at the end", lambda: reader.page(read, ("all", "", ""), count - 60, 60))
    time_call("a filter", lambda: samples.select("gained", "", ""))
    time_call("a search that finds one row", lambda: samples.select("all", "", items[-1].id))
    time_call("the counts of all filters", samples.counts)


if __name__ == "__main__":
    main()
