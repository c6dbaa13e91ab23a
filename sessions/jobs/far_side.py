"""Where an engine starts a job: ``python -P -m sessions.jobs.far_side JOB_FOLDER`` becomes the wrapper.

An engine gives its processes variables of its own, addresses and tokens among them. A job gets the named ones only,
as on this machine, and as many threads as it asked for: Ray sets one thread where none are stated.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sessions.jobs.local import job_environment
from sessions.jobs.state import read_order
from specs.errors import PeergateError


def main() -> int:
    """Run what the arguments name."""
    if len(sys.argv) != 2:
        print("usage: python -P -m sessions.jobs.far_side JOB_FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    try:
        asked = read_order(folder).grant.resources
    except PeergateError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    os.environ.pop("OMP_NUM_THREADS", None)
    os.execve(
        sys.executable,
        [sys.executable, "-P", "-m", "sessions.jobs.wrapper", str(folder)],
        job_environment(asked),
    )


if __name__ == "__main__":
    raise SystemExit(main())
