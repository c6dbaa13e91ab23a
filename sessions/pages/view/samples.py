"""Selections of the held-out items of a session and their answers, in the form of the page's JSON."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from sessions.pages.report.samples.judged_samples import JudgedSample, Samples, samples_of
from sessions.pages.view.places import Read
from sessions.run.terminal import masked_line
from specs.system.errors import UserError
from specs.system.masking import current
from specs.system.text import plain
from specs.trail.gate_bodies import AmendmentEntry, MetricsEntry
from training.rules.tasks.conversation import user_turns_of

MOST_AT_ONCE = 200
"""Rows in one answer."""
GLIMPSE = 400
"""Characters of a text in the list."""
WHOLE = 200_000
"""Characters of a text that is opened."""
CACHED_SELECTIONS = 32
"""Selections that are remembered, for all sessions together."""


class _CachedSamples(NamedTuple):
    """Samples as they were judged, by what they were judged from, with the last selections."""

    stamp: tuple[str, ...]
    samples: Samples
    selected: OrderedDict[tuple[str, str, str], tuple[int, ...]]


class SampleReader:
    """Keeps the samples of one session and the last selections: judging a hundred thousand rows takes a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._judged: _CachedSamples | None = None

    def of(self, read: Read) -> Samples:
        """Return the samples of a session; errors as :func:`samples_of`."""
        return self._of(read).samples

    def _of(self, read: Read) -> _CachedSamples:
        measured = (entry.digest for entry in read.history.of(MetricsEntry, AmendmentEntry))
        stamp = (str(read.place.folder), *measured)
        with self._lock:
            if self._judged is None or self._judged.stamp != stamp:
                self._judged = _CachedSamples(stamp, samples_of(read.place.folder, read.history), OrderedDict())
            return self._judged

    def page(self, read: Read, requests: tuple[str, str, str], start: int, count: int) -> dict[str, Any]:
        """Return some of the rows that are asked for by name, kind and text, in the form of the page's JSON."""
        judged = self._of(read)
        places = judged.selected.get(requests)
        if places is None:
            places = judged.samples.select(*requests)
            with self._lock:
                judged.selected[requests] = places
                while len(judged.selected) > CACHED_SELECTIONS:
                    judged.selected.popitem(last=False)
        start = min(max(start, 0), len(places))
        chosen = places[start : start + min(max(count, 0), MOST_AT_ONCE)]
        rows = [_in_list(judged.samples.rows[place]) for place in chosen]
        return {"total": len(places), "from": start, "rows": rows}


def _in_list(sample: JudgedSample) -> dict[str, Any]:
    texts = {"prompt": sample.prompt, "before": sample.before.text, "after": sample.after.text if sample.after else ""}
    return {
        "number": sample.number,
        "item": masked_line(sample.newest.item.id, 200),
        "kind": masked_line(sample.newest.item.kind, 100),
        "change": sample.change,
        "before_right": sample.before.passed,
        "after_right": sample.after.passed if sample.after else None,
        "truncated": sample.newest.truncated,
        # What is beyond ten times of it is looked at only where it is opened.
        **{name: masked_line(text[: GLIMPSE * 10], GLIMPSE) for name, text in texts.items()},
    }


def in_full(samples: Samples, number: int) -> dict[str, Any]:
    """Return an item with everything on it, by its number; raises UserError without such an item."""
    if not 1 <= number <= len(samples.rows):
        raise UserError(f"no item {number}", hint=f"items are 1 to {len(samples.rows)}")
    sample = samples.rows[number - 1]
    texts = {"prompt": "\n".join(user_turns_of(sample.newest.item)), "before": sample.before.text}
    texts |= {"after": sample.after.text} if sample.after else {}
    facts = {"before_reason": sample.before.reason, "after_reason": sample.after.reason if sample.after else ""}
    return _in_list(sample) | {
        "group": masked_line(sample.newest.item.group, 200),
        **{name: plain(current().text(text), WHOLE) for name, text in texts.items()},
        **{name: masked_line(text, 2000) for name, text in facts.items()},
        "constraint": {
            masked_line(name, 100): masked_line(value, 2000) for name, value in sample.newest.item.constraint.items()
        },
    }
