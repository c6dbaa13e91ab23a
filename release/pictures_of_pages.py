"""Take pictures of the pages of `peergate view`: ``python -m release.pictures_of_pages RUNS OUT [NAME...]``.

Every page of the named sessions of RUNS, or of all, is taken at two widths, in light and dark, as `--act` shows it.
Needs Chromium and a checkout with its tests.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from reviews.trail.tables.open_table import read_entries
from sessions.pages.overview import find_runs
from sessions.pages.view.places import Scope
from sessions.pages.view.serving import PageServer
from sessions.run.run_layout import TRAIL
from specs.system.errors import PeergateError
from specs.trail.gate_bodies import DecisionEntry, MetricsEntry, PacketEntry
from testing.fixtures.browser import Page, browser

SIZES = ((1280, 900), (390, 800))


def pages_of(run: Path) -> dict[str, str]:
    """Return the addresses of a session's pages by a name for the picture."""
    base = f"/s/{run.name}/"
    results = {"session": base, "samples": f"{base}samples", "transcript": f"{base}transcript", "trail": f"{base}trail"}
    try:
        entries = read_entries(run / TRAIL)
    except PeergateError:
        return results
    for body in (entry.body for entry in entries):
        match body:
            case DecisionEntry():
                results["gate"] = f"{base}gate/{body.stage or 'design'}/{body.attempt}"
            case MetricsEntry(metrics=str(), stage="tuned" | "evaluate"):
                results["number"] = f"{base}number/{body.stage}/{body.attempt}/accuracy_gain"
            case PacketEntry():
                results["packet"] = f"{base}value/{body.packet}?at=/checks/0"
            case _:
                pass
    return results


def take(page: Page, address: str, path: Path) -> None:
    """Take the pictures of one page."""
    for width, height in SIZES:
        for dark in (False, True):
            page.look(width, height, dark=dark)
            page.open(address)
            time.sleep(0.7)
            page.picture(path.with_name(f"{path.name}-{width}-{'dark' if dark else 'light'}.png"))


def main() -> int:
    """Serve a workspace and take its pictures."""
    runs, out, names = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    out.mkdir(parents=True, exist_ok=True)
    bound = PageServer(Scope(runs), 0, "ada")
    threading.Thread(target=bound.serve, daemon=True).start()
    base = f"http://127.0.0.1:{bound.port}"
    with browser() as seen_browser:
        page = seen_browser.page()
        page.open(bound.address())
        take(page, f"{base}/", out / "sessions")
        for run in find_runs(runs):
            if not names or run.name in names:
                for name, address in pages_of(run).items():
                    take(page, f"{base}{address}", out / f"{run.name}-{name}")
        for fault in page.faults:
            print(fault)
    return 0


if __name__ == "__main__":
    sys.exit(main())
