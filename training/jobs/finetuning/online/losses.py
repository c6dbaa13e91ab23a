"""The losses of training on rollouts: each from whole logits, and from hidden states a piece at a time.

Both ways give the same value and gradient; the first is what the second is compared with. The pieces hold only the
tokens that count, so that no tensor has all tokens times the vocabulary.

- ``policy_loss``: the clipped objective of PPO with advantages of a group (Shao et al. 2024, arXiv:2402.03300, equation
  3), averaged over tokens (Yu et al. 2025, arXiv:2503.14476, equation 8);
- ``divergence``: the generalised Jensen-Shannon divergence (Agarwal et al. 2023, arXiv:2306.13649, section 2) between a
  teacher that read more and the model (Hübotter et al. 2026, arXiv:2601.20802);
- ``dpo_loss``: Rafailov et al. 2023, arXiv:2305.18290, equation 7.
"""

from __future__ import annotations

from typing import Any

from training.jobs.finetuning.online.pieces import Head, checkpoint_pieces, sum_over_pieces, tokens_of_a_piece

Tensor = Any


class EmptyMask(ValueError):
    """No token counts: a loss over nothing would look like a loss of 0."""


def policy_loss(
    logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    old: Tensor | None = None,
    reference: Tensor | None = None,
    clip: float = 0.2,
    kl_weight: float = 0.0,
    tokens: Tensor | float | None = None,
) -> Tensor:
    """Return the loss of completions: log-probabilities [rows, tokens], advantages [rows].

    ``old`` are those of the weights that sampled; None: the present ones. ``tokens`` divides the sum where the rows are
    a part of a batch. Raises EmptyMask, or ValueError for a weight of the KL without a reference.
    """
    import torch

    mask = _require_counted_tokens(mask).to(logps.dtype)
    ratio = (logps - (logps.detach() if old is None else old)).exp()
    row_advantages = advantages[:, None]
    loss = -torch.minimum(ratio * row_advantages, ratio.clamp(1 - clip, 1 + clip) * row_advantages)
    if kl_weight:
        if reference is None:
            raise ValueError("kl_weight needs the log-probabilities of the reference")
        # The estimator that is never negative (Schulman 2020): exp(x) - x - 1 with x the log ratio of the reference.
        apart = reference - logps
        # Times the ratio: the answers are of the weights that sampled them, the divergence is of the present ones.
        loss = loss + kl_weight * ratio * (apart.exp() - apart - 1)
    return (loss * mask).sum() / (mask.sum() if tokens is None else tokens)


def objective(beta: float, top_k: int | None, temperature: float = 1.0, clip: float | None = None) -> str:
    """Return the name of a divergence; over a part of the vocabulary, heated or clipped it is another one."""
    name = {0.0: "forward_kl", 1.0: "reverse_kl"}.get(beta, "jsd")
    name += "" if top_k is None else f"_of_top_{top_k}_and_tail"
    name += "" if temperature == 1 else f"_at_temperature_{temperature:g}"
    return name if clip is None else f"{name}_clipped_at_{clip:g}"


def divergence(
    student: Tensor,
    teacher: Tensor,
    mask: Tensor,
    *,
    beta: float,
    temperature: float = 1.0,
    top_k: int | None = None,
    clip: float | None = None,
) -> Tensor:
    """Return the mean divergence over the tokens of a mask; only the student gets a gradient.

    ``beta`` 0 is the KL divergence from teacher to student, 1 that from student to teacher. Between them it is that of
    both from their mixture, which goes to 0 towards either end: neither end is a limit. No token counts more than
    ``clip`` nats. Raises EmptyMask.
    """
    tensor = _require_counted_tokens(mask)
    return token_divergence(student[tensor], teacher[tensor], beta, temperature, top_k, clip).mean()


