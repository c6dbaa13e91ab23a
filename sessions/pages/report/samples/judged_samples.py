"""The held-out items of a session with the answers of both arms, as the report judges them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reviews.evidence.gather import gather
from reviews.history.history import History
from reviews.stages.evaluation.judged_answers import Answered, read_judged_items
from sessions.pages.report.samples.compared_arms import arms_of
from sessions.run.terminal import masked_line
from specs.system.errors import EvidenceMissing, UserError
from specs.trail.gate_bodies import MetricsEntry
from training.rules.tasks.conversation import user_turns_of


class JudgedSample(NamedTuple):
    """One item: the prompt, and the answer of each arm that has one."""

    number: int
    """Its place in the registered order, from 1."""
    before: Answered
    after: Answered | None

    @property
    def change(self) -> str:
        """What the treatment changed: ``gained``, ``lost`` or ``same``; ``only`` where one arm alone answered."""
        if self.after is None:
            return "only"
        if self.before.passed == self.after.passed:
            return "same"
        return "gained" if self.after.passed else "lost"

    @property
    def newest(self) -> Answered:
        """The answer of the treatment, or of the baseline before the treatment has one."""
        return self.after or self.before

    @property
    def prompt(self) -> str:
        """What the user said."""
        return " / ".join(user_turns_of(self.newest.item))


SELECTIONS: dict[str, Callable[[JudgedSample], bool]] = {
    "all": lambda _: True,
    "right": lambda sample: sample.newest.passed,
    "wrong": lambda sample: not sample.newest.passed,
    "gained": lambda sample: sample.change == "gained",
    "lost": lambda sample: sample.change == "lost",
    "truncated": lambda sample: sample.newest.truncated,
}
"""What can be asked for, by name. Right, wrong and truncated are of the treatment where it has answered."""


class Samples(NamedTuple):
    """All items of a session, in the registered order."""

    rows: tuple[JudgedSample, ...]
    arms: tuple[str, ...]
    """The stages that have answered: baseline, and treatment."""

    def counts(self) -> dict[str, int]:
        """Return how many items each name of :data:`SELECTIONS` selects."""
        return {name: sum(map(fits, self.rows)) for name, fits in SELECTIONS.items()}

    def kinds(self) -> dict[str, int]:
        """Return how many items are of each kind, by name."""
        return dict(sorted(Counter(sample.newest.item.kind for sample in self.rows).items()))

    def select(self, displayed_text: str, kind: str, text: str) -> tuple[int, ...]:
        """Return the places of the rows that fit; letter case does not matter. Raises UserError for another name."""
        if displayed_text not in SELECTIONS:
            raise UserError(
                f"'{masked_line(displayed_text, 40)}' does not select samples", hint=f"one of: {', '.join(SELECTIONS)}"
            )
        fits, wanted = SELECTIONS[displayed_text], text.casefold()
        return tuple(
            place
            for place, sample in enumerate(self.rows)
            if fits(sample) and (not kind or sample.newest.item.kind == kind) and (not wanted or _holds(sample, wanted))
        )


def _holds(sample: JudgedSample, text: str) -> bool:
    texts = (sample.newest.item.id, sample.prompt, sample.before.text, sample.after.text if sample.after else "")
    return any(text in sample_text.casefold() for sample_text in texts)


def samples_of(folder: Path, history: History) -> Samples:
    """Return the judged items of a session: of both arms, or of the baseline alone before the treatment has answered.

    Raises:
        EvidenceMissing: no arm has answered, or its rows cannot be read.
    """
    analysis = history.resolved.spec.analysis
    both = arms_of(folder, history)
    if both is not None:
        pairs = zip(*both, strict=True)
        rows = tuple(JudgedSample(number, then, now) for number, (then, now) in enumerate(pairs, 1))
        return Samples(rows, (analysis.baseline, analysis.treatment))
    attempts = [entry.body.attempt for entry in history.of(MetricsEntry) if entry.body.stage == analysis.baseline]
    if not attempts:
        raise EvidenceMissing(f"'{analysis.baseline}' has not answered the held-out items yet")
    evidence = gather(folder, history, analysis.baseline, attempts[-1])
    alone = read_judged_items(evidence, evidence.outputs.get("rows"))
    return Samples(
        tuple(JudgedSample(number, value, None) for number, value in enumerate(alone, 1)), (analysis.baseline,)
    )
