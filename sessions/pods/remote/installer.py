"""Makes the environment on the pod: ``python -I - ARGUMENTS`` with this file on standard input.

It needs only the standard library. The mark, written last, says that an environment is whole; others are removed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

MARK = "peergate-installed.json"
TAIL = 1500
PIP = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir"]


def main(requests: dict[str, Any]) -> dict[str, Any]:
    """Make the environment if it is missing; returns its Python, or why there is none."""
    folder = Path(requests["folder"])
    os.umask(0o077)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return {"failed": "another installation into this folder runs"}
        python = folder / "bin" / "python"
        if (folder / MARK).exists():
            return {"python": str(python), "made": False}
        shutil.rmtree(folder, ignore_errors=True)
        whole = False
        try:
            run([sys.executable, "-m", "venv", str(folder)], requests["seconds"])
            for words in requests["installs"]:
                run([str(python), *PIP, "-c", requests["constraints"], *words], requests["seconds"])
            with (folder / MARK).open("w", encoding="utf-8") as mark:
                json.dump(requests, mark)
                mark.flush()
                os.fsync(mark.fileno())
            whole = True
        except (subprocess.SubprocessError, OSError, RuntimeError) as error:
            return {"failed": str(error)}
        finally:
            if not whole:
                shutil.rmtree(folder, ignore_errors=True)
        return {"python": str(python), "made": True}


def run(command: list[str], seconds: float) -> None:
    """Run a command, or raise RuntimeError with the end of its output."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        message = done.stdout.decode("utf-8", "replace")[-TAIL:].strip()
        raise RuntimeError(f"{' '.join(command[:4])} ended with {done.returncode}: {message}")


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
