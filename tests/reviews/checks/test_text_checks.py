"""Damaged texts of a design are seen in every script, whole ones are left alone; habits of one split are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.checks.text_checks import LEAST_TEXTS, find_damage
from specs.stages.base.artifacts import Item
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import design_results, heldout_items, prompt_items, resolved_spec

WHOLE = (
    "Was bedeutet „Überraschung“ – und warum? Größe: 3×4 µm, 20 °C, 5 €.",
    "« Où est passé… » dit-il. “C’est passé…” L’ÉTÉ À NÎMES, ŒUVRE Nº 5, CAFÉ™",
    "¿Cuántos años tienes? ¡Mañana!",
    "Zażółć gęślą jaźń; příliš žluťoučký kůň; İstanbul'da ılık su.",
    "Tiếng Việt có nhiều dấu: ắ, ệ, ữ.",
    "Съешь ещё этих мягких французских булок. Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "می\u200cخواهم بدانم. שלום עולם. हिन्दी में लिखो क\u094d\u200dष। ภาษาไทย",
    "日本語で書いてください。한국어로 써 주세요. 用中文回答。",
    "Write about 👩\u200d👩\u200d👧 and 🏳️\u200d🌈 in one line.\n\tThen stop.",
    "Is 3 < 4 && 5 > 2? Write a|b, <x> and {3, 4}.",
)
DAMAGED = {
    "â€œPleaseâ€\x9d": "UTF-8 read",
    "donâ€™t": "for '’'",
    "cafÃ©": "for 'é'",
    "20Â°C": "for '°'",
    "GrÃ¶ÃŸe": "UTF-8 read",
    "æ—¥æœ¬èªž": "for '日本語'",
    "ÐŸÑ€Ð¸Ð²ÐµÑ‚": "for 'Привет'",
    "ðŸ˜€ smile": "for '😀'",
    "ï¿½ lost": "UTF-8 read",
    "caf\ufffd": "U+FFFD",
    "e\u200bl\u200bm": "U+200B",
    "soft\u00adhyphen": "U+00AD",
    "bell\x07": "U+0007",
    "over\u202eride": "U+202E",
    "What is an elm?<|im_end|>": "<|im_end|>",
    "[INST] What is an elm? [/INST]": "[INST]",
    "<start_of_turn>user": "<start_of_turn>",
}
TWICE = "Write one line about elms. Write one line about elms."


@pytest.mark.parametrize("text", WHOLE)
def test_whole_texts_of_many_scripts_hold_no_damage(text: str) -> None:
    assert find_damage(text) == ""


@pytest.mark.parametrize("text", DAMAGED)
def test_damage_is_named(text: str) -> None:
    assert DAMAGED[text] in find_damage(f"Say it: {text} please")


def test_a_text_that_is_said_twice_is_damaged() -> None:
    assert find_damage(TWICE) == "says everything twice"
    assert find_damage("Sing: row, row, row your boat.") == find_damage("No, no. No, no.") == ""


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters="<[| "), max_size=80))
def test_plain_texts_are_never_damaged(text: str) -> None:
    assert find_damage(text) == ""


@given(st.text(st.characters(min_codepoint=0xC0, max_codepoint=0x17F, categories=["L"]), min_size=1, max_size=20))
def test_letters_read_in_another_encoding_are_seen(text: str) -> None:
    assert find_damage(text.encode().decode("latin-1"))


def results(
    folder: Path, heldout: tuple[Item, ...], prompts: tuple[Item, ...], most: float = 0.02
) -> dict[str, CheckResult]:
    resolved = resolved_spec(folder)
    thresholds = resolved.spec.thresholds.model_copy(update={"damaged_texts": most})
    resolved = resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"thresholds": thresholds})})
    return {check.id: check for check in design_results(resolved, heldout, {"prompts": prompts})}


def change(items: tuple[Item, ...], text_of: Callable[[str], str], count: int | None = None) -> tuple[Item, ...]:
    """Return the items with the prompts of the first ones, or of all, changed."""
    count = len(items) if count is None else count
    return (*(item.model_copy(update={"prompt": text_of(item.prompt)}) for item in items[:count]), *items[count:])


def items(split: str, kind: str = "lowercase") -> tuple[Item, ...]:
    """Return enough prompts to compare how they are written."""
    names = [f"{split}{number}" for number in range(LEAST_TEXTS)]
    return tuple(
        Item(id=name, group=name, kind=kind, prompt=f"Write one line about {name}. Use small letters.", constraint={})
        for name in names
    )


def test_a_sound_design_has_whole_texts_written_alike(tmp_path: Path) -> None:
    checks = results(tmp_path, items("heldout"), items("train"))
    assert (checks["design.texts"].status, checks["design.alike"].status) == ("PASS", "PASS")
    assert results(tmp_path, items("heldout")[1:], items("train"))["design.alike"].status == "NOT_APPLICABLE"


@pytest.mark.parametrize("side", ["heldout", "train"])
@pytest.mark.parametrize(("most", "status"), [(0.02, "FAIL"), (1.0, "WARN")])
def test_damage_beyond_the_registered_share_of_either_split_fails(
    tmp_path: Path, side: str, most: float, status: str
) -> None:
    heldout, prompts = heldout_items(), prompt_items()
    if side == "heldout":
        heldout = change(heldout, lambda text: f"{text} donâ€™t", 1)
    else:
        prompts = change(prompts, lambda text: f"<|im_start|>user\n{text}", 1)
    check = results(tmp_path, heldout, prompts, most)["design.texts"]
    assert (check.status, check.repairable) == (status, False)
    assert "1 of" in check.detail and side in check.rows[0]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("Tom &amp; Ann", "HTML character reference (&amp;)"),
        ("a<br/>b", "HTML tag (<br/>)"),
        ("\nAssistant: ", "name of a role (Assistant:)"),
        ("about {topic}", "place to fill ({topic})"),
    ],
)
def test_what_may_be_meant_only_warns(tmp_path: Path, text: str, detail: str) -> None:
    check = results(tmp_path, heldout_items(), change(prompt_items(), lambda prompt: prompt + text))["design.texts"]
    assert check.status == "WARN" and detail in check.detail


def test_damage_below_the_share_hides_nothing_else(tmp_path: Path) -> None:
    prompts = change(change(prompt_items(), lambda text: f"{text} &amp;", 2), lambda text: f"{text} donâ€™t", 1)
    check = results(tmp_path, heldout_items(), prompts, most=1.0)["design.texts"]
    assert check.status == "WARN" and "damaged" in check.detail and "&amp;" in check.detail and len(check.rows) == 2


@pytest.mark.parametrize(
    ("text_of", "detail"),
    [
        ("{} Answer:".format, "training prompts end with 'Answer:'"),
        ("Task one. {}".format, "training prompts begin with 'Task'"),
        (str.upper, "training prompts are in capitals"),
    ],
)
def test_a_habit_of_one_split_warns(tmp_path: Path, text_of: Callable[[str], str], detail: str) -> None:
    check = results(tmp_path, items("heldout"), change(items("train"), text_of))["design.alike"]
    assert check.status == "WARN" and detail in check.detail
    both = results(tmp_path, change(items("heldout"), text_of), change(items("train"), text_of))["design.alike"]
    assert both.status == "PASS"


def test_a_held_out_kind_that_is_not_trained_on_warns(tmp_path: Path) -> None:
    heldout = (*items("heldout"), *items("quoted", "quoted"))
    check = results(tmp_path, heldout, items("train"))["design.alike"]
    assert check.status == "WARN" and "no training prompt is of the held-out kinds quoted" in check.detail
    assert results(tmp_path, heldout, items("train", "other"))["design.alike"].status == "PASS"
