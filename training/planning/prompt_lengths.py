"""How many texts a stage reads and writes at most, and how long its prompts can be, before tokenization.

A prompt is written with the code of its stage around the longest text, and counted at three characters a token. English
takes about four; other scripts can take more tokens than planned. Texts are traced through the spec to the registered
data; what critics refuse is not subtracted.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

from specs.data.registered import registered_data
from specs.session.session_spec import SessionSpec, select_columns
from specs.stages.base.sampling import Form
from specs.stages.critique.parameters import (
    BestOfNParameters,
    BestOfNVerifiedParameters,
    CritiqueInstructionsParameters,
    CritiqueResponsesParameters,
    ReviseParameters,
)
from specs.stages.evaluation.parameters import (
    BenchmarkParameters,
    EvaluateParameters,
    MultipleChoiceParameters,
    MultiTurnParameters,
    PairwiseJudgeParameters,
    PerplexityParameters,
)
from specs.stages.finetuning.online_parameters import GrpoParameters
from specs.stages.generation.parameters import (
    BaseModelCheckParameters,
    GenerateParameters,
    SampleResponsesParameters,
    SelfInstructParameters,
)
from specs.stages.packaging.parameters import ExportParameters, PackageParameters
from specs.stages.registry import Stage, kind_of
from specs.stages.traces.parameters import ReplayTracesParameters
from specs.system.digests import Contract

CHARACTERS_A_TOKEN = 3
WRITTEN = 300
"""Characters of an instruction that a model is still to write; longer ones are rare and are counted as runaways."""
OF_A_TASK = 4000
"""Characters that a task of another library puts around an item, at a guess: its examples and instructions."""
_RESPONSES = ("completion", "chosen", "rejected")
TEMPLATE = 120
"""Characters that a chat template, a wrapper or a worked example's frame adds."""


def registered_lengths(spec: SessionSpec, reference: str, origin: Path) -> list[int] | None:
    """Return the characters of each row of ``heldout`` or ``data.NAME``: its prompt, and the longest response to it.

    None for what a stage writes. ``origin`` is the folder of the spec file.
    """
    if reference == "heldout":
        data = registered_data(origin / spec.heldout.path, "items", selection=select_columns(spec.heldout))
    elif reference.startswith("data."):
        named = spec.data[reference.removeprefix("data.")]
        data = registered_data(origin / named.path, named.row_kind, named.learned, select_columns(named))
    else:
        return None
    rows = [json.loads(line) for line in data.splitlines() if line.strip()]
    return [
        sum(len(turn["content"]) for turn in row.get("before", ()))
        + len(row["prompt"])
        + max(len(row.get(name) or "") for name in _RESPONSES)
        for row in rows
    ]


def prompt_tokens(parameters: Contract, form: Form, longest: int) -> int:
    """Return the tokens of the longest planned prompt.

    ``longest`` is the characters of the longest item that the stage reads; :data:`WRITTEN` if a stage has yet to write
    it.
    """
    if isinstance(parameters, PerplexityParameters):
        return parameters.window
    return math.ceil((_characters(parameters, form, "y" * longest) + TEMPLATE) / CHARACTERS_A_TOKEN)


def _characters(contract: Contract, form: Form, item: str) -> int:
    from training.rules.critique.revision_chains import chain_prompts
    from training.rules.generation.sentinels import SENTINELS
    from training.rules.prompt_text import ExampleInstruction, answer_prompt, calls_of_round
    from training.rules.traces.rendering import INSTRUCTIONS

    if isinstance(contract, BaseModelCheckParameters):
        return max(len(sentinel.prompt) for sentinel in SENTINELS)
    if isinstance(contract, SelfInstructParameters):
        visible = [ExampleInstruction(str(number), item) for number in range(contract.examples_per_prompt)]
        call = calls_of_round(contract.model_copy(update={"calls_per_round": 1}), form, 0, 0, visible, [])[0]
        return len(call.text) + max(map(len, contract.topics), default=0)
    if isinstance(contract, SampleResponsesParameters):
        return len(answer_prompt(item, contract.shots, form))
    if isinstance(contract, ReviseParameters):
        # The answer and the critique were themselves written within these limits; a token is up to five characters.
        written = 5 * (contract.critique_tokens + contract.revision_tokens)
        words = chain_prompts()
        # A constitution's own worked examples may be longer than Peergate's, and are not known here.
        question = 2 * len(words.worked) + len(words.question) + len(words.revision_question)
        return question + len(item) + written + TEMPLATE
    if isinstance(contract, GenerateParameters):
        # A worked example is an instruction and an answer like those of the task.
        return 3 * len(item) if contract.worked_example else len(item)
    if isinstance(contract, GrpoParameters):
        return len(contract.prompt_format or "") + len(item)
    if isinstance(contract, ReplayTracesParameters):
        return len(INSTRUCTIONS) + contract.prompt_characters
    if isinstance(contract, EvaluateParameters):
        return len(contract.wrapper or "") + len(item)
    if isinstance(contract, BenchmarkParameters):
        return OF_A_TASK + len(item)
    if isinstance(contract, MultipleChoiceParameters):
        return len(contract.question) + len(item)
    if isinstance(contract, MultiTurnParameters):
        # Every answer becomes part of the next prompt; conversations have at most ten turns.
        return 10 * (len(item) + 5 * contract.max_new_tokens) if contract.history != "none" else len(item)
    return _measure_judge_prompt(contract, item)


