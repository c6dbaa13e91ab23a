"""Can a held-out item be answered right and wrong, and did an arm pass it?

Without a model it finds contradictions of an item: a constraint that its verifier cannot read, or that nothing or
everything meets, a text that does not say what is verified. Whether a question makes sense only the arms show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, join_names, unless
from reviews.checks.leakage_checks import question_text_of
from reviews.checks.text_checks import UNFILLED
from reviews.evidence.evidence import Evidence
from reviews.stages.evaluation.judged_answers import both_arms, read_judged_items
from specs.session.design import Design, Pool
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.system.exact import holds
from training.rules.seeded_order import file_order
from training.rules.similarity import words_of
from training.rules.tasks import reference, stated_values, verifier
from training.rules.tasks.conversation import answers_to, user_turns_of
from training.rules.tasks.conversation import judge as judge_talk
from training.rules.tasks.format_instructions import instruction_kinds

CHECKS = CheckRegistry(("evaluate", "multi_turn", "inspect", "lm_eval"))

ITEMS_PER_KIND = (CheckLimit(">=", "thresholds.items_per_kind"),)
SOURCE = "a test set that asked to convert metres to Fahrenheit and how many wheels a square has"
DRAWN_SOURCE = "a test set of the items that the model was good at"
LEAST_WORDS = 2
NAMED = 40
"""Items that are named in a line of the report."""
_NUMBERS = {"1": "one", "2": "two", "3": "three", "4": "four", "5": "five", "6": "six", "7": "seven", "8": "eight"}
_EXCLUSIVE = tuple(
    map(frozenset, (("lowercase", "uppercase"), ("quoted", "bullets"), ("quoted", "title"), ("bullets", "title")))
)
"""Forms that no text has together: by its letters, or by what it begins with."""
_LONG = "Well, I do not know; ask Somebody ELSE about it, please. " * 120
PLAIN = ("I do not know.", "x", _LONG)
"""Answers to nothing in particular: a verifier that accepts all of them, and the item's own words in a row, accepts
everything."""


def sound(task: str, heldout: Sequence[Item]) -> CheckOutcome:
    """Test each held-out item with the verifier of a task."""
    met = sum(_has_reference(task, item) for item in heldout)
    right = f"{len(heldout)} held-out items can be missed, {met} of them are met by a known answer"
    formless = _find_formless(heldout) if task == "format_instructions" else frozenset[str]()

    def fault(item: Item) -> str:
        silent = f"does not ask for {item.kind}, or in other words than all others of that kind"
        return _fault(task, item) or (silent if item.id in formless else "")

    return _unsound(heldout, "items", fault, right)


def _find_formless(heldout: Sequence[Item]) -> frozenset[str]:
    """Return the items, by id, whose prompt has no word that distinguishes their kind from the others, in any language.

    Such words stand in a tenth of a kind's prompts and are three times as frequent there as in those of other kinds.
    """
    words = {item.id: set(words_of(item.prompt)) for item in heldout}
    kinds = Counter(item.kind for item in heldout)
    counts = Counter((item.kind, word) for item in heldout for word in words[item.id])
    every = Counter(word for item_words in words.values() for word in item_words)

    def distinguishes(kind: str, word: str) -> bool:
        own, others = counts[kind, word], every[word] - counts[kind, word]
        # own / kinds[kind] against three times others / the rest, without division.
        return own * (len(heldout) - kinds[kind]) > 3 * others * kinds[kind] and 10 * own >= kinds[kind]

    if len(kinds) < 2:
        return frozenset()
    return frozenset(
        item.id
        for item in heldout
        if not instruction_kinds(item.prompt) and not any(distinguishes(item.kind, word) for word in words[item.id])
    )


def _unsound(heldout: Sequence[Item], what: str, fault: Callable[[Item], str], right: str) -> CheckOutcome:
    wrong = [
        {"heldout": item.id, "kind": item.kind, "fault": why, "text": item.prompt}
        for item in heldout
        if (why := fault(item))
    ]
    which = join_names(f"{value['heldout']} {value['fault']}" for value in wrong)
    message = f"{len(wrong)} of {len(heldout)} held-out {what} are unsound: {which}"
    return unless(wrong, message, right, repairable=False)


def _has_reference(task: str, item: Item) -> bool:
    try:
        return reference(task, item) is not None
    except (KeyError, ValueError, TypeError):
        return False


def _fault(task: str, item: Item) -> str:
    """Return the fault of an item; empty if its verifier accepts it."""
    judge = verifier(task)
    if len(words_of(question_text_of(item))) < LEAST_WORDS:
        return f"asks nothing: its prompt has fewer than {LEAST_WORDS} words"
    if unfilled := UNFILLED.search(item.prompt):
        return f"holds the unfilled {unfilled[0]}"
    try:
        right = reference(task, item)
        if right is not None and not judge(item, right).passed:
            return "refuses an answer that is made to follow it"
        own = f"{' '.join(str(value) for value in item.constraint.values())} " * 60
        if judge(item, "").passed:
            return "accepts an empty answer"
        if all(judge(item, text).passed for text in (*PLAIN, own)):
            return "accepts whatever is said"
        others = instruction_kinds(item.prompt) if task == "format_instructions" else frozenset[str]()
        if others and item.kind not in others:
            return f"asks for the form of {' and '.join(sorted(others))}, and is judged by that of {item.kind}"
        if both := next((pair for pair in _EXCLUSIVE if pair <= others), None):
            return f"asks for {' and '.join(sorted(both))}, and no answer can be both"
        missing = [value for value in stated_values(task, item) if not _says(item.prompt, value)]
    except KeyError as error:
        return f"has a constraint that cannot be read: '{error.args[0]}' is missing or unknown"
    except (ValueError, TypeError) as error:
        return f"has a constraint that cannot be read: {type(error).__name__}: {error}"
    return f"does not say '{missing[0]}', which is asked of the answer" if missing else ""


def sound_conversations(heldout: Sequence[Item]) -> CheckOutcome:
    """Test each held-out conversation with its own judge, turn by turn."""
    right = f"{len(heldout)} held-out conversations can be missed, and are met by known answers"
    return _unsound(heldout, "conversations", _unheld, right)


def _unheld(item: Item) -> str:
    """Return the fault of a conversation; empty if its judge accepts it."""
    try:
        texts = user_turns_of(item)
        if unfilled := UNFILLED.search("\n".join(texts)):
            return f"holds the unfilled {unfilled[0]}"
        wrong = next((judgement.reason for judgement in judge_talk(item, answers_to(item)) if not judgement.passed), "")
        if wrong:
            return f"refuses an answer that is made to follow it: it {wrong}"
        # Their own words in a row hold what they forbid, or no user would say it.
        if all(
            judgement.passed
            for text in (*PLAIN, " ".join(texts))
            for judgement in judge_talk(item, (text,) * len(texts))
        ):
            return "accepts whatever is said"
    except ValueError as error:
        return f"cannot be read: {error}"
    return ""


def _says(prompt: str, value: str) -> bool:
    if value.isdecimal():
        return not {value, _NUMBERS.get(value)}.isdisjoint(words_of(prompt))
    return value.casefold() in prompt.casefold()


def soundness(spec: Design, heldout: Sequence[Item]) -> CheckOutcome:
    """Judge the held-out items for every verifier that an evaluation of them uses."""
    readers = [stage for stage in spec.stages if stage.kind == "evaluate" and stage.reads_heldout]
    tasks = dict.fromkeys(stage.parameters.scorer or spec.task for stage in readers)
    results = [sound(task, heldout) for task in tasks]
    if any(stage.kind == "multi_turn" and stage.reads_heldout for stage in spec.stages):
        results.append(sound_conversations(heldout))
    if not results:
        return CheckOutcome("NOT_APPLICABLE", "no verifier judges the held-out items")
    return next((value for value in results if value.status != "PASS"), results[0])


def drawn_again(pool: Pool | None, items: Sequence[Item], heldout: Sequence[Item]) -> CheckOutcome:
    """Compare the split with what the rule draws from the pool, by what the items ask and are judged by."""
    if pool is None:
        return CheckOutcome("NOT_APPLICABLE", "no pool is registered: nothing shows that the items were not picked")
    drawn, counts = list[Item](), Counter[str]()
    for item in sorted(items, key=lambda item: file_order(item.id, pool.seed)):
        counts[item.kind] += 1
        drawn += [item] if counts[item.kind] <= pool.per_kind else []
    own, wanted = (
        {(question_text_of(item), item.kind, tuple(sorted(item.constraint.items()))): item.id for item in selection}
        for selection in (heldout, drawn)
    )
    missing, strange = wanted.keys() - own.keys(), own.keys() - wanted.keys()
    message = f"{len(strange)} of {len(own)} held-out items are not what the rule draws from '{pool.data}', and "
    message += f"{len(missing)} of {len(wanted)} drawn ones are missing: hold out what is drawn"
    visible = [{"heldout": own[key], "text": key[0]} for key in sorted(strange)]
    visible += [{"missing": wanted[key], "text": key[0]} for key in sorted(missing)]
    right = f"the rule draws the {len(own)} held-out items again, of {len(items)} in '{pool.data}'"
    return unless(visible, message, right, repairable=False)


def sizes_of(heldout: Iterable[Item], least: int) -> CheckOutcome:
    """Count the items of each constraint kind of the split."""
    kinds = Counter(item.kind for item in heldout)
    small = {kind: count for kind, count in kinds.items() if count < least}
    rarest = float(min(kinds.values(), default=0))
    if small or not kinds:
        message = join_names(f"{kind} {count}" for kind, count in small.items())
        detail = f"{len(small)} of {len(kinds)} constraint kinds have fewer than {least} items: {message or 'no items'}"
        visible = tuple({"kind": kind, "items": count, "least": least} for kind, count in small.items())
        return CheckOutcome("FAIL", detail, rarest, visible, repairable=False)
    return CheckOutcome("PASS", f"each of {len(kinds)} constraint kinds has {rarest:.0f} items or more", rarest)


@CHECKS.add(
    "items.ceiling",
    "A capable model passes some items of each kind",
    source=SOURCE,
    limits=(CheckLimit(">=", "thresholds.ceiling_kind"),),
)
def _check_ceiling(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Require that a model known to be able passes some items of each kind."""
    plan = evidence.resolved.spec.evaluation
    gap = plan.gap if plan is not None else None
    if gap is None or gap.ceiling != evidence.stage.name:
        return CheckOutcome("NOT_APPLICABLE", "this stage is not a registered ceiling")
    least = evidence.resolved.spec.thresholds.ceiling_kind
    judged = read_judged_items(evidence, evidence.outputs.get("rows"))
    shares = _shares((value.item.kind, value.passed) for value in judged)
    weakest = float(min(shares.values()))
    low = {kind: share for kind, share in shares.items() if not holds(share, ">=", least)}
    if low:
        message = ", ".join(f"{kind} {float(share):.2f}" for kind, share in sorted(low.items()))
        visible = tuple(
            {"heldout": value.item.id, "kind": value.item.kind, "text": value.item.prompt, "answer": value.text}
            for value in judged
            if value.item.kind in low and not value.passed
        )
        detail = f"of {len(low)} of {len(shares)} kinds the ceiling passes too little ({message}): look at their items"
        return CheckOutcome("FAIL", detail, weakest, visible, repairable=False)
    return CheckOutcome("PASS", f"the ceiling passes {weakest:.2f} of each of {len(shares)} kinds or more", weakest)


