"""The table of attacks on verifiers: verifiers that look at too little take them, and sound ones do not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from reviews.stages.evaluation import verifier_probes
from reviews.stages.evaluation.verifier_probes import ATTACKS, ProbeTarget, probe_wrong_answers
from specs.stages.base.artifacts import Item
from training.rules.tasks.exact_answer import verify as exact_verify
from training.rules.tasks.format_instructions import Judgement

WORDS = ("amber 12", "birch 7", "cedar 31", "dune 5", "ember 44", "fern 98", "grove 23", "heron 60")
NUMBERS = ("6", "12", "35", "48", "70", "91", "104", "233")
LETTERS = ("A", "B", "C", "D", "A", "C", "B", "D")
Verify = Callable[[Item, str], bool]
Run = Callable[[Verify, Sequence[Item]], tuple[str, str]]


def items(answers: Sequence[str], name: str = "answer", **others: Any) -> tuple[Item, ...]:
    return tuple(
        Item(id=f"i{n}", group=f"g{n}", kind=("k", "l")[n % 2], prompt=f"What is drawn on card number {n} of the pack?",
             constraint={name: text, **others})
        for n, text in enumerate(answers)
    )  # fmt: skip


@pytest.fixture
def attack(monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(verify: Verify, probed_items: Sequence[Item]) -> tuple[str, str]:
        def judge(_: str, requests: Sequence[tuple[Item, str]]) -> Iterator[Judgement]:
            for item, text in requests:
                try:
                    yield Judgement(bool(verify(item, text)))
                except (ValueError, TypeError, IndexError):
                    yield Judgement(False)

        monkeypatch.setattr(verifier_probes, "judge_answers", judge)
        outcome = probe_wrong_answers("./verify.py", probed_items)
        return (outcome.status, outcome.detail) if outcome else ("", "")

    return run


def right_of(item: Item) -> str:
    return str(item.constraint["answer"]).lower()


def known_words(item: Item, text: str) -> bool:
    return right_of(item) in text.lower() and not any(w in text.lower() for w in WORDS if w != right_of(item))


KIND: dict[str, tuple[Verify, Sequence[str], str, str]] = {
    "any": (lambda item, text: True, WORDS, "FAIL", "a list of the 8 answers"),
    "contains": (lambda item, text: right_of(item) in text.lower(), WORDS, "FAIL", "a list of the 8 answers"),
    "contains in short answers": (
        lambda item, text: right_of(item) in text.lower() and len(text) < 60, WORDS, "FAIL", "next to a wrong one"),
    "turned": (lambda item, text: text.strip().lower() in right_of(item), WORDS, "FAIL", "the beginning of the right"),
    "letters alone": (
        lambda item, text: re.sub("[^a-z]", "", text.lower()) == re.sub("[^a-z]", "", right_of(item)), WORDS,
        "FAIL", "the right answer with other digits"),
    "long ones": (
        lambda item, text: text.lower() == right_of(item) or len(text) > 3000, WORDS, "FAIL", "characters of"),
    "the prompt": (
        lambda item, text: text.lower() == right_of(item) or "card number" in text, WORDS, "FAIL", "its prompt"),
    "what does not know": (
        lambda item, text: text.lower() == right_of(item) or "weiß" in text, WORDS, "FAIL", "Ich weiß es nicht."),
    "empty": (lambda item, text: not text or text.lower() == right_of(item), WORDS, "FAIL", "an empty answer"),
    "the first letter": (
        lambda item, text: text[:1] == item.constraint["answer"] and (text[1:2].islower() or len(text) == 1), LETTERS,
        "FAIL", "a word that begins with it"),
    "digits for letters": (
        lambda item, text: text in (item.constraint["answer"], str("ABCD".index(str(item.constraint["answer"])) + 1)),
        LETTERS, "WARN", "a digit in the place of a letter"),
    "a number's beginning": (
        lambda item, text: text.startswith(right_of(item)), NUMBERS, "FAIL", "more digits after the right one"),
    "a number's end": (lambda item, text: text.endswith(right_of(item)), NUMBERS, "FAIL", "more digits before"),
    "an ending": (lambda item, text: text.lower().endswith(right_of(item)), WORDS, "WARN", "denied"),
    "a beginning": (lambda item, text: text.lower().startswith(right_of(item)), WORDS, "WARN", "corrected"),
    "looks": (lambda item, text: text.lower().replace("а", "a").replace("е", "e") == right_of(item), WORDS, "WARN",
              "only look like its own"),
    "nan": (lambda item, text: not abs(float(text) - float(right_of(item))) > 0.1, NUMBERS, "FAIL", "'nan' as right"),
}  # fmt: skip


@pytest.mark.parametrize("name", KIND)
def test_a_verifier_that_looks_at_too_little_is_named(attack: Run, name: str) -> None:
    verify, answers, status, part = KIND[name]
    outcome = attack(verify, items(answers))
    assert outcome[0] == status and part in outcome[1], outcome


def asked_with_options(answers: Sequence[str]) -> tuple[Item, ...]:
    options = f"Choose {' or '.join(dict.fromkeys(answers))}"
    return tuple(item.model_copy(update={"prompt": f"{item.prompt} {options}."}) for item in items(answers))


SOUND: dict[str, tuple[Verify, Sequence[Item]]] = {
    "equality": (lambda item, text: text.strip().lower() == right_of(item), items(WORDS)),
    "letters": (lambda item, text: text.strip(" .()").upper() == item.constraint["answer"], items(LETTERS)),
    "a tag": (lambda item, text: text == f"<answer>{item.constraint['answer']}</answer>", items(WORDS)),
    "a box": (lambda item, text: text == f"\\boxed{{{item.constraint['answer']}}}", items(NUMBERS)),
    "a tolerance": (lambda item, text: abs(float(text) - float(right_of(item))) < 0.5, items(NUMBERS)),
    "JSON": (lambda item, text: json.loads(text) == {"answer": item.constraint["answer"]}, items(WORDS)),
    "keys of JSON": (lambda item, text: set(json.loads(text)) == {"n"}, items(WORDS, "n")),
    "at least": (lambda item, text: text.isdigit() and int(text) >= int(item.constraint["n"]), items(NUMBERS, "n")),
    "so many words": (lambda item, text: len(text.split()) == int(item.constraint["n"]), items(NUMBERS, "n")),
    "capital letters": (lambda item, text: text.isupper(), items(WORDS)),
    "no comma": (lambda item, text: "," not in text, items([], "n")),
    "Chinese": (lambda item, text: text.strip("。 ") == item.constraint["answer"], items("水火木金土日月山")),
    "Greek": (lambda item, text: text.casefold() == right_of(item).casefold(), items(("Άλφα", "Βήτα", "Γάμμα"))),
    "exact_answer": (lambda item, text: exact_verify(item, text).passed, items(WORDS)),
    "exact_answer, letters": (lambda item, text: exact_verify(item, text).passed, items(LETTERS)),
    "two labels": (lambda item, text: text.strip(". ").lower() == right_of(item), items(("yes", "no") * 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_verifier_is_admitted_without_a_word(attack: Run, name: str) -> None:
    assert attack(*SOUND[name]) == ("", "")


def test_what_reads_sentences_is_admitted_with_a_warning(attack: Run) -> None:
    number_items = items(NUMBERS, find="last_number")
    status, detail = attack(lambda item, text: exact_verify(item, text).passed, number_items)
    assert status == "WARN" and "out of sentences" in detail
    assert exact_verify(number_items[0], "The answer is 6.").passed
    letters, words = asked_with_options(LETTERS), asked_with_options(("yes", "no", "no") * 4)
    cases: list[tuple[Verify, Sequence[Item]]] = [
        (known_words, items(WORDS)),  # The right label in a sentence, and no other one.
        (lambda item, text: re.findall(r"\b[A-D]\b", text)[-1] == item.constraint["answer"], letters),
        (lambda item, text: re.findall("yes|no", text.lower())[-1] == item.constraint["answer"], words),
    ]
    for verify, some_items in cases:
        status, detail = attack(verify, some_items)
        assert status == "WARN" and "out of sentences" in detail, detail


def test_half_of_a_kind_that_nothing_meets_is_named(attack: Run) -> None:
    word_items = [
        item.model_copy(update={"constraint": {"answer": f"{item.constraint['answer']} "}}) if n % 4 == 1 else item
        for n, item in enumerate(items(WORDS))
    ]
    status, detail = attack(lambda item, text: text.strip() == item.constraint["answer"], word_items)
    assert status == "FAIL" and "2 of 4 items of kind 'l'" in detail and "without spaces around them" in detail


def test_each_attack_has_a_name_of_its_own_and_makes_texts() -> None:
    assert len({entry.name for entry in ATTACKS}) == len(ATTACKS)
    targets = [ProbeTarget(items([right])[0], right, other, "an example") for right, other in
               (("amber 12", "birch 7"), ("6", "12"), ("A", "B"))]  # fmt: skip
    assert not [entry.name for entry in ATTACKS if not any(entry.build(target) for target in targets)]
