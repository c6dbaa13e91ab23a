"""The losses of training in closed form: by hand, by numpy, and at their limits; parameters; division by group."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from specs.stages.base.artifacts import Preference
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
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
from training.rules.finetuning.validation_split import divide

NUMBERS = st.floats(-60, -0.1, allow_nan=False)


def test_losses_by_hand() -> None:
    c, r = [Response(-4.0, 2)], [Response(-9.0, 3)]
    assert sft_loss([Response(-4.0, 2), Response(-9.0, 3)]) == 13 / 5
    # Nothing has moved: log 2, whatever beta is.
    assert dpo_loss(c, r, [-4.0], [-9.0], 0.3) == pytest.approx(math.log(2), abs=1e-15)
    # beta times the difference is log 3, and its logistic 3/4.
    assert dpo_loss(c, r, [-4.0 - 2 * math.log(3)], [-9.0], 0.5) == pytest.approx(-math.log(0.75), abs=1e-12)
    # (1/2 - (-3/3) - 1/(2 * 0.25))^2
    assert ipo_loss(c, r, [-5.0], [-6.0], 0.25) == pytest.approx((0.5 + 1.0 - 2.0) ** 2)
    # 1 - 3/4 for the good one; the bad one lost as much, so as much again.
    step = 2 * math.log(3)
    assert kto_loss([*c, *r], [-4.0 - step, -9.0 + step], [True, False], -1.0, 0.5) == pytest.approx(0.25)
    # A drift of the whole step leaves the good one at 1/2; the bad one is 1 - s(0.5 * 2 * step) = 1 - 9/10.
    assert kto_loss([*c, *r], [-4.0 - step, -9.0 + step], [True, False], step, 0.5) == pytest.approx((0.5 + 0.1) / 2)
    # Means -2 and -3, gamma takes the difference away: log 2.
    assert simpo_loss(c, r, 2.0, 2.0) == pytest.approx(math.log(2), abs=1e-15)
    # Probabilities 1/2 and 1/4: odds 1 and 1/3, their ratio 3.
    half, quarter = [Response(2 * math.log(0.5), 2)], [Response(math.log(0.25), 1)]
    assert orpo_loss(half, quarter, 0.1) == pytest.approx(math.log(2) - 0.1 * math.log(0.75), abs=1e-12)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=5), st.floats(0.01, 5))
def test_losses_agree_with_numpy(rows: list[tuple[float, float, float, float]], beta: float) -> None:
    c, r, c0, r0 = (numpy.array(column) for column in zip(*rows, strict=True))
    chosen, rejected = [Response(item, 3) for item in c], [Response(item, 5) for item in r]
    references = list(c0), list(r0)
    margin = beta * ((c - c0) - (r - r0))
    assert dpo_loss(chosen, rejected, *references, beta) == pytest.approx(numpy.logaddexp(0, -margin).mean())
    length = ((c - c0) / 3 - (r - r0) / 5 - 1 / (2 * beta)) ** 2
    assert ipo_loss(chosen, rejected, *references, beta) == pytest.approx(length.mean())
    simpo = numpy.logaddexp(0, -(beta * (c / 3 - r / 5) - 0.7)).mean()
    assert simpo_loss(chosen, rejected, beta, 0.7) == pytest.approx(simpo)
    good = [n % 2 == 0 for n in range(len(c))]
    logistic = 1 / (1 + numpy.exp(-beta * numpy.where(good, c - c0 - 2, 2 - (c - c0))))
    assert kto_loss(chosen, list(c0), good, 2.0, beta) == pytest.approx((1 - logistic).mean(), abs=1e-12)
    p, q = numpy.exp(c / 3), numpy.exp(r / 5)
    odds = numpy.log(p / (1 - p)) - numpy.log(q / (1 - q))
    orpo = -c.sum() / (3 * len(c)) + beta * numpy.logaddexp(0, -odds).mean()
    assert orpo_loss(chosen, rejected, beta) == pytest.approx(orpo, rel=1e-6)


def test_losses_do_not_overflow() -> None:
    far, near = [Response(-5000.0, 2)], [Response(-1e-12, 1)]
    assert dpo_loss(far, near, [0.0], [0.0], 1.0) == pytest.approx(5000.0)
    assert dpo_loss(near, far, [0.0], [0.0], 1.0) == 0.0
    assert math.isfinite(orpo_loss(far, near, 0.1)) and math.isfinite(simpo_loss(far, near, 10.0, 1.0))
    assert kto_loss(far, [0.0], [True], 0.0, 1.0) == 1.0 and kto_loss(far, [0.0], [False], 0.0, 1.0) == 0.0


def test_the_odds_of_what_is_nearly_certain_keep_their_digits() -> None:
    # A rejected response of probability 1 - 1e-12: its odds are 1e12.
    odds = math.log(math.exp(-1) / (1 - math.exp(-1))) - 12 * math.log(10)
    expected = 1 + 0.5 * math.log1p(math.exp(-odds))
    assert orpo_loss([Response(-1.0, 1)], [Response(-1e-12, 1)], 0.5) == pytest.approx(expected, abs=1e-9)


def test_a_response_without_its_counterpart_is_not_left_out() -> None:
    """Leaving it out would let a trainer choose which rows its loss is compared on."""
    responses, two = [Response(-4.0, 2)], [Response(-9.0, 3), Response(-1.0, 1)]
    for loss in (dpo_loss, ipo_loss):
        with pytest.raises(ValueError, match="longer"):
            loss(responses, two, [0.0], [0.0], 0.1)
    with pytest.raises(ValueError, match="longer"):
        kto_loss(responses, [0.0], [True, False], 0.0, 0.1)
    with pytest.raises(ValueError, match="longer"):
        orpo_loss(responses, two, 0.1)
    with pytest.raises(ValueError, match="longer"):
        simpo_loss(responses, two, 2.0, 0.5)


def test_a_trainer_may_only_round_as_its_numbers_do() -> None:
    # A loss that is wrong by a percent is wrong in 24 bits; in bfloat16 one number in 256 is rounded away.
    assert 0 < most_difference("float32") < 0.001
    assert 2**-8 < most_difference("bfloat16") < 0.05


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_adapters_that_no_one_described_are_on_every_linear_layer(method: str) -> None:
    more = {"device": "cpu", "precision": "bfloat16"} if method == "qlora" else {}
    parameters = SftParameters.model_validate({"method": method, "lora_rank": 4, **more})
    assert (parameters.lora_rank, parameters.lora_alpha, parameters.lora_dropout) == (4, 32, 0.0)
    assert parameters.target_modules and len(parameters.target_modules) == 7
    # They are registered, so a later default changes no session.
    assert SftParameters.model_validate(parameters.model_dump(mode="json")) == parameters
    assert parameters.model_dump(mode="json")["lora_alpha"] == 32
    assert SftParameters().lora_rank is SftParameters().target_modules is None


TWO: dict[str, Any] = {"replicas": 2, "sync_every": 4}
LORA: dict[str, Any] = {"lora_rank": 8, "lora_alpha": 16, "lora_dropout": 0.0, "target_modules": ("q_proj",)}


@pytest.mark.parametrize(
    ("model", "arguments", "what"),
    [
        (SftParameters, {"lora_rank": 8}, "lora_rank given, but method is 'full'"),
        (SftParameters, LORA | {"method": "lora", "target_modules": ()}, "method 'lora' needs target_modules"),
        (SftParameters, LORA | {"method": "lora", "target_modules": ("a", "a")}, "target_modules has a duplicate"),
        (SftParameters, LORA | {"method": "qlora", "precision": "bfloat16"},
         "method 'qlora' needs a device, got 'auto': write cuda, or cpu for a small trial"),
        (SftParameters, LORA | {"method": "qlora", "device": "cuda"}, "computes in bfloat16, precision is 'auto'"),
        (SftParameters,
         LORA | {"method": "qlora", "device": "cpu", "precision": "bfloat16", "optimizer_kind": "paged_adamw_8bit"},
         "optimizer_kind 'paged_adamw_8bit' runs on an NVIDIA GPU only, device is 'cpu'"),
        (SftParameters, {"optimizer_kind": "paged_adamw_8bit", "device": "cpu"}, "runs on an NVIDIA GPU only"),
        (SftParameters, LORA | {"method": "qlora", "device": "cuda", "precision": "bfloat16", "distributed": TWO},
         "distributed needs weights that are not of 4 bits, method is 'qlora': write lora or full"),
        (SftParameters, LORA | {"method": "lora", "distributed": TWO, "checkpoint_steps": 5},
         "checkpoint_steps has no effect with distributed: replicas save after every synchronisation"),
        (SftParameters, LORA | {"method": "lora", "distributed": TWO, "packing": True},
         "packing makes shards of different lengths"),
        (SftParameters, LORA | {"method": "lora", "distributed": TWO | {"replicas": 4, "min_replicas": 2}},
         "min_replicas is 2: of 4 replicas it must be 3 to 4, or two halves could each train their own model"),
        (SftParameters, LORA | {"method": "lora", "distributed": TWO | {"replicas": 1}}, "greater than or equal to 2"),
        (SftParameters, {"warmup_steps": 3, "scheduler": "constant"}, "no effect with scheduler 'constant'"),
        (SftParameters, {"prompt_format": "Instruction:"}, "must hold {prompt} once"),
        (SftParameters, {"response_end": "###"}, "response_end needs prompt_format"),
        (DpoParameters, {"loss": "simpo"}, "simpo_gamma belongs to loss 'simpo' and to no other"),
        (DpoParameters, {"simpo_gamma": 0.5}, "simpo_gamma belongs to loss 'simpo' and to no other, loss is 'dpo'"),
        (DpoParameters, {"loss": "kto", "batch_size": 3}, "batch_size 3 is not even"),
    ],
)  # fmt: skip
def test_parameters_that_cannot_be_meant_are_refused(model: Any, arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError) as refused:
        model(**arguments)
    assert what in str(refused.value)


def test_what_was_added_leaves_the_digests_of_older_parameters() -> None:
    assert SftParameters(seed=11).content_digest() == (
        "sha256:87e2b93a9d8dfe7d72090a2e346c98b8a7f869a35cc3418e55fb5750dc5b6c56"
    )


def pair(group: str, split: Any = None) -> Preference:
    return Preference(prompt="p", chosen="yes", rejected="no!", group=group, source="given", split=split)


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=40), st.floats(0, 0.5), st.integers(0, 99))
def test_no_group_is_on_both_sides(groups: list[str], share: float, seed: int) -> None:
    pairs = [pair(group) for group in groups]
    split = divide(pairs, share, seed)
    assert sorted((*split.train, *split.validation)) == list(range(len(pairs))) and split.train
    assert not {groups[number] for number in split.train} & {groups[number] for number in split.validation}
    assert bool(split.validation) == (share > 0 and len(set(groups)) > 1)
    assert divide(pairs, share, seed) == split


def test_marks_in_the_file_are_kept_and_half_marks_refused() -> None:
    marked = [pair("a", "train"), pair("b", "validation"), pair("a", "train")]
    assert divide(marked, 0.5, 0) == ((0, 2), (1,))
    with pytest.raises(ValueError, match="some pairs are marked"):
        divide([pair("a", "train"), pair("b")], 0.5, 0)
    with pytest.raises(ValueError, match="1 group is on both sides, for example 'a'"):
        divide([pair("a", "train"), pair("a", "validation")], 0.5, 0)
