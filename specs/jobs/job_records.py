"""What a job reads and leaves: order, items, raw rows, manifest, progress, exit record and the state of its code."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from specs.jobs.grant_and_claim import Grant
from specs.stages.base.stage import Kind, ModelKind
from specs.system.confinement.task_file import remember
from specs.system.confinement.verifier_command import VerifierLimits
from specs.system.digests import Contract, Count, Digest, Positive, Quantity, omit_default


class CodeState(Contract):
    """The state of Peergate's own code when a session or a job began, as the process that runs it found it."""

    digest: Digest
    """The digest of the files that jobs run: ``training`` and ``specs``, rubrics included."""
    version: str
    """The version of the installed distribution; empty if it is not installed."""
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")] | None
    branch: str | None
    """None when the commit is checked out without a branch, or is not known."""
    changed: Annotated[int, Field(ge=0)] | None
    """Files of the five packages that differ from the commit or are not in it; None when that is not known."""
    unknown: str = ""
    """Why commit and changes are not known."""

    @property
    def state(self) -> Literal["clean", "changed", "unknown"]:
        """Return whether the code is exactly that of the commit."""
        if self.commit is None or self.changed is None:
            return "unknown"
        return "changed" if self.changed else "clean"

    def __str__(self) -> str:
        if self.commit is None or self.changed is None:
            of = f"version {self.version}" if self.version else "no version"
            return f"unknown commit ({self.unknown or 'not stated'}), {of}, digest {self.digest}"
        branch = f" of {self.branch}" if self.branch else ""
        files = f" with {self.changed} changed files" if self.changed else ""
        return f"commit {self.commit}{branch}{files}, digest {self.digest}"


class MachineUse(Contract):
    """What a job used of the graphics processors it saw."""

    cuda: str | None
    """The CUDA version that torch was built for; None when the job ran on the CPU."""
    gpus: Annotated[int, Field(ge=0)]
    """Devices the job could see; 0 when it ran on the CPU."""
    gpu_memory_mb: float | None
    """MiB of the device it ran on."""
    peak_gpu_mb: float | None
    """MiB that torch had reserved on it at most."""
    gpu_hours: float
    """Wall time of the job times ``gpus``, in hours: what a machine with as many is held for."""


class Artifact(Contract):
    """A named file or folder with a digest. ``path`` is relative to the run folder, or absolute outside it."""

    name: str
    path: str
    digest: Digest
    bytes: Count


class ResumeStep(Contract):
    """The saved step of an earlier attempt from which a job resumes."""

    attempt: int
    step: int
    path: str
    """From the run folder on."""
    digest: Digest


WITNESS = ".witness"
"""What the key of a witness has after that of the job whose work it makes again."""
LEFT = "left."
"""Before the name of a judged job's output, where a witness reads it."""


class Segment(Contract):
    """Training steps that follow each other."""

    after: Count
    """The step whose weights they begin with; 0 is the granted weights."""
    until: Positive


class RowSelection(Contract):
    """The rows of an output that a witness recomputes."""

    of: Count
    """How many rows the output has."""
    rows: tuple[Count, ...]
    """Their places in the file, from 0, in order."""


class Challenge(Contract):
    """The rows of a job that has ended that a witness recomputes."""

    ended: Digest
    """The trail's entry of the job's end, from which the rows were drawn: no job can prepare for it."""
    of: Count
    """How many rows the job left."""
    rows: tuple[Count, ...]
    """Their places in the file, from 0, in order."""
    segments: tuple[Segment, ...] = ()
    """For training: the same rows, by the steps they begin after."""
    saved: Positive | None = omit_default()
    """For training: the step whose weights the job says it saved, if that is not the last."""
    others: dict[str, RowSelection] | None = None
    """The same of outputs next to ``rows`` that hold scores, by name."""

    def select_rows(self, output: str) -> RowSelection:
        """Return the rows of an output to recompute: none if the challenge does not name the output."""
        rows = RowSelection(of=self.of, rows=self.rows)
        return ({"rows": rows} | (self.others or {})).get(output, RowSelection(of=0, rows=()))

    @property
    def saved_step(self) -> int:
        """Return the training step whose weights were saved."""
        return self.saved or self.of

    @property
    def unit(self) -> str:
        """Return what its rows are."""
        return "steps" if self.segments else "rows"

    def describe(self) -> str:
        """Return what a witness does, after the words "a witness"."""
        count, of = self.counts()
        return f"{'trains' if self.segments else 'reads'} {count} of {of} {self.unit} again"

    def counts(self) -> tuple[int, int]:
        """Return how many rows of all outputs are to be recomputed, and of how many."""
        every = [self.select_rows(name) for name in ("rows", *(self.others or ()))]
        return sum(len(row_selection.rows) for row_selection in every), sum(row_selection.of for row_selection in every)


class JobOrder(Contract):
    """The order of a job: what to run, on which inputs, under which grant."""

    schema_version: Literal[1] = 1
    key: str
    """``session.stage.attempt``: the idempotency key."""
    kind: Kind
    parameters: dict[str, Any]
    inputs: dict[str, Artifact]
    task: str
    grant: Grant
    code: Digest
    """The digest of the code that the orchestrator runs: a job that would run other code refuses."""
    max_seconds: float
    dead_man_minutes: float | None = None
    """The job ends itself when no orchestrator was there for this long; None: never."""
    model_kind: ModelKind | None = None
    """The kind the spec declares of the model, for prompting; None where the builder's code runs."""
    resumes: ResumeStep | None = None
    """None: the job begins at the beginning."""
    task_text: str | None = None
    """The text of a task file: ``task`` names its digest, and the grant ``task``."""
    verifier: VerifierLimits = VerifierLimits()
    """What the process of a verifier of the user's own may take."""
    challenge: Challenge | None = None
    """Set for a witness, which does not do the work: it looks whether the granted weights could have done it."""

    @model_validator(mode="after")
    def _know_its_task(self) -> JobOrder:
        remember(self.task, self.task_text, self.verifier)
        return self

    def granted_key(self) -> str:
        """Return the key that belongs to the grant: a witness works under that of the job it judges."""
        return self.grant.key() + (WITNESS if self.challenge else "")


