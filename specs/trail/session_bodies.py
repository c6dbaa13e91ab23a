"""Bodies of the entries that a session writes of itself: its registration, its jobs, its money, its end."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from specs.jobs.job_records import CodeState, HeldoutUse, MachineClock, ObservedRuntime, ResumeStep
from specs.session.design import Analysis
from specs.system.digests import Contract, Count, Digest
from specs.trail.entry import AttemptBody, Body, Hex, OfAttempt, Role
from specs.trail.verdict import Outcome

Ending = Outcome | Literal["overridden", "budget", "cancelled", "stop"]
"""How a session ends: with the outcome of a gate; at its goal, but over a gate or check that a person lifted; without
money; or because someone ended it."""


class PreviousOwner(Contract):
    """Who had the session before it was taken over: it showed no sign of life for some seconds."""

    epoch: int
    by: str
    host: str
    pid: int
    silent_s: float


class Lease(Contract):
    """Which process took the session up, and under which number: entries under an older one are refused."""

    epoch: int
    host: str
    pid: int
    over: PreviousOwner | None = None
    """None when no one held it."""


class Replicates(Contract):
    """Which closed session this one repeats with another seed, by a plan that was recorded before."""

    session: str
    plan: Digest
    """The digest of the ``replication_plan`` entry in that session's trail."""


class SpecSignature(Contract):
    """A person's signature on a spec, for one session."""

    by: str
    time_ns: str
    key: Hex
    """The public half of the person's key: a key that this trail lists for people."""
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]
    """Over the registration, ``by`` and ``time_ns`` (``reviews/audit/spec_signature.py``)."""


class OpenEntry(Body):
    """``open``: what was registered, before anything else happened."""

    KIND = "open"

    registration: Digest
    spec: Digest
    source: Digest
    """The digest of the spec file as given."""
    constitution: Digest | None = None
    """None of a spec without one."""
    data: dict[str, Digest]
    analysis: Analysis
    builder: str
    reviewer: str
    by: str
    reviewer_confined: bool
    """Whether the reviewer's process is kept by the system from writing anywhere."""
    lease: Lease
    measured_by: Digest
    """The digest of the registered measuring code, which is stored by file."""
    code_state: CodeState
    """Which code registered the session."""
    replicates: Replicates | None = None
    """Only of a session that ``peergate replicate`` began."""
    signed: SpecSignature | None = None
    """The signature of a spec that a person signed with ``peergate spec sign``."""


class WorkspaceEntry(Body):
    """``workspace``: the first entry of a trail of requested reviews."""

    KIND = "workspace"

    what: str = ""


class ModelEntry(Body):
    """``model``: the weights the session starts from."""

    KIND = "model"

    source: str
    kind: Literal["base", "instruct"]
    path: str
    digest: Digest
    revision: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40,64}$")] | None = None
    """The commit of the hub that ``hub:`` weights were taken from."""


class _JobBody(AttemptBody):
    key: str
    """The key of the job."""


class _LaunchedBody(_JobBody):
    def entry_key(self) -> str:
        return self.key_of(self.key)


class LaunchEntry(_LaunchedBody):
    """``launch``: the intent to run a job, written before the job exists."""

    KIND = "launch"

    grant: Digest
    order: Digest
    launcher: str
    resumes: ResumeStep | None = None
    """The saved step that the job resumes from."""
    clock: MachineClock | None = None
    """For a job that runs on the orchestrator's machine."""
    prepared: str | None = None
    """Where what lay in the job's folder before its launch was moved to, from ``jobs`` on; as ``clock``."""


class JobOutput(Contract):
    """One thing a job left."""

    path: str
    digest: Digest
    bytes: int
    stored: bool
    """Whether its bytes are in the content store."""
    copied: bool = False
    """Whether the store holds a copy of the folder: a list of its files, and them."""


class ExitEntry(_LaunchedBody):
    """``exit``: how a job ended and what it left."""

    KIND = "exit"

    exit: Digest
    manifest: Digest | None
    """None when the job left none, or one without the form of a manifest."""
    outputs: dict[str, JobOutput]
    log: Digest
    """Without secrets."""
    log_left: Digest | None = None
    """The log's digest as the job left it, where that is another."""
    beside: tuple[str, ...] = ()
    """Names of files among the outputs that the stage does not have; untrusted, the first few. As ``log_left``."""
    observed: ObservedRuntime | None = None
    """How long the job can have run, as it was seen from here."""
    heldout: HeldoutUse | None = None
    """For a job that evaluated the held-out split."""


class LostJobEntry(_LaunchedBody):
    """``lost``: a job that is gone and left no exit record, or that never began."""

    KIND = "lost"

    why: str = ""
    """Why it was given up, in words of what was to run it, which are untrusted."""
    bytes: Count | None = None
    """What it left in its folder."""


