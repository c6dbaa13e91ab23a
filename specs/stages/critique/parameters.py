"""The kinds that judge and make pairs: A/B critics of instructions and responses, revisions, preferences."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from specs.stages.base.artifacts import NegativeType
from specs.stages.base.rubric import Rubric
from specs.stages.base.sampling import END_MARK, ROLE_STOPS, SHOTS, Form, SamplingParameters, Shot, Stop
from specs.stages.base.stage import DeviceParameters
from specs.stages.base.witness import Agreement
from specs.system.digests import Contract, omit_default

PrincipleParts = Literal["whole", "examples", "sentence"]


class CriticParameters(DeviceParameters):
    """What all A/B critics share: the label is the next token, its log-probability the evidence."""

    rubric: Rubric | None = None
    """None: Peergate's rubric for this kind."""
    margin: Annotated[float, Field(ge=0, le=20)] = 1.0
    """Nats between the two labels that make a verdict a confident one."""
    agreement: Agreement = "both"
    """``both``: both orders of the labels say the same, each with the margin. ``mean``: the mean of the two does."""
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 16
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class CritiqueInstructionsParameters(CriticParameters):
    """Keep the instructions that an A/B critic finds good, with confidence."""


class ShownResponse(CriticParameters):
    """What a critic is shown of a response."""

    shown_characters: Annotated[int, Field(ge=40, le=100_000)] = 500
    """A response longer than this is cut before it is shown."""
    first_paragraph: bool = True
    """Show the first paragraph only."""


class CritiqueResponsesParameters(ShownResponse):
    """Keep the examples whose response an A/B critic finds good, with confidence."""


class Pairing(Contract):
    """What all parameters of stages that make pairs share."""

    length_balance: Annotated[float, Field(gt=0, le=3)] | None = omit_default()
    """The farthest from 0 that the mean of ln(words of chosen / words of rejected) may be: pairs with the most extreme
    ratio are left out until it is, those made wrong by length excepted. None: none are."""
    validation_share: Annotated[float, Field(ge=0, le=0.5)] = 0.2
    """Share of the groups whose pairs are marked for validation."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @property
    def keeps_dropped(self) -> bool:
        """Return whether dropped pairs are written too, which is so if ``length_balance`` is set."""
        return self.length_balance is not None


class PairJudge(Contract):
    """An A/B critic that must prefer a revision to its original, in both orders, each with the margin.

    The stage then reads ``judge``, a checkpoint, and ``calibration``, the labelled sample that admits it.
    """

    rubric: Rubric | None = None
    """None: Peergate's rubric for comparisons."""
    margin: Annotated[float, Field(ge=0, le=20)] = 1.0
    """Nats between the two labels, in each order."""
    shown_characters: Annotated[int, Field(ge=40, le=100_000)] = 500
    """A response longer than this is cut before it is shown."""
    first_paragraph: bool = True
    """Show the first paragraph only."""
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 16

    def as_critic(self) -> ShownResponse:
        """Return it in the form of the other critics; both orders always have to agree."""
        return ShownResponse(agreement="both", **dict(self))


class ReviseParameters(SamplingParameters, Pairing):
    """Criticise responses by principles of the constitution and write them anew."""

    principles: Annotated[tuple[str, ...], Field(min_length=1)] | None = omit_default()
    """The principles to use, by id: they take turns in this order. None: all, and their categories take turns."""
    principle_parts: PrincipleParts = omit_default("whole")
    """The parts of a principle in its prompts: the sentence and the worked examples, or one of the two. Prompts that
    are continued begin with Peergate's worked examples where they show none of the principle."""
    form: Form | None = omit_default()
    """Whether the model is asked in a chat or continues bare text. None: as its kind is."""
    revisions: Annotated[int, Field(ge=1, le=16)] = 1
    """Rounds of critique and revision, each by another principle."""
    max_examples: Annotated[int, Field(ge=1)] | None = None
    """Use only this many examples, spread evenly over constraint kinds (for a pilot)."""
    critique_temperature: Annotated[float, Field(gt=0, le=2)] = 0.3
    revision_temperature: Annotated[float, Field(gt=0, le=2)] = 0.5
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    critique_tokens: Annotated[int, Field(ge=1, le=4096)] = 96
    revision_tokens: Annotated[int, Field(ge=1, le=4096)] = 192
    min_words: Annotated[int, Field(ge=1, le=1000)] = 3
    """A revision with fewer words is too short to count."""
    discard_copies: bool = omit_default(False)
    """Discard a revision that is one of the worked revisions of its prompt: it answers another instruction."""
    max_length_ratio: Annotated[float, Field(ge=1, le=100)] | None = omit_default()
    """Pairs whose longer response has more than this many times the words of the other are dropped. None drops none."""
    judge: PairJudge | None = omit_default()
    """The judge that must prefer a revision to its original, or the pair is dropped. None: no judge."""
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 32

    @field_validator("principles")
    @classmethod
    def _name_each_once(cls, principles: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if principles and len(set(principles)) != len(principles):
            raise ValueError("principles has a duplicate")
        return principles

    @property
    def keeps_dropped(self) -> bool:
        """Return whether dropped pairs are written too, which is so if a rule drops some."""
        return any(rule is not None for rule in (self.length_balance, self.max_length_ratio, self.judge))


class BestOfNParameters(ShownResponse, SamplingParameters, Pairing):
    """Sample responses, let a judge find the best of them in both orders, and add negatives of known types."""

    samples: Annotated[int, Field(ge=2, le=64)] = 4
    """k of best-of-k: responses sampled for every prompt."""
    max_prompts: Annotated[int, Field(ge=1)] | None = None
    """Use only the first this many prompts, spread evenly over constraint kinds (for a pilot)."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.7
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 128
    shots: tuple[Shot, ...] = SHOTS
    """Examples before each prompt, for a model that continues bare text."""
    stops: tuple[Stop, ...] = (END_MARK, "\n\n", *ROLE_STOPS)
    """What ends a response of a model that continues bare text."""
    hard_negatives: tuple[NegativeType, ...] = ()
    """Types of which every prompt with a chosen response gets one negative, in turn."""
    max_length_ratio: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Pairs with a larger ratio of words are left out, except pairs made wrong by length."""


class BestOfNVerifiedParameters(Pairing):
    """Pair samples that the task's verifier accepts with samples of the same prompt that it refuses."""

    pairs_per_prompt: Annotated[int, Field(ge=1, le=64)] = 2
    """The most pairs of one prompt; each sample is in one of them."""
    max_length_ratio: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Pairs whose longer response has more than this many times the words of the other are left out."""
