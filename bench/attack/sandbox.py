"""Hostile scripts in the sandbox of recipes: each one runs in it, and nothing of it may come to anything.

Three sorts. *Calls*: system calls and sockets that must not reach the kernel's code. *Hogs*: scripts that hold several
times the memory, files or processes they may, each in another way; found if the job fails, or if the script is refused
what it asks for. *Outputs*: what a script leaves that is not a plain file under a plain name, or is too much.
"""

from __future__ import annotations

import json
import os
import platform
import random
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.attack.outcome import Outcome
from bench.attack.sandbox_calls import CALLS, FAMILIES, MOST_FAMILIES, calls_script
from bench.attack.sandbox_scripts import BEGIN, HOGS, OUTPUTS
from sessions.jobs.sandbox.sandbox import why_not
from specs.system.confinement.bubblewrap import this_host
from testing.factories.recipe_session import recipe_session
from testing.fixtures.recipe_process import EndedProcess
from testing.fixtures.recipe_process import run as run_recipe

LIMITS: dict[str, Any] = {"memory_mb": 128, "output_mb": 8, "processes": 16}
HELD_MB = 4 * LIMITS["memory_mb"]
"""What a hog holds when it has won."""
NO_FILTER = (
    "import struct\nfrom specs.system.confinement import seccomp\nseccomp.program = lambda machine=None, alone=False: "
    "struct.pack('HBBI', 6, 0, 0, 0x7FFF0000)"
)
"""The filter of system calls that allows every one of them."""
NO_COUNT = (
    "from sessions.jobs import process_usage as usage\n"
    "usage.Watched.usage = lambda self, threads, held: usage.Usage(0, 0)"
)
"""No one counts what the processes hold."""


def run(seed: int, folder: Path, change: str = "", only: Callable[[str], bool] = lambda name: True) -> Outcome:
    """Try everything once, in an order and with names that the seed gives.

    Args:
        seed: of the order and of the names of outputs.
        folder: for the sessions.
        change: Python that the process next to the sandbox runs first, to switch off a guard.
        only: says by name which attacks are made.
    """
    if why := why_not(this_host()):
        return Outcome(not_run=why)
    outcome, chance = Outcome(), random.Random(seed)
    if only("calls"):
        _calls(outcome, folder, chance, change)
    hogs = [name for name in HOGS if only(name)]
    chance.shuffle(hogs)
    for name in hogs:
        ended = _recipe(folder, name, BEGIN.format(held=HELD_MB) + HOGS[name], change)
        won = ended.code == 0 and ended.rows == [{"held": True}]
        outcome.record(not won and _well_ended(ended), f"{name}: {_last(ended)}")
    for name, script in OUTPUTS.items():
        if only(name):
            outcome.record(*_output(folder, name, script.replace("SEED", str(chance.getrandbits(32))), change))
    return outcome


def _calls(outcome: Outcome, folder: Path, chance: random.Random, change: str) -> None:
    """Make every call and every kind of socket once, and reach for three servers outside."""
    names, families = list(CALLS), [index for index in range(MOST_FAMILIES) if index not in FAMILIES]
    chance.shuffle(names)
    chance.shuffle(families)
    with ExitStack() as stack:
        abstract = f"peergate-{os.getpid()}"
        for address in (f"\0{abstract}", ""):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            if not address:
                # Not below /tmp, of which the sandbox has another one; and short, as such an address has to be.
                path = f"{stack.enter_context(tempfile.TemporaryDirectory(dir='/var/tmp'))}/s"
                address = path
            server.bind(address)
            server.listen()
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        script = calls_script(platform.machine(), names, families, (abstract, path, tcp.getsockname()[1]))  # pyright: ignore[reportPossiblyUnboundVariable]
        ended = _recipe(folder, "calls", script, change)
    if ended.code != 0:
        outcome.record(False, f"calls: {_last(ended)}")
        return
    for name, answer in ended.rows[0].items():
        outcome.record(answer in ("EPERM", "ENOSYS", "EAFNOSUPPORT", "outside", "unknown"), f"{name}: {answer}")


def _output(folder: Path, name: str, script: str, change: str) -> tuple[bool, str]:
    """Return whether nothing came out of it but plain files under plain names, and what was done."""
    ended = _recipe(folder, name, script, change)
    out = ended.folder / "out"
    paths = [path for path in out.rglob("*") if not path.is_dir()]
    strange = [path for path in paths if path.is_symlink() or not path.is_file() or path.stat().st_nlink != 1]
    strange += [path for path in paths if not path.name.isprintable() or "secret" in path.read_text(errors="replace")]
    much = len(list(out.rglob("*"))) > 10_010 or sum(path.stat().st_size for path in paths) > LIMITS["output_mb"] << 20
    quiet = ended.code == 0 and name.startswith("refused")
    return not strange and not much and not quiet and _well_ended(ended), f"{name}: {len(paths)} kept, {_last(ended)}"


def _recipe(folder: Path, name: str, script: str, change: str) -> EndedProcess:
    session = recipe_session(folder / name.replace(" ", "-").replace("/", "-"))
    (session.run / "secret").write_text("secret")
    try:
        return run_recipe(session, script, change=change, **LIMITS)
    except subprocess.TimeoutExpired as error:
        return EndedProcess(124, "no one ended it", session.run, error.timeout)
    finally:
        session.trail.close()


def _well_ended(ended: EndedProcess) -> bool:
    """Return whether the job ended with a manifest or a reason, never with an error of Peergate's own."""
    return ended.code == 0 or (ended.code == 1 and "recipe: " in ended.log and "sessions/jobs" not in ended.log)


def _last(ended: EndedProcess) -> str:
    texts = ended.log.strip().splitlines()[-1:] or [""]
    return f"exit code {ended.code}, {json.dumps(texts[0][:200])}"
