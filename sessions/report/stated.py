"""Every measured number a report states, and where: in ``report.json`` by JSON pointer, in ``report.md`` by line.

Reports are read as a stranger's text: a number is what stands there, and what it should be is looked up elsewhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from specs.stages.metric import Metric

Part = Literal["value", "low", "high", "n"]
"""The value of a metric, the ends of its interval, or the size of its population."""


ACCURACY = "accuracy"
"""What arms were compared by in reports that do not say it."""


class Stated(NamedTuple):
    """One number as it stands in a report."""

    where: str
    """File and JSON pointer, or file and line."""
    metric: str
    metric_set: str | None
    """The digest of the metric set the report says it is from; in ``report.md`` None, and ``stage`` says it."""
    stage: str | None
    attempt: int | None
    value: Any
    """What ``report.json`` holds, or the text in ``report.md``."""
    form: str = ""
    """How ``report.md`` writes such a number; empty for exact ones."""
    part: Part = "value"

    def measured(self, metric: Metric) -> float | None:
        """Return the number this should be; None when the metric has none."""
        low, high = metric.interval or (None, None)
        return {"value": metric.value, "low": low, "high": high, "n": metric.n}[self.part]

    def agrees(self, metric: Metric) -> bool:
        """Say whether this is how a measured number is stated."""
        measured = self.measured(metric)
        if measured is None:
            return False
        if self.form:
            return self.value == format(measured, self.form)
        # Canonical JSON writes the shortest text of a float, so nothing is lost on the way.
        return isinstance(self.value, int | float) and math.isclose(self.value, measured, rel_tol=1e-15, abs_tol=0)


def stated_in_json(report: Any) -> Iterator[Stated]:
    """Yield the numbers of ``report.json``; what does not have its form states nothing."""
    comparison = _object(report, "comparison")
    primary = str(comparison.get("primary_metric", ACCURACY))
    for arm in ("baseline", "treatment"):
        if f"{arm}_accuracy" in comparison:
            digest, value = comparison.get(f"{arm}_metrics"), comparison[f"{arm}_accuracy"]
            yield Stated(f"report.json /comparison/{arm}_accuracy", primary, str(digest), None, None, value)
    yield from _metrics("/comparison/metrics", comparison, comparison.get("treatment_metrics"))
    for number, stage in enumerate(_list(report, "stages")):
        for place, attempt in enumerate(_list(stage, "attempts")):
            pointer = f"/stages/{number}/attempts/{place}/metrics"
            yield from _metrics(pointer, attempt, _object_value(attempt, "metrics_digest"))


def _metrics(pointer: str, holder: Any, digest: Any) -> Iterator[Stated]:
    for name, metric in _object(holder, "metrics").items():
        where = f"report.json {pointer}/{name}"
        value = Stated(f"{where}/value", str(name), str(digest), None, None, _object_value(metric, "value"))
        yield value
        yield value._replace(where=f"{where}/n", value=_object_value(metric, "n"), part="n")
        for part, end in zip(_ENDS, _list(metric, "interval"), strict=False):
            yield value._replace(where=f"{where}/interval", value=end, part=part)


def _object_value(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else None


def _object(holder: Any, name: str) -> dict[str, Any]:
    found = _object_value(holder, name)
    return found if isinstance(found, dict) else {}


def _list(holder: Any, name: str) -> list[Any]:
    found = _object_value(holder, name)
    return found if isinstance(found, list) else []


_ENDS: tuple[Part, Part] = ("low", "high")
_SENTENCE = re.compile(
    r"held-out [a-z ]+ (?P<baseline>\S+) -> (?P<treatment>\S+) on (?P<n>\S+) items, gain (?P<accuracy_gain>\S+) "
    r"\[(?P<low>\S+), (?P<high>\S+)\], (?P<gained>\S+) gained, (?P<lost>\S+) lost, "
    r"exact McNemar p = (?P<mcnemar_p>\S+)"
)
_SENTENCE_FORMS = {"accuracy_gain": "+.3f", "gained": ".0f", "lost": ".0f", "mcnemar_p": ".2g"}
_STAGE = re.compile(r"### (\S+) \(\w+\)")
_ATTEMPT = re.compile(r"Attempt (\d+):")
_ROW = re.compile(
    r"\| ((?:baseline|treatment) [a-z ]+|\w+) \| ([-+.\w]+) \|(?: ([-+.\w]+) to ([-+.\w]+))? *\| (\d+) \|"
)
_CRITERION = re.compile(r"- (?:met|not met): (\w+) .*measured ([-+.\w]+)")


def stated_in_markdown(
    report: str, baseline: str, treatment: str, metrics: frozenset[str], primary: str = ACCURACY
) -> Iterator[Stated]:
    """Yield the numbers of ``report.md``: those of the headline, of tables, and beside criteria.

    Args:
        report: the text.
        baseline: the stage of the registered comparison's baseline.
        treatment: the stage of its treatment.
        metrics: the names of metrics there are.
        primary: the metric that both arms are compared by.
    """
    stage, attempt = treatment, None
    for number, line in enumerate(report.split("\n"), 1):
        where = f"report.md line {number}"
        here = Stated(where, "", None, stage, attempt, None, ".4g")
        if found := _SENTENCE.search(line) if line.startswith("# ") else None:
            yield from _headline(found, here._replace(stage=treatment), baseline, primary)
        elif found := _STAGE.match(line):
            stage, attempt = found[1], None
        elif found := _ATTEMPT.match(line):
            attempt = int(found[1])
        elif found := _ROW.match(line):
            word = primary.replace("_", " ")
            arm = {f"baseline {word}": baseline, f"treatment {word}": treatment}.get(found[1])
            if arm is not None:
                yield here._replace(metric=primary, stage=arm, value=found[2], form=".4f")
            elif found[1] in metrics:
                yield here._replace(metric=found[1], value=found[2])
                yield here._replace(metric=found[1], value=found[5], part="n", form="d")
                for part, end in zip(_ENDS, found.group(3, 4), strict=True):
                    if end is not None:
                        yield here._replace(metric=found[1], value=end, part=part, form=".4f")
        elif (found := _CRITERION.match(line)) and found[1] in metrics:
            yield here._replace(metric=found[1], value=found[2])


def _headline(found: re.Match[str], here: Stated, baseline: str, primary: str) -> Iterator[Stated]:
    yield here._replace(metric=primary, stage=baseline, value=found["baseline"], form=".3f")
    yield here._replace(metric=primary, value=found["treatment"], form=".3f")
    for name, form in _SENTENCE_FORMS.items():
        yield here._replace(metric=name, value=found[name], form=form)
    gain = here._replace(metric="accuracy_gain", form="+.3f")
    yield gain._replace(value=found["n"], part="n", form="d")
    for part in _ENDS:
        yield gain._replace(value=found[part], part=part)
