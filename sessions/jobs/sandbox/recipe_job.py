"""A recipe as a job: ``python -P -m sessions.jobs.sandbox.recipe_job JOB_FOLDER`` runs and watches a sandbox.

Everything the script writes reaches the job folder through this process, which runs outside of the sandbox: bytes for
the log up to a size, files under checked names. The time limit is the wrapper's; ``sandbox_script.py``, which runs
inside, sets limits of single processes.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import psutil

from sessions.jobs.process_usage import ProcessTree
from sessions.jobs.sandbox import sandbox
from sessions.jobs.sandbox.sandbox_outputs import MOST_FILES, CutShort, OutputStreamError, ReceivedFiles, receive
from specs.jobs.job_records import JobOrder
from specs.stages.recipes import script_file
from specs.stages.recipes.parameters import RecipeParameters
from specs.system.confinement import bubblewrap
from specs.system.digests import digest_file
from specs.system.home import HOME
from specs.system.regular_files import read_regular
from training.jobs.job import Job, StageResult, refuse
from training.jobs.recipes.adopt_checkpoint import NotTaken, take_checkpoint

SCRIPT = "recipe.py"
"""The script's name in the job folder, where the launcher puts it."""
EXAMPLES = "examples.jsonl"
"""The file of /out in which a recipe leaves the examples that it keeps."""
CHECKPOINT = "checkpoint"
"""The folder of /out in which a training recipe leaves its weights."""
ALLOWED = "without_sandbox"
"""A file in the job folder: a person allowed the recipe to run without a sandbox."""
LOOK_S = 0.02
RESTS = 9
"""A look is followed by a rest so many times as long, so watching takes a tenth of one processor."""
MOST_REST_S = 0.3
"""The longest rest: a script can make a look long, and what it holds during the rest is not counted."""
HURRY = -10
BESIDE = 2
"""Processes of the sandbox itself: bubblewrap's own and the starter."""
END_S = 10.0
LOG_BYTES = 1 << 20
OPEN_FILES = 256
RESERVED_MB = 32 * 1024
"""torch on two processors reserves 2.4 GB, and for each further one the C library and a thread's stack 136 MB."""
PROGRESS_BYTES = 200
MOST_NOTED = 4
_PROGRESS = re.compile(r"progress (\d{1,12})/(\d{1,12})((?: [a-z_]{1,20}=\S{1,20})*)", re.ASCII)
_NOTED = re.compile(r" ([a-z_]{1,20})=(\S{1,20})", re.ASCII)
_MB = 1024 * 1024
STARTER = HOME / "training" / "jobs" / "recipes" / "sandbox_script.py"


def recipe(job: Job[RecipeParameters]) -> StageResult:
    """Run the script and keep ``rows`` and ``files``; ends the process if it fails or breaks a limit."""
    parameters = job.parameters
    script = job.folder / SCRIPT
    text = digest_file(script) if script.is_file() else "nothing"
    if text != parameters.code:
        refuse(f"{job.order.key}: the script is {text}, expected {parameters.code}")
    if missing := script_file.lacking(parameters.requires):
        refuse(f"{job.order.key}: not installed here: {', '.join(missing)}")
    _require_room(job, parameters)
    host = sandbox.script_host()
    why = sandbox.why_not(host)
    if why and not (job.folder / ALLOWED).exists():
        refuse(f"{job.order.key}: {why}")
    if host is None or why:
        with tempfile.TemporaryDirectory(prefix="peergate-recipe-") as name:
            ran = _outside(job, script, Path(name))
        confined = "none"
    else:
        ran = _inside(job, script, host)
        confined = bubblewrap.version(host)
    trained = {} if parameters.trains is None else {"checkpoint": _checkpoint(job, parameters.trains)}
    if parameters.curates is not None:
        trained["curated"] = _take_curated_examples(job, parameters.curates)
    if parameters.requires:
        trained["requires"] = script_file.find_installed_versions(parameters.requires)
    facts = {"sandbox": confined, "peak_memory_mb": ran.peak_mb, "log_bytes_left_out": ran.log_left_out}
    return StageResult(
        device="cpu and gpu" if parameters.gpu and host and host.devices else "cpu",
        dtype="not stated",
        tokens=0,
        effective=parameters.model_dump(mode="json") | {"code": text},
        facts=facts | ran.received._asdict() | trained,
        threads=os.cpu_count() or 1,
    )


def _require_room(job: Job, parameters: RecipeParameters) -> None:
    """Refuse a training before its hours of work if /out, which is memory, cannot hold the whole checkpoint."""
    if parameters.trains is None:
        return
    base = sum(path.stat().st_size for path in job.inputs[parameters.trains].glob("*.safetensors")) / _MB
    if base > parameters.output_mb:
        message = f"the weights of '{parameters.trains}' have {base:.1f} MB, output_mb is {parameters.output_mb}"
        refuse(f"{job.order.key}: {message}: the trained ones would not fit")
    needed, free = parameters.memory_mb + parameters.output_mb, psutil.virtual_memory().available // _MB
    if needed > free:
        message = f"memory_mb {parameters.memory_mb} and output_mb {parameters.output_mb}, which is memory too"
        refuse(f"{job.order.key}: {free} MB of memory are free here, the stage may use {needed} ({message})")


