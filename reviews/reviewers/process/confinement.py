"""How the reviewer's process is started: with few variables and, where bubblewrap works, without a place to write.

Under bubblewrap it sees the file system read-only, without the other keys, the run folder and other processes. It keeps
the network, to ask models. Without bubblewrap it still cannot write a byte into a file (``RLIMIT_FSIZE``), but it could
read what the user can read, make empty files and delete others; the trail then says ``confined: false``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from reviews.trail.chain.keys import EARLIER
from specs.session.reviewer_vendor import key_variable
from specs.system.confinement import bubblewrap
from specs.system.home import HOME
from specs.system.vendors.parties import ReviewerSpec

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_PASSED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *_PROXIES,
    *(name.lower() for name in _PROXIES),
)
_SET = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
_PROGRAM = (sys.executable, "-P", "-m", "reviews.reviewers.process")
_WALL = (
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"),
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--chdir", "/"),
)
_PROBE_S = 10


def environment(reviewers: Sequence[ReviewerSpec], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of the process: named variables, and only the keys of its vendors."""
    wanted = {name for reviewer in reviewers if (name := key_variable(reviewer))}
    return {name: environ[name] for name in (*_PASSED, *sorted(wanted)) if name in environ} | _SET


def command(key: Path, run: Path | None) -> list[str]:
    """Return the command of the process; under bubblewrap it sees ``key`` alone of its folder, and not ``run``."""
    bwrap = bubblewrap.find_program() if is_confined() else None
    if bwrap is None:
        return list(_PROGRAM)
    hidden: list[str] = []
    if key.exists():
        hidden = ["--tmpfs", str(key.parent)]
        for path in (key, *sorted(key.parent.glob(EARLIER.format(key.stem)))):
            hidden += ["--ro-bind", str(path), str(path)]
    if run is not None and run.is_dir() and not _holds_the_program(run):
        hidden = ["--tmpfs", str(run), *hidden]
    return [bwrap, *_WALL, *hidden, "--", *_PROGRAM]


@cache
def is_confined() -> bool:
    """Return whether bubblewrap is installed and works: many containers forbid it."""
    bwrap = bubblewrap.find_program()
    if bwrap is None:
        return False
    try:
        done = subprocess.run([bwrap, *_WALL, "--", "/bin/true"], capture_output=True, check=False, timeout=_PROBE_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _holds_the_program(folder: Path) -> bool:
    own = (sys.prefix, sys.base_prefix, str(HOME))
    return any(Path(text).is_relative_to(folder) for text in own)
