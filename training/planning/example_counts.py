"""How many examples a training stage can get at most, followed back through the spec to the registered data.

No stage keeps more than it was given, so counts are those of what can be written, before any critic has refused any.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from specs.session.session_spec import SessionSpec
from specs.stages.critique.parameters import BestOfNParameters, BestOfNVerifiedParameters, ReviseParameters
from specs.stages.generation.parameters import GenerateParameters, SampleResponsesParameters, SelfInstructParameters
from specs.stages.registry import Stage, kind_of
from training.planning.prompt_lengths import CHARACTERS_A_TOKEN, WRITTEN, prompt_lengths


class Volume(NamedTuple):
    """The most that an output can hold."""

    texts: int
    """Items, examples or pairs."""
    tokens: int
    """Of one of them: prompt and response."""


def volume(spec: SessionSpec, reference: str, origin: Path) -> Volume | None:
    """Return the most that a reference can hold, None where a stage on the way says nothing of it (a recipe).

    Args:
        spec: as resolved.
        reference: ``data.NAME``, ``heldout`` or ``STAGE.OUTPUT``.
        origin: the folder of the spec file.
    """
    if reference == "heldout" or reference.startswith("data."):
        path = spec.heldout.path if reference == "heldout" else spec.data[reference.partition(".")[2]].path
        lengths = prompt_lengths(origin / path)
        return Volume(len(lengths), _tokens(max(lengths, default=0)))
    stage = spec.stage(reference.partition(".")[0])
    given = stage.parameters
    if isinstance(given, SelfInstructParameters):
        return Volume(int(given.target * given.over_generation), _tokens(WRITTEN))
    role = next((one for one in ("instructions", "items", "examples", "prompts", "samples") if one in stage.inputs), "")
    before = volume(spec, _prompts_of(stage, role), origin) if role else None
    return None if before is None else _after(stage, before)


def _prompts_of(stage: Stage, role: str) -> str:
    # The samples of verified pairs are of its prompts.
    return stage.inputs["prompts" if role == "samples" else role]


def _after(stage: Stage, before: Volume) -> Volume | None:
    given = stage.parameters
    if isinstance(given, SampleResponsesParameters):
        count = min(before.texts, given.max_instructions or before.texts)
        return Volume(count * given.samples_per_instruction, before.tokens + given.max_new_tokens)
    if isinstance(given, GenerateParameters):
        count = min(before.texts, given.max_prompts or before.texts)
        return Volume(count * given.samples_per_prompt, before.tokens + given.max_new_tokens)
    if isinstance(given, ReviseParameters):
        count = min(before.texts, given.max_examples or before.texts)
        return Volume(count, before.tokens + given.revision_tokens)
    if isinstance(given, BestOfNVerifiedParameters):
        # A sample is at most as long as a prompt's answer may be; that limit is not known here.
        return Volume(before.texts * given.pairs_per_prompt, before.tokens + _tokens(WRITTEN))
    if isinstance(given, BestOfNParameters):
        count = min(before.texts, given.max_prompts or before.texts)
        made = 1 + bool(given.hard_negatives)
        return Volume(count * made, before.tokens + given.max_new_tokens)
    return before if kind_of(stage).selects else None


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_A_TOKEN)