class Manifest(Contract):
    """What really ran. Written by the job, compared by checks with what was granted."""

    schema_version: Literal[1] = 1
    key: str
    kind: Kind
    parameters: Digest
    inputs: dict[str, Digest]
    outputs: dict[str, Digest]
    code: Digest
    packages: dict[str, str]
    device: str
    device_name: str
    dtype: str
    threads: Positive
    seed: Count
    tokens: Count
    wall_s: Quantity
    effective: dict[str, Any]
    """Settings read back from the objects that did the work, by parameter name where there is one."""
    facts: dict[str, Any] = {}
    """Further things the job saw that checks use (for example the masked share of a batch)."""
    code_state: CodeState
    """Which code ran, as it was when the job began."""
    machine: MachineUse | None = None
    """What the job used of graphics processors."""


class JobProgress(Contract):
    """One line of ``progress.jsonl``: how far the job is and what it measured on the way (claims, for display)."""

    time: float
    done: int
    total: int
    unit: str
    note: dict[str, float | str] = {}

    def seconds_left(self, first: JobProgress) -> float:
        """Return the seconds left at the speed since an earlier line, 0 where nothing was done since.

        From the first line of a job on it is the speed without the loading of the model.
        """
        if self.done <= first.done:
            return 0.0
        return (self.total - self.done) * max(self.time - first.time, 1e-3) / (self.done - first.done)


class MachineClock(Contract):
    """What the clocks of the orchestrator's machine say, which all of its processes read."""

    boot: str
    """The start of the machine, as its system names it."""
    up_s: float
    """Seconds since its start, by a clock that no one sets; suspended time counts."""
    time: float
    """The time of day, which may be set."""


CLOCK_TOLERANCE_S = 60.0
CLOCK_TOLERANCE_SHARE = 0.01
"""How far a job's own clock may be from the orchestrator's: a start, an end seen late, and clocks that drift."""

SHORT_TOLERANCE_S = 2.0
"""The same for a length of time, with half of what was observed: of a job of seconds a minute would be all."""


class ObservedRuntime(Contract):
    """How long a job can have run, by the clocks of the orchestrator and not by its own."""

    at_least_s: Quantity
    """Seconds for which its process was seen alive on this machine; 0 if the process is elsewhere."""
    at_most_s: Quantity
    """From the launch to when its end was seen, by any orchestrator."""
    clock_set_s: float | None = None
    """Seconds by which the machine's clock was set meanwhile; None if the job may have read another clock."""

    def spare(self) -> float:
        """Return how many seconds a clock of the job may be off."""
        return CLOCK_TOLERANCE_S + CLOCK_TOLERANCE_SHARE * self.at_most_s

    def spare_of_length(self) -> float:
        """Return how many seconds a job's account of a length of time may be off: of a short job, few."""
        most = min(CLOCK_TOLERANCE_S, SHORT_TOLERANCE_S + self.at_most_s / 2)
        return most + CLOCK_TOLERANCE_SHARE * self.at_most_s

    def fits(self, seconds: float) -> bool:
        """Return whether a job's own account of its time can be so."""
        spare = self.spare_of_length()
        return seconds >= 0 and self.at_least_s - spare <= seconds <= self.at_most_s + spare

    def bound_seconds(self, seconds: float) -> float:
        """Return the time to pay for: the job's own account where it fits, else the nearest that was observed.

        It is never less than its process was seen alive.
        """
        return max(seconds if self.fits(seconds) else min(seconds, self.at_most_s), self.at_least_s)


class ExitRecord(Contract):
    """How the job ended, written by its wrapper. ``code`` is negative for a signal.

    ``dead_man``: the job was ended because no orchestrator was there for longer than the spec allows.
    """

    schema_version: Literal[1] = 1
    key: str
    code: int
    reason: Literal["exited", "signal", "timeout", "cancelled", "refused", "dead_man"]
    started: float
    ended: float
    host: str
    log: Digest
    log_left_out: int = 0
    """Bytes that were printed and are not in the log."""
    cpu_s: float | None = None
    """Processor time of the stage and of what it started and waited for."""
    peak_rss_mb: float | None = None
    """The most memory in MiB: that of all its processes together, looked at once a second, or that of the largest."""

    @property
    def seconds(self) -> float:
        """How long the job ran by its own account; infinite where the two times are further apart than floats go."""
        return self.ended - self.started


class HeldoutUse(Contract):
    """How often other sessions of the workspace had evaluated the same registered split when a job ended."""

    sessions: Count
    """The number of sessions that evaluated it."""
    evaluations: Count
    unread: Count
    """Sessions that could not be read, and are not counted."""
    seeds: Count = 0
    """Sessions that evaluated it for the same registered seeds, which chose nothing by it: they are not in the other
    counts."""
    split: str = omit_default("heldout")
    """The held-out split, or the name of the data file that is the transfer split."""