def divergence_in_pieces(
    student: Tensor,
    student_head: Head,
    teacher: Tensor,
    teacher_head: Head,
    mask: Tensor,
    *,
    beta: float,
    temperature: float = 1.0,
    top_k: int | None = None,
    clip: float | None = None,
    piece: int | None = None,
) -> Tensor:
    """Return what :func:`divergence` does, from hidden states; raises as it does.

    Its gradient can be read once, like that of any graph that is not retained.
    """
    import torch

    tensor = _require_counted_tokens(mask)

    def both(logits: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return token_divergence_and_gradient(logits, teacher_head(theirs), beta, temperature, top_k, clip)

    size = piece or tokens_of_a_piece(student_head, student)
    return sum_over_pieces(both, student_head, student[tensor], teacher[tensor].detach(), size) / tensor.sum()


def token_divergence(
    student: Tensor, teacher: Tensor, beta: float, temperature: float, top_k: int | None, clip: float | None = None
) -> Tensor:
    """Return the divergence of each token from logits [tokens, vocabulary], in nats, at most ``clip``."""
    import torch

    # By the names of the logits, so that these are not held any longer.
    student = (student / temperature).log_softmax(-1)
    teacher = (teacher / temperature).log_softmax(-1).detach()
    if top_k is not None and top_k < student.shape[-1]:
        places = student.detach().topk(top_k, -1).indices
        student, teacher = _with_tail(student, places), _with_tail(teacher, places)
    if beta == 0:
        tensor = _kl(teacher, student)
    elif beta == 1:
        tensor = _kl(student, teacher)
    else:
        share = torch.tensor([beta, 1 - beta], dtype=student.dtype, device=student.device).log()
        mixed = torch.logaddexp(teacher + share[0], student + share[1])
        tensor = beta * _kl(teacher, mixed) + (1 - beta) * _kl(student, mixed)
    return tensor if clip is None else tensor.clamp(max=clip)


def token_divergence_and_gradient(
    student: Tensor, teacher: Tensor, beta: float, temperature: float, top_k: int | None, clip: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return what :func:`token_divergence` does and its gradient by the student's logits, in closed form.

    With P the student's probability of an outcome (a word; or one of the top k, or any other), p that of a word in it
    and G the derivative by P, the gradient is p (G - sum of P G) / temperature.
    """
    import torch

    # Each tensor overwrites another that is not needed any more: they are as wide as the vocabulary.
    logs = student = (student / temperature).log_softmax(-1)
    teacher, places = (teacher / temperature).log_softmax(-1), None
    if top_k is not None and top_k < logs.shape[-1]:
        places = logs.topk(top_k, -1).indices
        student, teacher = _with_tail(logs, places), _with_tail(teacher, places)
    if beta == 0:
        tensor = _kl(teacher, student)
        # By the logarithm of p T / P: G alone, -T / P, may be infinite.
        used = logs.sub(_of_words(student, logs, places)).add_(_of_words(teacher, logs, places)).exp_()
        gradient = logs.exp().sub_(used)
    else:
        tensor = torch.zeros_like(student[:, 0])
        if beta < 1:
            share = torch.tensor([beta, 1 - beta], dtype=logs.dtype, device=logs.device).log()
            mixed = teacher + share[0]
            torch.logaddexp(mixed, student + share[1], out=mixed)
            tensor = _dot(teacher.exp(), teacher.sub_(mixed)).mul_(beta)
            teacher = mixed
        slope, weight = teacher.neg_().add_(student), 1.0 if beta == 1 else 1 - beta
        chance = student.exp()
        mean = _dot(chance, slope)
        tensor += weight * mean
        gradient = _of_words(slope.sub_(mean[:, None]), logs, places)
        gradient.mul_(chance if places is None else logs.exp()).mul_(weight)
    gradient.div_(temperature)
    if clip is not None:
        gradient.mul_((tensor <= clip)[:, None])
        tensor = tensor.clamp(max=clip)
    return tensor, gradient


def log_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each target [tokens] from logits [tokens, vocabulary]."""
    return logits.log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)


def log_probabilities_in_pieces(hidden: Tensor, head: Head, targets: Tensor, *, piece: int | None = None) -> Tensor:
    """Return what :func:`log_probabilities` does, from hidden states [tokens, width]; raises EmptyMask for none."""
    import torch

    if not len(targets):
        raise EmptyMask("no token to score")

    def pick_log_probabilities(states: Tensor, ids: Tensor) -> Tensor:
        return log_probabilities(head(states), ids)

    return torch.cat(
        list(checkpoint_pieces(pick_log_probabilities, hidden, targets, piece or tokens_of_a_piece(head, hidden)))
    )


def dpo_loss(
    chosen: Tensor, rejected: Tensor, chosen_reference: Tensor, rejected_reference: Tensor, beta: float
) -> Tensor:
    """Return the mean loss of pairs from summed log-probabilities; where model and reference are one, ln 2."""
    from torch.nn.functional import logsigmoid

    return -logsigmoid(beta * ((chosen - chosen_reference) - (rejected - rejected_reference))).mean()


def _require_counted_tokens(mask: Tensor) -> Tensor:
    tensor = mask.bool()
    if not bool(tensor.any()):
        raise EmptyMask("no token of the batch counts")
    return tensor


def _kl(tensor: Tensor, other: Tensor) -> Tensor:
    return (tensor.exp() * (tensor - other)).sum(-1)


def _dot(tensor: Tensor, other: Tensor) -> Tensor:
    return (tensor * other).sum(-1)


def _of_words(outcomes: Tensor, like: Tensor, places: Tensor | None) -> Tensor:
    """Return the number of the outcome that each word belongs to."""
    if places is None:
        return outcomes
    return outcomes[:, -1:].expand_as(like).scatter(-1, places, outcomes[:, :-1])


def _with_tail(logs: Tensor, places: Tensor) -> Tensor:
    """Return the log-probabilities at some places, then that of all others together."""
    import torch

    picked = logs.gather(-1, places)
    rest = logs.scatter(-1, places, float("-inf")).logsumexp(-1, keepdim=True)
    return torch.cat([picked, rest], -1)
