"""What a turn costs: cached and written tokens at their price, and a bound that no split of the input goes beyond."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.system.errors import UserError
from specs.system.vendors.parties import TokenPrice
from specs.system.vendors.prices import ModelPrice, TokenUsage, is_free, price_of


def stated(input: float, output: float) -> ModelPrice:
    return price_of("openai", "nobody-knows-it", TokenPrice(input=input, output=output), "builder")


LISTED = [
    ("anthropic", "claude-opus-5"),
    ("anthropic", "claude-haiku-4-5"),
    ("openai", "gpt-5-mini"),
    ("openai", "gpt-5.6"),
]
STATED = stated(3, 15)


def listed(party: tuple[str, str]) -> ModelPrice:
    return price_of(*party, None, "builder")


def test_tokens_read_from_the_cache_and_written_into_it_have_prices_of_their_own() -> None:
    price = listed(("anthropic", "claude-opus-5"))
    plain, output = price.usd(TokenUsage(10_000, 0)), price.usd(TokenUsage(0, 10_000))
    assert price.usd(TokenUsage(10_000, 0, 10_000)) == pytest.approx(0.1 * plain)
    assert price.usd(TokenUsage(10_000, 0), written_tokens=10_000) == pytest.approx(1.25 * plain)
    mixed = price.usd(TokenUsage(10_000, 100, 4_000), written_tokens=5_000)
    assert mixed == pytest.approx((0.1 * 0.4 + 1.25 * 0.5 + 0.1) * plain + output / 100)
    assert STATED.usd(TokenUsage(1000, 0, 900), written_tokens=100) == pytest.approx(1025 * 3 / 1e6)


@given(
    tokens=st.integers(1, 400_000),
    output=st.integers(0, 8000),
    parts=st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
    party=st.sampled_from([*LISTED, None]),
)
def test_no_turn_costs_more_than_its_bound(
    tokens: int, output: int, parts: tuple[float, float, float], party: tuple[str, str] | None
) -> None:
    price = STATED if party is None else listed(party)
    bound = price.usd(TokenUsage(tokens, 8000), written_tokens=tokens)
    used = int(tokens * parts[0])
    read = int(used * parts[1])
    written = int((used - read) * parts[2])
    assert price.usd(TokenUsage(used, output, read), written_tokens=written) <= bound + 1e-9


def test_who_has_no_price_is_reported_whose_it_is() -> None:
    with pytest.raises(UserError) as raised:
        price_of("openai", "nobody-knows-it", None, "builder")
    assert raised.value.where == "builder.model"


def test_free_is_what_costs_nothing_either_way() -> None:
    assert is_free(stated(0, 0))
    assert not is_free(stated(0, 1)) and not is_free(STATED)
