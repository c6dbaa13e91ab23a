"""Parameters of the stages that measure a model."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from specs.stages.base.rubric import Rubric
from specs.stages.base.sampling import QUESTION, BatchSize, Form, Seed, Stop, Wrapper, Writing, require_prompt
from specs.stages.base.stage import DeviceParameters, Task
from specs.stages.base.witness import Agreement
from specs.system.digests import Contract, Digest, omit_default

Prompting = Literal["native", "raw", "wrapped"]
"""``native``: the chat template for instruct models, the bare text and an empty line for base models. ``raw``: the bare
text. ``wrapped``: the text in ``wrapper``."""


Temperature = Annotated[float, Field(gt=0, le=2)]
Samples = Annotated[int, Field(ge=1, le=64)]


class EvaluateParameters(Writing):
    """Answer every item: greedily once, or several times at a temperature."""

    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    temperature: Temperature | None = omit_default()
    """None: every answer is decoded greedily."""
    top_p: Annotated[float, Field(gt=0, le=1)] = omit_default(1.0)
    samples_per_item: Samples = omit_default(1)
    """Answers to each item, each drawn from its own stream of random numbers. With more than one the analysis registers
    ``test: sign_flip``."""
    k: Annotated[int, Field(ge=2, le=64)] | None = omit_default()
    """The k of ``accuracy_at_k`` (pass@k): at most ``samples_per_item``."""
    batch_size: BatchSize = 32
    prompting: Prompting = omit_default("native")
    wrapper: Wrapper | None = omit_default()
    """With ``{prompt}`` in place of the instruction; read with ``prompting: wrapped`` only."""
    stops: tuple[Stop, ...] = omit_default(())
    """Strings that end an answer; they and what follows them are not part of it."""
    scorer: Task | None = omit_default()
    """Which task's verifier judges the answers; the spec's own task where it is not set."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _wrapper_fits(self) -> Self:
        if (self.prompting == "wrapped") != (self.wrapper is not None):
            raise ValueError("wrapper and prompting: wrapped require each other")
        require_prompt(self.wrapper)
        return self

    @model_validator(mode="after")
    def _samples_differ(self) -> Self:
        """Refuse repeated greedy answers, a nucleus that nothing is drawn from, and a k without an estimate."""
        require_temperature(self.samples_per_item, self.temperature, "samples_per_item")
        if self.temperature is None and self.top_p < 1:
            raise ValueError(f"top_p is {self.top_p:g} and nothing is drawn: state a temperature, or omit top_p")
        if self.k is not None and self.k > self.samples_per_item:
            raise ValueError(
                f"accuracy_at_k with k: {self.k} needs as many answers, samples_per_item: {self.k} or more"
            )
        return self

    @property
    def answers_per_item(self) -> int:
        """How many answers an item has."""
        return self.samples_per_item


def require_temperature(samples: int, temperature: float | None, name: str) -> None:
    """Raise ValueError for several answers to an item that are decoded greedily."""
    if samples > 1 and temperature is None:
        raise ValueError(f"{samples} greedy answers are all the same: state a temperature above 0, or {name}: 1")


class PerplexityParameters(DeviceParameters):
    """Read every text once and add up the surprise of its tokens."""

    window: Annotated[int, Field(ge=2, le=131072)] = 512
    """Tokens the model reads at a time, the token before the text included."""
    stride: Annotated[int, Field(ge=1, le=131072)] = 256
    """Tokens scored in each window after the first; the others of the window are context."""
    batch_size: BatchSize = 4
    seed: Seed = 0

    @model_validator(mode="after")
    def _stride_fits(self) -> Self:
        if self.stride >= self.window:
            raise ValueError(f"stride {self.stride} leaves no context in a window of {self.window}")
        return self


class LmEvalTask(Contract):
    """How a question of a stage's items becomes a task of lm-eval (``output_type: multiple_choice``).

    Its templates use the fields of an item: ``prompt``, ``kind``, ``choices`` and ``answer``.
    """

    doc_to_text: Annotated[str, Field(min_length=1, max_length=4000)] = "Question: {{prompt}}\nAnswer:"
    description: Annotated[str, Field(max_length=4000)] = ""
    """Precedes every question."""
    target_delimiter: Annotated[str, Field(max_length=10)] = " "
    """Separates the question from each choice."""


class MultipleChoiceParameters(DeviceParameters):
    """Score each choice of a question by the log-likelihood of its text after the question."""

    question: Annotated[str, Field(max_length=2000)] = QUESTION
    """With ``{prompt}`` in place of the question; a choice follows after a space."""
    lm_eval: LmEvalTask | None = omit_default()
    """Have the library lm-eval ask and score, with its own model class; ``question`` is not used then."""
    lm_eval_task: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}$")] | None = (
        omit_default()
    )
    """The same as one of that library's own tasks asks, such as ``arc_easy``; the items hold its documents."""
    batch_size: BatchSize = 16
    seed: Seed = 0

    @property
    def asked_by_lm_eval(self) -> bool:
        """Return whether the library lm-eval writes the questions."""
        return self.lm_eval is not None or self.lm_eval_task is not None

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.lm_eval is not None and self.question != QUESTION:
            raise ValueError("a question of lm-eval is written in lm_eval.doc_to_text, not in question")
        if self.lm_eval_task is not None and (self.lm_eval is not None or self.question != QUESTION):
            raise ValueError(
                f"'{self.lm_eval_task}' of lm-eval has its own words: neither lm_eval nor question is given"
            )
        if self.question.count("{prompt}") != 1 or self.question != self.question.rstrip():
            raise ValueError("question holds {prompt} once and does not end in white space")
        return self


