"""The losses in closed form, from log-probabilities of responses alone; in float64 and without TRL.

With c and r the summed log-probabilities of the chosen and the rejected response, c0 and r0 those of the reference,
|c| and |r| their lengths in tokens, and s the logistic function:

- ``sft``: minus the sum of all log-probabilities over the number of tokens;
- ``dpo``: -log s(beta ((c - c0) - (r - r0))), Rafailov et al. 2023, arXiv:2305.18290, equation 7;
- ``ipo``: ((c - c0) / |c| - (r - r0) / |r| - 1 / (2 beta))^2, Azar et al. 2023, arXiv:2310.12036, equation 17, with the
  lengths as TRL has them after its authors;
- ``kto``: 1 - s(beta (c - c0 - k)) and 1 - s(beta (k - (r - r0))), k the mean over mismatched responses of the same
  difference, not below 0, Ethayarajh et al. 2024, arXiv:2402.01306, equations 7 and 8;
- ``orpo``: - c / |c| - beta log s(o), o the difference of the log odds of both mean probabilities, Hong et al. 2024,
  arXiv:2403.07691, equations 6 and 7, the first term over all tokens of the batch;
- ``simpo``: -log s(beta (c / |c| - r / |r|) - gamma), Meng et al. 2024, arXiv:2405.14734, equation 6.

What a trainer computes is held against this on the first and the last step (``comparing.py``): labels may be masked and
the loss be of the prompts all the same, as in TRL's ``ORPOTrainer``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from training.optimise.masks import View, views


class Response(NamedTuple):
    """A response: the sum of its log-probabilities in nats, and its tokens."""

    total: float
    tokens: int

    @property
    def mean(self) -> float:
        """Return nats per token."""
        return self.total / self.tokens


def sft_loss(responses: Sequence[Response]) -> float:
    """Return the mean negative log-probability of a token."""
    return -sum(one.total for one in responses) / sum(one.tokens for one in responses)


def dpo_loss(
    chosen: Sequence[Response],
    rejected: Sequence[Response],
    chosen_reference: Sequence[float],
    rejected_reference: Sequence[float],
    beta: float,
) -> float:
    """Return the mean loss of DPO."""
    sides = zip(chosen, rejected, chosen_reference, rejected_reference, strict=True)
    return _mean([-_log_logistic(beta * ((c.total - c0) - (r.total - r0))) for c, r, c0, r0 in sides])


def ipo_loss(
    chosen: Sequence[Response],
    rejected: Sequence[Response],
    chosen_reference: Sequence[float],
    rejected_reference: Sequence[float],
    beta: float,
) -> float:
    """Return the mean loss of IPO, by length."""
    sides = zip(chosen, rejected, chosen_reference, rejected_reference, strict=True)
    return _mean(
        [((c.total - c0) / c.tokens - (r.total - r0) / r.tokens - 1 / (2 * beta)) ** 2 for c, r, c0, r0 in sides]
    )


def kto_loss(
    responses: Sequence[Response], reference: Sequence[float], good: Sequence[bool], drift: float, beta: float
) -> float:
    """Return the mean loss of KTO; ``drift`` is the mean difference of mismatched responses."""
    k = max(0.0, drift)
    losses: list[float] = []
    for one, before, is_good in zip(responses, reference, good, strict=True):
        ratio = one.total - before
        losses.append(1 - _logistic(beta * (ratio - k if is_good else k - ratio)))
    return _mean(losses)


def orpo_loss(chosen: Sequence[Response], rejected: Sequence[Response], beta: float) -> float:
    """Return the loss of ORPO: that of supervised training on the chosen responses, and the odds."""
    odds = [
        (c.mean - _log_one_minus_exp(c.mean)) - (r.mean - _log_one_minus_exp(r.mean))
        for c, r in zip(chosen, rejected, strict=True)
    ]
    return sft_loss(chosen) - beta * _mean([_log_logistic(one) for one in odds])


def simpo_loss(chosen: Sequence[Response], rejected: Sequence[Response], beta: float, gamma: float) -> float:
    """Return the mean loss of SimPO."""
    margins = [beta * (c.mean - r.mean) - gamma for c, r in zip(chosen, rejected, strict=True)]
    return _mean([-_log_logistic(one) for one in margins])


def most_difference(precision: str) -> float:
    """Return how far the trainer's loss may be from the closed form, as a share of it."""
    return 1e-4 if precision == "float32" else 0.02


Score = Callable[[View], list[Response]]
"""Gives the responses of sequences, in their order."""


def loss_of(trainer: Any, loss: str, inputs: dict[str, Any], score: Score) -> float:
    """Compute the loss of one batch over response tokens only.

    Args:
        trainer: for what its loss is made of.
        loss: ``sft`` or the name of a preference loss.
        inputs: the batch as the trainer gets it.
        score: where log-probabilities come from.
    """
    found = [score(view) for view in views(inputs)]
    if loss == "sft":
        return sft_loss([one for part in found for one in part])
    if loss == "orpo":
        return orpo_loss(found[0], found[1], trainer.beta)
    if loss == "simpo":
        return simpo_loss(found[0], found[1], trainer.beta, trainer.simpo_gamma)
    if loss == "kto":
        drift = score(mismatched(inputs))
        before = inputs["ref_KL_logps"].tolist()
        difference = sum(one.total - old for one, old in zip(drift, before, strict=True)) / len(drift)
        good = inputs["label"].bool().tolist()
        return kto_loss(found[0], inputs["ref_logps"].tolist(), good, difference, trainer.beta)
    half = len(found[0]) // 2
    rule = {"dpo": dpo_loss, "ipo": ipo_loss}[loss]
    references = inputs["ref_chosen_logps"].tolist(), inputs["ref_rejected_logps"].tolist()
    return rule(found[0][:half], found[0][half:], *references, trainer.beta)


def mismatched(inputs: dict[str, Any]) -> View:
    """Return the sequences of other prompts and responses that a batch of KTO has for its drift."""
    names = ("KL_input_ids", "KL_attention_mask", "KL_completion_mask")
    ids, real, carried = (inputs[name].cpu().numpy() for name in names)
    return View(ids, real == 1, carried == 1)


def alone(model: Any, view: View) -> list[Response]:
    """Compute sequences one at a time in a forward pass of their own, with no padding, mask or neighbour."""
    from training.optimise.pairs import sums

    found: list[Response] = []
    for place in range(len(view.ids)):
        real = view.real[place]
        ids, carried = view.ids[place][real], view.carried[place][real]
        total, tokens = sums(model, [([int(id) for id in ids], int(carried.argmax()))])[0]
        found.append(Response(total, tokens))
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _log_logistic(x: float) -> float:
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def _log_one_minus_exp(x: float) -> float:
    """Return log(1 - exp(x)) for x below 0 (Maechler 2012)."""
    x = min(x, -1e-300)
    return math.log(-math.expm1(x)) if x > -math.log(2) else math.log1p(-math.exp(x))