def _measure_judge_prompt(arguments: Contract, item: str) -> int:
    from training.rules.rubric_prompts import (
        prompts_of_comparison,
        prompts_of_instruction,
        prompts_of_response,
        rubric_for,
    )

    if isinstance(arguments, CritiqueInstructionsParameters):
        return len(prompts_of_instruction(rubric_for("instruction", arguments.rubric), item).plain)
    if isinstance(arguments, CritiqueResponsesParameters):
        answer = "y" * arguments.shown_characters
        return len(prompts_of_response(rubric_for("response", arguments.rubric), item, answer).plain)
    if isinstance(arguments, PairwiseJudgeParameters | BestOfNParameters):
        answer = "y" * arguments.shown_characters
        return len(prompts_of_comparison(rubric_for("comparison", arguments.rubric), item, answer, answer).plain)
    assert isinstance(arguments, PackageParameters | ExportParameters)
    return len(item)


class Volume(NamedTuple):
    """The most that an output can hold."""

    texts: int
    """Items, examples or pairs."""
    tokens: int
    """Tokens of one of them: prompt and response."""


def volume(spec: SessionSpec, reference: str, origin: Path) -> Volume | None:
    """Return the most that a reference can hold: ``data.NAME``, ``heldout`` or ``STAGE.OUTPUT``.

    None if a stage on the way (a recipe) does not say. ``origin`` is the folder of the spec file.
    """
    if (lengths := registered_lengths(spec, reference, origin)) is not None:
        return Volume(len(lengths), _tokens(max(lengths, default=0)))
    stage = spec.stage(reference.partition(".")[0])
    parameters = stage.parameters
    if isinstance(parameters, SelfInstructParameters):
        return Volume(int(parameters.target * parameters.over_generation), _tokens(WRITTEN))
    role = next(
        (value for value in ("instructions", "items", "examples", "prompts", "samples") if value in stage.inputs), ""
    )
    # The samples of verified pairs are of its prompts.
    before = volume(spec, stage.inputs["prompts" if role == "samples" else role], origin) if role else None
    return None if before is None else _after(stage, before)


def _after(stage: Stage, before: Volume) -> Volume | None:
    parameters = stage.parameters
    match parameters:
        case SampleResponsesParameters():
            limit, texts_per_input, tokens = (
                parameters.max_instructions,
                parameters.samples_per_instruction,
                parameters.max_new_tokens,
            )
        case GenerateParameters():
            limit, texts_per_input, tokens = (
                parameters.max_prompts,
                parameters.samples_per_prompt,
                parameters.max_new_tokens,
            )
        case ReviseParameters():
            limit, texts_per_input, tokens = parameters.max_examples, 1, parameters.revision_tokens
        case BestOfNVerifiedParameters():
            # A sample is at most as long as a prompt's answer may be; that limit is not known here.
            limit, texts_per_input, tokens = None, parameters.pairs_per_prompt, _tokens(WRITTEN)
        case BestOfNParameters():
            limit, texts_per_input, tokens = (
                parameters.max_prompts,
                1 + bool(parameters.hard_negatives),
                parameters.max_new_tokens,
            )
        case _:
            return before if kind_of(stage).selects else None
    return Volume(min(before.texts, limit or before.texts) * texts_per_input, before.tokens + tokens)


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_A_TOKEN)
