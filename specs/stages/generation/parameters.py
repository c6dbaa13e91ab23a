"""Parameters of the stages that write text: base models continue bare text, instruct models get their template."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from specs.stages.base.sampling import (
    END_MARK,
    ROLE_STOPS,
    SHOTS,
    SamplingParameters,
    Seed,
    Share,
    Shot,
    Stop,
    Text,
    Wrapper,
    Writing,
    require_prompt,
)
from specs.system.digests import Contract, omit_default

Step = Literal["end_mark", "first_paragraph", "role_line", "new_question", "strip"]


class BaseModelCheckParameters(Writing):
    """Ask the model, and a control that is known to follow instructions, what a base model does not do."""

    max_new_tokens: Annotated[int, Field(ge=1, le=512)] = 48
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 32
    seed: Seed = 0


class SelfInstructParameters(SamplingParameters):
    """Have the model write new instructions after the example of others (Wang et al. 2023, arXiv:2212.10560)."""

    target: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Instructions wanted in the end."""
    over_generation: Annotated[float, Field(ge=1, le=10)] = 1.5
    """Times the target that is written, because critics refuse some."""
    examples_per_prompt: Annotated[int, Field(ge=1, le=50)] = 7
    """Instructions in each prompt."""
    per_call: Annotated[int, Field(ge=1, le=50)] = 3
    """New instructions asked for in each prompt."""
    growing: bool = True
    """Whether later prompts show new instructions as already used."""
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


class ScopeRule(Contract):
    """Bare answers that only fit instructions which ask for them."""

    name: Text
    answers: tuple[Text, ...]
    """Whole answers, case and a final full stop ignored."""
    unless: tuple[Text, ...]
    """Cues; one of them in the instruction makes the answer fit."""


TRUE_FALSE = ScopeRule(
    name="bare_true_false",
    answers=("True", "False"),
    unless=("true or false", "is this", "is it", "determine whether", "?"),
)


class SampleResponsesParameters(SamplingParameters):
    """Have the model answer instructions; keep what is whole, clean and in scope."""

    samples_per_instruction: Annotated[int, Field(ge=1, le=64)] = 1
    max_instructions: Annotated[int, Field(ge=1)] | None = None
    """Use only the first this many instructions (for a pilot)."""
    shots: tuple[Shot, ...] = SHOTS
    """Examples before each instruction, for a model that continues bare text."""
    stops: tuple[Stop, ...] = (END_MARK, *ROLE_STOPS)
    cleaning: tuple[Step, ...] = ("end_mark", "first_paragraph", "role_line", "new_question", "strip")
    """Steps in the order in which they are applied."""
    scope: tuple[ScopeRule, ...] = (TRUE_FALSE,)
    """Rules on what an answer may be; what breaks one is not kept."""
    shard_size: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Instructions answered together; an interrupted stage resumes after the last whole shard."""
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


class GenerateParameters(SamplingParameters):
    """Sample completions from the model itself; the verifier decides which are kept."""

    samples_per_prompt: Annotated[int, Field(ge=1, le=256)] = 4
    max_prompts: Annotated[int, Field(ge=1)] | None = None
    """Use only the first this many prompts, spread evenly over constraint kinds (for a pilot)."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.8
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    worked_example: bool = True
    """Show one worked example of the format while sampling. It is never part of a training row."""
    wrapper: Wrapper | None = omit_default()
    """With ``{prompt}`` in it: every model continues this bare text, after a worked example in the same form."""
    response_end: Stop | None = omit_default()
    """What ends the worked example's answer; with ``wrapper`` only, and one of ``stops``."""
    stops: tuple[Stop, ...] = omit_default(())
    """Strings that end a sample; they and what follows them are not part of it."""
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 32
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @model_validator(mode="after")
    def _form_fits(self) -> Self:
        require_prompt(self.wrapper)
        if self.response_end is not None and (self.wrapper is None or not self.worked_example):
            raise ValueError("response_end ends a worked example in a wrapper: it needs both")
        if self.response_end is not None and self.response_end not in self.stops:
            raise ValueError("response_end is what the model learns to end with: name it among stops too")
        return self
