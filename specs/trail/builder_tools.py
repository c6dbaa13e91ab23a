"""The tools of a builder: what it may ask for, as typed arguments. The schemas a model is shown are made from these."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from specs.jobs.grant_and_claim import Claim
from specs.system.digests import Digest
from specs.trail.requested_review import DecisionKind, Option, ReviewKind, Short, Stakes, Text, Tier
from specs.trail.tool_arguments import (
    Arguments,
    ArtifactName,
    CompareRows,
    Grep,
    QueryRows,
    ReadArtifact,
    Tool,
    tool_of,
)

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]


class ReadSpec(Arguments):
    """Read the registered spec, with amendments: stages, allowed ranges, criteria, thresholds, budget, analysis."""

    section: Annotated[str, StringConstraints(pattern=r"^(/[^/]*)*$", max_length=200)] = ""
    """A JSON pointer, for example /stages/1; empty for the whole spec."""


class ListArtifacts(Arguments):
    """List everything that can be read by name: data, outputs of earlier attempts, notes."""


class ReadMetrics(Arguments):
    """Read what was measured from the raw rows of an attempt: the only numbers that count."""

    stage: Annotated[str, StringConstraints(max_length=40)]
    attempt: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """None for the newest measured attempt."""


class MetricHistory(Arguments):
    """Show one metric over all attempts of all stages, with what each attempt changed, its outcome and its cost."""

    metric: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    stage: Annotated[str, StringConstraints(max_length=40)] | None = None
    """None for all stages."""


class PlotTraining(Arguments):
    """Draw columns of the steps of a training attempt over its steps. Who sees no images gets the figures alone."""

    stage: Annotated[str, StringConstraints(max_length=40)]
    attempt: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """None for the newest attempt."""
    columns: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,40}$")], ...],
        Field(min_length=1, max_length=4),
    ] = ("loss",)
    """Such as loss, learning_rate, grad_norm."""


class ReadFindings(Arguments):
    """Read what gates decided, with the findings of their verdicts, of every stage so far."""

    stage: Annotated[str, StringConstraints(max_length=40)] | None = None
    """None for all stages; design for the gate of the design."""
    attempt: Annotated[int, Field(ge=1, le=10_000)] | None = None


class LookUp(Arguments):
    """Look up a name in the libraries that are installed here: its signature and docstring, without the internet."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,8}$", max_length=200)]
    """Such as trl.SFTConfig or transformers.Trainer.train."""


class RunPython(Arguments):
    """Run a short analysis over artifacts in a sandbox: no network, no GPU, nothing held-out, one minute.

    It reads /inputs/NAME and prints; what it prints is the result. It is not evidence for any gate.
    """

    script: Annotated[str, StringConstraints(min_length=1, max_length=20_000)]
    artifacts: Annotated[tuple[ArtifactName, ...], Field(max_length=10)] = ()


class RunChecks(Arguments):
    """Run the deterministic checks on the attempt whose job has ended, as the gate will run them."""


class ProposePlan(Arguments):
    """Put the plan of this attempt on record before anything is launched."""

    plan: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=8000)]
    """What is going to be done and why, what is expected, and what would show it wrong."""


class LaunchStage(Arguments):
    """Ask for the launch of the stage that is open. It gets a grant for exactly these parameters, or is refused."""

    stage: Annotated[str, StringConstraints(max_length=40)]
    """The stage that is open now."""
    changes: dict[str, float | int | str | bool] = Field(default_factory=dict, max_length=50)
    """Parameters that differ from the spec's, each inside its allowed range or among its choices. Every change that the
    gate required by number has to be among them."""
    code: Digest | None = None
    """For a stage of kind recipe: the digest write_recipe gave."""
    reason: Reason
    """Why these parameters."""
    answers: dict[str, Reason] = Field(default_factory=dict, max_length=50)
    """Answers to findings of the attempt before, by finding id."""


