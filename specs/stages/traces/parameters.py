"""Parameters of ``replay_traces``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from specs.stages.base.engine_choice import Writing
from specs.stages.base.sampling import BatchSize, Seed, Stop
from specs.stages.traces.family import Family


class ReplayTracesParameters(Writing):
    """Show a local model the states of transcripts, and make pairs of what its answers do alike.

    Answers of one model agree with each other more than they are right, and it may be the student: the reason to learn
    from them all the same is part of the registration.
    """

    teacher: Family
    """The family of the model that answers, such as ``smollm``."""
    student: Family
    """The family of the model that is to learn from the pairs."""
    license: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    """Under which terms the teacher's outputs may be trained on, in your words; it travels with every pair."""
    circular: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=400)]
    """Why it is accepted that one model agrees with itself. ``peergate traces replay`` asks several families."""
    answers: Annotated[int, Field(ge=2, le=16)] = 2
    """To each state. A pair needs two whole ones that call the same tools, and one that does something else."""
    max_states: Annotated[int, Field(ge=1)] | None = None
    """How many states are shown, drawn by the seed; all where it is left out."""
    prompt_characters: Annotated[int, Field(ge=500, le=400_000)] = 6_000
    """How much of a history is shown: its newest turns."""
    stops: tuple[Stop, ...] = ()
    """Strings that end an answer, such as an empty line, for a model that does not end by itself."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.7
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    repetition_penalty: Annotated[float, Field(ge=1, le=2)] = 1.0
    max_new_tokens: Annotated[int, Field(ge=1, le=32_768)] = 256
    batch_size: BatchSize = 8
    seed: Seed = 0
