"""`peergate pause`: ask a running session to pause, and wait until it has."""

from __future__ import annotations

from pathlib import Path

from sessions.commands.output import print_line
from sessions.report.overview import overview
from sessions.run.lease import is_running, lease
from sessions.run.pause import PAUSE, when_free
from sessions.run.run_layout import require_run


def pause(name: str, runs: Path) -> None:
    """Pause a session; one that does not run is left as it is."""
    run = require_run(runs / name).resolve()
    ran = is_running(run)
    if ran:
        with when_free(run, PAUSE, lease, lambda text: print_line(text, err=True)):
            pass
    state = overview(run)
    where = "" if runs == Path("runs") else f" --runs {runs}"
    told = {
        "paused": f"{'paused' if ran else 'is paused already'}; `peergate resume {name}{where}` goes on",
        "waiting": f"{'now waits' if ran else 'does not run, it waits'} for a person; `peergate status {name}{where}`",
        "closed": f"{'ended before it paused' if ran else 'has ended'}: {state.decision}",
        "running": "was resumed by somebody else",
    }
    print_line(f"{name}: {told.get(state.state, state.state)}")
