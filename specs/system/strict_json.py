"""JSON of others, read strictly: each name once, finite numbers, whole characters, bounded depth and length.

``json`` keeps the last of two equal names and reads ``NaN``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, cast

from specs.system.text import plain

MOST_DEPTH = 64
_MOST = 2**53
"""Canonical JSON refuses integers from here on."""


def read_json(data: str | bytes, most_bytes: int | None = None) -> Any:
    """Return the value of JSON in UTF-8; raises ValueError, in one line, if it is malformed or over ``most_bytes``."""
    if most_bytes is not None and len(data) > most_bytes:
        raise ValueError(f"it has more than {most_bytes} bytes")
    try:
        # Bytes would be read as UTF-16 too, where they look like it.
        text = data if isinstance(data, str) else data.decode("utf-8")
        text.encode("utf-8")
        value = _DECODER.decode(text)
    except UnicodeError as error:
        raise ValueError("it is not UTF-8") from error
    except RecursionError as error:
        raise ValueError(f"it is nested more than {MOST_DEPTH} levels deep") from error
    except ValueError as error:
        raise ValueError(plain(str(error), 200)) from error
    _check(value)
    return value


def _check(value: Any) -> None:
    """Refuse what is nested too deeply, and halves of a character pair, without recursion."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        if not level:
            return
        below: list[Any] = []
        for element in level:
            if isinstance(element, str):
                _whole(element)
            elif isinstance(element, dict):
                for name in element:
                    _whole(name)
                below += element.values()
            elif isinstance(element, list):
                below += element
        level = below
    raise ValueError(f"it is nested more than {MOST_DEPTH} levels deep")


def _whole(text: str) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("a text holds half of a character pair") from error


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's members for ``object_pairs_hook``; raises ValueError if a name appears twice."""
    results = dict(pairs)
    if len(results) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key '{plain(twice, 60)}'")
    return results


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _parse_bounded_int(text: str) -> int:
    # Length first: Python refuses to convert numbers of thousands of digits.
    value = int(text) if len(text) <= 40 else _MOST
    if abs(value) >= _MOST:
        raise ValueError(f"{text[:40]} is too large: whole numbers stay below 2**53")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=each_once, parse_constant=_no_constant, parse_float=_finite, parse_int=_parse_bounded_int
)
"""Made once: `json.loads` makes another for each line."""


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string of a JSON value, without the names of members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in cast("Iterable[Any]", value.values() if isinstance(value, dict) else value):
            yield from strings_in(inner)
