"""The held-out items of a session with the answers of both arms, as the report judges them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from reviews.evidence.gather import gather, registered_spec
from reviews.stages.evaluation.judged_answers import Answered, answered
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from sessions.report.samples.compared_arms import arms_of
from sessions.terminal import masked_line
from specs.errors import EvidenceMissing, UserError
from training.rules.tasks.conversation import said_in


class Sample(NamedTuple):
    """One item: what was asked, and what each arm that has answered said."""

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
        """The answer of the treatment, or of the baseline as long as there is no other."""
        return self.after or self.before

    @property
    def prompt(self) -> str:
        """What the user said."""
        return " / ".join(said_in(self.newest.item))


SHOWN: dict[str, Callable[[Sample], bool]] = {
    "all": lambda _: True,
    "right": lambda one: one.newest.passed,
    "wrong": lambda one: not one.newest.passed,
    "gained": lambda one: one.change == "gained",
    "lost": lambda one: one.change == "lost",
    "truncated": lambda one: one.newest.truncated,
}
"""What can be asked for, by name. Right, wrong and truncated are of the treatment where it has answered."""


class Samples(NamedTuple):
    """All items of a session, in the registered order."""

    rows: tuple[Sample, ...]
    arms: tuple[str, ...]
    """The stages that have answered: baseline, and treatment."""

    def counts(self) -> dict[str, int]:
        """Return how many items each name of :data:`SHOWN` selects."""
        return {name: sum(map(fits, self.rows)) for name, fits in SHOWN.items()}

    def kinds(self) -> dict[str, int]:
        """Return how many items are of each kind, by name."""
        return dict(sorted(Counter(one.newest.item.kind for one in self.rows).items()))

    def select(self, shown: str, kind: str, text: str) -> tuple[int, ...]:
        """Return the places of the rows that fit; letter case does not matter. Raises UserError for another name."""
        if shown not in SHOWN:
            raise UserError(f"'{masked_line(shown, 40)}' selects no samples", hint=f"one of: {', '.join(SHOWN)}")
        fits, wanted = SHOWN[shown], text.casefold()
        return tuple(
            place
            for place, one in enumerate(self.rows)
            if fits(one) and (not kind or one.newest.item.kind == kind) and (not wanted or _holds(one, wanted))
        )


def _holds(one: Sample, text: str) -> bool:
    texts = (one.newest.item.id, one.prompt, one.before.text, one.after.text if one.after else "")
    return any(text in each.casefold() for each in texts)


def samples_of(folder: Path, entries: Sequence[Recorded], store: Store) -> Samples:
    """Return the judged items of a session: of both arms, or of the baseline alone before the treatment has answered.

    Raises:
        EvidenceMissing: no arm has answered, or its rows cannot be read.
    """
    resolved, _ = registered_spec(entries, store)
    analysis = resolved.spec.analysis
    both = arms_of(folder, entries, store, resolved)
    if both is not None:
        pairs = zip(*both, strict=True)
        rows = tuple(Sample(number, then, now) for number, (then, now) in enumerate(pairs, 1))
        return Samples(rows, (analysis.baseline, analysis.treatment))
    measured = [one for one in entries if one.entry.kind == "metrics" and one.body["stage"] == analysis.baseline]
    if not measured:
        raise EvidenceMissing(f"'{analysis.baseline}' has not answered the held-out items yet")
    found = gather(folder, entries, store, analysis.baseline, measured[-1].body["attempt"])
    alone = answered(found, found.outputs.get("rows"))
    return Samples(tuple(Sample(number, one, None) for number, one in enumerate(alone, 1)), (analysis.baseline,))