class WriteRecipe(Arguments):
    """Hand in the script of a stage of kind recipe. It is kept and not run; launch_stage takes its digest as `code`."""

    script: Annotated[str, StringConstraints(min_length=1, max_length=40_000)]
    """Python that reads $INPUTS/ROLE, writes rows.jsonl and other files into $OUT, and has no network.

    Where the stage's parameters say trains: ROLE, it leaves the trained weights of that input as safetensors in
    $OUT/checkpoint.
    """


class HelperTask(Arguments):
    """One bounded task."""

    task: Text
    """What is to be done and what the result should hold. The helper knows nothing but this and the artifacts."""
    artifacts: Annotated[tuple[ArtifactName, ...], Field(max_length=10)] = ()
    """Artifacts it should read; it can read all that you can."""
    max_usd: Annotated[float, Field(gt=0, le=1000)] = 0.5
    """The most it may cost, out of the builder's remaining money."""
    max_output_tokens: Annotated[int, Field(ge=256, le=1_000_000)] = 20_000
    """The limit for all its answers together."""
    timeout_minutes: Annotated[float, Field(gt=0, le=120)] = 20


class Delegate(Arguments):
    """Hand bounded tasks to helpers with a fresh context, all at once. Each leaves one note; helpers only read."""

    tasks: Annotated[tuple[HelperTask, ...], Field(min_length=1, max_length=4)]


class HandIn(Arguments):
    """Hand in the result of your task and end it."""

    result: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]


class Alarm(Arguments):
    """A figure of the job's progress, such as loss, that ends a wait.

    It does so by a bound, or because it is not a finite number.
    """

    figure: Annotated[str, StringConstraints(min_length=1, max_length=60)]
    """Its name in the progress that job_status shows."""
    above: float | None = None
    below: float | None = None


class JobStatus(Arguments):
    """Report the state of the job. Waits until it ends, an alarm is raised or the time is over: no need to poll."""

    wait_seconds: Annotated[int, Field(ge=0, le=1800)] = 300
    alarms: Annotated[tuple[Alarm, ...], Field(max_length=10)] = ()
    stalled_seconds: Annotated[int, Field(ge=5, le=1800)] | None = None
    """End the wait when the job has shown no progress for so long."""
    gpu_idle_seconds: Annotated[int, Field(ge=30, le=1800)] | None = None
    """End the wait when none of the job's GPUs has computed for so long, by nvidia-smi, which is asked every 15 s."""


class CancelJob(Arguments):
    """End the job of this attempt, because it diverges or hangs. Its rows so far stay on record.

    The attempt counts, its result does not, and the next one begins if the gate has one left. Not for a stage that sees
    held-out items.
    """

    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
    """What shows it, and what the next attempt will change."""


class JobLogs(Arguments):
    """Read the end of the job's log. It is untrusted text."""

    lines: Annotated[int, Field(ge=1, le=500)] = 60


class AskReview(Arguments):
    """Ask the session's reviewer one question: methodology, priorities, design, statistics, whatever blocks spending.

    Do not ask about trivia, what the spec already says, or how to carry out what is decided: the policy answers those.
    """

    topic: Short
    question: Text
    artifacts: Annotated[tuple[ArtifactName, ...], Field(max_length=10)] = ()
    """Artifacts the reviewer should read."""
    options: Annotated[tuple[Option, ...], Field(max_length=10)] = ()
    kind: DecisionKind | None = None
    stakes: Stakes | None = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    """How sure you are of your own answer, 0 to 1."""


class RequestReview(Arguments):
    """Have artifacts reviewed in full: issues by severity, recommendations, statistical concerns, an assessment."""

    artifacts: Annotated[tuple[ArtifactName, ...], Field(min_length=1, max_length=20)]
    kind: ReviewKind
    note: Annotated[str, StringConstraints(max_length=4000)] = ""
    effort: Tier = "medium"


class AdversarialReview(Arguments):
    """Have the claims of a note held against evidence, claim by claim."""

    claims: ArtifactName
    """The note that makes the claims."""
    evidence: Annotated[tuple[ArtifactName, ...], Field(max_length=20)] = ()
    effort: Tier = "medium"


