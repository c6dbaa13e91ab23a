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

What a trainer computes is held against this on the first and the last step (``loss_comparison.py``): labels may be
masked and the loss be of the prompts all the same, as in TRL's ``ORPOTrainer``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from training.jobs.finetuning.loss_masks import View, mismatched, views
from training.rules.finetuning.losses import Response, dpo_loss, ipo_loss, kto_loss, orpo_loss, sft_loss, simpo_loss

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


def alone(model: Any, view: View) -> list[Response]:
    """Compute sequences one at a time in a forward pass of their own, with no padding, mask or neighbour."""
    from training.jobs.finetuning.pair_scores import sums

    found: list[Response] = []
    for place in range(len(view.ids)):
        real = view.real[place]
        ids, carried = view.ids[place][real], view.carried[place][real]
        total, tokens = sums(model, [([int(id) for id in ids], int(carried.argmax()))])[0]
        found.append(Response(total, tokens))
    return found
