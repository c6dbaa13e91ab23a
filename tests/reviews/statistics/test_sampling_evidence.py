"""Likelihood ratios of drawn answers: their mean is 1 for honest draws, and each alternative shows in its own."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from reviews.statistics.sampling_evidence import average_ratios, evidence
from specs.stages.base.witness import FALSE_ALARM, TILTS, WitnessRow

END = 0
AFTER: dict[tuple[int, ...], tuple[float, ...]] = {(): (0.1, 0.6, 0.3), (1,): (0.5, 0.3, 0.2), (2,): (0.2, 0.1, 0.7)}
"""By what an answer holds: how probable its end and two words are. Two words are the limit."""


def answers(records: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield every answer with its probability."""
    for id, own in enumerate(AFTER[records]):
        grown = (*records, id)
        if id == END or len(grown) == 2:
            yield grown, own
        else:
            yield from ((answer, own * chance) for answer, chance in answers(grown))


def row(number: int, ids: tuple[int, ...], copies: tuple[int, int] | None = None) -> WitnessRow:
    """Return how a witness reads an answer; ``copies``: that many of so many others are the same."""
    tokens: list[dict[str, Any]] = []
    for place, id in enumerate(ids):
        chances = AFTER[ids[:place]]
        own = chances[id]
        tilted = [math.log(sum(chance**tilt for chance in chances)) for tilt in TILTS]
        tokens.append({"before": sum(chance for chance in chances if chance > own), "own": own, "tilted": tilted})
    arguments = {"row": number, "tokens": len(ids), "text": True, "ending": True, "gap": None, "drawn": tokens}
    counted = {"same": copies[0], "of": copies[1]} if copies else None
    return WitnessRow.model_validate(arguments | {"copies": counted})


def drawn_together(groups: tuple[tuple[int, ...], ...]) -> list[WitnessRow]:
    """Return answers to one prompt, each compared with those before it."""
    return [
        row(place, group, (groups[:place].count(group), place) if place else None) for place, group in enumerate(groups)
    ]


def test_the_mean_of_every_likelihood_ratio_of_honest_draws_is_one() -> None:
    """Exactly, over all that three samples of a prompt can be: a false alarm at 1 / a has at most probability a."""
    every = dict(answers())
    assert math.fsum(every.values()) == pytest.approx(1)
    means: dict[str, float] = dict.fromkeys((*evidence([row(0, (0,))]), "joined"), 0.0)
    for groups in product(every, repeat=3):
        results = evidence(drawn_together(groups))
        for name, value in (results | {"joined": average_ratios(results)}).items():
            means[name] += math.prod(every[group] for group in groups) * math.exp(value)
    assert means == pytest.approx(dict.fromkeys(means, 1.0), abs=1e-9)


@pytest.mark.parametrize("what", ["colder draws", "hotter draws", "greedy answers", "copies of each other"])
def test_each_way_to_make_samples_otherwise_shows_in_its_own_ratio(what: str) -> None:
    results = evidence(made(what, random.Random(2), 150))
    assert max(results, key=lambda name: results[name]) == what
    assert average_ratios(results) > -math.log(FALSE_ALARM)


def made(what: str, generator: random.Random, prompts: int) -> list[WitnessRow]:
    """Return two samples to each prompt, made in one of these ways, or drawn as granted."""
    every = list(answers())
    tilt = {"colder draws": 2.0, "hotter draws": 0.4}.get(what, 1.0)
    chances = [chance**tilt for _, chance in every]
    rows: list[WitnessRow] = []
    for number in range(prompts):
        first, second = (choice for choice, _ in generator.choices(every, chances, k=2))
        if what == "greedy answers" and number % 3:
            first = second = (1, 0)
        if what == "copies of each other":
            second = first
        rows += [row(2 * number, first), row(2 * number + 1, second, (int(first == second), 1))]
    return rows


def test_rows_without_drawn_tokens_say_nothing() -> None:
    assert set(evidence([]).values()) == {0.0}
    empty = row(0, (0,)).model_copy(update={"drawn": ()})
    assert set(evidence([empty]).values()) == {0.0}


def test_a_row_that_is_due_to_repeat_another_one_says_nothing_more() -> None:
    once = drawn_together(((1, 0), (2, 2)))
    repeated = row(2, (2, 2), (1, 2)).model_copy(update={"again": True})
    assert evidence([*once, repeated]) == evidence(once)


@pytest.mark.slow
def test_honest_draws_raise_no_more_alarms_than_are_allowed() -> None:
    """At 1 / a with a = 1 in 20, so that 2,000 stages show it; the bound is of every sample size."""
    generator = random.Random(7)
    for prompts in (5, 40):
        results = [average_ratios(evidence(made("honest", generator, prompts))) for _ in range(1000)]
        assert sum(number >= math.log(20) for number in results) <= 50
