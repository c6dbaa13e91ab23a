"""The value of a cell, whichever format it was read from: the same rows give the same values in JSON, CSV and Parquet.

Missing values (null, NaN) are left out, 12.0 is 12, dates are ISO 8601 text, and bytes are UTF-8 text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
_DECIMAL = re.compile(r"-?(0|[1-9]\d{0,14})\.(0|\d*[1-9])")
"""A number as pandas writes it in a column with a missing value; 1.10 does not match, as it may be a version."""


class CellFault(Exception):
    """A value that is not text and no number; the message says what it is, ``hint`` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def cell_value(value: Any) -> Any:
    """Return the value of a cell in plain JSON types; None where it is missing.

    Raises:
        CellFault: half of a surrogate pair, bytes that are not text, or a number that is not finite.
    """
    match value:
        case None | bool() | int():
            return value
        case str():
            if _SURROGATE.search(value):
                message = "holds a lone surrogate, half of a character that was cut in two (an emoji?)"
                raise CellFault(message, "write the whole character, or remove the rest of it")
            return value
        case float() | Decimal():
            return _number(value)
        case bytes():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError as error:
                raise CellFault("holds bytes that are not UTF-8 text", "write it as text") from error
        case date() | time():
            return value.isoformat()
        case dict():
            return {str(name): cell_value(inner) for name, inner in value.items()}
        case list() | tuple():
            return [cell_value(inner) for inner in value]
        case _:
            return str(value)


def _number(value: float | Decimal) -> int | float | None:
    if value.is_nan() if isinstance(value, Decimal) else math.isnan(value):
        return None
    if not math.isfinite(value):
        raise CellFault(f"the number {value} is not finite", "remove the row, or write a number")
    return int(value) if value == int(value) else float(value)


def decimal_columns(rows: Sequence[dict[str, str]]) -> set[str]:
    """Return the columns of a CSV whose cells are all decimal numbers: 12.0 there is what JSON and Parquet call 12."""
    columns = {name for row in rows for name in row}
    return {name for name in columns if all(_DECIMAL.fullmatch(row[name]) for row in rows if name in row)}
