"""Compares a trainer's loss with its closed form, at the cost of one sequence and not of the batch.

The log-probabilities come from the trainer's own pass (``forward_capture.py``). That this pass read each sequence as it
is (no padding seen, positions right, no neighbour in a packed row) is checked on the shortest sequence, which has the
most padding: it is computed alone. If dropout or bfloat16 makes it differ, loss and closed form are both computed again
without dropout, every sequence alone. Masked labels do not prove the loss: TRL's ``ORPOTrainer`` trains on prompts too.

The losses in closed form, from log-probabilities of responses, in float64 and without TRL.
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

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from training.compat.trl_internals import keeping_metrics
from training.engines.batched import pad_rows
from training.engines.checkpoint import evaluating
from training.jobs.finetuning.forward_capture import CaptureMissing, ForwardCapture
from training.jobs.finetuning.loss_masks import View, build_drift_view, views
from training.jobs.finetuning.training_texts import PromptWithResponses
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

Score = Callable[[View], list[Response]]
"""Returns the responses of sequences, in their order."""


class GrantMismatch(Exception):
    """The trainer has other settings than the granted ones, or computes something else."""


class LossComparison(NamedTuple):
    """What a comparison found: differences as shares, of the loss and of the reference's log-probabilities."""

    loss: float
    whole: bool
    """Whether the batch was computed again, sequence by sequence."""
    reference: float | None
    responses: int


def compare(
    trainer: Any, witness: ForwardCapture, inputs: dict[str, Any], name: str, scale: float, *, beginning: bool
) -> LossComparison:
    """Compare the loss of a batch with the granted loss, from the passes that a witness captured.

    ``scale`` makes the captured loss the mean over this batch; ``beginning``: the model still is the reference. Raises
    NotAsGranted for another loss, other tokens, or a pass that differs from a sequence alone.
    """
    most = most_difference(trainer.settings()["precision"])
    try:
        ours = loss_of(trainer, name, inputs, witness.responses)
        shortest = _shortest(inputs)
        heard = witness.responses(shortest)[0].total
    except CaptureMissing as error:
        raise GrantMismatch(f"step {trainer.state.global_step + 1}: {error}") from error
    difference = _require_equal_loss(trainer, name, scale * witness.loss, ours, most)
    with evaluating(trainer.model):
        own = alone(trainer.model, shortest)[0].total
    if not share(heard, own) <= most:
        return LossComparison(max(difference, _again(trainer, inputs, name, most)), True, None, 0)
    references = [share(ours, theirs) for ours, theirs in _references(name, inputs, witness)] if beginning else []
    return LossComparison(difference, False, max(references, default=None), len(references))


def share(ours: float, theirs: float) -> float:
    """Return a difference of log-probabilities as a share of ours, or in nats if that is below 1.

    Infinite if one is not a number, which ``max`` would hide.
    """
    difference = abs(ours - theirs) / max(1.0, abs(ours))
    return difference if math.isfinite(difference) else math.inf


def _again(trainer: Any, inputs: dict[str, Any], name: str, most: float) -> float:
    with keeping_metrics(trainer), evaluating(trainer.model):
        theirs = float(trainer.compute_loss(trainer.model, dict(inputs)))
        ours = loss_of(trainer, name, inputs, lambda view: alone(trainer.model, view))
    return _require_equal_loss(trainer, name, theirs, ours, most)


def _require_equal_loss(trainer: Any, name: str, theirs: float, ours: float, most: float) -> float:
    difference = share(ours, theirs)
    if not difference <= most:
        raise GrantMismatch(
            f"step {trainer.state.global_step + 1}: the trainer's loss is {theirs:.6g}; {name} over the response "
            f"tokens of the same batch is {ours:.6g}"
        )
    return difference


def _shortest(inputs: dict[str, Any]) -> View:
    """Return the shortest sequence of a batch, of several the last: in a packed row it has the others before it."""
    matching_views = [View(*(part[n : n + 1] for part in view)) for view in views(inputs) for n in range(len(view.ids))]
    return min(reversed(matching_views), key=lambda view: int(view.real.sum()))


def _references(name: str, inputs: dict[str, Any], witness: ForwardCapture) -> Iterator[tuple[float, float]]:
    """Yield (ours, the trainer's) log-probabilities of the reference, for the responses of a batch."""
    if name in ("dpo", "ipo"):
        parts = [*inputs["ref_chosen_logps"].tolist(), *inputs["ref_rejected_logps"].tolist()]
        ours = [response for view in views(inputs) for response in witness.responses(view)]
    elif name == "kto":
        parts = [*inputs["ref_logps"].tolist(), *inputs["ref_KL_logps"].tolist()]
        ours = [response for view in (*views(inputs), build_drift_view(inputs)) for response in witness.responses(view)]
    else:
        return
    yield from ((response.total, value) for response, value in zip(ours, parts, strict=True))


