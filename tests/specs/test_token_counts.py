"""Who is asked how many tokens a request has, and who is not."""

from __future__ import annotations

from typing import Any

import pytest

from specs.system.vendors.http_exchange import ADDRESSES, Api
from specs.system.vendors.token_counts import counted_tokens


class Asked(Exception):
    """The vendor would be asked."""


def asking(self: Api, *_: Any) -> Any:
    raise Asked(self.vendor)


@pytest.mark.parametrize(
    ("address", "request_of", "asks"),
    [
        (ADDRESSES["openai"], {"model": "m", "input": []}, True),
        (ADDRESSES["openai"], {"model": "m", "messages": []}, False),
        ("http://127.0.0.1:1/v1", {"model": "m", "input": []}, False),
    ],
    ids=["its own", "of another API", "elsewhere"],
)
def test_only_the_vendor_counts_and_only_a_whole_request(
    address: str, request_of: dict[str, Any], asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "client", asking)
    api: Any = Api("openai", "m", address, "k", None, ())  # pyright: ignore[reportArgumentType]
    if asks:
        with pytest.raises(Asked):
            counted_tokens(api, request_of)
    else:
        assert counted_tokens(api, request_of) is None
