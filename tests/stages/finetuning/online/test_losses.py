"""The losses of rollouts: two ways to the same value and gradient, against closed forms, at every end of every knob."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from training.jobs.finetuning.online import losses

TOKENS, WIDTH, WORDS = 23, 8, 61
BETAS = (0.0, 0.3, 0.5, 1.0)


def _loss_arguments(dtype: Any = None, tokens: int = TOKENS) -> dict[str, Any]:
    """Return hidden states and heads of student and teacher, and a mask that leaves out every third token."""
    import torch

    made = torch.Generator().manual_seed(0)

    def random_tensor(*shape: int) -> Any:
        return torch.randn(*shape, generator=made, dtype=dtype or torch.float32)

    return {
        "student": random_tensor(tokens, WIDTH).requires_grad_(),
        "teacher": random_tensor(tokens, WIDTH).requires_grad_(),
        "head": random_tensor(WORDS, WIDTH).requires_grad_(),
        "mask": torch.arange(tokens) % 3 != 0,
    }


def _grads(value: Any, arguments: dict[str, Any]) -> list[Any]:
    import torch

    tensors = [arguments["student"], arguments["head"]]
    return [*torch.autograd.grad(value, tensors, retain_graph=True)]


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("top_k", [None, 1, 7, 30, WORDS, WORDS + 5])
@pytest.mark.parametrize("beta", BETAS)
def test_a_divergence_in_pieces_is_the_plain_one_in_value_and_gradient(
    beta: float, top_k: int | None, clipped: bool
) -> None:
    arguments = _loss_arguments()
    head = arguments["head"]
    both = arguments["student"] @ head.T, arguments["teacher"] @ head.T
    # Half of the tokens are above it, none at it.
    clip = 1.001 * float(losses.token_divergence(*both, beta, 0.7, top_k).detach().median()) if clipped else None
    plain = losses.divergence(*both, arguments["mask"], beta=beta, temperature=0.7, top_k=top_k, clip=clip)
    pieces = losses.divergence_in_pieces(
        arguments["student"],
        lambda hidden: hidden @ head.T,
        arguments["teacher"],
        lambda hidden: (hidden @ head.T).detach(),
        arguments["mask"],
        beta=beta,
        temperature=0.7,
        top_k=top_k,
        clip=clip,
        piece=5,
    )
    assert plain.item() == pytest.approx(pieces.item(), rel=1e-5) and plain.item() > 0
    for grad, other in zip(_grads(plain, arguments), _grads(pieces, arguments), strict=True):
        assert float((grad - other).abs().max()) <= 1e-5 * float(grad.abs().max())
        assert float(grad.abs().max()) > 0


def test_a_token_above_the_clip_counts_no_more_and_has_no_gradient() -> None:
    import torch

    student = torch.tensor([[9.0, 0.0], [0.3, 0.0]], requires_grad=True)
    teacher, ones = torch.tensor([[0.0, 9.0], [0.0, 0.0]]), torch.ones(2)
    divergences = losses.token_divergence(student, teacher, 0.0, 1.0, None).detach()
    assert float(divergences[0]) > 0.5 > float(divergences[1]) > 0
    tensor = losses.divergence(student, teacher, ones, beta=0.0, clip=0.5)
    assert tensor.item() == pytest.approx((0.5 + float(divergences[1])) / 2)
    (gradient,) = torch.autograd.grad(tensor, student)
    assert float(gradient[0].abs().max()) == 0 < float(gradient[1].abs().max())


def test_pieces_read_no_token_outside_the_mask() -> None:
    arguments = _loss_arguments()
    head = arguments["head"]

    def read(hidden: Any) -> Any:
        assert len(hidden) <= 4
        return hidden @ head.T

    poisoned = arguments["student"].detach().clone()
    poisoned[~arguments["mask"]] = math.nan
    tensor = losses.divergence_in_pieces(
        poisoned, read, arguments["teacher"].detach(), read, arguments["mask"], beta=0.5, piece=4
    )
    assert math.isfinite(tensor.item())


def test_without_gradients_there_is_only_a_value() -> None:
    import torch

    arguments = _loss_arguments()
    head = arguments["head"]

    def both() -> Any:
        layer = head.T.__rmatmul__
        return losses.divergence_in_pieces(
            arguments["student"], layer, arguments["teacher"], layer, arguments["mask"], beta=0.5, piece=4
        )

    with torch.no_grad():
        value = both()
    assert not value.requires_grad and value.item() == pytest.approx(both().item(), rel=1e-6)


@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("beta", BETAS)
def test_logits_far_apart_have_the_gradient_of_float64(beta: float, top_k: int | None) -> None:
    import torch

    # The probability of most words is 0 in float32.
    student, teacher = (200 * torch.randn(6, WORDS, generator=torch.Generator().manual_seed(n)) for n in (3, 4))
    # And of two words it is not, in another order.
    student[0, :2], teacher[0, :2] = torch.tensor([900.0, 901.0]), torch.tensor([901.0, 900.5])
    exact = student.double().requires_grad_()
    (expected,) = torch.autograd.grad(losses.token_divergence(exact, teacher.double(), beta, 1.0, top_k).sum(), exact)
    value, tensor = losses.token_divergence_and_gradient(student, teacher, beta, 1.0, top_k)
    assert bool(value.isfinite().all()) and bool(expected.isfinite().all()) and float(expected.abs().max()) > 0.01
    # A logit of 900 has four digits after the point.
    assert torch.allclose(tensor.double(), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_the_ends_are_the_two_kl_divergences_in_their_order() -> None:
    import torch
    from torch.distributions import Categorical, kl_divergence

    student, teacher = torch.randn(4, WORDS), torch.randn(4, WORDS)
    ours, theirs = Categorical(logits=student), Categorical(logits=teacher)

    def measure_divergence(beta: float, top_k: int | None = None) -> Any:
        return losses.token_divergence(student, teacher, beta, 1.0, top_k)

    assert torch.allclose(measure_divergence(0.0), kl_divergence(theirs, ours), atol=1e-5)
    assert torch.allclose(measure_divergence(1.0), kl_divergence(ours, theirs), atol=1e-5)
    half = Categorical(probs=(ours.probs + theirs.probs) / 2)
    jensen = (kl_divergence(theirs, half) + kl_divergence(ours, half)) / 2
    assert torch.allclose(measure_divergence(0.5), jensen, atol=1e-5) and float(
        measure_divergence(0.5).max()
    ) <= math.log(2)
    # Between the ends it goes to 0 towards them: beta 0 is not a limit of small ones.
    assert float(measure_divergence(0.001).max()) < 0.05 * float(measure_divergence(0.0).min())
    # Fewer words tell less apart (the data processing inequality), so top k and a tail is another, smaller divergence.
    assert bool((measure_divergence(0.0, 3) <= measure_divergence(0.0) + 1e-6).all()) and not torch.allclose(
        measure_divergence(0.0, 3), measure_divergence(0.0), rtol=0.01
    )


def test_an_objective_over_a_part_of_the_vocabulary_has_another_name() -> None:
    assert [losses.objective(beta, None) for beta in BETAS] == ["forward_kl", "jsd", "jsd", "reverse_kl"]
    assert losses.objective(0.5, 100) == "jsd_of_top_100_and_tail"
    assert losses.objective(0.0, None, 2.0, 0.5) == "forward_kl_at_temperature_2_clipped_at_0.5"


def test_a_teacher_that_is_the_student_has_no_divergence_and_no_gradient() -> None:
    arguments = _loss_arguments()
    head = arguments["head"]
    for beta in BETAS:
        logits = arguments["student"] @ head.T
        same = losses.divergence(logits, logits.detach(), arguments["mask"], beta=beta)
        assert abs(same.item()) < 1e-6
        assert float(_grads(same, arguments)[0].abs().max()) < 1e-7


def test_the_teacher_gets_no_gradient() -> None:
    import torch

    arguments = _loss_arguments()
    value = losses.divergence(
        arguments["student"] @ arguments["head"].T,
        arguments["teacher"] @ arguments["head"].T,
        arguments["mask"],
        beta=0.5,
    )
    (tensor,) = torch.autograd.grad(value, [arguments["teacher"]], allow_unused=True)
    assert tensor is None


@pytest.mark.parametrize("name", ["divergence", "policy", "dpo", "log probabilities"])
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    import torch

    arguments = _loss_arguments(torch.float64, tokens=5)
    head, teacher = arguments["head"].detach(), (arguments["teacher"] @ arguments["head"].T).detach()
    ids = torch.arange(5) % WORDS
    old = torch.linspace(-3.5, -2.5, 5, dtype=torch.float64)[None]
    advantages, ones = torch.tensor([0.7], dtype=torch.float64), torch.ones(1, 5)

    def logps(hidden: Any) -> Any:
        return losses.log_probabilities_in_pieces(hidden, lambda states: states @ head.T, ids, piece=2)

    functions: dict[str, Callable[[Any], Any]] = {
        "divergence": lambda hidden: losses.divergence(hidden @ head.T, teacher, arguments["mask"], beta=0.3),
        "policy": lambda hidden: losses.policy_loss(
            logps(hidden)[None], advantages, ones, old=old, reference=old - 0.1, clip=0.2, kl_weight=0.04
        ),
        "dpo": lambda hidden: losses.dpo_loss(
            logps(hidden)[:2].sum()[None], logps(hidden)[2:].sum()[None], old[0, :1], old[0, 1:2], 0.1
        ),
        "log probabilities": lambda hidden: logps(hidden).sum(),
    }
    assert torch.autograd.gradcheck(functions[name], (arguments["student"],))


@pytest.mark.parametrize("piece", [None, 4])
def test_log_probabilities_in_pieces_are_the_plain_ones(piece: int | None) -> None:
    import torch

    arguments = _loss_arguments()
    head, ids = arguments["head"], torch.arange(TOKENS) % WORDS
    plain = losses.log_probabilities(arguments["student"] @ head.T, ids)
    pieces = losses.log_probabilities_in_pieces(arguments["student"], lambda states: states @ head.T, ids, piece=piece)
    assert torch.allclose(plain, pieces, rtol=1e-5)
    for grad, other in zip(_grads(plain.sum(), arguments), _grads(pieces.sum(), arguments), strict=True):
        assert torch.allclose(grad, other, rtol=1e-5, atol=1e-6)


def test_the_policy_loss_by_hand() -> None:
    import torch

    old = torch.tensor([[-1.0, -1.0], [-1.0, -1.0]])
    # Ratios 1.5 and 0.5 with a positive advantage, 1.5 and 1.05 with a negative one; the last token does not count.
    logps = old + torch.log(torch.tensor([[1.5, 0.5], [1.5, 1.05]]))
    advantages, mask = torch.tensor([1.0, -2.0]), torch.tensor([[1, 1], [1, 0]])
    tensor = losses.policy_loss(logps, advantages, mask, old=old, clip=0.2)
    # A gain counts up to 1.2 of it, a loss as it is: -(1.2 + 0.5 - 3) / 3.
    assert float(tensor) == pytest.approx((-1.2 - 0.5 + 3.0) / 3)
    assert float(losses.policy_loss(logps, advantages, mask, old=old, clip=0.2, tokens=6)) == pytest.approx(1.3 / 6)
    wide = losses.policy_loss(logps, advantages, mask, old=old, clip=1.0)
    assert float(wide) == pytest.approx((-1.5 - 0.5 + 3.0) / 3)
    # Where the weights that sampled are the present ones every ratio is 1; the KL of equal ones is 0, of others not.
    assert float(losses.policy_loss(logps, advantages, mask)) == pytest.approx((-1 - 1 + 2) / 3)
    same = losses.policy_loss(logps, advantages, mask, reference=logps.clone(), kl_weight=1.0)
    apart = losses.policy_loss(logps, advantages, mask, reference=logps - 1.0, kl_weight=1.0)
    assert float(same) == pytest.approx(0.0) and float(apart) == pytest.approx(math.exp(-1))
    # A ratio of 2, of which 1.2 counts, and a reference that is a third of the present weights' probability.
    result, ones = torch.tensor([[math.log(2.0)]]), torch.ones(1, 1)
    arguments: dict[str, Any] = {"old": torch.zeros(1, 1), "reference": result - math.log(3.0), "kl_weight": 0.5}
    tensor = losses.policy_loss(result, torch.tensor([3.0]), ones, **arguments)
    assert float(tensor) == pytest.approx(-1.2 * 3.0 + 0.5 * 2.0 * (1 / 3 + math.log(3.0) - 1), rel=1e-6)
    with pytest.raises(ValueError, match="reference"):
        losses.policy_loss(logps, advantages, mask, kl_weight=1.0)


def test_dpo_begins_at_ln_2_and_prefers_the_chosen_side() -> None:
    import torch

    chosen, rejected = torch.tensor([-3.0, -40.0]), torch.tensor([-50.0, -2.0])
    assert float(losses.dpo_loss(chosen, rejected, chosen, rejected, 0.1)) == pytest.approx(math.log(2), abs=1e-7)
    leaf = chosen.clone().requires_grad_()
    (towards,) = torch.autograd.grad(losses.dpo_loss(leaf, rejected, chosen, rejected, 0.1), leaf)
    (away,) = torch.autograd.grad(losses.dpo_loss(rejected, leaf, rejected, chosen, 0.1), leaf)
    assert bool((towards < 0).all()) and torch.allclose(towards, -away)
    moved = losses.dpo_loss(chosen, rejected, chosen - 2.0, rejected, 0.5)
    assert float(moved) == pytest.approx(math.log1p(math.exp(-1)))


def test_no_token_that_counts_is_an_error_and_no_loss_of_zero() -> None:
    import torch

    none = torch.zeros(2, 3)
    with pytest.raises(losses.EmptyMask):
        losses.policy_loss(none, torch.ones(2), none)
    with pytest.raises(losses.EmptyMask):
        losses.divergence(torch.randn(2, 3, 5), torch.randn(2, 3, 5), none, beta=0.5)
    with pytest.raises(losses.EmptyMask):
        losses.divergence_in_pieces(
            torch.randn(2, 3, 5), lambda x: x, torch.randn(2, 3, 5), lambda x: x, none, beta=0.5
        )
    with pytest.raises(losses.EmptyMask):
        losses.log_probabilities_in_pieces(torch.randn(0, 5), lambda x: x, torch.zeros(0, dtype=torch.long))