def loss_of(trainer: Any, loss: str, inputs: dict[str, Any], score: Score) -> float:
    """Return the loss of one batch (``sft`` or a preference loss) over response tokens only.

    The trainer gives the constants of the loss, ``score`` the log-probabilities.
    """
    responses = [score(view) for view in views(inputs)]
    if loss == "sft":
        return sft_loss([response for part in responses for response in part])
    if loss == "orpo":
        return orpo_loss(responses[0], responses[1], trainer.beta)
    if loss == "simpo":
        return simpo_loss(responses[0], responses[1], trainer.beta, trainer.simpo_gamma)
    if loss == "kto":
        drift = score(build_drift_view(inputs))
        before = inputs["ref_KL_logps"].tolist()
        difference = sum(response.total - old for response, old in zip(drift, before, strict=True)) / len(drift)
        good = inputs["label"].bool().tolist()
        return kto_loss(responses[0], inputs["ref_logps"].tolist(), good, difference, trainer.beta)
    half = len(responses[0]) // 2
    rule = {"dpo": dpo_loss, "ipo": ipo_loss}[loss]
    references = inputs["ref_chosen_logps"].tolist(), inputs["ref_rejected_logps"].tolist()
    return rule(responses[0][:half], responses[0][half:], *references, trainer.beta)


def alone(model: Any, view: View) -> list[Response]:
    """Compute each sequence in its own forward pass, without padding, mask or neighbour."""
    rows = [(ids[real], int(carried[real].argmax())) for ids, real, carried in zip(*view, strict=True)]
    return [Response(*sums(model, [(ids.tolist(), begin)])[0]) for ids, begin in rows]


_PIECE = 256
"""Positions whose log-probabilities are computed at a time."""


class PairLogprobs(NamedTuple):
    """Log-probabilities of both responses (sums over their tokens, in nats), and their tokens."""

    chosen: float
    rejected: float
    chosen_tokens: int
    rejected_tokens: int


def score(
    model: Any, tokenizer: Any, pairs: list[PromptWithResponses], *, batch_size: int, max_length: int
) -> list[PairLogprobs]:
    """Return the scores of each pair, in the order given; the model stays in its mode.

    A response begins where the encodings of prompt and whole text part, as in training; both together are
    cut at ``max_length`` tokens.
    """
    sides = [pair.encode_sides(tokenizer) for pair in pairs]
    encoded = [(whole[:max_length], min(side.begins())) for side in sides for whole in side.wholes]
    order = sorted(range(len(encoded)), key=lambda place: len(encoded[place][0]))
    matching_pairs: dict[int, tuple[float, int]] = {}
    with evaluating(model):
        for begin in range(0, len(order), batch_size):
            places = order[begin : begin + batch_size]
            for place, value in zip(places, sums(model, [encoded[place] for place in places]), strict=True):
                matching_pairs[place] = value
    return [
        PairLogprobs(
            matching_pairs[2 * n][0],
            matching_pairs[2 * n + 1][0],
            matching_pairs[2 * n][1],
            matching_pairs[2 * n + 1][1],
        )
        for n in range(len(pairs))
    ]


def sums(model: Any, batch: list[tuple[list[int], int]]) -> list[tuple[float, int]]:
    """Return (log-probability, tokens) of the ids from a place on, for each (ids, place) of one batch."""
    return [(read.total, read.tokens) for read in read_tokens(model, batch)]


class ReadTokens(NamedTuple):
    """Tokens as a model read them: the sum of their log-probabilities, and how many it ranks first."""

    total: float
    tokens: int
    correct: int


def read_tokens(model: Any, batch: list[tuple[list[int], int]]) -> list[ReadTokens]:
    """Return how the ids from a place on were read, for each (ids, place) of one batch."""
    import torch

    ids, mask = pad_rows([counts for counts, _ in batch], next(model.parameters()).device)
    longest = ids.shape[1]
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    # In pieces: float32 copies of all logits would be the largest tensor of the whole run.
    pieces: list[Any] = []
    first: list[Any] = []
    for begin in range(0, longest - 1, _PIECE):
        part = logits[:, begin : min(begin + _PIECE, longest - 1)].float()
        next_ids = ids[:, begin + 1 : begin + 1 + part.shape[1], None]
        pieces.append(part.gather(-1, next_ids).squeeze(-1) - part.logsumexp(-1))
        first.append(part.argmax(-1) == next_ids.squeeze(-1))
    picked, ranked = torch.cat(pieces, dim=1), torch.cat(first, dim=1)
    return [
        ReadTokens(
            float(picked[row, begin - 1 : len(counts) - 1].double().sum()),
            len(counts) - begin,
            int(ranked[row, begin - 1 : len(counts) - 1].sum()),
        )
        for row, (counts, begin) in enumerate(batch)
    ]
