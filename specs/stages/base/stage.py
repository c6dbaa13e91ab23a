"""What the stages of every kind share: names, references, artifact kinds, criteria, ranges and the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from specs.system.digests import Contract, Name, omit_default
from specs.system.exact import Number, decimal_text, holds
from specs.system.resources import LauncherName, Resources

TASKS = ("format_instructions", "instruction_following", "exact_answer")
"""Peergate's own tasks (``training/rules/tasks``)."""
Task = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
"""What items ask for and which verifier judges the answers: one of :data:`TASKS`, or one of ``peergate.tasks``."""

SpecTask = Annotated[
    str,
    StringConstraints(
        pattern=r"^([a-z][a-z0-9_]{0,39}|\./[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}\.py(@sha256:[0-9a-f]{64})?)$"
    ),
]
"""A :data:`Task`, or a Python file next to the spec; registered with its digest
(``specs/system/confinement/task_file.py``)."""

ScriptPath = Annotated[
    str,
    StringConstraints(pattern=r"^(\./)?[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}\.(py|ya?ml)(@sha256:[0-9a-f]{64})?$"),
]
"""A Python file below the spec's folder, or a TRL or Axolotl file that becomes one (``specs/trainers``), registered
with its digest (``specs/stages/recipes/script_file.py``)."""

Kind = Name
"""The name of a stage kind. Whether there is one of that name, the registry says."""

Reference = Annotated[
    str, StringConstraints(pattern=r"^(model|control|heldout|constitution|[a-z][a-z0-9_]{0,39}\.[a-z][a-z0-9_]{0,39})$")
]
"""``model``, ``control``, ``heldout``, ``constitution``, ``data.<name>`` or ``<stage>.<output>``."""


ModelKind = Literal["base", "instruct"]
"""A base model continues text; an instruct model was trained on the turns of a chat template."""

ArtifactKind = Literal[
    "checkpoint",
    "items",
    "rows",
    "examples",
    "preferences",
    "transcripts",
    "constitution",
    "files",
    "snapshots",
]

FOLDERS: tuple[ArtifactKind, ...] = ("checkpoint", "files", "snapshots")
"""Artifact kinds that are folders. The others are files of one JSON object a line, the constitution is YAML."""

WEIGHTS: tuple[ArtifactKind, ...] = ("checkpoint", "snapshots")
"""Artifact kinds that only jobs and witnesses read: a person may prune them from a closed session."""


class NotReadBack:
    """Marks a parameter that no effective setting repeats: it chooses the data, or becomes another setting."""

    @classmethod
    def names(cls, parameters: type[Contract]) -> set[str]:
        """Return the names of the parameters that are marked so."""
        fields = parameters.model_fields.items()
        return {name for name, field in fields if any(isinstance(metadatum, cls) for metadatum in field.metadata)}


class DeviceParameters(Contract):
    """What all parameters of stages that load a model share."""

    device: Literal["auto", "cpu", "cuda"] = omit_default("auto")
    """Where it runs: ``auto`` takes a GPU if there is one; ``cuda`` is refused without one."""


class Criterion(Contract):
    """A registered threshold on one metric. Exactly one of the four bounds is given."""

    metric: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def get_bound(self) -> tuple[str, float]:
        """Return sign and threshold, such as ``(">=", 0.1)``; raises ValueError unless exactly one bound is given."""
        pairs = [
            (sign, value)
            for sign, value in ((">=", self.at_least), ("<=", self.at_most), (">", self.above), ("<", self.below))
            if value is not None
        ]
        if len(pairs) != 1:
            raise ValueError("give exactly one of at_least, at_most, above, below")
        return pairs[0]

    def met(self, value: Number) -> bool:
        """Return whether a measured value satisfies this criterion; what is made of counts is given as a fraction."""
        return holds(value, *self.get_bound())

    def __str__(self) -> str:
        sign, limit = self.get_bound()
        return f"{self.metric} {sign} {decimal_text(limit)}"


class ParameterRange(Contract):
    """The values a builder may move a parameter to, both ends included."""

    min: float
    max: float

    def holds(self, value: float) -> bool:
        """Return whether ``value`` lies in the range."""
        return self.min <= value <= self.max


class Gate(Contract):
    """When the stage's result may be used: criteria, stakes and the number of revision rounds."""

    criteria: tuple[Criterion, ...] = ()
    stakes: Literal["low", "medium", "high"] = "medium"
    max_rounds: Annotated[int, Field(ge=1, le=10)] = 2
    """Attempts in all, the first one included."""


class StageBase(Contract):
    """What stages of all kinds share; each kind makes a subclass."""

    name: Name
    inputs: dict[str, Reference]
    ranges: dict[str, ParameterRange] = {}
    choices: dict[str, Annotated[tuple[str | bool, ...], Field(min_length=2, max_length=20)]] = omit_default({})
    """For parameters of choice, such as a method or a scheduler: the values that a builder may choose from."""
    max_minutes: Annotated[float, Field(gt=0, le=60 * 24 * 30)] = 10.0
    """The job is ended after this long. Its price cap is computed from this too."""
    max_cost_usd: Annotated[float, Field(gt=0)] | None = omit_default()
    """The most the stage may cost, over all its attempts and the builder's turns on it; reviews do not count."""
    gate: Gate = Gate()
    allow_code: bool = omit_default(False)
    """Whether the builder may hand in code for this stage."""
    script: ScriptPath | None = omit_default()
    """A person's script for a stage that runs code: a Python file next to the spec, or the YAML of TRL or Axolotl;
    registered with its text."""
    pilot: Name | None = omit_default()
    """An earlier stage that does the same on a small scale: only sizes may differ, a builder's changes apply here too,
    and its rates are required here."""
    launcher: LauncherName | None = omit_default()
    """Where its jobs run; by default as in the session."""
    resources: Resources | None = omit_default()
    """What its jobs request; the session's value is the default of each."""

    witness: Literal["weights_only"] | None = omit_default()
    """Whether training that no witness can repeat is accepted by its weights alone: the headline then says so. For
    stages that train and of whose kind a witness repeats no steps."""

    kind: Name
    parameters: Any = None
    """A model of the kind's own, which :attr:`specs.stages.base.kind.StageKind.stage` puts in this place."""

    @property
    def reads_heldout(self) -> bool:
        """Return whether the held-out split is among the inputs, so that the outputs reveal something of it."""
        return "heldout" in self.inputs.values()


SIZES = frozenset(
    {
        *("target", "over_generation", "shards", "calls_per_round", "max_rounds", "abort_after"),
        *("max_instructions", "samples_per_instruction", "shard_size"),
        *(
            "max_prompts",
            "samples_per_prompt",
            "samples_per_item",
            "samples",
            "max_examples",
            "revisions",
            "batch_size",
        ),
    }
)
"""Parameters that say how much is written and how it is divided, not what one text is written like."""


def differing_parameters(ours: Mapping[str, Any], pilots: Mapping[str, Any]) -> list[str]:
    """Return the parameters, sizes left out, in which a stage differs from its pilot."""
    absent = object()
    names = sorted((ours.keys() | pilots.keys()) - SIZES)
    return [name for name in names if ours.get(name, absent) != pilots.get(name, absent)]