def _checkpoint(job: Job, role: str) -> dict[str, Any]:
    """Take the trained weights over from the recipe's files; return the facts about them."""
    path = job.out / "files" / CHECKPOINT
    try:
        change = take_checkpoint(path, job.inputs[role], job.out / CHECKPOINT)
    except (NotTaken, OSError) as error:
        # Refused weights are useless and may fill a disk.
        shutil.rmtree(path, ignore_errors=True)
        _fail(f"the checkpoint is not taken: {error}")
    shutil.rmtree(path)
    base = job.order.inputs[role]
    return {"of": base.name, "base": base.digest, "code": job.order.parameters["code"], **change.as_facts()}


def _take_curated_examples(job: Job, role: str) -> dict[str, Any]:
    """Take the curated examples out of the recipe's files; return how many of how many there are.

    The process ends if one of them is not a row of the input: what was written new is not a curation.
    """
    path, data = job.out / "files" / EXAMPLES, read_regular(job.inputs[role]).splitlines()
    if not path.is_file():
        _fail(f"the script left no {EXAMPLES}")
    kept_data = [line for line in read_regular(path).splitlines() if line.strip()]
    if strange := Counter(kept_data) - Counter(data):
        _fail(f"{sum(strange.values())} rows of {EXAMPLES} are not rows of '{role}', or are there more often")
    path.unlink()
    (job.out / EXAMPLES).write_bytes(b"".join(line + b"\n" for line in kept_data))
    return {"of": role, "kept": len(kept_data), "given": len(data)}


class Ran(NamedTuple):
    """The facts about a recipe that ended well."""

    received: ReceivedFiles
    peak_mb: float
    log_left_out: int


def limits_of(order: JobOrder, parameters: RecipeParameters, *, alone: bool) -> dict[str, int]:
    """Return the limits of each process; ``alone``: processes are counted for the sandbox, not for the user."""
    counts = {
        "CPU": int(order.max_seconds * (os.cpu_count() or 1)) + 1,
        "FSIZE": parameters.output_mb * _MB,
        "NOFILE": OPEN_FILES,
        "CORE": 0,
    }
    if alone:
        counts["NPROC"] = parameters.processes + BESIDE
    if not parameters.gpu:
        # Not with CUDA, which reserves all there is.
        counts["DATA"] = parameters.memory_mb * _MB
        # What a process may reserve without using it. More would be page tables to fill, and slow to look through.
        count = sum(artifact.bytes for artifact in order.inputs.values())
        counts["AS"] = counts["DATA"] + 2 * count + RESERVED_MB * _MB
    return counts


def _inside(job: Job[RecipeParameters], script: Path, host: bubblewrap.Host) -> Ran:
    work = sandbox.RecipeFiles(script, STARTER, {role: path.resolve() for role, path in job.inputs.items()})
    with bubblewrap.refused_calls() as refusing:
        # Without variables: the sandbox can read those of bubblewrap itself as /proc/1/environ.
        return run_script(
            job,
            job.parameters,
            {"code": sandbox.CODE, "out": sandbox.OUT, **_packages()},
            lambda message: sandbox.arguments(host, work, job.parameters, [message], refusing),
            {},
            (refusing,),
        )


def _outside(job: Job[RecipeParameters], script: Path, folder: Path) -> Ran:
    """Run the script without a sandbox, as a person allowed."""
    out, inputs = folder / "out", folder / "inputs"
    out.mkdir()
    inputs.mkdir()
    for role, path in job.inputs.items():
        (inputs / role).symlink_to(path.resolve())
    variables = sandbox.variables(job.parameters, str(inputs), str(out)) | {"HOME": str(folder)}
    command = [sys.executable, "-I", "-B", str(STARTER)]
    places = {"code": str(script), "out": str(out), **_packages()}
    return run_script(job, job.parameters, places, lambda message: [*command, message], variables)


def _packages() -> dict[str, str]:
    folder = script_file.packages()
    return {} if folder is None else {"packages": str(folder)}


