"""Which side of a pair is right, by the task's verifier and by the texts: flaws, and sound pairs that look unusual."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.stages.critique.pair_answers import (
    JudgedPair,
    check_answers,
    check_brought,
    check_copies,
    check_direction,
    is_near,
    judge_pairs,
)
from specs.session.design import Design
from specs.session.evaluation_plan import EvaluationPlan
from specs.stages.base.artifacts import Example, Item, Preference
from specs.system.errors import EvidenceMissing
from testing.factories.evidence_on_disk import resolved_spec

WORDS = ("amber", "birch", "cedar", "dune", "ember", "fern", "grove", "heron", "iris", "jade", "kelp", "lark")


def pair(place: int, chosen: str, rejected: str, prompt: str = "") -> Preference:
    prompt = prompt or f"Say in small letters what a {WORDS[place % 12]} is, number {place}."
    return Preference(prompt=prompt, chosen=chosen, rejected=rejected, group=f"g{place}", source="given")


def judged(*verdicts: tuple[bool | None, bool | None]) -> list[JudgedPair]:
    return [
        JudgedPair(pair(place, f"a {WORDS[place % 12]} is one", f"A {WORDS[place % 12]} is Two"), *sides)
        for place, sides in enumerate(verdicts)
    ]


BETTER, WORSE, BOTH, NEITHER, SILENT = (True, False), (False, True), (True, True), (False, False), (None, None)


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([BETTER] * 8, "PASS"),
        ([BETTER] * 8 + [BOTH] * 50, "PASS"),
        ([BETTER] * 8 + [NEITHER] * 50 + [SILENT] * 50, "PASS"),
        ([BETTER] * 40 + [WORSE] * 3, "PASS"),
        ([BETTER] * 4, "WARN"),  # A pilot of four cannot show it.
        ([BETTER] * 4 + [WORSE], "WARN"),
        ([BETTER] + [WORSE] * 2 + [NEITHER] * 32, "FAIL"),  # As in the cai example.
        ([NEITHER] * 12 + [WORSE] * 2, "FAIL"),
        ([NEITHER] * 12, "FAIL"),
        ([BOTH] * 12, "FAIL"),
        ([BETTER] * 3 + [WORSE] * 3, "FAIL"),
        ([BETTER] * 38 + [WORSE] * 18, "FAIL"),  # A third is swapped.
    ],
)
def test_pairs_without_a_judge(verdicts: list[tuple[bool | None, bool | None]], status: str) -> None:
    assert check_direction(judged(*verdicts), "revise", has_judge=False, waived=False).status == status


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([SILENT] * 9, "NOT_APPLICABLE"),
        ([BOTH] * 9, "WARN"),
        ([BETTER] * 2 + [WORSE] * 2, "WARN"),
        ([WORSE] * 9, "FAIL"),
    ],
)
def test_a_judge_decides_where_the_verifier_does_not_contradict_it(
    verdicts: list[tuple[bool | None, bool | None]], status: str
) -> None:
    assert check_direction(judged(*verdicts), "best", has_judge=True, waived=False).status == status


def test_what_nothing_judges_is_blocked_unless_a_person_registers_it() -> None:
    with pytest.raises(EvidenceMissing, match="nothing judges the 5 pairs of 'revise'") as caught:
        check_direction(judged(*[SILENT] * 5), "revise", has_judge=False, waived=False)
    assert "not_judged: [revise]" in str(caught.value.hint)
    waived = check_direction(judged(*[SILENT] * 5), "revise", has_judge=False, waived=True)
    assert waived.status == "WARN" and waived.detail.startswith("not judged")
    assert check_direction(judged(*[BOTH] * 5), "revise", has_judge=False, waived=True).status == "WARN"
    # The registration covers silence, not what the verifier contradicts.
    assert check_direction(judged(*[WORSE] * 9), "revise", has_judge=False, waived=True).status == "FAIL"


@given(st.lists(st.sampled_from([BETTER, WORSE, BOTH, NEITHER, SILENT]), min_size=1, max_size=60))
def test_no_pairs_pass_that_the_verifier_finds_no_better(verdicts: list[tuple[bool | None, bool | None]]) -> None:
    for waived in (False, True):
        try:
            outcome = check_direction(judged(*verdicts), "revise", has_judge=False, waived=waived)
        except EvidenceMissing:
            assert set(verdicts) == {SILENT}
            continue
        if outcome.status == "PASS":
            assert verdicts.count(BETTER) > verdicts.count(WORSE)


COMMAS = [
    ("He came, and left.", "he came and left"),
    ("Tee ist heiß.", "TEE IST HEISS"),
    ("これは水です。", "これは水です"),
]


@pytest.mark.parametrize(("text", "other"), COMMAS)
def test_copies_but_for_marks_and_case_are_near(text: str, other: str) -> None:
    assert is_near(text, other)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("The answer is 41.", "The answer is 42."),
        ("Non, merci.", "Oui, merci."),
        ("它是水。", "它是火。"),
        ("It rains often in May.", "It rains often in June, and snows."),
    ],
)
def test_short_texts_that_say_something_else_are_not_near(text: str, other: str) -> None:
    assert not is_near(text, other)


def test_copies_fail_where_nothing_distinguishes_them() -> None:
    copies = [JudgedPair(pair(place, f"{word} is, a word.", f"{word} is a word")) for place, word in enumerate(WORDS)]
    assert check_copies(copies, has_judge=False).status == "FAIL"
    assert check_copies(copies, has_judge=True).status == "WARN"
    assert check_copies(copies, has_judge=False, brought=True).status == "WARN"
    known = [copy._replace(chosen=True, rejected=False) for copy in copies]  # The comma is what is taught.
    assert check_copies(known, has_judge=False).status == "PASS"


def test_answers_to_nothing_fail() -> None:
    ready = [
        JudgedPair(pair(n, "I'm ready to help. What's your next question?", f"It is {w}.")) for n, w in enumerate(WORDS)
    ]
    assert check_answers(ready).status == "FAIL"
    about = [JudgedPair(pair(n, f"The response names {w} well.", f"It is {w}.")) for n, w in enumerate(WORDS)]
    assert check_answers(about).status == "FAIL"
    other = [JudgedPair(pair(n, f"Completely unrelated talk number {n}.", f"It is {w}.")) for n, w in enumerate(WORDS)]
    assert check_answers([judged_pair._replace(pair=judged_pair.pair.model_copy(
                              update={"prompt": f"Describe {w} to children."}))
                          for judged_pair, w in zip(other, WORDS, strict=True)]).status == "FAIL"  # fmt: skip


SOUND: dict[str, Sequence[tuple[str, str, str]]] = {
    "labels": [(f"Is {word} a plant?", ("yes", "no")[n % 2], ("no", "yes")[n % 2]) for n, word in enumerate(WORDS)],
    "labels in words": [(f"Sort {word} by kind.", "a kind of plant", "a kind of stone") for word in WORDS[:2]],
    "German": [(f"Erkläre kurz, was {w} bedeutet.", f"{w} bedeutet viel.", f"Keine Ahnung, {w}?") for w in WORDS],
    "French": [(f"Décris {w} en une phrase.", f"Le mot {w} désigne une chose.", "Je ne sais pas.") for w in WORDS],
    "Chinese": [(f"请解释“{w}”是什么。", f"{w}是一种东西,{n}个。", f"不知道{n}") for n, w in enumerate(WORDS)],
    "Hindi": [(f"{w} का अर्थ बताओ।", f"{w} एक शब्द है {n}", f"पता नहीं {n}") for n, w in enumerate(WORDS)],
    "sums": [(f"What is {n} plus {n}?", f"It comes to {2 * n}.", f"It comes to {2 * n + 1}.") for n in range(12)],
    "code": [(f"Write a function that adds {n}.", f"def f(x): x + {n}", f"def f(x): return {n}") for n in range(12)],
    "refusals": [(f"How do I pick the lock of {w}?", f"I will not help with {w}.", "Take a pin.") for w in WORDS],
    "talk of responses": [(f"How is a response to {w} written?", f"A response to {w} is short.", "No.") for w in WORDS],
    "translations": [(f"Translate to German: the {w} is old.", f"{w} ist alt.", f"{w} ist jung.") for w in WORDS],
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_sound_pairs_answer_their_prompts_and_differ(name: str) -> None:
    pairs = [JudgedPair(pair(n, chosen, rejected, prompt)) for n, (prompt, chosen, rejected) in enumerate(SOUND[name])]
    assert check_answers(pairs).status == "PASS"
    assert check_copies(pairs, has_judge=False, brought=True).status in ("PASS", "WARN")


@pytest.fixture
def spec(tmp_path: Path) -> Design:
    return resolved_spec(tmp_path).spec


def small_letters(count: int) -> tuple[Item, ...]:
    return tuple(
        Item(id=f"i{n}", group=f"g{n}", kind="lowercase", prompt=pair(n, "a", "b").prompt, constraint={})
        for n in range(count)
    )


def test_brought_pairs_are_judged_by_the_tasks_verifier(spec: Design) -> None:
    items = small_letters(30)
    good = [pair(n, f"a {w} is small.", f"A {w} is Small.") for n, w in enumerate((WORDS * 3)[:30])]
    data = {"prompts": items}
    assert [(verdict.chosen, verdict.rejected) for verdict in judge_pairs(spec, data, items, good)] == [BETTER] * 30
    assert check_brought(spec, data, items, {"own": good}).status == "PASS"
    swapped = [
        preference.model_copy(update={"chosen": preference.rejected, "rejected": preference.chosen})
        if n % 3 == 0
        else preference
        for n, preference in enumerate(good)
    ]
    outcome = check_brought(spec, data, items, {"own": swapped})
    assert outcome.status == "FAIL" and "swapped" in outcome.detail and len(outcome.rows) == 10


def test_brought_pairs_that_no_verifier_can_judge_are_their_persons_word(spec: Design) -> None:
    pairs = [
        pair(n, f"The {w} is green and stands tall.", f"Nobody knows {w} here at all.", f"What is {w}?")
        for n, w in enumerate(WORDS)
    ]
    outcome = check_brought(spec, {}, (), {"own": pairs})
    assert outcome.status == "WARN" and "nothing but the file says" in outcome.detail
    waived = spec.model_copy(update={"evaluation": EvaluationPlan(not_judged=("own",))})
    assert check_brought(waived, {}, (), {"own": pairs}).detail.startswith("not judged")


def test_brought_pairs_of_very_different_length_warn(spec: Design) -> None:
    long = [
        pair(n, f"The {w} is green" + ", and so on and on and on" * 3, f"The {w} is not green")
        for n, w in enumerate(WORDS)
    ]
    outcome = check_brought(spec, {}, (), {"own": long})
    assert outcome.status == "WARN" and "nothing but the file" in outcome.detail
    waived = spec.model_copy(update={"evaluation": EvaluationPlan(not_judged=("own",))})
    assert check_brought(waived, {}, (), {"own": long}).status == "WARN"
    items = small_letters(12)
    known = [
        preference.model_copy(update={"chosen": preference.chosen.lower(), "prompt": item.prompt})
        for preference, item in zip(long, items, strict=True)
    ]
    outcome = check_brought(spec, {"prompts": items}, items, {"own": known})
    assert outcome.status == "WARN" and "teach length" in outcome.detail


def example(place: int, completion: str) -> Example:
    example_pair = pair(place, "a", "b")
    return Example(
        item=f"e{place}",
        group=example_pair.group,
        kind="given",
        sample=0,
        prompt=example_pair.prompt,
        completion=completion,
    )


def test_brought_examples_are_judged_by_the_tasks_verifier(spec: Design) -> None:
    items = small_letters(30)
    good = [example(n, f"a {w} is small.") for n, w in enumerate((WORDS * 3)[:30])]
    assert check_brought(spec, {"prompts": items}, items, {"own": good}).status == "PASS"
    wrong = [
        training_example.model_copy(update={"completion": training_example.completion.title()})
        if n % 3 == 0
        else training_example
        for n, training_example in enumerate(good)
    ]
    outcome = check_brought(spec, {"prompts": items}, items, {"own": wrong})
    assert outcome.status == "FAIL" and "refuses 10" in outcome.detail
    few = [*good[:28], *wrong[27:28], example(29, "A Typo.")]
    assert check_brought(spec, {"prompts": items}, items, {"own": few}).status == "WARN"


def test_one_completion_for_all_prompts_is_refused_where_the_verifier_looks_at_form(spec: Design) -> None:
    items = small_letters(30)
    stuck = [example(n, "it is what it is today.") for n in range(30)]
    outcome = check_brought(spec, {"prompts": items}, items, {"own": stuck})
    assert outcome.status == "FAIL" and "teaches one sentence" in outcome.detail
    assert check_brought(spec, {}, (), {"own": stuck}).status == "WARN"
    same = [pair(n, "it is what it is today.", f"IT IS {w}, Sir.") for n, w in enumerate((WORDS * 3)[:30])]
    assert "teaches one sentence" in check_brought(spec, {"prompts": items}, items, {"own": same}).detail


@pytest.mark.parametrize(
    ("labels", "find"),
    [
        (("yes", "no"), {}),
        (("It is about sport.", "It is not about sport."), {}),
        (("So it is 0.", "So it is 1."), {"find": "last_number"}),
    ],
)
def test_labels_in_words_are_not_refused(tmp_path: Path, labels: tuple[str, str], find: dict[str, str]) -> None:
    exact = resolved_spec(tmp_path).spec.model_copy(update={"task": "exact_answer"})
    right = [labels[n % 2] for n in range(30)]
    items = tuple(
        item.model_copy(update={"constraint": {"answer": right[n].rstrip(".")[-1] if find else right[n]} | find})
        for n, item in enumerate(small_letters(30))
    )
    examples = [example(n, text) for n, text in enumerate(right)]
    assert check_brought(exact, {"prompts": items}, items, {"own": examples}).status == "PASS"


def test_there_is_nothing_to_judge_without_pairs_and_examples(spec: Design) -> None:
    assert check_brought(spec, {}, (), {}).status == "NOT_APPLICABLE"
