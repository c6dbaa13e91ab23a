"""A trainer's loss held against its closed form, at the cost of one sequence and not of the batch.

The loss that is compared is the one that is trained with. Its log-probabilities come from the trainer's own pass
(``forward_capture.py``), so what is left to show is that this pass was of the sequences as they are: padding not seen,
positions right, no neighbour in a packed row. That is asked of the shortest sequence, which has the most padding: it is
computed alone. Where dropout or bfloat16 makes it differ, loss and closed form are both computed again without dropout,
every sequence alone. Labels may be masked and the loss be of the prompts all the same, as in TRL's ``ORPOTrainer``.

The losses in closed form, from log-probabilities of responses alone; in float64 and without TRL.

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
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from training.jobs.finetuning.forward_capture import NotGiven, Witness
from training.jobs.finetuning.loss_masks import View, mismatched, views
from training.rules.finetuning.losses import (
    Response,
    dpo_loss,
    ipo_loss,
    kto_loss,
    most_difference,
    orpo_loss,
    sft_loss,
    simpo_loss,
)

T = TypeVar("T")
Score = Callable[[View], list[Response]]
"""Gives the responses of sequences, in their order."""


class NotAsGranted(Exception):
    """The trainer was built with settings other than the granted ones, or computes something else."""


class Compared(NamedTuple):
    """What a comparison found: differences as shares, of the loss and of the reference's log-probabilities."""

    loss: float
    whole: bool
    """Whether the batch was computed again, sequence by sequence."""
    reference: float | None
    responses: int


def compare(
    trainer: Any, witness: Witness, inputs: dict[str, Any], name: str, scale: float, *, beginning: bool
) -> Compared:
    """Compare the loss of a batch that a witness has listened to.

    Args:
        trainer: whose loss it is.
        witness: what the model was given and gave for it.
        inputs: the batch.
        name: of the granted loss.
        scale: what makes the loss that the witness heard the mean over this batch.
        beginning: whether the weights are still those that training begins from, so that the model is the reference.

    Raises:
        NotAsGranted: it is another loss, over other tokens, or of a pass that a sequence alone does not agree with.
    """
    most = most_difference(trainer.settings()["precision"])
    try:
        ours = loss_of(trainer, name, inputs, witness.responses)
        shortest = _shortest(inputs)
        heard = witness.responses(shortest)[0].total
    except NotGiven as error:
        raise NotAsGranted(f"step {trainer.state.global_step + 1}: {error}") from error
    difference = _held(trainer, name, scale * witness.loss, ours, most)
    own = _without_dropout(trainer, lambda: alone(trainer.model, shortest)[0].total)
    if not share(heard, own) <= most:
        return Compared(max(difference, _again(trainer, inputs, name, most)), True, None, 0)
    references = [share(ours, told) for ours, told in _references(name, inputs, witness)] if beginning else []
    return Compared(difference, False, max(references, default=None), len(references))


def share(ours: float, theirs: float) -> float:
    """Return a difference of log-probabilities as a share of ours, or in nats where that is below 1.

    Infinite if one of them is no number, which the largest of several would hide.
    """
    difference = abs(ours - theirs) / max(1.0, abs(ours))
    return difference if math.isfinite(difference) else math.inf


def _again(trainer: Any, inputs: dict[str, Any], name: str, most: float) -> float:
    stored = copy.deepcopy(getattr(trainer, "_stored_metrics", None))

    def both() -> tuple[float, float]:
        theirs = float(trainer.compute_loss(trainer.model, dict(inputs)))
        return theirs, loss_of(trainer, name, inputs, lambda view: alone(trainer.model, view))

    theirs, ours = _without_dropout(trainer, both)
    if stored is not None:
        trainer._stored_metrics = stored
    return _held(trainer, name, theirs, ours, most)


def _held(trainer: Any, name: str, theirs: float, ours: float, most: float) -> float:
    difference = share(ours, theirs)
    if not difference <= most:
        raise NotAsGranted(
            f"step {trainer.state.global_step + 1}: the trainer's loss is {theirs:.6g}; {name} over the response "
            f"tokens of the same batch is {ours:.6g}"
        )
    return difference


def _without_dropout(trainer: Any, compute: Callable[[], T]) -> T:
    import torch

    trainer.model.eval()
    try:
        with torch.no_grad():
            return compute()
    finally:
        trainer.model.train()


def _shortest(inputs: dict[str, Any]) -> View:
    """Return the shortest sequence of a batch, of several the last: in a packed row it has the others before it."""
    found = [(int(view.real[place].sum()), view, place) for view in views(inputs) for place in range(len(view.ids))]
    _, view, place = min(reversed(found), key=lambda one: one[0])
    return View(*(part[place : place + 1] for part in view))


def _references(name: str, inputs: dict[str, Any], witness: Witness) -> Iterator[tuple[float, float]]:
    """Yield (ours, the trainer's) log-probabilities of the reference, for the responses of a batch."""
    if name in ("dpo", "ipo"):
        told = [*inputs["ref_chosen_logps"].tolist(), *inputs["ref_rejected_logps"].tolist()]
        ours = [one for view in views(inputs) for one in witness.responses(view)]
    elif name == "kto":
        told = [*inputs["ref_logps"].tolist(), *inputs["ref_KL_logps"].tolist()]
        ours = [one for view in (*views(inputs), mismatched(inputs)) for one in witness.responses(view)]
    else:
        return
    yield from ((one.total, value) for one, value in zip(ours, told, strict=True))


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
