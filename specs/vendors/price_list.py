"""What vendors charge by their price lists: the offline data of ``genai-prices``, imported when it is first needed."""

from __future__ import annotations

import importlib
from typing import Any

from specs.session.problems import closest


def list_price_usd(
    vendor: str, model: str, input_tokens: int, output_tokens: int, cached_tokens: int = 0, *, written_tokens: int = 0
) -> float:
    """Return what these tokens cost at a vendor's list price.

    Those read from the prompt cache and those written into it are part of the input.

    Raises:
        LookupError: no price is known of the model.
        ImportError: ``genai-prices`` is not installed.
    """
    prices: Any = importlib.import_module("genai_prices")
    counted = prices.Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cached_tokens or None,
        cache_write_tokens=written_tokens or None,
    )
    return float(prices.calc_price(counted, model, provider_id=vendor).total_price)


def is_listed(vendor: str, model: str) -> bool:
    """Say whether a price is known of a model; one of nothing counts as none.

    Raises:
        ImportError: ``genai-prices`` is not installed.
    """
    try:
        return list_price_usd(vendor, model, 1000, 1000) > 0
    except LookupError:
        return False


def unlisted(vendor: str, model: str) -> tuple[str, str]:
    """Return message and hint about a model that is not listed.

    Raises:
        ImportError: ``genai-prices`` is not installed.
    """
    snapshot: Any = importlib.import_module("genai_prices.data_snapshot").get_snapshot()
    names = [str(one.id) for provider in snapshot.providers if provider.id == vendor for one in provider.models]
    match = closest(model, names, 0.8)
    state = "state usd_per_million_tokens: {input: ..., output: ...}"
    hint = f"did you mean '{match}'? otherwise {state}" if match else f"check the name, or {state}"
    return f"no price is known of model '{model}' of {vendor}", hint
