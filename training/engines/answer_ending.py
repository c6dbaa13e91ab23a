"""Where an answer ends, by one rule for every engine: the first end token, stop string or the limit.

Engines stop by rules of their own, some a few tokens later. What they wrote is cut here, so that rows do not show which
engine wrote them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.engines.batched import Output, output_of
from training.engines.stop_strings import Watch
from training.engines.token_sampling import Sampling


class NotWhole(Exception):
    """An engine gave up in the middle of an answer, or left answers out."""


def ended(ids: Sequence[int], ends: frozenset[int], watch: Watch, sampling: Sampling) -> Output:
    """Return what was written up to where it ends.

    Args:
        ids: the tokens as they were written, an end token and what came after it included.
        ends: the ids that end an answer.
        watch: knows the stop strings.
        sampling: has the limit.

    Raises:
        NotWhole: nothing ended the answer, and it is shorter than the limit.
    """
    written: list[int] = []
    for id in ids[: sampling.max_new_tokens]:
        if id in ends:
            return output_of(written, "eos", watch)
        written.append(id)
        if watch.has_stopped(written):
            return output_of(written, "stop", watch)
    if len(written) < sampling.max_new_tokens:
        raise NotWhole(f"an answer has {len(written)} of {sampling.max_new_tokens} tokens and no end")
    return output_of(written, "length", watch)


def ends_of(folder: Path, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end an answer of a checkpoint: the generation config's and the tokenizer's."""
    from transformers import AutoConfig, GenerationConfig

    try:
        config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    except OSError:
        config = GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    named: Any = config.eos_token_id
    ids = {*(named if isinstance(named, list) else [named]), tokenizer.eos_token_id}
    return frozenset(id for id in ids if id is not None)
