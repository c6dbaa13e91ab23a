"""Where an engine starts a job: ``python -P -m sessions.jobs.far_side JOB_FOLDER`` becomes the wrapper.

``--place URL KEY`` instead of the folder is for machines that do not see it (``sessions/jobs/moved.py``).

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
    os.environ.pop("OMP_NUM_THREADS", None)
    try:
        match sys.argv[1:]:
            case ["--place", url, key]:
                # The place's own settings and credentials are for this process; the job gets none of them.
                from sessions.jobs.moved import carry_out, job_root

                return carry_out(url, key, job_root())
            case [folder]:
                asked = read_order(Path(folder)).grant.resources
            case _:
                print("usage: python -P -m sessions.jobs.far_side JOB_FOLDER | --place URL KEY", file=sys.stderr)
                return 2
    except PeergateError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    os.execve(
        sys.executable,
        [sys.executable, "-P", "-m", "sessions.jobs.wrapper", folder],
        job_environment(asked),
    )


if __name__ == "__main__":
    raise SystemExit(main())
