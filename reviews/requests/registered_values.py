"""Looks up what a question names in a registered spec: values with their places, and the ranges around them.

A name has to appear as in the spec (``_``, a space or a hyphen between its words). A name that is also an everyday word
counts only with its key before it (``analysis.n``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from specs.session.session_spec import SessionSpec
from specs.stages.base.stage import ParameterRange
from specs.trail.requested_review import SpecValue

MAX_MATCHES = 12
MAX_FACTS = 24
MAX_VALUE_CHARACTERS = 200
_EVERYDAY = re.compile(
    "accepted|api|baseline|builder|constitution|data|design|digest|effort|evaluation|examples|gained|gate|heldout|high|"
    "inputs|items|kind|lost|low|max|medium|metric|min|model|n|name|path|power|probes|prompts|review|reviewer|samples|"
    "source|stages|stakes|steps|task|test|treatment|vendor"
)
"""Keys that are also everyday words."""
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"


_ABOUT: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"seeds?|repetitions?|replicat\w*", ("/analysis/seeds",)),
    (
        r"power\w*|sample\s+size|how\s+many\s+items|enough|effect\s+size|minimum\s+effect|smaller\s+effect",
        ("/analysis/n", "/analysis/power", "/analysis/minimum_effect", "/analysis/expected_lost"),
    ),
    (
        r"significan\w*|p[\s-]?values?|alpha|tests?|mcnemar|hypothes[ie]s|comparison",
        ("/analysis/alpha", "/analysis/minimum_effect", "/analysis/n", "/analysis/primary_metric"),
    ),
    (
        r"arms?|baselines?|treatments?|controls?",
        ("/analysis/baseline", "/analysis/treatment", "/analysis/arms", "/control"),
    ),
    (r"held-?\s?out|test\s+set|split|evaluat\w*|overlap\w*|leak\w*", ("/heldout", "/analysis/n", "/evaluation")),
    (r"metrics?|accuracy|outcome|score", ("/analysis/primary_metric",)),
    (r"money|cost\w*|budget|usd|dollars?|gpus?|hours?|price|rent\w*|spend\w*", ("/budget",)),
    (r"thresholds?|limits?|truncat\w*|cut\s+off", ("/thresholds",)),
    (r"models?|weights|checkpoints?", ("/model",)),
    (r"builder|who\s+builds", ("/builder",)),
    (r"reviewers?|judges?|panel", ("/reviewer",)),
    (r"data|prompts|items|examples", ("/data", "/heldout")),
)
"""What a question is about, by its words, and where a spec registers it."""


class NamedSpecValues(NamedTuple):
    """A name of the spec, and every value it has there."""

    name: str
    values: tuple[SpecValue, ...]


class ProposedValue(NamedTuple):
    """A value that a question proposes for a parameter, and the registered limits of that parameter."""

    name: str
    value: float
    inside: bool
    limits: tuple[SpecValue, ...]


class SpecValueIndex:
    """The names and values of a registered spec."""

    def __init__(self, spec: SessionSpec) -> None:
        self._stages = [stage.name for stage in spec.stages]
        self._values: dict[str, list[SpecValue]] = {}
        self._ranges: dict[str, list[SpecValue]] = {}
        self._parameters: set[str] = set()
        self._every: list[SpecValue] = []
        for path, value in _leaves(spec.model_dump(mode="json"), ()):
            self._add(path, value)
        for index, stage in enumerate(spec.stages):
            self._parameters.update(type(stage.parameters).model_fields)
            for number, criterion in enumerate(stage.gate.criteria):
                pointer = f"/stages/{index}/gate/criteria/{number}"
                self._name(criterion.metric, SpecValue(pointer=pointer, value=str(criterion)))
            for name, limits in stage.ranges.items():
                spec_value = SpecValue(
                    pointer=f"/stages/{index}/ranges/{name}", value=f"{limits.min!r} to {limits.max!r}"
                )
                self._ranges.setdefault(name, []).append(spec_value)

    def named_in(self, text: str) -> list[NamedSpecValues]:
        """Return the names of the spec that a text holds, in the order of the spec.

        If the text also names a stage, only that stage's values count, if it has any.
        """
        return [
            NamedSpecValues(name, self._of_stages(values, text)[:MAX_MATCHES])
            for name, values in self._values.items()
            if _stands_in(name, text)
        ]

    def bearing_on(self, text: str) -> tuple[SpecValue, ...]:
        """Return what the spec registers of the things that a question is about: names it holds, topics, its stages."""
        spec_values = [value for named in self.named_in(text) for value in named.values]
        for words, places in _ABOUT:
            if re.search(rf"\b(?:{words})\b", text, re.IGNORECASE):
                spec_values += [
                    spec_value
                    for spec_value in self._every
                    if spec_value.pointer.startswith(tuple(f"{place}/" for place in places))
                    or spec_value.pointer in places
                ]
        for index, name in enumerate(self._stages):
            if _stands_in(name, text):
                places = (f"/stages/{index}/kind", f"/stages/{index}/parameters/", f"/stages/{index}/gate/criteria/")
                criteria = [value for values in self._values.values() for value in values]
                spec_values += [
                    spec_value for spec_value in (*self._every, *criteria) if spec_value.pointer.startswith(places)
                ]
        return tuple(dict.fromkeys(spec_values))[:MAX_FACTS]

    def proposed_in(self, text: str) -> list[ProposedValue]:
        """Return the values that a text proposes for parameters, and whether every registered limit holds them.

        A parameter without a range must not be moved, so only its registered values are inside.
        """
        results: list[ProposedValue] = []
        for name in sorted(self._parameters):
            proposal = rf"{_pattern(name)}\W{{0,3}}(?:\b(?:of|to|at|is|be)\b\s*)?({_NUMBER})"
            for value in map(float, re.findall(proposal, text, re.I)):
                limits = self._of_stages(self._ranges.get(name, []), text)
                registered = self._of_stages(self._values.get(name, []), text)
                same = bool(registered) and all(_is_number(spec_value.value, value) for spec_value in registered)
                inside = all(_holds(spec_value.value, value) for spec_value in limits) if limits else same
                results.append(ProposedValue(name, value, inside, (limits or registered)[:MAX_MATCHES]))
        return results

    def _of_stages(self, values: list[SpecValue], text: str) -> tuple[SpecValue, ...]:
        """Return the values of the stages that a text names; all of them when it names none that has one."""
        named = [f"/stages/{index}/" for index, name in enumerate(self._stages) if _stands_in(name, text)]
        return tuple(value for value in values if value.pointer.startswith(tuple(named))) or tuple(values)

    def _add(self, path: tuple[str, ...], value: Any) -> None:
        key = path[-1]
        if "ranges" in path or "criteria" in path:  # They have forms of their own.
            return
        text = value if isinstance(value, str) else json.dumps(value)
        here = SpecValue(pointer="/" + "/".join(path), value=text[:MAX_VALUE_CHARACTERS])
        self._every.append(here)
        dotted = ".".join(part for part in path[-2:] if not part.isdigit())
        for name in dict.fromkeys((key, dotted)):
            self._name(name, here)

    def _name(self, name: str, value: SpecValue) -> None:
        if not _EVERYDAY.fullmatch(name):
            self._values.setdefault(name, []).append(value)


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every scalar and every list of scalars of a JSON value with the way to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(element, dict | list) for element in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, str(index)))
    elif value is not None and path:
        yield path, value


def _stands_in(name: str, text: str) -> bool:
    return re.search(_pattern(name), text, re.IGNORECASE) is not None


def _pattern(name: str) -> str:
    # A dotted name keeps its dot; within a key the words may be separated otherwise.
    parts = (r"[_\s-]?".join(map(re.escape, part.split("_"))) for part in name.split("."))
    return rf"(?<![\w.]){r'[.]'.join(parts)}(?![\w])"


def _holds(limits: str, value: float) -> bool:
    low, high = limits.split(" to ")
    return ParameterRange(min=float(low), max=float(high)).holds(value)


def _is_number(text: str, value: float) -> bool:
    try:
        return float(text) == value
    except ValueError:
        return False
