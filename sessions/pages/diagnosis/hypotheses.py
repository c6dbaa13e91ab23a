"""What a further attempt shows of a cause: an explanation that one changed parameter puts to the test.

An attempt that differs from its predecessor in one granted value tests whether that value explains what bound there. It
is supported where the same detector is silent now, and refuted where it fires again. Several changes test nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from sessions.pages.diagnosis.attempts import TrainingAttempt
from sessions.pages.diagnosis.causes import binding, has_fired
from specs.trail.verdict import CheckResult

Conclusion = Literal["supported", "refuted", "not shown"]


class Hypothesis(NamedTuple):
    """An explanation, the test of it, both results, and what follows."""

    check: str
    """The detector that bound in the attempt before."""
    parameter: str
    """What was changed; several, with commas, show nothing."""
    description: str
    before: str
    after: str
    conclusion: Conclusion
    why: str
    cites: tuple[str, ...]


def hypotheses_of(attempts: Sequence[TrainingAttempt]) -> Iterator[Hypothesis]:
    """Yield what each attempt of a stage shows about its predecessor; attempts without judged checks show nothing."""
    judged = [attempt for attempt in attempts if attempt.checks]
    for before, after in zip(judged, judged[1:], strict=False):
        first = binding(before.checks)
        changed = [
            name
            for name in sorted(before.granted_parameters.keys() | after.granted_parameters.keys())
            if before.granted_parameters.get(name) != after.granted_parameters.get(name)
        ]
        if first is not None and changed:
            yield _make_hypothesis(first, before, after, changed)


def _make_hypothesis(
    first: CheckResult, before: TrainingAttempt, after: TrainingAttempt, changed: list[str]
) -> Hypothesis:
    now = next((check for check in after.checks if check.id == first.id), None)
    conclusion, why = _conclude(first.id, now, changed)
    return Hypothesis(
        check=first.id,
        parameter=", ".join(changed),
        description=f"{first.id} fires because of {' and '.join(_change(name, before, after) for name in changed)}",
        before=_result(first, before),
        after=_result(now, after),
        conclusion=conclusion,
        why=why,
        cites=tuple(f"checks/{attempt.stage}.{attempt.attempt}" for attempt in (before, after)),
    )


def _conclude(check: str, now: CheckResult | None, changed: list[str]) -> tuple[Conclusion, str]:
    if now is None or now.status in ("BLOCKED", "ERROR", "NOT_APPLICABLE"):
        return "not shown", f"{check} has no result there"
    if len(changed) > 1:
        return "not shown", f"{len(changed)} values changed at once"
    if has_fired(now):
        return "refuted", f"{check} fires with the other value too"
    return "supported", f"{check} passes with nothing else changed"


def _change(name: str, before: TrainingAttempt, after: TrainingAttempt) -> str:
    return f"{name} {_value(before.granted_parameters, name)} (then {_value(after.granted_parameters, name)})"


def _value(arguments: dict[str, Any], name: str) -> str:
    return f"{arguments[name]}" if arguments.get(name) is not None else "not set"


def _result(check_result: CheckResult | None, attempt: TrainingAttempt) -> str:
    """Return status, figure and last loss, as far as they were measured."""
    figure = "" if check_result is None or check_result.figure is None else f", figure {check_result.figure:.4g}"
    last = next((metric for name, metric in attempt.metrics.items() if name.endswith("last_loss")), None)
    loss = "" if last is None else f", last loss {last:.4g}"
    return f"{check_result.status if check_result else 'no result'}{figure}{loss}"
