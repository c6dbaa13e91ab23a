"""Find the weights a session starts from, in a process of their own: the orchestrator never imports torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sessions.jobs.local_launcher import job_environment
from specs.errors import PeergateError, UserError
from specs.session.session_spec import ModelSource, ResolvedSpec


def prepare_model(
    resolved: ResolvedSpec, source: ModelSource, cache: Path, say: Callable[[str], None]
) -> tuple[Path, str]:
    """Return folder and digest of a checkpoint the spec names, converting or copying it into the cache at need.

    Raises:
        UserError: the source cannot be had, or its digest is not the one the spec pins.
    """
    say(f"model {source.source}: finding the checkpoint (the first time it is converted, about half a minute)")
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "training.jobs.base_model",
            source.source,
            "--origin",
            resolved.origin,
            "--cache",
            str(cache),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=job_environment(),
        cwd=resolved.origin,
        check=False,
    )
    if done.returncode != 0:
        message = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
        raise UserError(f"the model cannot be prepared: {message}", where=source.source)
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
        path, digest = Path(found["path"]), str(found["digest"])
    except (ValueError, KeyError, IndexError) as error:
        raise PeergateError(f"training.jobs.base_model printed no result: {error}", where=source.source) from error
    if source.digest is not None and digest != source.digest:
        raise UserError(
            f"the checkpoint's digest is {digest}, the spec pins {source.digest}",
            where=source.source,
            hint="these are other weights; if that is what you want, change the digest in a new spec",
        )
    return path, digest