class PairwiseJudgeParameters(DeviceParameters):
    """Have a judge say which of two answers is better, in both orders, by the next token (A or B)."""

    rubric: Rubric | None = None
    """Its own words for the judge; the shipped ones where it is not set."""
    form: Form = "chat"
    """Whether the judge is asked through its chat template or continues bare text."""
    agreement: Agreement = "both"
    """How the two orders are combined; with ``both`` a judge that changes its mind with the order gives a tie."""
    margin: Annotated[float, Field(ge=0, le=20)] = 0.0
    """Nats: the least |log p(A) - log p(B)| that counts."""
    shown_characters: Annotated[int, Field(ge=50, le=100_000)] = 2000
    """Characters of each answer that the judge is shown."""
    batch_size: BatchSize = 16
    seed: Seed = 0


ArgumentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,59}$")]
InspectArgument = Annotated[str, Field(max_length=2000)] | bool | int | float


class BenchmarkParameters(Writing):
    """What the tasks of other libraries have in common: a registered text, one score that decides, limits."""

    code: Digest | None = omit_default()
    """Digest of the script; a spec does not give it."""
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 256
    """The most tokens of an answer; a task may ask for fewer."""
    temperature: Annotated[float, Field(gt=0, le=2)] | None = omit_default()
    """None: every answer is decoded greedily, and a task that asks for another temperature is refused."""
    batch_size: BatchSize = 16
    """Requests that are decoded together, and samples that run at the same time."""
    memory_mb: Annotated[int, Field(ge=512, le=1_048_576)] = 2048
    """The memory of the task's processes, without the model."""
    output_mb: Annotated[int, Field(ge=16, le=65536)] = 256
    """The most that the log may take."""
    seed: Seed = 0


class InspectParameters(BenchmarkParameters):
    """Run a task of inspect_ai on the items: its solvers ask the model, its scorers judge the answers.

    The task is in the stage's ``script``, or in a package of the library's environment.
    """

    task: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,80}(/[A-Za-z0-9_.-]{1,80})?$")]
    """The name of the task in the script, or ``package/task``."""
    samples_per_item: Samples = omit_default(1)
    """How often the task is run on each item (its epochs). With more than one the analysis registers
    ``test: sign_flip``."""
    args: dict[ArgumentName, InspectArgument] = omit_default({})
    """Arguments of the task. ``{items}`` in one of them stands for the file of the items: JSON lines with ``id``,
    ``input``, ``target``, ``choices`` where there are some, and ``metadata``, as ``json_dataset`` reads them."""
    score: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./-]{1,80}$")]
    """The scorer that decides whether an answer is right: ``C``, true or 1 is, everything else is not."""

    @model_validator(mode="after")
    def _samples_differ(self) -> Self:
        require_temperature(self.samples_per_item, self.temperature, "samples_per_item")
        return self

    @property
    def answers_per_item(self) -> int:
        """How many answers an item has."""
        return self.samples_per_item


class LmEvalParameters(BenchmarkParameters):
    """Run a task of lm-eval that has the model write: filters and metrics of the task judge the answers.

    The task is the stage's ``script``, a YAML file of that library; the Python files that it names next to it belong to
    it. Its data are the stage's items, whatever the file says: ``prompt`` and ``question``, ``id``, ``group``, ``kind``
    and the fields of ``constraint``.
    """

    task: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,80}$")]
    """The name that the file has for its task."""
    score: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.@-]{1,80}(,[A-Za-z0-9_.-]{1,80})?$")]
    """The metric that decides whether an answer is right, 1 or not, and its filter where the task names one:
    ``exact_match,strict-match``."""


class MultiTurnParameters(Writing):
    """Hold every conversation turn by turn, greedily; each answer becomes part of what the next one follows."""

    prompting: Literal["transcript", "raw", "native"] = "transcript"
    """``transcript``: "User: ...", "Assistant: ..."; ``raw``: without roles; ``native``: the chat template for instruct
    models, as ``raw`` for base models."""
    history: Literal["whole", "none", "shuffled"] = "whole"
    """Controls: ``none`` asks each turn alone, so that memory cannot help; ``shuffled`` shows as many turns of other
    conversations, drawn by the seed."""
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 150
    batch_size: BatchSize = 32
    stops: tuple[Stop, ...] = ("\nUser:", "\nAssistant:")
    seed: Seed = 0