class ChallengeEntry(_JobBody):
    """``challenge``: the intent to have a witness read rows of a job that has ended."""

    KIND = "challenge"

    order: Digest
    launcher: str
    prepared: str | None = None
    """As in ``launch``."""


class WitnessEntry(_JobBody):
    """``witness``: how a witness ended, and what it read."""

    KIND = "witness"

    exit: Digest | None
    """None if it is lost."""
    manifest: Digest | None
    rows: Digest | None
    """None when it left none that count."""
    log: Digest | None
    observed: ObservedRuntime | None
    why: str
    """Why it was lost, in untrusted words; empty otherwise."""


class SpendEntry(Body):
    """``spend``: money set aside for a job, what it leaves, a review or a turn, or what that took in the end."""

    KIND = "spend"

    what: Literal["reserve", "settle"]
    job: str
    """The key of the job, review or turn."""
    party: Literal["job", "storage", "reviewer", "builder", "helper"]
    stage: str
    usd: float
    seconds: float | None = None
    """The wall time of a settled job."""
    bytes: int | None = None
    """The bytes of settled storage; None if unknown."""
    task: str = ""
    """A helper's."""

    @staticmethod
    def reservation_key(job: str) -> str:
        """Return the key of the entry that sets money aside for a job, review or turn."""
        return f"reserve/{job}"

    @staticmethod
    def settlement_key(job: str) -> str:
        """Return the key of the entry of what a job, review or turn took in the end."""
        return f"settle/{job}"

    def entry_key(self) -> str:
        """Return the key of the reservation or of the settlement."""
        return f"{self.what}/{self.job}"


class BudgetEntry(Body):
    """``budget``: what comes next does not fit in the budget, so a person is asked."""

    KIND = "budget"

    stage: str | None
    """None is the design gate."""
    attempt: int
    at: Literal["design_gate", "plan", "launch", "witness", "submit", "review"]
    """The node of the session graph that could not continue."""
    reasons: tuple[str, ...]


class _PersonalBody(Body):
    by: str
    """Who did it."""


class PauseEntry(_PersonalBody):
    """``pause``: who did it."""

    KIND = "pause"


class PrunedWeights(OfAttempt):
    """Weights or snapshots that a job left, as its ``exit`` entry names them."""

    output: str
    path: str
    digest: Digest
    bytes: int


class PruningEntry(_PersonalBody):
    """``pruning``: what was deleted from the folder of a closed session; written before anything is."""

    KIND = "pruning"
    FROM_OUTSIDE = True
    AFTER_THE_END = True

    weights: tuple[PrunedWeights, ...]
    leftovers: tuple[str, ...]
    """Folders with saved steps of interrupted trainings, which no entry names."""


class ReplicationPlanEntry(_PersonalBody):
    """``replication_plan``: the further seeds that a person registered for a closed session, before any of them ran.

    The rule is :func:`reviews.comparison.seed_comparison.combine_seeds`: a seed that fails counts as no gain.
    """

    KIND = "replication_plan"
    FROM_OUTSIDE = True
    AFTER_THE_END = True

    design: Digest
    """The digest of everything registered except the session's name and seed."""
    measured_by: Digest
    """The digest of the measuring code, as in ``open``."""
    seeds: tuple[int, ...]
    sessions: tuple[str, ...]
    """The names of the sessions, a seed each, next to the closed one."""


class ReplicationEntry(_PersonalBody):
    """``replication``: what came of the further seeds."""

    KIND = "replication"
    FROM_OUTSIDE = True
    AFTER_THE_END = True

    plan: Digest
    """The digest of the ``replication_plan`` entry."""
    result: Digest
    """The digest of the stored figures."""
    heads: dict[str, Digest]
    """The newest entry that the figures were computed from, by session."""


class ResumeEntry(_PersonalBody):
    """``resume``: who did it, and on what kind of machine, which may be another one."""

    KIND = "resume"

    reviewer_confined: bool
    """As in ``open``."""
    lease: Lease
    """As in ``open``."""
    code_state: CodeState
    """Which code resumes it."""


class KeysEntry(Body):
    """``keys``: a key that was replaced; the policy is next to the body."""

    KIND = "keys"

    role: Role
    old: Hex
    new: Hex
    revoked: bool
    by: str
    reason: str


class ReportEntry(Body):
    """``report``: the files of the report, by path in the run folder."""

    KIND = "report"

    files: dict[str, Digest]
    entries: int
    """How many entries the report was made from: all that the trail had then."""
    outcome: Ending


class CloseEntry(Body):
    """``close``: the end."""

    KIND = "close"

    decision: Ending
    report: Digest
    """The digest of the ``report`` entry."""
