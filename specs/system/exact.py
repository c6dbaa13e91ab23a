"""Exact comparison of values made of counts with the decimals of a spec.

``54 / 60 - 36 / 60`` is not 0.3 in floating point, and neither is the float 0.3. So a value made of counts stays a
fraction, a threshold is read as the shortest decimal of its float (the loader refuses more digits than a float keeps),
and only fractions are compared.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction

Number = Fraction | float
"""A value to compare; an integer is one too."""

_SIGNS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def exact(value: Number) -> Fraction:
    """Return a fraction as it is, a float as its shortest decimal (0.3 as 3/10); raises ValueError if not finite."""
    return Fraction(float.__repr__(value)) if isinstance(value, float) else Fraction(value)


def holds(value: Number, sign: str, limit: Number) -> bool:
    """Return whether ``value`` is on that side of ``limit``; raises ValueError if one of them is not finite."""
    return _SIGNS[sign](exact(value), exact(limit))


def decimal_text(value: float) -> str:
    """Return the decimal that a threshold is: all of its digits, without a decimal point where it is whole."""
    return float.__repr__(float(value)).removesuffix(".0")


def format_against_limit(value: float, limit: float) -> str:
    """Return a measured value in six digits, or in as many more as tell it from a limit that it does not equal."""
    digits = 6
    while digits < 17 and value != limit and float(f"{value:.{digits}g}") == limit:
        digits += 1
    return f"{value:.{digits}g}"
