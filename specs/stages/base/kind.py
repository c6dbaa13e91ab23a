"""What a stage kind is: declared once, and asked by other code for its traits, never for its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

from pydantic import create_model

from specs.stages.base.metric import MetricDefinition
from specs.stages.base.stage import ArtifactKind, StageBase
from specs.system.digests import Contract


@dataclass(frozen=True)
class RequiredOutput:
    """The output that later stages read. A stage that left it empty opens no gate."""

    output: str
    row: type[Contract]
    """The form of its lines."""
    count_metric: str = ""
    """The metric that counts the lines that are handed on, where that is not all of them."""


@dataclass(frozen=True)
class ConditionalPorts:
    """Inputs and outputs that a stage has only where one of its parameters is set."""

    where: str
    """A parameter, or a property of the parameters."""
    inputs: Mapping[str, ArtifactKind] = field(default_factory=dict[str, ArtifactKind])
    outputs: Mapping[str, ArtifactKind] = field(default_factory=dict[str, ArtifactKind])

    def is_set(self, parameters: Any) -> bool:
        """Return whether a stage with these parameters has them."""
        return getattr(parameters, self.where) not in (None, False)


@dataclass(frozen=True)
class LogprobOutputs:
    """Outputs that hold log-probabilities, which a witness computes again with the granted weights."""

    by: str
    """The function that says again what was scored for each row, ``module:function``."""
    outputs: tuple[str, ...] = ("rows",)
    unless: str = ""
    """A parameter, or a property of the parameters: where it is set, the scores are believed."""


@dataclass(frozen=True)
class ArmTraits:
    """What the analysis asks of a kind that can be one of its two arms."""

    metric: str
    """The share of the held-out items that the arm has right."""
    count: str
    """The metric that counts the items."""
    conversations: bool = False
    """Whether an item is a conversation, judged by its own verifier and not by that of the spec's task."""
    control: tuple[str, str] | None = None
    """A parameter, and its value in an arm: a control is the same stage with another value of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StageKind:
    """One kind of stage. The traits below are the whole vocabulary in which other code asks about it."""

    name: str
    """The ``kind`` of a stage in a spec, and the name of the entry point."""
    parameters: type[Contract]
    """Every parameter with its limits; ``seed`` is one of them."""
    inputs: Mapping[str, ArtifactKind]
    """Role -> artifact kind: what a stage names under ``inputs``."""
    outputs: Mapping[str, ArtifactKind]
    """Role -> artifact kind; ``rows`` is one of them."""
    rows: Mapping[str, type[Contract]] = field(default_factory=dict[str, type[Contract]])
    """Output -> the form of its lines."""
    metrics: tuple[MetricDefinition, ...] = ()
    """What Peergate measures of it, from its rows."""
    job: str
    """The function that carries it out, ``module:function``, in a process of ``training.jobs``."""
    witness_prompts: str = ""
    """The function that says again what its model was asked for each row, ``module:function``: a witness then reads
    the answers with the granted weights. Empty: no row is an answer that it could read."""
    witness_prompts_if: str = ""
    """A parameter, or a property of the parameters: where it is not set, nothing is concluded from the answers, and no
    witness reads them."""
    logprob_outputs: LogprobOutputs | None = None
    """Its outputs with log-probabilities: a witness computes them again. A kind may have answers and scores."""
    replay_job: str = ""
    """The function that trains some of its steps again, ``module:function``, in the witness's process; its rows derive
    from :class:`TrainingRow`. Parameters with ``snapshots_of(steps)`` say after which steps it left a
    snapshot. Empty: what it trains is believed, where the spec says ``witness: weights_only``."""
    judge: str
    """The module that measures and checks it."""

    review_focus: tuple[str, ...] = ()
    """What a reviewer looks at in it, a phrase each; packets of its stages show them."""
    reads_heldout: bool = False
    """Whether it may read the held-out split; the share of the budget kept for evaluation is then open to it."""
    trains: str = ""
    """The input that it trains on; its rows are then training steps, and it leaves a trained checkpoint."""
    resumable: bool = False
    """Whether an attempt may continue from the saved steps of an interrupted one."""
    samples: bool = False
    """Whether it samples text: bad text may end it early, and it must follow its pilot's parameters."""
    loads_model: bool = True
    """Whether its job loads weights, so that memory is planned and a device granted."""
    sampled_by_task: bool = False
    """Whether its rows are answers to the task's own prompts, which its verifier accepts or not."""
    pairs_samples: bool = False
    """Whether its ``samples`` are rows that were sampled by the task, of the same prompts."""
    without_precision: bool = False
    """Whether it computes without a model; its manifest then states no precision."""
    selects: bool = False
    """Whether it hands on some of what it read, and writes nothing new."""
    runs_code: bool = False
    """Whether it runs a script of the builder; it then reads whatever its stage names, under any role."""
    takes_script: bool = False
    """Whether a person's script belongs to it that may read the held-out split: registered with its text, never a
    builder's, and run in a sandbox."""
    judged_in_sandbox: bool = False
    """Whether its judge runs what the model wrote, in a sandbox that the machine of the session has to have."""
    environment: Literal["", "inspect", "lm_eval"] = ""
    """The library whose task its job runs in a sandbox, with what the library needs; empty where it runs none."""
    open_ended: bool = False
    """Whether its model continues until a stop string, and ``stops`` names them."""
    reads_turns: bool = False
    """Whether rows with turns before their prompt are for it; elsewhere they are refused."""
    only_measures: bool = False
    """Whether it asks a model registered items and leaves nothing but the answers."""
    arm: ArmTraits | None = None
    """What the analysis needs, where a stage of the kind can be baseline or treatment."""
    required_output: RequiredOutput | None = None
    """The output that later stages read, where an empty one must close the gate."""
    examples: tuple[Literal["inputs", "outputs"], str] | None = None
    """The input or output with training examples, which must share nothing with the held-out split."""
    screened: str = ""
    """An output of prompts that a model wrote: held-out ones are removed before a later stage reads it."""
    outcomes: tuple[Literal["binary", "continuous", "ordinal"], ...] = ()
    """The values its rows give each item, more being better: two stages of the kind are compared item by item."""
    conditional_ports: tuple[ConditionalPorts, ...] = ()
    """Inputs and outputs that depend on a parameter."""
    plugin: str = ""
    """The distribution that brings it; empty for Peergate's own."""

    def __post_init__(self) -> None:
        scoped = tuple(
            metric.model_copy(update={"scope": self.name}) if not metric.scope else metric for metric in self.metrics
        )
        object.__setattr__(self, "metrics", scoped)

    @cached_property
    def stage(self) -> type[StageBase]:
        """Return the model of a stage of this kind, as a spec holds it."""
        words = "".join(word.capitalize() for word in self.name.split("_"))
        required = any(field_info.is_required() for field_info in self.parameters.model_fields.values())
        fields: dict[str, Any] = {
            "kind": (Literal[self.name], ...),
            "parameters": (self.parameters, ... if required else self.parameters()),
        }
        article = "An" if self.name[0] in "aeiou" or self.name == "sft" else "A"
        made: Any = create_model(
            f"{words}Stage",
            __base__=StageBase,
            __module__=__name__,
            __doc__=f"{article} ``{self.name}`` stage.",
            **fields,
        )
        return cast(type[StageBase], made)

    def makes_weights(self, parameters: Any = None) -> bool:
        """Return whether a stage with these parameters leaves a checkpoint that it made; without them, whether one may.

        A package, which reads the held-out split for its probes, is the checkpoint it was given.
        """
        every = _merge_roles(self.outputs, *(conditional_ports.outputs for conditional_ports in self.conditional_ports))
        outputs = every if parameters is None else self.outputs_of(parameters)
        return "checkpoint" in outputs.values() and (bool(self.trains) or not self.reads_heldout)

    def answers_count(self, parameters: Any) -> bool:
        """Return whether a witness reads answers of a stage with these parameters."""
        return bool(self.witness_prompts) and (
            not self.witness_prompts_if or getattr(parameters, self.witness_prompts_if) not in (None, False)
        )

    def scores_of(self, parameters: Any) -> tuple[str, ...]:
        """Return the outputs of a stage with these parameters whose scores a witness computes again."""
        scorer_value = self.logprob_outputs
        if scorer_value is None or (
            scorer_value.unless and getattr(parameters, scorer_value.unless) not in (None, False)
        ):
            return ()
        artifact_kinds = self.outputs_of(parameters)
        return tuple(name for name in scorer_value.outputs if name in artifact_kinds)

    def inputs_of(self, parameters: Any) -> dict[str, ArtifactKind]:
        """Return what a stage with these parameters reads: role -> artifact kind."""
        return _merge_roles(
            self.inputs,
            *(
                conditional_ports.inputs
                for conditional_ports in self.conditional_ports
                if conditional_ports.is_set(parameters)
            ),
        )

    def outputs_of(self, parameters: Any) -> dict[str, ArtifactKind]:
        """Return what a stage with these parameters leaves: role -> artifact kind."""
        return _merge_roles(
            self.outputs,
            *(
                conditional_ports.outputs
                for conditional_ports in self.conditional_ports
                if conditional_ports.is_set(parameters)
            ),
        )


def _merge_roles(*roles: Mapping[str, ArtifactKind]) -> dict[str, ArtifactKind]:
    return {role: kind for artifact_kinds in roles for role, kind in artifact_kinds.items()}
