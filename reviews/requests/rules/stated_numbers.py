"""Finds numbers that a text states for a metric, and numbers that JSON evidence holds for it.

A number counts for a metric only if it follows the metric's name with nothing but marks and small words between
("accuracy: 0.53", "gain of +0.48", "| accuracy | 0.53 |"), or comes right before "gained" or "lost". Another number in
the same sentence may be about something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from reviews.requests.rules.rule_findings import place
from specs.stages.metric_catalog import METRICS
from specs.trail.requested_review import Citation, ReadFile

Sign = Literal["=", "<", "<=", ">", ">="]

MAX_SAME_NAME = 40
"""A name with more values than this in one file is a column of rows, not a result."""
_ALIASES = {
    "accuracy_gain": ("gain in accuracy", "accuracy improvement", "gain"),
    "mcnemar_p": ("mcnemar's p", "p-value", "p value", "p"),
    "sign_flip_p": ("sign-flip p",),
    "cohens_h": ("cohen's h",),
}
_NEED_A_SIGN = ("p",)
_EVERYDAY = ("items", "samples", "steps", "lost", "gained", "accepted", "probes")
"""Metrics that are everyday words: they count in the cells of a table only."""
_DIGITS = (
    r"[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?<=\d)"
    r"(?:[eE][-+\u2212]?\d+|\s?[\u00d7x]\s?10\^?\{?[-\u2212]?\d+\}?)?"
)
_AFTER = r"(?![\w.]*\w)(?P<unit{0}>\s?%|\s?percent\b|\s?(?:percentage )?points?\b|\s?pp\b)?"
_SIGN = r"(?P<sign>>=|<=|\u2265|\u2264|>|<|=|\u2248|~)?"
_BETWEEN = (
    r"(?:[\s|:*`_(]|\b(?:is|was|of|at|by|reached|equals|to|rose|fell|from|improved|increased|dropped|about|around|"
    r"roughly|only|a|an)\b){0,8}"
)
_SIGNS: dict[str, Sign] = {">": ">", "<": "<", ">=": ">=", "<=": "<=", "\u2265": ">=", "\u2264": "<="}
_IN_JSON = re.compile(
    r'"(?P<name>[A-Za-z_][\w .-]{0,63})"\s*:\s*(?:\{\s*"value"\s*:\s*)?'
    r"(?P<value>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?=\s*[,}\]\s]|$)"
)
_OPENS = re.compile(r'"(?P<name>[A-Za-z_][\w .-]{0,63})"\s*:\s*\{')
_NO_NAMES = ("n", "value", "schema_version", "attempt", "seq", "bytes", "line")


class StatedNumber(NamedTuple):
    """A number that a text states."""

    name: str
    sign: Sign
    value: float
    tolerance: float
    """Half a unit of the last digit: what rounding may have taken."""
    text: str
    line: int
    place: Citation


class EvidenceNumber(NamedTuple):
    """A number that evidence holds."""

    name: str
    value: float
    place: Citation


def stated_in(file: ReadFile, names: Iterable[str]) -> Iterator[StatedNumber]:
    """Yield the numbers a text states for some names, in order."""
    pattern = _pattern_of(names)
    for number, line in enumerate(file.lines, 1):
        for match in pattern.finditer(line):
            yield from _read_stated_numbers(match, file, number)


def held_in(file: ReadFile) -> Iterator[EvidenceNumber]:
    """Yield the numbers a JSON text holds, by their keys; ``{"x": {"value": 1}}`` holds 1 for x."""
    results: dict[str, list[EvidenceNumber]] = {}
    around = ""
    for number, line in enumerate(file.lines, 1):
        for match in _IN_JSON.finditer(line):
            name = match["name"]
            name = around if name == "value" and around else name
            if name not in _NO_NAMES:
                results.setdefault(name, []).append(EvidenceNumber(name, float(match["value"]), place(file, number)))
        opened = [match["name"] for match in _OPENS.finditer(line)]
        around = opened[-1] if opened else around
    for values in results.values():
        if len(values) <= MAX_SAME_NAME:
            yield from values


def _read_stated_numbers(match: re.Match[str], file: ReadFile, line: int) -> Iterator[StatedNumber]:
    if match["counted"]:
        yield StatedNumber(
            match["what"].lower(), "=", float(match["counted"]), 0.0, match[0].strip(), line, place(file, line)
        )
        return
    text = " ".join(re.split(r"[\s_-]+", match["name"].lower()))
    name = _MEANT.get(text) or text.replace(" ", "_")
    sign = match["sign"] or ""
    if text in _NEED_A_SIGN and not sign:
        return
    if name in _EVERYDAY and not re.search(r"\|\s*$", match.string[: match.start("first")]):
        return
    for group, unit in (("first", "unit1"), ("second", "unit2")):
        if match[group]:
            # "from 5 to 53 %" gives the unit once.
            value, tolerance = _number(match[group], match[unit] or match["unit2"] or "")
            yield StatedNumber(name, _SIGNS.get(sign, "="), value, tolerance, match[0].strip(), line, place(file, line))


def _pattern_of(names: Iterable[str]) -> re.Pattern[str]:
    every = set(METRICS) | set(names) | {alias for aliases in _ALIASES.values() for alias in aliases}
    texts = sorted(every, key=lambda text: (-len(text), text))
    alternatives = "|".join(r"[\s_-]".join(map(re.escape, re.split(r"[\s_-]+", text))) for text in texts)
    first = _AFTER.format(1)
    second = rf"(?:\s*(?:->|\u2192|to)\s*(?P<second>{_DIGITS}){_AFTER.format(2)})?"
    interval = r"(?!\s*%?\s*(?:confidence|CI\b|interval))"
    return re.compile(
        rf"(?<![\w.'-])(?P<name>{alternatives})(?![\w'-]){_BETWEEN}{_SIGN}[\s|*`(]*(?P<first>{_DIGITS}){interval}{first}"
        rf"{second}|(?<![\w.])(?P<counted>\d+) (?P<what>gained|lost)\b",
        re.IGNORECASE,
    )


def _number(text: str, unit: str) -> tuple[float, float]:
    """Return a stated number and half a unit of its last digit."""
    plain = text.replace("\u2212", "-").replace(",", "")
    plain = re.sub(r"\s?[\u00d7x]\s?10\^?\{?(-?\d+)\}?", r"e\1", plain)
    mantissa, _, exponent = plain.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    scale = 0.01 if unit.strip() else 1.0
    tolerance = 0.5 * 10.0 ** (int(exponent or 0) - decimals) * scale
    small = decimals == 0 and not exponent and not unit.strip() and abs(float(plain)) < 10
    # "24 tokens" may mean 23.8; an accuracy of 1 does not mean 0.53.
    return float(plain) * scale, 0.0 if small else tolerance * (1 + 1e-9)


_MEANT = {" ".join(re.split(r"[\s_-]+", alias)): name for name, aliases in _ALIASES.items() for alias in aliases}
