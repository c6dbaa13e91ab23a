"""Is anything of the held-out split among what the model is trained on?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, join_names
from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import ratio
from reviews.evidence.right_answers import LABEL_WORDS
from reviews.evidence.row_reader import read_rows
from reviews.evidence.text_overlap import DEFAULTS, Overlap, find_overlaps, find_split_texts
from reviews.statistics.mcnemar import LEAST_GROUPS, fisher_exact_above
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Example, Item, Preference, earlier_turn_texts
from specs.stages.base.metric import MetricSet
from specs.stages.registry import kind_of
from specs.system.exact import holds
from specs.system.text import plural
from training.rules.disguise import LEAST_STEMS, Words, content_of, count_words, stems_of
from training.rules.similarity import nearest_of, words_of
from training.rules.tasks.conversation import user_turns_of
from training.rules.tasks.exact_answer import named_answers, reduce_answer

CHECKS = CheckRegistry(lambda kind: kind.examples)

SOURCE = "training on the test set; near duplicates (Broder 1997; Lee et al. 2022, arXiv:2107.06499)"
SIMILARITY = (CheckLimit("<", "thresholds.prompt_similarity"), CheckLimit("<", "thresholds.contained_words"))
REPEATS = (CheckLimit("<=", "thresholds.repeated_rows"),)
MOST_NAMED = 0.1
"""Fraction of the held-out groups that training prompts of other groups may name, and of these prompts that may do so:
above both, training asks about what is held out. "A forest after rain" in one prompt of fifty does not."""
FEW_NAMING = 2
"""Prompts that may name such groups by chance, however few there are in all."""
LEAST_PROMPTS = 20
"""Training prompts without which their words say nothing of what is usual."""
EVERYDAY = 3
"""Groups of several training prompts whose prompts name the same topic, from which on its name is an everyday word."""
STANDS_OUT = 0.2
"""How much nearer a pair must be than held-out texts of different groups are to each other before a reader is asked;
decision 55 has how many pairs are above it with and without paraphrases."""
RARE = 2
"""Times that an answer is taught, at most, for its being taught at all to say something."""
SURELY, SELDOM = 1e-6, 1e-3
DIGITS, SHORT = 5, 60
"""Digits of a number that no two questions share by chance; characters of a text that may be a short answer."""
NEAREST_SOURCE = "training on paraphrases of the test set; tf-idf (Salton and Buckley 1988)"


def overlap_of(
    train: Iterable[tuple[str, str]], heldout: Iterable[Item], thresholds: Thresholds, taught: Sequence[str] = ()
) -> CheckOutcome:
    """Compare (id, text) pairs, prompts or completions, with the held-out prompts and their long right answers.

    Where the answers that are ``taught`` repeat each other half as often as they hold held-out ones, that is usual.
    """
    train, heldout = list(train), list(heldout)
    result = _compare_prompts(train, heldout, thresholds)
    if result.status == "FAIL" or not (answers := _find_answers(train, heldout, thresholds.contained_words)):
        return result
    count = len({overlap.heldout for overlap in answers})
    detail = f"the right answers of {count} held-out items, which no other item has, are in training texts"
    rows = tuple(shown_overlap(overlap) for overlap in answers)
    long = Counter(words for text in taught if count_words(words := words_of(text)) >= thresholds.contained_words)
    usual = ratio(sum(times > 1 for times in long.values()), len(long)) if long else 0
    if count > FEW_NAMING and 2 * usual < ratio(count, len(heldout)):
        return CheckOutcome("FAIL", f"{detail}: take these texts out", float(count), rows, repairable=False)
    return CheckOutcome("WARN", f"{detail}: by chance, or were they copied?", float(count), rows)


def _find_answers(train: Sequence[tuple[str, str]], heldout: Sequence[Item], contained: int) -> tuple[Overlap, ...]:
    """Return where training texts hold a right answer of ``contained`` words or more that a single item has.

    An answer that three training texts have is usual, and says nothing: a long label, or an empty form.
    """
    owners = Counter(text for item in heldout for text in set(map(words_of, named_answers(item))))
    pairs = [
        (item.id, answer)
        for item in heldout
        for answer in named_answers(item)
        if count_words(words := words_of(answer)) >= contained and owners[words] == 1
    ]
    every = find_overlaps(train, pairs, threshold=1, contained=contained) if pairs else ()
    times = Counter((overlap.heldout, overlap.heldout_text) for overlap in every)
    return tuple(overlap for overlap in every if times[overlap.heldout, overlap.heldout_text] <= FEW_NAMING)


def answers_by_chance(taught: Sequence[str], heldout: Sequence[Item]) -> CheckOutcome:
    """Compare how often rare short right answers are taught with how often rare taught answers are taught again.

    Held-out items that were drawn like the rows of training have their answers there as often as another row has
    (Fisher's exact test, one-sided, over different answers). Numbers of five digits meet nowhere by chance; names and
    small numbers may be listed once each on both sides, so that they only warn.
    """
    counts = Counter(form for text in taught if _is_short(text) and (form := reduce_answer(text)))
    rights = Counter(form for item in heldout for form in {reduce_answer(text) for text in named_answers(item)})
    passed = CheckOutcome("PASS", "no training text holds a held-out prompt or its right answer", 0.0)
    for certain in (True, False):
        own = [counts[form] for form, times in rights.items() if times == 1 and _is_number(form) >= certain]
        again = [count > 1 for form, count in counts.items() if count <= RARE + 1 and _is_number(form) >= certain]
        meets = [count > 0 for count in own if count <= RARE]
        p = fisher_exact_above(sum(meets), len(meets), sum(again), len(again))
        if 2 * sum(meets) < len(meets) or p >= (SURELY if certain else SELDOM):
            continue
        message = (
            f"{sum(meets)} of {len(meets)} rare right answers are completions of training, where only {sum(again)} of "
            f"{len(again)} rare completions are repeated (p = {p:.2g})"
        )
        if certain:
            detail = f"{message}: held-out answers are taught; take these rows out"
            return CheckOutcome("FAIL", detail, float(sum(meets)), repairable=False)
        return CheckOutcome("WARN", f"{message}: are held-out answers taught?", float(sum(meets)))
    return passed


def _is_short(text: str) -> bool:
    return len(text) <= SHORT and count_words(words_of(text)) <= LABEL_WORDS


def _is_number(text: str) -> bool:
    return sum(map(str.isdigit, text)) >= DIGITS


def _compare_prompts(train: Sequence[tuple[str, str]], heldout: Sequence[Item], thresholds: Thresholds) -> CheckOutcome:
    stored_pairs = [(item.id, text) for item in heldout for text in texts_of(item, thresholds.contained_words)]
    similar, contained = thresholds.prompt_similarity, thresholds.contained_words
    every = find_overlaps(train, stored_pairs, threshold=similar, contained=contained, reordered=True)
    alone = [(item.id, item.prompt) for item in heldout if not item.before and len(user_turns_of(item)) == 1]
    overlaps = tuple(overlap for overlap in every if overlap.how != "reordered")
    overlaps += find_split_texts(train, alone, contained)
    if every and not overlaps:
        pairs = tuple(shown_overlap(overlap) for overlap in every)
        detail = f"{len(every)} pairs have the same words in another order: do they ask the same thing?"
        return CheckOutcome("WARN", detail, float(len(every)), pairs)
    if not overlaps:
        return CheckOutcome("PASS", "no training text is a held-out prompt, nor near one", 0.0)
    by_kind = Counter(overlap.how for overlap in overlaps)
    message = ", ".join(f"{times} {kind}" for kind, times in sorted(by_kind.items()))
    rows = len({overlap.train for overlap in overlaps})
    detail = f"{plural(rows, 'training text is a held-out prompt', 'training texts are held-out prompts')} ({message})"
    return CheckOutcome(
        "FAIL", detail, float(rows), tuple(shown_overlap(overlap) for overlap in spread(overlaps)), repairable=False
    )


def texts_of(item: Item, least: int) -> tuple[str, ...]:
    """Return the texts of a held-out item that may not be trained on: what it asks, and turns of ``least`` words.

    Shorter turns ("What comes after that?") occur in many conversations.
    """
    prompt, *later = user_turns_of(item)
    earlier = [turn.content for turn in item.before if turn.role == "user"]
    others = [*later, *earlier, *([prompt] if earlier else ())]
    return (question_text_of(item), *(text for text in others if count_words(words_of(text)) >= least))


def question_text_of(row: Item | Example | Preference) -> str:
    """Return what a row asks: the turns of the user up to its prompt, of which the last alone may say nothing."""
    return "\n".join([*(turn.content for turn in row.before if turn.role == "user"), row.prompt])


def texts_of_pairs(pairs: Iterable[Preference]) -> Iterator[tuple[str, str]]:
    """Yield every text of preferences with the place of its pair, "pair 0" for the first."""
    for place, pair in enumerate(pairs):
        for text in (pair.prompt, question_text_of(pair), pair.chosen, pair.rejected, *earlier_turn_texts(pair)):
            yield f"pair {place}", text


def spread(overlaps: tuple[Overlap, ...]) -> list[Overlap]:
    """Return overlaps with the ways taken in turn, so that each way is among the first rows shown."""
    turns: defaultdict[str, Iterator[int]] = defaultdict(count)
    return sorted(overlaps, key=lambda overlap: next(turns[overlap.how]))


def repeats_of(pairs: Iterable[tuple[str, str]]) -> list[Overlap]:
    """Return (id, text) pairs that have the words of an earlier one of the same side, fillers left out."""
    return [overlap for overlap in _within(pairs, DEFAULTS) if overlap.how in ("exact", "normalised") or _pads(overlap)]


def _pads(overlap: Overlap) -> bool:
    content = content_of(words_of(overlap.train_text))
    return count_words(content) >= LEAST_STEMS and content == content_of(words_of(overlap.heldout_text))


def near_repeats_of(pairs: Iterable[tuple[str, str]], thresholds: Thresholds) -> list[Overlap]:
    """Return (id, text) pairs that nearly repeat an earlier one of the same side, or contain it."""
    return [overlap for overlap in _within(pairs, thresholds) if overlap.how in ("near", "contained")]


def _within(pairs: Iterable[tuple[str, str]], thresholds: Thresholds) -> list[Overlap]:
    every = list(pairs)
    place = {id: index for index, (id, _) in enumerate(every)}
    overlaps = find_overlaps(every, every, threshold=thresholds.prompt_similarity, contained=thresholds.contained_words)
    return [
        overlap
        for overlap in overlaps
        if place[overlap.train] > place[overlap.heldout]
        or (overlap.how == "contained" and overlap.train != overlap.heldout)
    ]


def groups_of(train: Sequence[Item | Example | Preference], heldout: Sequence[Item]) -> CheckOutcome:
    """Compare the groups (topics) of the two sides, by what they are called and by what the prompts name."""
    names = {content_of(words_of(item.group)) or (item.group,): item.group for item in heldout}
    ours = {content_of(words_of(item.group)) or (item.group,) for item in train}
    shared = sorted(names[name] for name in names.keys() & ours)
    if shared:
        return CheckOutcome(
            "FAIL",
            f"{plural(len(shared), 'group is', 'groups are')} on both sides: {join_names(shared)}",
            float(len(shared)),
            repairable=False,
        )
    rows = {row.prompt: row for row in train}
    prompts = list(rows)
    named = _named_groups(prompts, heldout)
    if not named:
        return CheckOutcome("PASS", "no group is on both sides", 0.0)
    visible = tuple({"group": group, "prompt": named[group][0]} for group in sorted(named))
    naming, groups = len({text for these in named.values() for text in these}), len({item.group for item in heldout})
    message = (
        f"{naming} of {len(prompts)} training prompts name {len(named)} of {groups} held-out groups: "
        f"{join_names(sorted(named))}"
    )
    about = {
        group: [text for text in texts if not _names_own_group(rows[text], group)]
        for group, texts in named.items()
        if not _is_everyday([rows[text] for text in texts], list(rows.values()))
    }
    asking = len({text for texts in about.values() for text in texts})
    many = sum(map(bool, about.values())) > max(1, MOST_NAMED * groups) and asking > max(
        FEW_NAMING, MOST_NAMED * len(prompts)
    )
    return CheckOutcome("FAIL" if many else "WARN", message, float(len(named)), visible, repairable=not many)


def common_subject(train: Sequence[str], heldout: Sequence[Item]) -> CheckOutcome | None:
    """Return a warning where most held-out prompts share words that no training prompt has; None without such words."""
    prompts = set(train)
    if len(prompts) < LEAST_PROMPTS:
        return None
    known = {word for prompt in prompts for word in words_of(prompt)}
    counts = Counter(word for item in heldout for word in set(words_of(item.prompt)) if len(word) > 3)
    shared = sorted(word for word, count in counts.items() if 2 * count > len(heldout) and word not in known)
    if not shared:
        return None
    most = max(counts[word] for word in shared)
    message = f"{most} of {len(heldout)} held-out prompts say {join_names(shared)}, and no training prompt does: "
    return CheckOutcome("WARN", f"{message}they are of one topic, or asked otherwise than in training", float(most))


def _names_own_group(row: Item | Example | Preference, heldout: str) -> bool:
    """Return whether a prompt names its own group, called otherwise: that is its topic, whatever else it names."""
    name = stems_of(words_of(row.group))
    if name == stems_of(words_of(heldout)) or not any(map(str.isalpha, name)):
        return False
    return bool(_named_in(row.prompt, {name: row.group}))


def _is_everyday(naming: Sequence[Item | Example | Preference], every: Sequence[Item | Example | Preference]) -> bool:
    """Return whether a name is a word of many topics, such as "time": most prompts have it, or those of many groups."""
    sizes = Counter(row.group for row in every)
    groups = {row.group for row in naming if sizes[row.group] > 1}
    return 2 * len(naming) > len(every) or len(groups) >= EVERYDAY


def _named_groups(train: Iterable[str], heldout: Sequence[Item]) -> dict[str, list[str]]:
    """Return the held-out groups that training prompts name, each with the prompts that do.

    A group counts if its name is in all of its held-out prompts and in no other one: then it is what they ask about.
    "Letters" is not where each prompt says "Use capital letters".
    """
    names = {name: item.group for item in heldout if any(map(str.isalpha, name := stems_of(words_of(item.group))))}
    items, own, elsewhere = Counter(item.group for item in heldout), Counter[str](), set[str]()
    for item in heldout:
        for group in _named_in(item.prompt, names):
            own[group] += group == item.group
            if group != item.group:
                elsewhere.add(group)
    requests = {name: group for name, group in names.items() if own[group] == items[group] and group not in elsewhere}
    texts: dict[str, list[str]] = {}
    for prompt in train if requests else ():
        for group in _named_in(prompt, requests):
            texts.setdefault(group, []).append(prompt)
    return texts


def _named_in(prompt: str, names: dict[Words, str]) -> set[str]:
    stems = stems_of(words_of(prompt))
    spans = ((start, start + length) for length in {len(name) for name in names} for start in range(len(stems)))
    return {names[stems[start:end]] for start, end in spans if stems[start:end] in names}


def nearest_pairs(train: Iterable[tuple[str, str]], heldout: Sequence[Item]) -> CheckOutcome:
    """Choose (id, text) pairs of training that may ask what a held-out prompt asks, for a reader to judge."""
    ours = list({text: (id, text) for id, text in train}.values())
    near = nearest_of(
        [text for _, text in ours], list(map(question_text_of, heldout)), [item.group for item in heldout]
    )
    visible = tuple(
        {
            "train": ours[nearest.train][0],
            "train_text": ours[nearest.train][1],
            "heldout": heldout[nearest.heldout].id,
            "heldout_text": question_text_of(heldout[nearest.heldout]),
            "similarity": round(nearest.similarity, 3),
        }
        for nearest in near
        if nearest.apart >= STANDS_OUT
    )
    if not visible:
        return CheckOutcome("PASS", "no training text stands out as near to a held-out prompt", 0.0)
    detail = f"unusually near to a held-out prompt: {len(visible)} of {len(ours)} training texts; do they ask the same?"
    return CheckOutcome("WARN", detail, float(len(visible)), visible)


def too_few_groups(groups: Iterable[str]) -> str:
    """Return what is wrong with the groups of items that share them; empty where there are enough, or none does."""
    every = list(groups)
    count = len(set(every))
    if count >= LEAST_GROUPS or count == len(every):
        return ""
    return (
        f"{len(every)} held-out items are of {count} groups; no interval follows from fewer than {LEAST_GROUPS}, so "
        "the result says nothing about others; add items of other groups, or give items that are independent their own"
    )


def duplicates_of(pairs: Iterable[tuple[str, ...]], thresholds: Thresholds) -> CheckOutcome:
    """Count repeats within the training side."""
    every = list(pairs)
    repeated = len(every) - len(set(every))
    share = ratio(repeated, len(every))
    status = "PASS" if holds(share, "<=", thresholds.repeated_rows) else "WARN"
    return CheckOutcome(status, f"{repeated} of {len(every)} training rows repeat another", float(share))


def shown_overlap(overlap: Overlap) -> dict[str, Any]:
    """Return an overlap as a row of a check's result."""
    return {
        "how": overlap.how,
        "similarity": round(overlap.similarity, 3),
        "train": overlap.train,
        "train_text": overlap.train_text,
        "heldout": overlap.heldout,
        "heldout_text": overlap.heldout_text,
    }


def _examples(evidence: Evidence) -> tuple[Example, ...]:
    place = kind_of(evidence.stage).examples
    side, name = place or ("inputs", "examples")
    made = side == "outputs"
    path = (evidence.outputs if made else evidence.inputs).get(name)
    # A generate stage that kept nothing leaks nothing; its criteria say that it kept too little.
    return read_rows(path, Example, "training examples", may_be_empty=made)


def _texts(evidence: Evidence) -> Iterable[tuple[str, str]]:
    """Return all turns that are trained on, with the ids of their items."""
    return dict.fromkeys(
        (example.item, text)
        for example in _examples(evidence)
        for text in (example.prompt, question_text_of(example), example.completion, *earlier_turn_texts(example))
    )


@CHECKS.add("leakage.overlap", "No held-out prompt is trained on", source=SOURCE, limits=SIMILARITY)
def _check_overlap(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    taught = [example.completion for example in _examples(evidence)]
    return overlap_of(_texts(evidence), evidence.reserved_items, evidence.resolved.spec.thresholds, taught)


@CHECKS.add(
    "leakage.nearest",
    "No training text stands out as near to a held-out prompt",
    source=NEAREST_SOURCE,
    blocking=False,
)
def _check_nearest(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    return nearest_pairs(_texts(evidence), evidence.reserved_items)


@CHECKS.add("leakage.groups", "Training and held-out share no group", source="leakage through topics")
def _check_groups(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    return groups_of(_examples(evidence), evidence.reserved_items)


@CHECKS.add(
    "leakage.duplicates",
    "Training rows do not repeat",
    source="Lee et al. 2022, arXiv:2107.06499",
    blocking=False,
    limits=REPEATS,
)
def _check_duplicates(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    rows = ((*earlier_turn_texts(example), example.prompt, example.completion) for example in _examples(evidence))
    return duplicates_of(rows, evidence.resolved.spec.thresholds)
