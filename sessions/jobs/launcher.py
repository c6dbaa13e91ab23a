"""The contract all launchers share, and the one door every job goes through.

A launcher is told an order; it refuses without a grant, records the intent in the trail before the job exists,
and starts the wrapper. Its own idea of a job's state is a hint: the wrapper's exit record is the evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from reviews.gate import grants
from reviews.trail.envelope import Recorded
from reviews.trail.store import write_durably
from reviews.trail.trail import Trail
from sessions.jobs.sandbox import code_admission
from specs.digests import digest_path
from specs.errors import EvidenceMissing, GrantRefused
from specs.job_records import ExitRecord, JobOrder
from specs.stages.registry import STAGE_KINDS

State = Literal["pending", "running", "exited", "lost"]


@dataclass(frozen=True)
class JobState:
    """What is known of a job; ``exit`` is there once it has exited. *Lost* is never *failed*."""

    state: State
    exit: ExitRecord | None = None
    told: str = field(default="", compare=False)
    """For people: what a job that has not begun waits for, and why a lost one was given up."""
    is_here: bool = field(default=False, compare=False)
    """Whether its process was seen alive on this machine."""


class Launcher(Protocol):
    """Starts and watches jobs by their folders, which survive what starts and watches them.

    All methods may be called again after a crash, by another process. Launchers on an engine of others are a
    :class:`sessions.jobs.engine_launcher.EngineLauncher`.
    """

    name: str

    def start(self, folder: Path) -> None:
        """Start the wrapper on a job folder; starting twice is harmless, the wrapper's claim decides.

        Raises:
            Blocked: the machine lacks what the job's order asks for, or the engine cannot be reached.
        """
        ...

    def poll(self, folder: Path) -> JobState:
        """Say how the job of a folder is."""
        ...

    def cancel(self, folder: Path, reason: str) -> None:
        """Ask the job to end; returns at once."""
        ...


class PerStage:
    """Launchers by stage: each job goes to the one that its stage is registered with.

    Args:
        own: by stage.
    """

    def __init__(self, own: dict[str, Launcher]) -> None:
        self.name = "/".join(sorted({one.name for one in own.values()}))
        self._own = own

    def of(self, key: str) -> Launcher:
        """Return the launcher of a job; keys are ``session.stage.attempt``."""
        return self._own[key.rsplit(".", 2)[-2]]

    def start(self, folder: Path) -> None:
        """As the stage's launcher does."""
        self.of(folder.name).start(folder)

    def poll(self, folder: Path) -> JobState:
        """As the stage's launcher does."""
        return self.of(folder.name).poll(folder)

    def cancel(self, folder: Path, reason: str) -> None:
        """As the stage's launcher does."""
        self.of(folder.name).cancel(folder, reason)


def job_folder(run: Path, key: str) -> Path:
    """Return the folder of a job; keys are ``session.stage.attempt``."""
    return run / "jobs" / key


def submit(launcher: Launcher, trail: Trail, run: Path, order: JobOrder, registration: str) -> Recorded:
    """Launch a job under its grant: verify, record the intent, start the wrapper. Safe to repeat.

    Raises:
        GrantRefused: no matching, fresh grant in the trail, or it was used for another order already.
        EvidenceMissing: an input artifact is not there, or the code of a recipe.
        Blocked: a recipe has no sandbox to run in.
    """
    found: dict[str, str] = {}
    for role, artifact in order.inputs.items():
        try:
            found[role] = digest_path(run / artifact.path)
        except (OSError, ValueError) as error:
            raise EvidenceMissing(f"input '{role}' cannot be read: {error}", where=order.key) from error
    grants.verify(trail, order, registration, found)
    used = trail.find(f"launch/{order.key}")
    if used is not None and used.body["order"] != order.content_digest():
        raise GrantRefused(
            f"the grant was used for the order {used.body['order']}, not {order.content_digest()}",
            where=order.key,
            hint="one attempt has one order; a change needs a new decision",
        )
    if isinstance(launcher, PerStage):
        launcher = launcher.of(order.key)
    folder = job_folder(run, order.key)
    if STAGE_KINDS[order.kind].runs_code and used is None:
        code_admission.admit(trail, run, folder, order)
    write_durably(folder / "order.json", order.canonical())
    # The intent comes before the effect: after a crash in between, the job is started again and its claim
    # decides whether that is the first time.
    launch = trail.append(
        "launch",
        f"launch/{order.key}",
        {
            "key": order.key,
            "stage": order.grant.stage,
            "attempt": order.grant.attempt,
            "grant": order.grant.content_digest(),
            "order": order.content_digest(),
            "launcher": launcher.name,
        }
        | ({} if order.resumes is None else {"resumes": order.resumes.model_dump(mode="json")}),
    )
    launcher.start(folder)
    return launch
