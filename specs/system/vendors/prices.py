"""What asking a model costs, which is known before it is asked. List prices are offline data of ``genai-prices``."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from specs.system.errors import UserError
from specs.system.extras import install_hint
from specs.system.vendors.parties import TokenPrice
from specs.system.yaml.problems import closest

MARGIN_TOKENS = 1_000
"""What an API may add to a request that we do not see: roles, and how it writes schemas and tools."""
WRITTEN, WRITTEN_FOR_AN_HOUR = 1.25, 2.0
"""What writing a token into the prompt cache for five minutes, or an hour, costs next to one of input (Anthropic)."""


class TokenUsage(NamedTuple):
    """Tokens as the API counted them. ``input_tokens`` holds the cached ones too."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0


class ModelPrice(NamedTuple):
    """What the tokens of a model cost: as a spec states it, or else the vendor's list price."""

    vendor: str
    model: str
    stated: TokenPrice | None = None

    def usd(self, usage: TokenUsage, written_tokens: int = 0, hour_tokens: int = 0) -> float:
        """Return what these tokens cost. Those read from the prompt cache or written into it are part of the input.

        Of the written ones ``hour_tokens`` are kept for an hour. A stated price is the same for tokens read from a
        cache.

        Raises:
            LookupError: no price is known of the model.
            ImportError: the price is a listed one, and ``genai-prices`` is not installed.
        """
        if self.stated is not None:
            counted = (
                usage.input_tokens + written_tokens * (WRITTEN - 1) + hour_tokens * (WRITTEN_FOR_AN_HOUR - WRITTEN)
            )
            return (counted * self.stated.input + usage.output_tokens * self.stated.output) / 1e6
        prices: Any = importlib.import_module("genai_prices")
        counted = prices.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cached_tokens or None,
            cache_write_tokens=written_tokens or None,
        )
        total = float(prices.calc_price(counted, self.model, provider_id=self.vendor).total_price)
        if hour_tokens:
            # The list has only the price of five minutes.
            total += self.usd(TokenUsage(hour_tokens, 0)) * (WRITTEN_FOR_AN_HOUR - WRITTEN)
        return total


def price_of(vendor: str, model: str, stated: TokenPrice | None, party: str) -> ModelPrice:
    """Return the price a spec states, or else the listed one; ``party`` asks the model: ``builder`` or ``reviewer``.

    Raises:
        UserError: no price is known of the model, or ``genai-prices`` is not installed.
    """
    try:
        if stated is None and not is_listed(vendor, model):
            message, hint = describe_unlisted_model(vendor, model)
            raise UserError(message, where=f"{party}.model", hint=hint)
    except ImportError as error:
        raise missing_package("genai-prices", party) from error
    return ModelPrice(vendor, model, stated)


def is_free(price: ModelPrice) -> bool:
    """Return whether tokens cost nothing."""
    return price.usd(TokenUsage(1_000_000, 1_000_000)) == 0


def most_tokens(size: int) -> int:
    """Return how many tokens a request of so many bytes can have: no tokenizer makes more tokens than bytes."""
    return size + MARGIN_TOKENS


def longest_answer(price: ModelPrice, input_tokens: int, cap_usd: float, at_most: int, written_tokens: int = 0) -> int:
    """Return how many output tokens the cap pays for, after an input of at most so many tokens."""
    # The list price of a long input can raise that of the output, so both are asked for together.
    value = price.usd(TokenUsage(input_tokens, 0), written_tokens)
    usd_per_token = (price.usd(TokenUsage(input_tokens, 1000), written_tokens) - value) / 1000
    if value > cap_usd:
        return 0
    return at_most if usd_per_token <= 0 else min(at_most, int((cap_usd - value) / usd_per_token))


def is_count(usage: TokenUsage | None) -> bool:
    """Return whether a usage can be priced: an endpoint may write anything there."""
    return usage is not None and all(type(count) is int and 0 <= count < 2**40 for count in usage)


def missing_package(name: str, party: str = "reviewer") -> UserError:
    """Return the error for a package that only a builder or reviewer with a model needs."""
    return UserError(f"package '{name}' is not installed", hint=install_hint(f"{party}s"))


def is_listed(vendor: str, model: str) -> bool:
    """Return whether a price above 0 is known of a model; raises ImportError without ``genai-prices``."""
    try:
        return ModelPrice(vendor, model).usd(TokenUsage(1000, 1000)) > 0
    except LookupError:
        return False


def describe_unlisted_model(vendor: str, model: str) -> tuple[str, str]:
    """Return message and hint about an unlisted model; raises ImportError without ``genai-prices``."""
    snapshot: Any = importlib.import_module("genai_prices.data_snapshot").get_snapshot()
    names = [str(model.id) for provider in snapshot.providers if provider.id == vendor for model in provider.models]
    match = closest(model, names, 0.8)
    state = "state usd_per_million_tokens: {input: ..., output: ...}"
    hint = f"did you mean '{match}'? otherwise {state}" if match else f"check the name, or {state}"
    return f"no price is known for model '{model}' of {vendor}", hint
