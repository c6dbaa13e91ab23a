"""Hours of a training on rollouts before it runs: answers are written, then learned from. No torch."""

from __future__ import annotations

from typing import NamedTuple

from specs.stages.finetuning.online_parameters import ComposerParameters, GrpoParameters
from training.planning.model_shapes import Shape
from training.planning.training_memory import as_texts, operations_a_token

WRITE_S = 0.03
"""Least seconds of one token of a batch: the weights are read once for it, and calls take time."""


class RolloutTime(NamedTuple):
    """What a training on rollouts takes with the most data it can get."""

    tokens: int
    """Tokens of prompts and answers, in one pass over the prompts."""
    hours: float


def rollout_time(
    shape: Shape, parameters: GrpoParameters, *, prompts: int, prompt: int, operations_a_second: float
) -> RolloutTime:
    """Return how long training on so many prompts of ``prompt`` tokens takes.

    Prompts that are kept out are counted as trained on, and every answer as long as it may be.
    """
    p = shape.parameters()
    learned = operations_a_token(shape, as_texts(parameters, prompt))
    whole, answers = prompt + parameters.max_new_tokens, prompts * parameters.generations
    tokens = answers * whole
    operations_per_answer = 0.0
    if parameters.weights.grpo:
        # One pass more for the reference, and one where answers are learned from again.
        operations_per_answer += whole * (
            learned + 2.0 * p * (parameters.kl_weight > 0) + 2.0 * p * (parameters.updates > 1)
        )
    if parameters.weights.sdpo:
        # The teacher reads another answer or a message as well, at most as long as an answer.
        operations_per_answer += whole * learned + (whole + parameters.max_new_tokens) * 2.0 * p
    if isinstance(parameters, ComposerParameters) and parameters.reads_pairs:
        pairs = parameters.replayed_pairs
        operations_per_answer += 2 * pairs.batch_size * pairs.max_length * learned / parameters.batch_size
    trained_s = answers * operations_per_answer * parameters.updates * parameters.epochs / operations_a_second
    batch = parameters.batch_size * parameters.gradient_accumulation
    # Before and after training, the prompts that are kept out are answered once.
    passes = answers * parameters.epochs / batch + 2 * prompts * parameters.validation_share / parameters.batch_size
    a_token_s = max(WRITE_S, 2.0 * p * batch / operations_a_second)
    written_s = passes * (parameters.max_new_tokens * a_token_s + 2.0 * p * batch * prompt / operations_a_second)
    return RolloutTime(tokens, (trained_s + written_s) / 3600)
