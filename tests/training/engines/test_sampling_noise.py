"""The noise of draws against an independent SplitMix64, and what it draws against the softmax it stands for."""

from __future__ import annotations

import math
from typing import Any

import pytest

from training.engines.sampling_noise import MOST_NOISE, draw, noise, noise_keys, stream_of, streams_of, within_nucleus

_WORD = 2**64 - 1


def splitmix(state: int) -> int:
    """Return SplitMix64's output for a state that has been stepped, as published: unsigned, by Python's integers."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _WORD
    return state ^ (state >> 31)


def expected_noise(stream: int, place: int, token: int) -> float:
    step = 0x9E3779B97F4A7C15
    key = splitmix((stream + (place + 1) * step) & _WORD)
    high = splitmix((key + (token + 1) * step) & _WORD) >> 32
    return -math.log(-math.log((high + 0.5) / 2**32))


def test_the_generator_is_splitmix64() -> None:
    """The first outputs for the seed 1234567, as of the reference implementation (Vigna, 2015)."""
    step = 0x9E3779B97F4A7C15
    outputs = [splitmix((1234567 + count * step) & _WORD) for count in (1, 2, 3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("stream", [0, 1, -1, 2**63 - 1, -(2**63), stream_of(3, "generate", "i1", 0)])
def test_noise_is_that_of_an_independent_implementation(stream: int) -> None:
    import torch

    places, tokens = torch.tensor([0, 1, 7, 4000]), torch.tensor([0, 5, 49_151, 250_000])
    keys = noise_keys(torch.full_like(places, stream), places)
    expected = [
        expected_noise(stream, place, token) for place, token in zip(places.tolist(), tokens.tolist(), strict=True)
    ]
    assert noise(keys, tokens).tolist() == pytest.approx(expected, abs=1e-12)


def test_streams_differ_by_seed_part_answer_and_sample() -> None:
    streams = [stream_of(seed, part, item, n) for seed in (1, 2) for part in "ab" for item in "xy" for n in (0, 1)]
    assert len(set(streams)) == 16
    assert streams_of(1, "a", ["x", "y"], 2) == [streams[:2], streams[2:4]]
    assert all(-(2**63) <= stream < 2**63 for stream in streams)


def keys_of(draws: int, seed: int = 3) -> Any:
    import torch

    streams = torch.tensor([stream_of(seed, "drawn", n) for n in range(draws)])
    return noise_keys(streams, torch.zeros_like(streams))


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.5, 1.0), (1.0, 0.8)])
def test_tokens_are_drawn_as_often_as_the_softmax_says(temperature: float, top_p: float) -> None:
    import torch
    from scipy.stats import chisquare

    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0, -20.0])
    draws = 20_000
    allowed = within_nucleus(logits.expand(draws, -1), temperature, top_p)
    tokens, _ = draw(allowed, temperature, keys_of(draws))
    expected = torch.softmax(allowed[0].double() / temperature, -1)
    counts = torch.bincount(tokens, minlength=7)
    frequent = expected * draws >= 5
    assert not counts[expected == 0].any() and counts[~frequent].sum() <= 10
    assert (
        chisquare(counts[frequent], expected[frequent] / expected[frequent].sum() * counts[frequent].sum()).pvalue
        > 1e-4
    )
    # A control: the test sees draws at another temperature.
    other = torch.softmax(allowed[0].double() / (temperature * 1.1), -1)
    assert chisquare(counts[frequent], other[frequent] / other[frequent].sum() * counts[frequent].sum()).pvalue < 1e-4


def test_what_is_left_out_of_a_draw_could_not_have_won() -> None:
    import torch

    keys, size = keys_of(64), 3000
    every_noise = noise(keys[:, None].expand(-1, size), torch.arange(size).expand(64, -1))
    for spread, temperature in ((6.0, 0.8), (0.5, 1.0), (0.0, 2.0), (6.0, 5.0)):
        logits = torch.randn(64, size, generator=torch.Generator().manual_seed(3)) * spread
        logits[:, ::7] = -torch.inf
        tokens, values = draw(logits, temperature, keys)
        every = logits.double() + temperature * every_noise
        assert tokens.tolist() == every.argmax(-1).tolist()
        assert values.tolist() == pytest.approx(every.amax(-1).tolist())
    assert float(every_noise.max()) < MOST_NOISE
    assert -math.log(-math.log(1 - 2**-33)) < MOST_NOISE


def test_the_nucleus_is_the_fewest_tokens_that_reach_the_share() -> None:
    import torch

    logits = torch.tensor([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]).log()
    assert (within_nucleus(logits, 1.0, 0.75) > -torch.inf).tolist() == [[False, True, True], [True, False, True]]
    assert (within_nucleus(logits, 1.0, 1e-9) > -torch.inf).sum(-1).tolist() == [1, 1]
    wide = torch.randn(2, 5000, generator=torch.Generator().manual_seed(3)) * 1e-3
    inside = within_nucleus(wide, 1.0, 0.5) > -torch.inf
    assert inside.sum(-1).tolist() == pytest.approx([2500, 2500], abs=10), "more tokens than are ranked at first"
