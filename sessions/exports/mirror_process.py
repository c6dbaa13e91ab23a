"""Adds what is new of a session to a tracker: ``python -m sessions.exports.mirror_process NAME [online]``.

The process runs in the folder of a session's trackers and reads a run from its standard input. What was shown before
is on record there, so that a process that was killed, or another session process, shows nothing twice.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path

from filelock import FileLock

from reviews.trail.chain.store import write_durably
from sessions.exports.formats import FORMATS
from sessions.exports.tracked_run import TrackedRun, tracked_of
from specs.system.extras import install_hint
from specs.system.regular_files import read_regular

WAIT_S = 60.0
"""For another process that shows the same session."""


def show(run: TrackedRun, name: str, folder: Path, *, online: bool = False) -> None:
    """Show what is new of a run; raises what the tracker's library raises."""
    record, target = folder / f"{name}{'-online' if online else ''}.json", folder / name
    with FileLock(folder / f"{name}.lock", timeout=WAIT_S):
        known = set[str]()
        with suppress(OSError, ValueError, TypeError):
            known = set(json.loads(read_regular(record)))
        if known.issuperset(run.parts()):
            return
        form = FORMATS[name]
        # Libraries print.
        with redirect_stdout(sys.stderr):
            if form.adds or online:
                target.mkdir(exist_ok=True)
                form.writer()(run.since(known), target, online=online)
            else:
                partial = folder / f".{name}.partial"
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                form.writer()(run, partial)
                shutil.rmtree(target, ignore_errors=True)
                partial.rename(target)
        write_durably(record, json.dumps(sorted(known | set(run.parts()))).encode())


def main() -> int:
    """Show the run on standard input; the last line says why that failed."""
    name, *how = sys.argv[1:]
    try:
        show(tracked_of(sys.stdin.buffer.read()), name, Path.cwd(), online=how == ["online"])
    except ModuleNotFoundError as error:
        print(f"package '{error.name}' is not installed: {install_hint(name)}", file=sys.stderr)
        return 1
    except Exception as error:
        # Whatever a library does: its words may hold what it was given.
        print(f"failed: {type(error).__name__}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
