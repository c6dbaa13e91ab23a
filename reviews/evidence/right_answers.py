"""What right answers look like: shares of equal, short and repeated ones, from the registered items and verifier alone.

A limit on equal, short or similar answers means nothing for a task whose right answers are labels. So each such limit
is relative to these shares, which are known at the design gate, before anything is spent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import items_of, task_of
from reviews.evidence.row_reader import once
from specs.session.design import Design
from specs.stages.base.artifacts import Item
from specs.stages.base.stage import TASKS
from specs.stages.registry import kind_of
from specs.system.exact import exact, holds
from training.rules.disguise import count_words
from training.rules.similarity import words_of
from training.rules.tasks import CONVERSATION, judge_answers
from training.rules.tasks.choices import choices_of
from training.rules.tasks.exact_answer import compared_forms, named_answers
from training.rules.tasks.verifier_cases import cases_of

LABEL_WORDS = 2
"""An answer of no more words may be a label: "B", "Option B"."""
_LABELS = 16
"""Different texts that are tried as right answers: the most frequent ones."""
_TRIED_ITEMS = 200
"""Items on which a verifier of the user's own is asked about them."""


class RightAnswers(NamedTuple):
    """Shares of the items, over those whose right answers are known; all 0 where none is."""

    items: int = 0
    common: Fraction = Fraction(0)
    """Items for which the most frequent right answer is right."""
    short: Fraction = Fraction(0)
    """Items with a right answer of one or two words."""
    repeated: Fraction = Fraction(0)
    """Items whose right answer is that of an earlier one."""

    def limit_of_equal(self, threshold: float) -> Fraction:
        """Return the largest healthy share of equal answers."""
        return relative_limit(threshold, self.common)


def relative_limit(threshold: float, share: Fraction) -> Fraction:
    """Return a limit that leaves as much room above the share of right answers as the threshold leaves above none.

    Never below the threshold, and never more than halfway from the share to all answers: one answer to everything
    always exceeds it.
    """
    return max(exact(threshold), min(share + exact(threshold), (1 + share) / 2)) if share else exact(threshold)


def right_answers(spec: Design, task: str, items: Sequence[Item]) -> RightAnswers:
    """Return what right answers to items of a task look like.

    A verifier of the user's own is asked whether the labels of the items and its known right answers are right for
    them. A text that it accepts for more items than ``thresholds.common_answer`` says nothing about labels: such a
    verifier looks at form, or is too kind. What the answers of a conversation must hold counts as its right answer.

    Raises:
        PluginFault: a verifier of the user's own breaks.
    """
    if task == CONVERSATION:
        return _shares([_requirements(item) for item in items], spec)
    if task in TASKS and task != "exact_answer":
        return RightAnswers()
    if task == "exact_answer":
        return _shares([compared_forms(item) for item in items], spec)
    return _shares(_accepted_labels(task, items[:_TRIED_ITEMS]), spec)


def right_targets(spec: Design, items: Sequence[Item]) -> RightAnswers:
    """Return what right answers to the items of a benchmark look like: their targets, as letters where they choose."""
    return _shares([{text.strip().casefold(): text for text in targets_of(item)} for item in items], spec)


def right_answers_of(evidence: Evidence) -> RightAnswers:
    """Return what right answers to the items of an evaluation look like; errors as the functions above."""
    spec, items = evidence.resolved.spec, items_of(evidence)
    if kind_of(evidence.stage).environment:
        return right_targets(spec, items)
    return once(right_answers, evidence, lambda: right_answers(spec, task_of(evidence), items))


def targets_of(item: Item) -> list[str]:
    """Return what an item's answers may be as targets: its named answers, or the letter and text of its choice."""
    try:
        choices, answer = choices_of(item), int(item.constraint["answer"])
    except (ValueError, KeyError):
        return named_answers(item)
    return [chr(ord("A") + answer - 1), choices[answer - 1]] if 1 <= answer <= len(choices) else []


def _requirements(item: Item) -> dict[str, str]:
    """Return the words that a conversation's answers must hold, as one text; nothing where it requires none."""
    text = "\n".join(str(value) for key, value in sorted(item.constraint.items()) if key.startswith("require_"))
    return {text.casefold(): text} if text else {}


def _shares(answers: Sequence[dict[str, str]], spec: Design) -> RightAnswers:
    """Return the shares of items by their right answers, each in the form in which it is compared, with its text."""
    if not any(answers):
        return RightAnswers()
    total = len(answers)
    counts = Counter(form for forms in answers for form in forms)
    common = Fraction(max(counts.values()), total)
    short = sum(any(count_words(words_of(text)) <= LABEL_WORDS for text in forms.values()) for forms in answers)
    seen_texts: set[str] = set()
    repeated = 0
    for forms in answers:
        repeated += not seen_texts.isdisjoint(forms)
        seen_texts |= forms.keys()
    if not holds(common, "<=", spec.thresholds.common_answer):
        return RightAnswers(total, Fraction(0), Fraction(short, total))
    return RightAnswers(total, common, Fraction(short, total), Fraction(repeated, total))


def _accepted_labels(task: str, items: Sequence[Item]) -> list[dict[str, str]]:
    """Return which of the labels of the items, and of the verifier's known right answers, it accepts for each item."""
    values = Counter(str(value).strip() for item in items for value in item.constraint.values())
    labels = [label for label, count in values.most_common(_LABELS) if count > 1 and label]
    try:
        known = Counter(case.output.strip() for case in cases_of(task) if case.good)
    except KeyError:
        known = Counter[str]()
    labels = list(dict.fromkeys((*labels, *(label for label, _ in known.most_common(_LABELS) if label))))
    verdicts = judge_answers(task, [(item, label) for item in items for label in labels])
    accepted = [{label.casefold(): label for label in labels if next(verdicts).passed} for _ in items]
    # A text that is right for one item alone is not a label, and says nothing about the others.
    counts = Counter(form for forms in accepted for form in forms)
    return [{form: text for form, text in forms.items() if counts[form] > 1} for forms in accepted]