def run_script(
    job: Job[Any],
    parameters: RecipeParameters,
    places: dict[str, str],
    command: Callable[[str], list[str]],
    variables: dict[str, str],
    handed_on: tuple[int, ...] = (),
) -> Ran:
    """Start a script under the limits of ``parameters``, watch it to its end, and receive its outputs.

    Ends the process if the script fails or breaks a limit.
    """
    (job.out / "files").mkdir()
    reading, sending = os.pipe()
    limits = limits_of(job.order, parameters, alone=bool(handed_on))
    # If the machine runs out of memory all the same, the kernel ends this job first. Its processes inherit it.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    process = subprocess.Popen(
        command(json.dumps(places | {"send": sending, "limits": limits})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=variables,
        cwd="/",
        pass_fds=(sending, *handed_on),
    )
    os.close(sending)
    assert process.stdout is not None
    log = _Log(process.stdout, job)
    outputs = _Outputs(reading, job.out, parameters.output_mb * _MB)
    log.start()
    outputs.start()
    code, peak, broken = _watch(process, parameters)
    # A sandbox has closed the other ends by now. Without one, a process that the script left behind may hold them.
    log.join(END_S)
    outputs.join(END_S)
    if broken:
        _fail(f"ended from outside: {broken}", job.order.kind)
    if outputs.refused is not None and not isinstance(outputs.refused, CutShort):
        _fail(str(outputs.refused), job.order.kind)
    if code != 0:
        _fail(
            f"the script ended with signal {code - 128}" if code > 128 else f"the script ended with code {code}",
            job.order.kind,
        )
    if outputs.received is None:
        _fail(str(outputs.refused or "its outputs did not arrive"), job.order.kind)
    (job.out / "rows.jsonl").touch()
    return Ran(outputs.received, round(peak / _MB, 1), log.left_out)


def _watch(process: subprocess.Popen[bytes], parameters: RecipeParameters) -> tuple[int, int, str]:
    """Wait for the end; return the exit code, the most memory seen, and the broken limit, if any."""
    with suppress(OSError):
        # Only root may do this, and only for root the kernel does not limit the processes itself.
        os.nice(HURRY)
    watched, most, processes = ProcessTree(process), parameters.memory_mb * _MB, parameters.processes
    peak, broken, rest = 0, "", LOOK_S
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(rest), peak, broken
        started_at = time.thread_time()
        used = watched.usage(processes + BESIDE, most)
        rest = max(LOOK_S, min(MOST_REST_S, RESTS * (time.thread_time() - started_at)))
        peak = max(peak, used.bytes)
        if broken:
            pass
        elif used.bytes > most:
            broken = f"its processes hold {used.bytes // _MB} MB of memory, the limit is {parameters.memory_mb}"
        elif used.threads > processes + BESIDE:
            broken = f"it has {used.threads - BESIDE} processes and threads, the limit is {processes}"
        elif used.files > MOST_FILES:
            broken = f"it has {used.files} files and folders in one place, the limit is {MOST_FILES}"
        if broken:
            watched.end()


class _Log(threading.Thread):
    """Copies the recipe's output up to a size, so that the log cannot fill the disk, and shows its progress lines."""

    def __init__(self, source: IO[bytes], job: Job[Any]) -> None:
        super().__init__(daemon=True)
        self._source, self._job = source, job
        self._line = b""
        self.left_out = 0

    def run(self) -> None:
        log_bytes = LOG_BYTES
        with self._source as source:
            while piece := os.read(source.fileno(), 65536):
                sys.stdout.buffer.write(piece[:log_bytes])
                sys.stdout.buffer.flush()
                self.left_out += len(piece[log_bytes:])
                log_bytes -= len(piece[:log_bytes])
                self._show(piece)

    def _show(self, piece: bytes) -> None:
        """Show the last whole line that states how far the script is; longer lines than one of those are dropped."""
        *lines, self._line = (self._line + piece).split(b"\n")
        self._line = self._line[: PROGRESS_BYTES + 1]
        for line in reversed(lines):
            if len(line) <= PROGRESS_BYTES and (progress := progress_in(line.decode("utf-8", "replace"))):
                done, total, note = progress
                self._job.progress(done, total, "steps", **note)
                break


def progress_in(line: str) -> tuple[int, int, dict[str, float | str]] | None:
    """Return what ``progress 12/100 loss=0.53`` says, its finite numbers by name; None for any other line."""
    match = _PROGRESS.fullmatch(line.strip())
    if match is None or not 0 <= int(match[1]) <= int(match[2]) or int(match[2]) == 0:
        return None
    note: dict[str, float | str] = {}
    for name, value in _NOTED.findall(match[3]):
        with suppress(ValueError):
            number = float(value)
            if math.isfinite(number) and len(note) < MOST_NOTED:
                note[name] = number
    return int(match[1]), int(match[2]), note


class _Outputs(threading.Thread):
    """Receives the recipe's outputs while they are sent."""

    def __init__(self, reading: int, folder: Path, most: int) -> None:
        super().__init__(daemon=True)
        self._reading, self._folder, self._most = reading, folder, most
        self.received: ReceivedFiles | None = None
        self.refused: OutputStreamError | OSError | None = None

    def run(self) -> None:
        with os.fdopen(self._reading, "rb") as stream:
            try:
                self.received = receive(stream, self._folder, self._most)
            except (OutputStreamError, OSError) as error:
                self.refused = error


def _fail(why: str, what: str = "recipe") -> NoReturn:
    print(f"{what}: {why}", file=sys.stderr)
    raise SystemExit(1)
