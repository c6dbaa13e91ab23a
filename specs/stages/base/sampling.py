"""What all kinds that sample text have in common."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, StringConstraints, model_validator

from specs.stages.base.metric import Population, RowMetric, rate
from specs.stages.base.stage import DeviceParameters
from specs.system.digests import Contract, Count, digest_value, omit_default

EngineName = Literal["batched", "continuous", "llama", "vllm"]


class Promise(NamedTuple):
    """What an engine holds to."""

    repeatable: bool
    """Whether the same prompts, sampling, seed, batch size and machine give the same answers again."""
    penalty: bool
    """Whether it has the repetition penalty of transformers, which counts the prompt too."""
    devices: tuple[Literal["auto", "cpu", "cuda"], ...]
    """Where its stage may run."""
    streams: bool = False
    """Whether the noise of each draw follows from seed, answer, place and token
    (``training/engines/sampling_noise.py``), so that a witness adds the same."""


_ANYWHERE = ("auto", "cpu", "cuda")
ENGINES: dict[EngineName, Promise] = {
    "batched": Promise(repeatable=True, penalty=True, devices=_ANYWHERE, streams=True),
    "continuous": Promise(repeatable=True, penalty=False, devices=_ANYWHERE),
    "llama": Promise(repeatable=True, penalty=True, devices=("auto", "cpu"), streams=True),
    "vllm": Promise(repeatable=False, penalty=True, devices=("cpu", "cuda")),
}


class Writing(DeviceParameters):
    """What all parameters of stages that have a model write text share."""

    engine: EngineName = omit_default("batched")
    """What completes the prompts: ``batched`` (transformers), ``continuous`` (its continuous batching), ``llama``
    (llama.cpp, CPU) or ``vllm`` (``device: cuda``, or ``cpu`` and its build for CPUs). Nothing runs in the place of a
    missing one."""

    @model_validator(mode="after")
    def _engine_fits(self) -> Self:
        """Refuse what the engine would pass over."""
        promise = ENGINES[self.engine]
        if self.device not in promise.devices:
            known = " or ".join(promise.devices)
            raise ValueError(f"engine '{self.engine}' runs on device {known}, device is '{self.device}'")
        require_penalty(self.engine, getattr(self, "repetition_penalty", 1.0))
        return self


def require_penalty(engine: EngineName, repetition_penalty: float) -> None:
    """Raise ValueError for a repetition penalty that the engine would pass over."""
    if repetition_penalty != 1 and not ENGINES[engine].penalty:
        raise ValueError(f"engine '{engine}' has no repetition penalty, repetition_penalty is {repetition_penalty:g}")


Seed = Annotated[int, Field(ge=0, lt=2**31)]
BatchSize = Annotated[int, Field(ge=1, le=1024)]
Share = Annotated[float, Field(ge=0, le=1)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Wrapper = Annotated[str, Field(max_length=2000)]
"""A text that holds ``{prompt}`` once."""

QUESTION = "Question: {prompt}\nAnswer:"
WRAPPER = "Instruction: {prompt}\nResponse:"


def require_prompt(wrapper: str | None) -> None:
    """Raise a ValueError where a wrapper does not hold ``{prompt}`` once."""
    if wrapper is not None and wrapper.count("{prompt}") != 1:
        raise ValueError("wrapper holds {prompt} once")


Text = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
END_MARK = "###END###"
ROLE_STOPS = ("\nInstruction", "\nQ:", "\n###", "\nUser:", "\nResponse:")


class Quality(Contract):
    """When a stage that samples stops early: limits of rates over all its rows. A limit of 1 never stops it."""

    first: Annotated[int, Field(ge=1, le=1_000_000)] = 60
    """Rows before anything is broken off. Groups are not larger, so that the stage looks as soon as they are there."""
    empty: Share = 0.3
    """Share of rows without a visible character; of calls, without an instruction."""
    runaway: Share = 0.3
    """Share of rows that continue past their end: another turn, or more than 500 characters. Not of calls."""
    truncated: Share = 0.5
    """Share of rows that hit the token limit."""
    leaked: Share = 0.2
    """Share of rows with a delimiter: a stop string of the stage, or what such strings are by default."""
    repeated: Share = 0.5
    """Share of rows with the words of an earlier one."""


class SamplingParameters(Writing):
    """What all parameters of stages that sample data share."""

    quality: Quality | None = omit_default()
    """When the stage stops early. None: never because of a rate over its rows."""


class Shot(Contract):
    """One worked pair, shown before every instruction."""

    instruction: Text
    response: Text


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


Form = Literal["completion", "chat"]
"""How a model is prompted: bare text that it continues, or its chat template."""

Finish = Literal["eos", "stop", "length"]
"""How an answer ended: by the end token, before a stop string, or at the limit of tokens."""


Ids = tuple[Count, ...]
"""Token ids of an answer as they were written, those of a stop string included, the end token left out."""

TOKEN_IDS = (
    *("answer_ids", "critique_ids", "revision_ids", "before_ids", "after_ids", "batches", "sketch", "prompt_digest"),
)
"""Members of rows that hold ids, or digests and figures of training: for a witness, and nothing for people to read."""


class PromptRead(NamedTuple):
    """What a model read of an item before it answered anything."""

    digest: str | None
    """The digest of the token ids; None where the row does not state it."""
    tokens: int


def digest_ids(ids: Sequence[int] | Sequence[Sequence[int]]) -> str:
    """Return the digest of the token ids of a prompt, or of those of several texts that are read together."""
    return digest_value([list(value) if isinstance(value, Sequence) else value for value in ids])


def ended_once(row: Any) -> Any:
    """Return a row; a ValueError where what it says of its end contradicts itself. Early rows say nothing."""
    if row.finish is not None and row.truncated != (row.finish == "length"):
        raise ValueError(f"truncated is {row.truncated}, and finish is '{row.finish}'")
    if (row.stop is not None) != (row.finish == "stop"):
        raise ValueError(f"finish is '{row.finish}', and stop is {row.stop!r}")
    return row


SAMPLED = "sampled"
"""What the rates are over: the rows that were sampled, by what is wrong with them."""
Counts = Literal["empty", "runaway", "leaked", "repeated"]
"""What of a sampled row a rate counts (``training/rules/sampling_quality.py``)."""
_NAMES: dict[Counts, str] = {"empty": "empty", "runaway": "runaway", "leaked": "leak", "repeated": "repeat"}
_TOLD: dict[Counts, str] = {
    "empty": "without a visible character",
    "runaway": "with a mark of another turn, or of more than 500 characters",
    "leaked": "with a stop string of the stage (of sample_responses, where it has none) no one asked for, or the "
    "beginning of one",
    "repeated": "whose words (case, marks and white space ignored) are those of an earlier one",
}


def rates(prefix: str, population: str, rows: str, **parts: str) -> tuple[RowMetric, ...]:
    """Return the rates of a kind over sampled rows; their ids begin with ``prefix``, and ``rows`` says what a row is.

    ``parts`` describes, by what a rate counts (:data:`Counts`), the rows it counts; empty for the usual words.
    """
    over = Population(population, output=SAMPLED)
    return tuple(
        rate(
            f"{prefix}_{_NAMES[what]}_rate",
            f"{rows} {parts[what] or words}",
            attrgetter(what),
            "lower",
            over=over,
            of=rows,
        )
        for what, words in _TOLD.items()
        if what in parts
    )


def describe_revision_fault(what: Counts) -> str:
    """Return what is wrong with a revision, in words."""
    return f"with a revision {_TOLD[what]}"