class SpecChange(Arguments):
    """One value of the spec."""

    pointer: Annotated[str, StringConstraints(pattern=r"^(/[^/]+)+$", max_length=200)]
    """A JSON pointer into the spec, for example /stages/1/ranges/temperature/max."""
    value: float | int | str | bool | None
    """What it should be."""


class ProposeAmendment(Arguments):
    """Propose to change the registered spec. A person adopts it or not; until then the spec stays as it is."""

    changes: Annotated[tuple[SpecChange, ...], Field(min_length=1, max_length=20)]
    reason: Reason


class ProposeStage(Arguments):
    """Propose this experiment with one stage more, as a separate session that a person signs. It runs nothing."""

    stage: Annotated[str, StringConstraints(min_length=2, max_length=20_000)]
    """The stage as JSON, as read_spec shows stages."""
    before: Annotated[str, StringConstraints(max_length=40)] | None = None
    """The stage that follows it; None for the end."""
    reason: Reason


class ProposeSweep(Arguments):
    """Propose one session for each value of a parameter that has a range or choices, which a person signs.

    Each has the registered alpha and budget divided by their number, so that all of them are counted. It runs nothing.
    """

    stage: Annotated[str, StringConstraints(max_length=40)]
    parameter: Annotated[str, StringConstraints(max_length=60)]
    values: Annotated[tuple[float | int | str | bool, ...], Field(min_length=2, max_length=20)]
    reason: Reason


class WriteNote(Arguments):
    """Write a note that stays readable in later attempts and after restarts. It is not evidence for any gate."""

    kind: Literal["progress", "complete", "free"] = "free"
    """progress: what is done, under way, next. complete: what a finished stage leaves. free: anything else."""
    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]


class SubmitStage(Arguments):
    """Hand the attempt to its gate. Every claimed number is looked up among the measured ones first."""

    claims: Annotated[tuple[Claim, ...], Field(max_length=50)] = ()
    """Numbers you state about this and earlier stages. One that the rows contradict sends the submission back."""
    answers: dict[str, Reason] = Field(default_factory=dict, max_length=50)
    """Answers to findings of the attempt before, by finding id."""


class AskPerson(Arguments):
    """Stop and ask a person: when a finding cannot be answered inside the allowed ranges, or you cannot continue."""

    reason: Reason


TOOLS: tuple[Tool, ...] = (
    tool_of(ReadSpec),
    tool_of(ListArtifacts),
    tool_of(ReadArtifact),
    tool_of(ReadMetrics),
    tool_of(MetricHistory),
    tool_of(PlotTraining),
    tool_of(ReadFindings),
    tool_of(QueryRows),
    tool_of(CompareRows),
    tool_of(Grep),
    tool_of(RunPython),
    tool_of(LookUp),
    tool_of(ProposePlan, "plan"),
    tool_of(WriteRecipe, "plan"),
    tool_of(LaunchStage, "plan"),
    tool_of(JobStatus, "watch", "submit"),
    tool_of(JobLogs, "watch", "submit"),
    tool_of(CancelJob, "watch"),
    tool_of(RunChecks, "submit"),
    tool_of(AskReview),
    tool_of(RequestReview),
    tool_of(AdversarialReview),
    tool_of(ProposeAmendment),
    tool_of(ProposeStage),
    tool_of(ProposeSweep),
    tool_of(WriteNote),
    tool_of(Delegate),
    tool_of(SubmitStage, "submit"),
    tool_of(AskPerson, "plan"),
)
"""In a fixed order: models cache what does not change."""

HELPER_TOOLS: tuple[Tool, ...] = (
    tool_of(ReadSpec),
    tool_of(ListArtifacts),
    tool_of(ReadArtifact),
    tool_of(ReadMetrics),
    tool_of(QueryRows),
    tool_of(CompareRows),
    tool_of(Grep),
    tool_of(RunPython),
    tool_of(LookUp),
    tool_of(HandIn),
)
"""What a helper has: it reads, computes and hands in, it neither launches nor asks nor delegates."""
