"""The held-out items of a session with the answers of both arms, as the report judges them, for filters and search."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from reviews.evidence.gather import gather, registered_spec
from reviews.stages.evaluation.judged_answers import Answered, answered
from sessions.report.report import arms_of
from sessions.terminal import masked_line
from sessions.view.places import Read
from specs.errors import EvidenceMissing, UserError
from specs.masking import current
from specs.text import plain
from training.rules.tasks.conversation import said_in

MOST_AT_ONCE = 200
"""Rows in one answer."""
GLIMPSE = 400
"""Characters of a text in the list."""
WHOLE = 200_000
"""Characters of a text that is opened."""
KEPT = 32
"""Selections that are remembered, for all sessions together."""


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


def samples_of(read: Read) -> Samples:
    """Return the judged items of a session: of both arms, or of the baseline alone before the treatment has answered.

    Raises:
        EvidenceMissing: no arm has answered, or its rows cannot be read.
    """
    resolved, _ = registered_spec(read.entries, read.store)
    analysis = resolved.spec.analysis
    both = arms_of(read.place.folder, read.entries, read.store, resolved)
    if both is not None:
        pairs = zip(*both, strict=True)
        rows = tuple(Sample(number, then, now) for number, (then, now) in enumerate(pairs, 1))
        return Samples(rows, (analysis.baseline, analysis.treatment))
    measured = [one for one in read.entries if one.entry.kind == "metrics" and one.body["stage"] == analysis.baseline]
    if not measured:
        raise EvidenceMissing(f"'{analysis.baseline}' has not answered the held-out items yet")
    found = gather(read.place.folder, read.entries, read.store, analysis.baseline, measured[-1].body["attempt"])
    alone = answered(found, found.outputs.get("rows"))
    return Samples(tuple(Sample(number, one, None) for number, one in enumerate(alone, 1)), (analysis.baseline,))


class _Judged(NamedTuple):
    """Samples as they were judged, by what they were judged from, with the last selections."""

    stamp: tuple[str, ...]
    samples: Samples
    selected: OrderedDict[tuple[str, str, str], tuple[int, ...]]


class SampleReader:
    """Keeps the samples of one session and the last selections: judging a hundred thousand rows takes a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._judged: _Judged | None = None

    def of(self, read: Read) -> Samples:
        """Return the samples of a session; errors as :func:`samples_of`."""
        return self._of(read).samples

    def _of(self, read: Read) -> _Judged:
        measured = (one.digest for one in read.entries if one.entry.kind in ("metrics", "amendment"))
        stamp = (str(read.place.folder), *measured)
        with self._lock:
            if self._judged is None or self._judged.stamp != stamp:
                self._judged = _Judged(stamp, samples_of(read), OrderedDict())
            return self._judged

    def page(self, read: Read, asked: tuple[str, str, str], start: int, count: int) -> dict[str, Any]:
        """Return some of the rows that are asked for by name, kind and text, in the form of the page's JSON."""
        judged = self._of(read)
        places = judged.selected.get(asked)
        if places is None:
            places = judged.samples.select(*asked)
            with self._lock:
                judged.selected[asked] = places
                while len(judged.selected) > KEPT:
                    judged.selected.popitem(last=False)
        start = min(max(start, 0), len(places))
        chosen = places[start : start + min(max(count, 0), MOST_AT_ONCE)]
        rows = [_in_list(judged.samples.rows[place]) for place in chosen]
        return {"total": len(places), "from": start, "rows": rows}


def _in_list(one: Sample) -> dict[str, Any]:
    texts = {"prompt": one.prompt, "before": one.before.text, "after": one.after.text if one.after else ""}
    return {
        "number": one.number,
        "item": masked_line(one.newest.item.id, 200),
        "kind": masked_line(one.newest.item.kind, 100),
        "change": one.change,
        "before_right": one.before.passed,
        "after_right": one.after.passed if one.after else None,
        "truncated": one.newest.truncated,
        # What is beyond ten times of it is looked at only where it is opened.
        **{name: masked_line(text[: GLIMPSE * 10], GLIMPSE) for name, text in texts.items()},
    }


def in_full(samples: Samples, number: int) -> dict[str, Any]:
    """Return an item with everything on it, by its number; raises UserError without such an item."""
    if not 1 <= number <= len(samples.rows):
        raise UserError(f"there is no item {number}", hint=f"items are 1 to {len(samples.rows)}")
    one = samples.rows[number - 1]
    texts = {"prompt": "\n".join(said_in(one.newest.item)), "before": one.before.text}
    texts |= {"after": one.after.text} if one.after else {}
    told = {"before_reason": one.before.reason, "after_reason": one.after.reason if one.after else ""}
    return _in_list(one) | {
        "group": masked_line(one.newest.item.group, 200),
        **{name: plain(current().text(text), WHOLE) for name, text in texts.items()},
        **{name: masked_line(text, 2000) for name, text in told.items()},
        "constraint": {
            masked_line(name, 100): masked_line(value, 2000) for name, value in one.newest.item.constraint.items()
        },
    }
