"""Parameters of the stages that write text: guard, instruct, respond. Prompts, stops and rules are data here.

Form and prompt of a model follow from the kind the spec declares of it: a base model goes on with bare text, an
instruct model gets its chat template.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from specs.digests import Contract
from specs.engines import Writing
from specs.stage_parts import StageBase, StageKind

Text = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Step = Literal["end_mark", "first_paragraph", "role_line", "new_question", "strip"]

END_MARK = "###END###"
ROLE_STOPS = ("\nInstruction", "\nQ:", "\n###", "\nUser:", "\nResponse:")


class Quality(Contract):
    """When a stage that samples is broken off: limits of rates over all rows that it has, from the first ones on.

    A limit of 1 is never passed.
    """

    first: Annotated[int, Field(ge=1, le=1_000_000)] = 60
    """Rows before anything is broken off. Groups are no larger, so that the stage looks as soon as they are there."""
    empty: Share = 0.3
    """Share of rows without a visible character; of calls, without an instruction."""
    runaway: Share = 0.3
    """Share of rows that go on past their end: another turn, or more than 500 characters. Not of calls."""
    truncated: Share = 0.5
    """Share of rows that hit the token limit."""
    leaked: Share = 0.2
    """Share of rows with a delimiter: a stop string of the stage, or what such strings are by default."""
    repeated: Share = 0.5
    """Share of rows with the words of an earlier one."""


class Sampling(Writing):
    """What all parameters of stages that sample data share."""

    quality: Quality | None = Field(default=None, exclude_if=lambda given: given is None)
    """When the stage is broken off. None: for nothing that is counted over all of its rows."""


class GuardParameters(Writing):
    """Ask the model, and a control that is known to follow instructions, what a base model does not do."""

    max_new_tokens: Annotated[int, Field(ge=1, le=512)] = 48
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 32
    seed: Seed = 0


class InstructParameters(Sampling):
    """Have the model write new instructions after the example of others (Wang et al. 2023, arXiv:2212.10560)."""

    target: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Instructions wanted in the end."""
    over_generation: Annotated[float, Field(ge=1, le=10)] = 1.5
    """Times the target that is written, because critics refuse some."""
    shown: Annotated[int, Field(ge=1, le=50)] = 7
    """Instructions in each prompt."""
    per_call: Annotated[int, Field(ge=1, le=50)] = 3
    """New instructions asked for in each prompt."""
    growing: bool = True
    """Whether new instructions stand among those that later prompts show as already used."""
    topics: tuple[Text, ...] = ()
    """Each prompt names one, in turn."""
    shards: Annotated[int, Field(ge=1, le=1000)] = 1
    """Independent runs with seeds of their own, merged in the end; a repeat across shards is kept once."""
    calls_per_round: Annotated[int, Field(ge=1, le=1024)] = 8
    """Prompts decoded together; what a round finds is shown from the next one on."""
    max_rounds: Annotated[int, Field(ge=1, le=100_000)] = 50
    """Rounds of a shard after which it ends, with however many it has."""
    similarity: Annotated[float, Field(ge=0.5, le=1)] = 0.7
    """Jaccard similarity of word 3-shingles from which an instruction repeats an earlier one."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.8
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    repetition_penalty: Annotated[float, Field(ge=1, le=2)] = 1.1
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 120
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 32
    abort_after: Annotated[int, Field(ge=1)] = 60
    """Parsed instructions of a shard before it can be broken off."""
    abort_repeats: Share = 0.8
    """Share of the parsed instructions that repeat earlier ones, above which the stage is broken off."""
    abort_empty: Share = 0.5
    """Share of the calls that gave no instruction, above which the stage is broken off."""
    seed: Seed = 0


class Shot(Contract):
    """One worked pair that stands before every instruction."""

    instruction: Text
    response: Text


class ScopeRule(Contract):
    """Bare answers that only fit instructions which ask for them."""

    name: Text
    answers: tuple[Text, ...]
    """Whole answers, case and a final full stop ignored."""
    unless: tuple[Text, ...]
    """Cues; one of them in the instruction makes the answer fit."""


SHOTS = (
    Shot(instruction="Name the largest ocean.", response="The Pacific Ocean is the largest ocean on Earth."),
    Shot(
        instruction="Explain in one sentence why leaves are green.",
        response="Leaves are green because they hold chlorophyll, which reflects green light.",
    ),
    Shot(
        instruction="Suggest a quiet hobby for a rainy afternoon.",
        response="You could put together a jigsaw puzzle by the window.",
    ),
)
TRUE_FALSE = ScopeRule(
    name="bare_true_false",
    answers=("True", "False"),
    unless=("true or false", "is this", "is it", "determine whether", "?"),
)


class RespondParameters(Sampling):
    """Have the model answer instructions; keep what is whole, clean and in scope."""

    samples_per_instruction: Annotated[int, Field(ge=1, le=64)] = 1
    max_instructions: Annotated[int, Field(ge=1)] | None = None
    """Use only the first this many instructions (for a pilot)."""
    shots: tuple[Shot, ...] = SHOTS
    """Examples before each instruction, for a model that goes on with bare text."""
    stops: tuple[Stop, ...] = (END_MARK, *ROLE_STOPS)
    cleaning: tuple[Step, ...] = ("end_mark", "first_paragraph", "role_line", "new_question", "strip")
    """Steps in the order in which they are applied."""
    scope: tuple[ScopeRule, ...] = (TRUE_FALSE,)
    """Rules on what an answer may be; what breaks one is not kept."""
    shard_size: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Instructions answered together; a stage that was ended goes on after the last whole shard."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.4
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    repetition_penalty: Annotated[float, Field(ge=1, le=2)] = 1.1
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 80
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 32
    abort_after: Annotated[int, Field(ge=1)] = 60
    """Answers before the stage can be broken off."""
    abort_runaway: Share = 0.3
    """Share of runaway answers above which the stage is broken off."""
    seed: Seed = 0


class GuardStage(StageBase):
    """A ``guard`` stage."""

    kind: Literal["guard"]
    parameters: GuardParameters = GuardParameters()


class InstructStage(StageBase):
    """An ``instruct`` stage."""

    kind: Literal["instruct"]
    parameters: InstructParameters = InstructParameters()


class RespondStage(StageBase):
    """A ``respond`` stage."""

    kind: Literal["respond"]
    parameters: RespondParameters = RespondParameters()


GUARD_KIND = StageKind(
    job="training.stages.guard:guard", inputs={"model": "checkpoint", "control": "checkpoint"}, outputs={"rows": "rows"}
)
INSTRUCT_KIND = StageKind(
    job="training.stages.instruct:instruct",
    inputs={"model": "checkpoint", "seeds": "items"},
    outputs={"rows": "rows", "instructions": "items"},
)
RESPOND_KIND = StageKind(
    job="training.stages.respond:respond",
    inputs={"model": "checkpoint", "instructions": "items"},
    outputs={"rows": "rows", "examples": "examples"},
)
