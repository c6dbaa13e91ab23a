"""What a referee is likely to object, and the checks that answer it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reviews.history.attempt import Attempt
from sessions.exports.paper.claims import CitedSession
from sessions.exports.paper.document import Code, Line, Part, Table
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import DecisionEntry
from specs.trail.verdict import CheckResult

_WORST_FIRST = ("ERROR", "BLOCKED", "FAIL", "WARN", "PASS")


class Objection(NamedTuple):
    """An objection, the checks that answer it, and the plots that show it."""

    text: str
    checks: tuple[str, ...]
    plots: tuple[str, ...] = ()


OBJECTIONS = (
    Objection(
        "Held-out items, or texts near to them, were trained on.",
        ("design.overlap", "design.groups", "leakage.overlap", "leakage.groups", "text.overlap", "dpo.overlap"),
    ),
    Objection("The held-out items were picked.", ("design.drawn",)),
    Objection(
        "The difference is chance, or there are too few items.", ("design.power", "power.n", "power.test"), ("effect",)
    ),
    Objection(
        "The scorer rewards something else than right answers.",
        ("design.scorer", "scorer.admitted", "scorer.repeats", "scorer.length", "parity.truncation"),
    ),
    Objection(
        "The arms were not evaluated alike.", ("parity.items", "parity.settings", "parity.prompts", "parity.models")
    ),
    Objection(
        "The baseline is weak, or the task was solved before.",
        ("design.baseline", "power.headroom", "gap.before_training"),
    ),
    Objection("The answers are not those of the named weights.", ("witness.answers", "registration.model")),
    Objection(
        "The training differs from its description.",
        ("jobs.granted", "jobs.effective", "witness.training", "training.moved"),
        ("loss",),
    ),
    Objection(
        "One kind of item carries the result.",
        ("strata.sensitivity", "strata.kinds", "strata.groups"),
        ("accuracy", "pairs"),
    ),
    Objection("Another treatment does as well.", ("arms.alike", "arms.compared"), ("arms",)),
    Objection("Other abilities were lost.", ("drift.kept",)),
    Objection(
        "It was tried until it worked.",
        ("registration.evaluations", "registration.workspace", "registration.attempts"),
    ),
    Objection(
        "The analysis was chosen after the data.",
        ("registration.unchanged", "registration.code", "registration.split"),
    ),
    Objection("The preferences teach length or copy their prompts.", ("pairs.length", "pairs.copies", "pairs.answers")),
)
SEEDS = "Another seed gives another result."


_OVER_SEEDS = {None: "no further seed is part of this paper", True: "it holds over seeds", False: "it does not hold"}


def objection_table(session: CitedSession, drawn: Sequence[str], holds_over_seeds: bool | None) -> Table:
    """Return the objections, each answered by its checks, or open: none of them ran, or one of them did not pass."""
    results = _results(session)
    rows: list[Sequence[Line]] = []
    for objection in OBJECTIONS:
        named = [results[check] for check in objection.checks if check in results]
        if not named and objection.checks[0] == "pairs.length":
            continue  # Of sessions without preferences.
        is_answered = bool(named) and all(result.status == "PASS" for _, _, result in named)
        line: list[Part] = []
        for attempt, index, result in named:
            line += ["; " if line else "", Code(result.id), " at ", Code(attempt.name), f" {result.status}"]
            if attempt.checks is not None:
                line += [": ", session.from_check(attempt.checks, index, "detail")]
        figures = [name for name in objection.plots if f"{name}.svg" in drawn]
        line += [f"; figure {name}" for name in figures]
        rows.append(((objection.text,), ("answered" if is_answered else "open",), line or ("no check of it ran",)))
    rows.append(((SEEDS,), ("answered" if holds_over_seeds else "open",), (_OVER_SEEDS[holds_over_seeds],)))
    not_judged = [session.from_report("not_judged", index) for index in range(len(session.report["not_judged"]))]
    rows += [((claim,), ("open",), ("judged by no gate",)) for claim in not_judged]
    return Table(
        f"objections-{session.name}",
        "Objections, with the checks that answer them",
        ("objection", "state", "what answers it"),
        rows,
    )


def _results(session: CitedSession) -> dict[str, tuple[Attempt, int, CheckResult]]:
    """Return the worst result of each check at the gates that stand: the design's, and each stage's last attempt."""
    history = session.history
    designs = sum(entry.body.stage is None for entry in history.of(DecisionEntry))
    gates = [history.attempt(DESIGN, designs)]
    gates += [attempts[-1] for stage in history.resolved.spec.stages if (attempts := history.attempts(stage.name))]
    results: dict[str, tuple[Attempt, int, CheckResult]] = {}
    for attempt in gates:
        for index, result in enumerate(attempt.check_results):
            if result.status not in _WORST_FIRST:
                continue
            before = results.get(result.id)
            if before is None or _WORST_FIRST.index(result.status) < _WORST_FIRST.index(before[2].status):
                results[result.id] = attempt, index, result
    return results
