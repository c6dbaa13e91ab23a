"""Take the pictures of the docs again: ``python -m release.pictures_of_docs [DEMO]``.

Quick sessions of every state are made for those of the list, of a session that asks and of a gate. Those of a finished
session and its samples are of DEMO, the run folder of a finished `make demo`, and stay as they are without it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from sessions.pages.view.places import Scope
from sessions.pages.view.serving import PageServer
from testing.fixtures.browser import browser
from testing.fixtures.hostile_trail import small_trail
from testing.fixtures.quick_session import drive, no_plots, open_quick, quick_session
from tests.sessions.report.test_page_in_browser import Refuses
from tests.sessions.view.test_view_pages import damaged

HERE = Path(__file__).resolve().parents[1] / "docs" / "pictures"
LISTED = "[...document.querySelectorAll('[data-money]')].every(cell => cell.textContent)"


class Picture(NamedTuple):
    """A page, and when all of it is there."""

    address: str
    there: str = "document.querySelector('h1')"
    size: tuple[int, int] = (1280, 900)


OF_STATES = {
    "sessions": Picture("/", LISTED, (1280, 440)),
    "asks": Picture("/s/waiting/"),
    "gate": Picture("/s/waiting/gate/tuned/1"),
}
OF_DEMO = {
    "session": Picture("/s/demo/"),
    "samples": Picture("/s/demo/samples", "document.querySelectorAll('#list .row').length > 4"),
}


def take(runs: Path, pictures: dict[str, Picture]) -> list[str]:
    """Take pictures of a workspace; returns what went wrong in the browser."""
    bound = PageServer(Scope(runs), 0, "ada")
    threading.Thread(target=bound.serve, daemon=True).start()
    with browser() as seen_browser:
        page = seen_browser.page()
        page.open(bound.address())
        for name, picture in pictures.items():
            page.look(*picture.size)
            page.open(f"http://127.0.0.1:{bound.port}{picture.address}")
            page.until(f"Boolean({picture.there})")
            page.picture(HERE / f"{name}.png")
        return page.faults


def make_states(folder: Path) -> Path:
    """Make sessions that are accepted, rejected, waiting and damaged; returns their workspace below the folder."""
    run = open_quick(folder, name="rejected")
    drive(quick_session(run, reviewer=Refuses()))
    done = open_quick(folder, name="accepted")
    drive(quick_session(done))
    for name in ("asking", "copied"):
        (folder / name).mkdir()
    shutil.copytree(small_trail(folder / "asking"), run.parent / "waiting")
    shutil.copytree(damaged(done, folder / "copied"), run.parent / "damaged")
    return run.parent.relative_to(folder)


def main() -> int:
    """Take them, and say what went wrong."""
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="pictures-", ignore_cleanup_errors=True) as named:
        folder = Path(named)
        if len(sys.argv) > 1:
            shutil.copytree(sys.argv[1], folder / "demos" / "demo")
        # Commands on the pages name a session without the path of this folder then.
        os.chdir(folder)
        if len(sys.argv) > 1:
            faults += take(folder / "demos", OF_DEMO)
        with no_plots():
            runs = make_states(folder)
        faults += take(runs, OF_STATES)
    for fault in faults:
        print(fault)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
