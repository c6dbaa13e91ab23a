"""Raw rows of ``replay_traces``."""

from __future__ import annotations

from specs.stages.base.artifacts import OfSample
from specs.stages.base.sampling import Finish, Ids
from specs.system.digests import Count


class TraceAnswer(OfSample):
    """What the model would have done in a state; ``item`` is the state, ``group`` its conversation."""

    unique_by = ("item", "sample")

    prompt: str
    """All that it read of the state."""
    prompt_tokens: Count
    text: str
    tokens: Count
    finish: Finish
    stop: str | None
    answer_ids: Ids