@CHECKS.add(
    "items.answered", "Each kind has items that an arm passes", source=SOURCE, blocking=False, only_treatment=True
)
def _check_passed_kinds(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count the items that neither arm passes, and name the kinds of which no item was passed."""
    pairs = both_arms(evidence)
    solved = {now.item.id for then, now in pairs if then.passed or now.passed}
    items = {now.item.id: now for _, now in pairs}
    failures = [now for id, now in items.items() if id not in solved]
    shares = _shares((now.item.kind, id in solved) for id, now in items.items())
    silent = sorted(kind for kind, share in shares.items() if share == 0)
    named = f" ({join_names((value.item.id for value in failures), NAMED)})" if failures else ""
    detail = f"neither arm is right on {len(failures)} of {len(items)} items"
    if not silent:
        return CheckOutcome("PASS", f"{detail}; of every kind an arm is right on some{named}", float(len(failures)))
    visible = tuple(
        {"heldout": value.item.id, "kind": value.item.kind, "text": value.item.prompt, "answer": value.text}
        for value in failures
        if value.item.kind in silent
    )
    message = f"{detail}, among them all of {join_names(silent)}: too hard, or impossible{named}"
    return CheckOutcome("WARN", message, float(len(failures)), visible)


def _shares(passed: Iterable[tuple[str, bool]]) -> dict[str, Fraction]:
    every, right = Counter[str](), Counter[str]()
    for kind, met in passed:
        every[kind] += 1
        right[kind] += met
    return {kind: Fraction(right[kind], count) for kind, count in every.items()}
