"""The sandbox for a builder's code: bubblewrap with a fixed list of mounts, variables and limits, and no network.

Not mounted are the run folder, store, trail, keys, home, held-out items and Peergate itself. It shares the kernel, and
a GPU with its other users. ``recipe_job.py`` counts memory, processes and files up to fifty times a second, so a fast
process overshoots before it is ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sessions.jobs.job_environment import JOB_VARIABLES
from specs.stages.recipes.parameters import RecipeParameters
from specs.stages.recipes.script_file import packages
from specs.system.confinement import bubblewrap
from specs.system.confinement.bubblewrap import Host

INPUTS, OUT, CODE, STARTER = "/inputs", "/out", "/code/recipe.py", "/code/start.py"
PROBE = "import ctypes, json, socket"
_MB = 1024 * 1024


class RecipeFiles(NamedTuple):
    """The files of one recipe."""

    code: Path
    starter: Path
    inputs: Mapping[str, Path]


def arguments(
    host: Host, work: RecipeFiles, parameters: RecipeParameters, starter: Sequence[str], refusing: int
) -> list[str]:
    """Return the command that runs a starter with its arguments; ``refusing`` is a descriptor of the call filter."""
    size = str(parameters.output_mb * _MB)
    command = bubblewrap.opening(host, "recipe", variables(parameters, INPUTS, OUT), refusing)
    # If Peergate runs as root, the kernel's settings below /proc/sys belong to the script's user.
    command += ["--proc", "/proc", "--remount-ro", "/proc"]
    for path in host.devices if parameters.gpu else ():
        command += ["--dev-bind", path, path]
    for path in ("/dev/shm", "/tmp", OUT):
        command += ["--size", size, "--tmpfs", path]
    command += bubblewrap.environment(host)
    command += ["--ro-bind", str(work.starter), STARTER, "--ro-bind", str(work.code), CODE, "--dir", INPUTS]
    for role, path in sorted(work.inputs.items()):
        command += ["--ro-bind", str(path), f"{INPUTS}/{role}"]
    command += ["--remount-ro", "/dev"]
    # The root is a writable tmpfs without a size until now.
    command += ["--remount-ro", "/", "--chdir", OUT]
    return [*command, "--", host.python, "-I", "-B", STARTER, *starter]


def variables(parameters: RecipeParameters, inputs: str, out: str) -> dict[str, str]:
    """Return the whole environment of a recipe."""
    results = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "USER": "recipe",
        "LANG": "C.UTF-8",
        "INPUTS": inputs,
        "OUT": out,
        "SEED": str(parameters.seed),
        "MPLCONFIGDIR": "/tmp",
        **JOB_VARIABLES,
    }
    return results if parameters.gpu else results | {"CUDA_VISIBLE_DEVICES": ""}


def script_host() -> Host | None:
    """Describe this machine, with the folder of packages that scripts import first; None without bubblewrap."""
    host, folder = bubblewrap.this_host(), packages()
    return host if host is None or folder is None else host._replace(environment=(*host.environment, str(folder)))


def why_not(host: Host | None) -> str:
    """Run a command in a sandbox, and say why that fails here; empty if it works."""
    missing = bubblewrap.why_missing(host)
    if host is None or missing:
        return missing
    itself = Path(__file__)
    try:
        with bubblewrap.refused_calls() as refusing:
            command = arguments(
                host, RecipeFiles(itself, itself, {"probe": itself}), RecipeParameters(output_mb=1), (), refusing
            )
            return bubblewrap.why_not([*command[: command.index("--") + 1], host.python, "-I", "-c", PROBE], refusing)
    except OSError as error:
        return f"bubblewrap does not run: {error}"
