"""The contract all launchers share, and :func:`submit`, the only way to start a job.

It refuses without a grant, records the intent in the trail before the job exists, and starts the wrapper. What a
launcher says of a job's state is a hint: the wrapper's exit record is the evidence.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, Protocol

from reviews.gate import grants
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import write_durably
from reviews.trail.trail import Trail
from sessions.jobs.sandbox import code_admission
from sessions.jobs.sandbox.recipe_job import ALLOWED, SCRIPT
from sessions.run.claim import clock_here
from specs.jobs.job_records import WITNESS, ExitRecord, JobOrder
from specs.stages.registry import STAGE_KINDS
from specs.system.digests import digest_path
from specs.system.errors import EvidenceMissing, InvalidGrant
from specs.trail.gate_bodies import GrantEntry
from specs.trail.session_bodies import ChallengeEntry, ExitEntry, LaunchEntry

HERE = "local"
"""The launcher whose jobs are processes of the orchestrator's machine."""
State = Literal["pending", "running", "exited", "lost"]


@dataclass(frozen=True)
class JobState:
    """What is known of a job; ``exit`` is there once it has exited. *Lost* is never *failed*."""

    state: State
    exit: ExitRecord | None = None
    message: str = field(default="", compare=False)
    """For people: why a job has not begun, or why a lost one was given up."""
    is_here: bool = field(default=False, compare=False)
    """Whether its process was seen alive on this machine."""


class Launcher(Protocol):
    """Starts and watches jobs by their folders, which outlive the processes that start and watch them.

    All methods may be called again after a crash, by another process. Launchers on another system's engine are a
    :class:`sessions.jobs.engine_launcher.EngineLauncher`.
    """

    name: str

    def start(self, folder: Path) -> None:
        """Start the wrapper on a job folder, once or more; raise Blocked if the machine or the engine is missing."""

    def poll(self, folder: Path) -> JobState:
        """Return the state of a folder's job."""
        ...

    def cancel(self, folder: Path, reason: str) -> None:
        """Ask the job to end; returns at once."""


class PerStage:
    """Sends each job to the launcher of its stage."""

    def __init__(self, own: dict[str, Launcher]) -> None:
        self.name = "/".join(sorted({launcher.name for launcher in own.values()}))
        self._own = own

    def of(self, key: str) -> Launcher:
        """Return the launcher of a job by its key."""
        return self._own[key.removesuffix(WITNESS).rsplit(".", 2)[-2]]

    def start(self, folder: Path) -> None:
        """Start the job."""
        self.of(folder.name).start(folder)

    def poll(self, folder: Path) -> JobState:
        """Return the state of the job."""
        return self.of(folder.name).poll(folder)

    def cancel(self, folder: Path, reason: str) -> None:
        """Ask the job to end."""
        self.of(folder.name).cancel(folder, reason)


def job_folder(run: Path, key: str) -> Path:
    """Return the folder of a job; keys are ``session.stage.attempt``."""
    return run / "jobs" / key


def submit(
    launcher: Launcher, trail: Trail, run: Path, order: JobOrder, registration: str
) -> RecordedEntry[LaunchEntry]:
    """Launch a job under its grant: verify, record the intent, start the wrapper. Safe to repeat.

    Raises:
        GrantRefused: the trail has no matching, fresh grant, or the grant was used for another order.
        EvidenceMissing: an input artifact or the code of a recipe is missing.
        Blocked: a recipe has no sandbox to run in.
    """
    results: dict[str, str] = {}
    for role, artifact in order.inputs.items():
        try:
            results[role] = digest_path(run / artifact.path)
        except (OSError, ValueError) as error:
            raise EvidenceMissing(f"input '{role}' cannot be read: {error}", where=order.key) from error
    grants.verify(trail, order, registration, results)
    used = trail.find(LaunchEntry.key_of(order.key), LaunchEntry)
    if used is not None and used.body.order != order.content_digest():
        raise InvalidGrant(
            f"the grant was used for the order {used.body.order}, not {order.content_digest()}",
            where=order.key,
            hint="one attempt has one order; a change needs a new decision",
        )
    if isinstance(launcher, PerStage):
        launcher = launcher.of(order.key)
    folder = job_folder(run, order.key)
    kind = STAGE_KINDS[order.kind]
    prepared = None if used is not None else _set_aside(folder)
    if (kind.runs_code or kind.takes_script) and used is None:
        code_admission.admit(trail, run, folder, order)
    write_durably(folder / "order.json", order.canonical())
    # The intent precedes the effect: after a crash in between, the job is started again, and its claim decides whether
    # that is the first time.
    clock = clock_here() if launcher.name == HERE else None
    facts: dict[str, Any] = {"resumes": order.resumes, "clock": clock, "prepared": prepared}
    body = LaunchEntry(
        key=order.key,
        stage=order.grant.stage,
        attempt=order.grant.attempt,
        grant=order.grant.content_digest(),
        order=order.content_digest(),
        launcher=launcher.name,
        **{name: value for name, value in facts.items() if value},
    )
    launch = trail.append(body)
    launcher.start(folder)
    return launch


def submit_witness(launcher: Launcher, trail: Trail, run: Path, order: JobOrder) -> RecordedEntry[ChallengeEntry]:
    """Start the witness of a job that has ended: check, record the intent, start the wrapper. Safe to repeat.

    Raises:
        GrantRefused: the trail has no such grant, or the job has not ended as the challenge says.
    """
    job = order.grant.key()
    granted, ended = trail.find(GrantEntry.key_of(job), GrantEntry), trail.find(ExitEntry.key_of(job))
    if granted is None or dict(granted.body) != dict(order.grant):
        raise InvalidGrant("no such grant in the trail", where=order.key)
    if order.challenge is None or ended is None or ended.digest != order.challenge.ended:
        raise InvalidGrant("its challenge was not drawn from the end of the job", where=order.key)
    if isinstance(launcher, PerStage):
        launcher = launcher.of(order.key)
    folder = job_folder(run, order.key)
    stage, attempt = order.grant.stage, order.grant.attempt
    body = ChallengeEntry(
        key=order.key, stage=stage, attempt=attempt, order=order.content_digest(), launcher=launcher.name
    )
    if trail.find(body.entry_key()) is None and (prepared := _set_aside(folder)):
        body = body.model_copy(update={"prepared": prepared})
    write_durably(folder / "order.json", order.canonical())
    challenge = trail.append(body)
    launcher.start(folder)
    return challenge


def _set_aside(folder: Path) -> str | None:
    """Move away what lies in the folder of a job that was never launched, and return its name there; None: nothing.

    An earlier job knows the name of the folder. A claim, rows and an end in it would count as those of this job, or of
    the witness that is to judge the earlier one.
    """
    ours = {"order.json", SCRIPT, ALLOWED}
    # What begins with a dot is no more than the rest of a write that was cut off.
    if not folder.is_symlink() and (
        not folder.is_dir() or all(path.name in ours or path.name.startswith(".") for path in folder.iterdir())
    ):
        return None
    place = next(
        name for number in count(1) if not os.path.lexists(name := folder.with_name(f"{folder.name}.prepared{number}"))
    )
    folder.rename(place)
    return place.name
