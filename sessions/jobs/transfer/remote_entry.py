"""Where an engine starts a job: ``python -P -m sessions.jobs.transfer.remote_entry JOB_FOLDER`` becomes the wrapper.

``--place URL KEY`` instead of the folder is for machines that do not see it
(``sessions/jobs/transfer/remote_job.py``), after ``--within SECONDS`` for those that may be held for so long,
transfers included.

An engine gives its processes variables of its own, addresses and tokens among them. A job gets the named ones only,
as on this machine, and as many threads as it asked for: Ray sets one thread where none are stated.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from sessions.jobs.job_state import read_order
from sessions.jobs.local_launcher import job_environment
from sessions.run.private_files import keep_private
from specs.errors import PeergateError

TERM_S = 60.0
"""How long what is asked to end has for bringing back what it leaves."""


def end_within(seconds: float) -> None:
    """Have this process asked to end after so long, as an engine does, and ended a minute later in any case.

    The signal comes from this process, so a machine whose orchestrator is gone is released too.
    """

    def end() -> None:
        print(f"the machine was held for {seconds:.0f} s, which is what max_hours allow", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(TERM_S)
        # A transfer that hangs, or takes hours. The wrapper is asked to end by the kernel then.
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def main() -> int:
    """Run what the arguments name."""
    keep_private()
    os.environ.pop("OMP_NUM_THREADS", None)
    words = sys.argv[1:]
    try:
        if words[:1] == ["--within"] and len(words) > 2:
            end_within(float(words[1]))
            words = words[2:]
        match words:
            case ["--place", url, key]:
                # The place's own settings and credentials are for this process; the job gets none of them.
                from sessions.jobs.transfer.remote_job import carry_out, job_root

                return carry_out(url, key, job_root())
            case [folder]:
                asked = read_order(Path(folder)).grant.resources
            case _:
                usage = "JOB_FOLDER | [--within SECONDS] --place URL KEY"
                print(f"usage: python -P -m sessions.jobs.transfer.remote_entry {usage}", file=sys.stderr)
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
