"""What a stage kind is: declared once, and asked by other code for its traits, never for its name.

A kind's contract is importable in milliseconds: its job and its judge are named by strings, which nothing here loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, cast

from pydantic import create_model

from specs.digests import Contract
from specs.stages.metric import MetricDefinition
from specs.stages.stage import ArtifactKind, StageBase


@dataclass(frozen=True)
class Kept:
    """The output that later stages continue with, and the form of its lines. A stage that kept none opens no gate."""

    output: str
    row: type[Contract]
    left: str = ""
    """A metric that counts those which are handed on, where that is not all of them."""


@dataclass(frozen=True)
class Added:
    """What a stage reads and leaves beside the rest where one of its parameters is set."""

    where: str
    """A parameter, or a property of the parameters."""
    inputs: Mapping[str, ArtifactKind] = field(default_factory=dict[str, ArtifactKind])
    outputs: Mapping[str, ArtifactKind] = field(default_factory=dict[str, ArtifactKind])


@dataclass(frozen=True)
class Arm:
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
    parameters: type[Contract]
    """Every parameter with its limits; ``seed`` is one of them."""
    inputs: Mapping[str, ArtifactKind]
    """Role -> artifact kind."""
    outputs: Mapping[str, ArtifactKind]
    rows: Mapping[str, type[Contract]] = field(default_factory=dict[str, type[Contract]])
    """Output -> the form of its lines."""
    metrics: tuple[MetricDefinition, ...] = ()
    """What Peergate measures of it, from its rows."""
    job: str
    """The process that carries it out, ``module:function``."""
    judge: str
    """The module that measures it and checks it (``reviews/stages/judge.py`` says what it holds)."""

    reads_heldout: bool = False
    """Whether it may read the held-out split; it then has the share of the budget that is held back for evaluation."""
    trains: str = ""
    """The input that it trains on; its rows are then the steps of the training, and it leaves a trained checkpoint."""
    resumable: bool = False
    """Whether an attempt may continue from the saved steps of one that was cut off."""
    samples: bool = False
    """Whether it samples text whose quality can break it off, and whose pilot has to be followed."""
    loads_model: bool = True
    """Whether its job loads weights, so that memory is planned and a device granted."""
    sampled_by_task: bool = False
    """Whether its rows are answers to the task's own prompts, which its verifier accepts or not."""
    pairs_samples: bool = False
    """Whether its ``samples`` are rows that were sampled by the task, of the same prompts."""
    without_precision: bool = False
    """Whether it computes without a model, so that its manifest states no precision."""
    selects: bool = False
    """Whether it hands on some of what it read, and writes nothing new."""
    runs_code: bool = False
    """Whether it runs a script of the builder; it then reads whatever its stage names, under any role."""
    chat_form: bool = False
    """Whether its parameter ``form`` says how its model is asked, which a base model is not by a chat template."""
    open_ended: bool = False
    """Whether its model continues until a stop string, and ``stops`` names them."""
    worked_examples: bool = False
    """Whether it may show a worked example of the task."""
    only_measures: bool = False
    """Whether it asks a model registered items and leaves nothing but what came of it."""
    instruct_unsaid: bool = False
    """Whether its orders state the kind of the model for base models only; those of others keep their digests."""
    arm: Arm | None = None
    kept: Kept | None = None
    examples: tuple[Literal["inputs", "outputs"], str] | None = None
    """Where the examples stand that a model is trained on, which must share nothing with the held-out split."""
    screened: str = ""
    """An output of prompts that a model wrote: held-out ones are taken out before a later stage reads it."""
    outcomes: tuple[Literal["binary", "continuous", "ordinal"], ...] = ()
    """What its rows say of each item; two stages of one kind can then be compared item by item, more being better."""
    added: tuple[Added, ...] = ()
    plugin: str = ""
    """The distribution that brings it; empty for Peergate's own."""

    def __post_init__(self) -> None:
        scoped = tuple(one.model_copy(update={"scope": self.name}) if not one.scope else one for one in self.metrics)
        object.__setattr__(self, "metrics", scoped)

    @property
    def module(self) -> str:
        """Return the module that ``python -m`` runs: its job's own, or for plug-ins one that loads it."""
        return "training.jobs.plugin_job" if self.plugin else self.job.partition(":")[0]

    @cached_property
    def stage(self) -> type[StageBase]:
        """Return the model of a stage of this kind, as a spec holds it."""
        words = "".join(word.capitalize() for word in self.name.split("_"))
        required = any(one.is_required() for one in self.parameters.model_fields.values())
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

    def inputs_of(self, parameters: Any) -> dict[str, ArtifactKind]:
        """Return what a stage with these parameters reads: role -> artifact kind."""
        found = dict(self.inputs)
        for added in self._set(parameters):
            found.update(added.inputs)
        return found

    def outputs_of(self, parameters: Any) -> dict[str, ArtifactKind]:
        """Return what a stage with these parameters leaves: role -> artifact kind."""
        found = dict(self.outputs)
        for added in self._set(parameters):
            found.update(added.outputs)
        return found

    def _set(self, parameters: Any) -> list[Added]:
        return [one for one in self.added if getattr(parameters, one.where) not in (None, False)]

    def brought_by(self, distribution: str) -> StageKind:
        """Return the kind with the name of the distribution that brings it."""
        return replace(self, plugin=distribution)
