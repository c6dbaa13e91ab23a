"""Greedy answers of a model to probes, as token ids."""

from __future__ import annotations

from typing import Any

from specs.stages.answer_end import Form
from training.engines.engine import Batched
from training.engines.token_sampling import Sampling
from training.rules.prompt_encoding import Encoded, dialogue_ids


def encoded(tokenizer: Any, prompts: list[str], form: Form) -> list[Encoded]:
    """Return the prompts in token ids; raises EncodingFault if the tokenizer changes one."""
    return [dialogue_ids(tokenizer, [{"role": "user", "content": prompt}], form) for prompt in prompts]


def greedy(model: Any, tokenizer: Any, asked: list[Encoded], max_new_tokens: int) -> list[list[int]]:
    """Return the token ids of the greedy answers."""
    prompts = [one.ids for one in asked]
    outputs = Batched(model, tokenizer, len(prompts), share=False).complete(prompts, Sampling(max_new_tokens))
    return [list(output.ids) for (output,) in outputs]
