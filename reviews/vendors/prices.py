"""What a review costs: known before it is asked for, or it is not asked for."""

from __future__ import annotations

from typing import Protocol

from reviews.vendors.wire import Usage
from specs.errors import UserError
from specs.price_list import is_listed, list_price_usd, unlisted
from specs.session import TokenPrice


class Price(Protocol):
    """Turns tokens into USD."""

    def usd(self, usage: Usage) -> float:
        """Return what these tokens cost."""
        ...


class StatedPrice:
    """The price a spec states. Cached tokens cost as much as all others."""

    def __init__(self, price: TokenPrice) -> None:
        self.price = price

    def usd(self, usage: Usage) -> float:
        """Return what these tokens cost."""
        return (usage.input_tokens * self.price.input + usage.output_tokens * self.price.output) / 1e6


class ListedPrice:
    """The vendor's list price."""

    def __init__(self, vendor: str, model: str) -> None:
        """Look the model up.

        Raises:
            UserError: no price is known of it, or ``genai-prices`` is not installed.
        """
        try:
            if not is_listed(vendor, model):
                message, hint = unlisted(vendor, model)
                raise UserError(message, where="reviewer.model", hint=hint)
        except ImportError as error:
            raise missing_package("genai-prices") from error
        self.vendor = vendor
        self.model = model

    def usd(self, usage: Usage) -> float:
        """Return what these tokens cost."""
        return list_price_usd(self.vendor, self.model, *usage)


def longest_answer(price: Price, input_tokens: int, cap_usd: float, at_most: int) -> int:
    """Return how many output tokens the cap pays for, after an input of at most so many tokens."""
    # The list price of a long input can raise that of the output, so both are asked for together.
    asked = price.usd(Usage(input_tokens, 0))
    each = (price.usd(Usage(input_tokens, 1000)) - asked) / 1000
    if asked > cap_usd:
        return 0
    return at_most if each <= 0 else min(at_most, int((cap_usd - asked) / each))


def missing_package(name: str) -> UserError:
    """Return the error for a package that only model-backed reviewers need."""
    return UserError(f"package '{name}' is not installed", hint="pip install 'peergate[reviewers]'")
