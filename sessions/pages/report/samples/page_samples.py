"""The samples on the page of an export: some of each group, chosen by no one, and how many are left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reviews.history.history import History
from sessions.pages.report.samples.judged_samples import JudgedSample, samples_of
from specs.system.errors import EvidenceMissing
from training.rules.tasks.conversation import user_turns_of

MOST_OF_A_GROUP = 50
"""The first ones in the registered order."""

_GROUPS: tuple[tuple[str, Callable[[JudgedSample], bool]], ...] = (
    ("lost: right before, wrong after", lambda sample: sample.change == "lost"),
    ("gained: wrong before, right after", lambda sample: sample.change == "gained"),
    ("wrong before and after", lambda sample: sample.change == "same" and not sample.newest.passed),
    ("right before and after", lambda sample: sample.change == "same" and sample.newest.passed),
    ("wrong", lambda sample: sample.change == "only" and not sample.newest.passed),
    ("right", lambda sample: sample.change == "only" and sample.newest.passed),
)


def page_samples(history: History) -> dict[str, Any] | None:
    """Return the samples in groups, as texts that are not cleaned; None where no item has been answered or judged.

    Items are judged by the task's verifier, which is not installed everywhere.
    """
    try:
        samples = samples_of(history.store.root.parent, history)
    except EvidenceMissing:
        return None
    groups: list[dict[str, Any]] = []
    for title, fits in _GROUPS:
        matching_samples = [sample for sample in samples.rows if fits(sample)]
        if matching_samples:
            rows = [_row(sample) for sample in matching_samples[:MOST_OF_A_GROUP]]
            groups.append(
                {
                    "title": title,
                    "count": len(matching_samples),
                    "rows": rows,
                    "left_out": len(matching_samples) - len(rows),
                }
            )
    return {"arms": samples.arms, "count": len(samples.rows), "groups": groups}


def _row(value: JudgedSample) -> dict[str, Any]:
    answers = [("before", value.before), ("after", value.after)] if value.after else [("answer", value.before)]
    return {
        "number": value.number,
        "item": value.newest.item.id,
        "kind": value.newest.item.kind,
        "prompt": "\n".join(user_turns_of(value.newest.item)),
        "constraint": value.newest.item.constraint,
        "answers": [
            {
                "name": name,
                "text": answer.text,
                "right": answer.passed,
                "reason": answer.reason,
                "truncated": answer.truncated,
            }
            for name, answer in answers
        ],
    }
