"""Held-out texts in whatever a model learns from or is prompted with, items that are not independent, and scripts.

Written before the checks were changed: of most of these the product knew nothing.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from bench.flaws.operator import Change, Operator, Row
from testing.fixtures.small_pipeline import CONSTITUTION
from training.items.format_items import HELDOUT_TOPICS

COPIED, ALIKE = ("design.overlap", "leakage.overlap"), ("design.unique", "design.groups", "strata.groups")
SEEN = f"Write one sentence about {HELDOUT_TOPICS[0]}. Use only lowercase letters."
ALSO_SEEN = f"Write one sentence about {HELDOUT_TOPICS[1]}. Put your whole answer inside double quotation marks."
_TRAIN = "  - name: train\n    kind: sft\n    inputs: {model: model, examples: sample.accepted}\n"
_EXAMPLES: tuple[Change, ...] = (
    ("prompts: {path: prompts.jsonl}", "prompts: {path: prompts.jsonl}\n  more: {path: more.jsonl}"),
    (_TRAIN, _TRAIN.replace("sample.accepted", "data.more")),
)
_QUESTIONS: tuple[Change, ...] = (
    ("task: format_instructions", "task: exact_answer"),
    ("samples_per_prompt: 4,", "worked_example: false, samples_per_prompt: 4,"),
)
_PREAMBLE = (
    "You are a careful archivist. Read the question that follows, think about every record that you know, and give the "
    "year alone, in four digits, with no other word, no mark and no explanation of how you came to it. Question: "
)
_LETTERS = {
    "en": "ba ke lo mi nu ra se ti vo du", "zh": "山 水 火 木 金 石 云 风 花 鸟", "ja": "さ く ら み の や ま か わ ち",
    "th": "กา ขี คู เง จำ ชา ดี ตู เท นำ",
    "emoji": "🐘 🦁 🐸 🦊 🐙 🦉 🐝 🐢 🦀 🐳", "code": "foo bar baz qux row col idx acc tmp buf",
}  # fmt: skip
_INSTRUCTIONS = {
    "en": "In which year did {0} found the town of {1} near the river {2}?",
    "zh": "{0}是在哪一年于{2}河边建立{1}城的？",
    "ja": "{0}が{2}川のほとりに{1}の町をつくったのは何年ですか", "th": "{0}ก่อตั้งเมือง{1}ริมแม่น้ำ{2}ในปีใด",
    "emoji": "{0}{1}{2}{1}{0}{2}{0}🎬❓",
    "code": "def {0}({1}): return {1}+{2}*{1}-{2}%7 # {0}(3)?",
}  # fmt: skip


def _ask(language: str, number: int) -> str:
    """Return a question in a language; no two numbers below 1000 have the same."""
    letters = _LETTERS[language].split()
    names = ["".join(letters[(number * step // 10**place) % 10] for place in range(3)) for step in (1, 7, 13)]
    return _INSTRUCTIONS[language].format(*names)


def _question_rows(language: str, preamble: str = "") -> Callable[[list[Row], list[Row]], None]:
    """Return the change that makes all rows questions with years as answers."""

    def change(heldout: list[Row], prompts: list[Row]) -> None:
        for number, row in enumerate((*prompts, *heldout), 100):
            row |= {"prompt": preamble + _ask(language, number), "group": f"g{number}", "kind": f"k{number % 2}"}
            row["constraint"] = {"answer": str(1000 + 7 * number)}

    return change


def _in_language(name: str, what: str, language: str, copy: Callable[[str], str], preamble: str = "") -> Operator:
    """Return the operator of a session of questions; half of the held-out ones are copied by ``copy`` to training."""

    def leak(heldout: list[Row], prompts: list[Row]) -> None:
        _question_rows(language, preamble)(heldout, prompts)
        for own, seen_row in zip(prompts, heldout[::2], strict=False):
            own["prompt"] = copy(seen_row["prompt"])

    return Operator(name, "words", what, COPIED, spec=_QUESTIONS, data=leak)


def _write_examples(made: Callable[[Sequence[Row]], list[dict[str, Any]]]) -> dict[str, Callable[[list[Row]], str]]:
    return {"more.jsonl": lambda heldout: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made(heldout))}


def _halves(heldout: Sequence[Row]) -> list[dict[str, Any]]:
    """Return each held-out prompt in two examples, its first words in one and the others in the next."""
    rows: list[dict[str, Any]] = []
    for row in heldout:
        words = row["prompt"].split()
        parts = " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])
        rows += [{"prompt": f"Go on, part {place}.", "completion": part} for place, part in enumerate(parts)]
    return rows


def _long_answers(heldout: list[Row], _: list[Row]) -> None:
    _question_rows("en")(heldout, _)
    for number, row in enumerate(heldout):
        row["constraint"] = {"answer": f"a letter of {_ask('en', 500 + number)[3:-1]} says that no one lived there"}


def _short_answers(heldout: list[Row], _: list[Row]) -> None:
    _question_rows("en")(heldout, _)
    for number, row in enumerate(heldout):
        row["constraint"] = {"answer": str(17_389 * (number + 3))}


def _turns(heldout: Sequence[Row]) -> list[dict[str, Any]]:
    """Return conversations whose turns are the two halves of a held-out prompt."""
    rows: list[dict[str, Any]] = []
    for row in heldout:
        first, second = re.split(r"(?<=\.) ", row["prompt"], maxsplit=1)
        turns = [("user", first), ("assistant", "Yes?"), ("user", second), ("assistant", "Here it is, as you like it.")]
        rows.append({"messages": [{"role": role, "content": text} for role, text in turns]})
    return rows


def _constitution(heldout: list[Row]) -> str:
    text = CONSTITUTION.read_text(encoding="utf-8")
    return re.sub(
        r"(    text: )(.+)", rf"\1Prefer a good answer to '{heldout[0]['prompt'][:-1]}' over any other.", text, count=1
    )


def _uncountable(_: list[Row]) -> str:
    """Return a constitution whose first principle names an instruction that no held-out item holds."""
    text = CONSTITUTION.read_text(encoding="utf-8")
    return re.sub(r"(    text: .+\n)", r"\1    instructions: ['punctuation:no_comma']\n", text, count=1)


def _own_groups(heldout: list[Row], _: list[Row]) -> None:
    """Ask ten questions four times in slightly different words, with a group for each."""
    frames = ("{}", "Tell me this: {}", "{} Please answer.", "A quick task for you now. {}")
    base = [row["prompt"] for row in heldout[:10]]
    for place, row in enumerate(heldout):
        row |= {"prompt": frames[place // 10 % 4].format(base[place % 10]), "group": f"g{place}"}
        row["kind"] = heldout[place % 10]["kind"]


def _one_topic(heldout: list[Row], _: list[Row]) -> None:
    """Ask for one topic throughout, and name the groups after the places where it lives."""
    for place, row in enumerate(heldout):
        where = _ask("en", place).split()[-1][:-1]
        row["prompt"] = row["prompt"].replace(row["group"], f"the giant pandas of {where}")
        row["group"] = where


def _item_groups(heldout: list[Row], _: list[Row]) -> None:
    """Keep five topics, eight items each, and call every item its own group."""
    for place, row in enumerate(heldout):
        topic = f"the river {_ask('en', place % 5).split()[-1][:-1]}"
        row["prompt"] = row["prompt"].replace(row["group"], f"{topic} in its year {1700 + place}")
        row["group"] = f"item-{place}"


def _renamed_topics(heldout: list[Row], prompts: list[Row]) -> None:
    """Train on the held-out topics under names that differ in case and number."""
    topics = list(dict.fromkeys(row["group"] for row in heldout))
    for place, row in enumerate(prompts):
        topic = topics[place // 2 % len(topics)]
        row["prompt"] = f"Say something new, sentence {place}, on {topic}, in any form you like."
        row["group"] = f"The {topic.title()}"


def _write_pool(heldout: list[Row]) -> str:
    """Return a pool with each held-out item and a harder one, of which the rule draws others too."""
    harder = [row | {"id": f"harder-{row['id']}", "prompt": f"{row['prompt']} Use no letter twice."} for row in heldout]
    return "".join(json.dumps(row) + "\n" for row in (*heldout, *harder))


def _mar(name: str, what: str, change: Callable[[str], str], *, heldout: bool = True) -> Operator:
    """Return the operator that changes every second prompt of a split."""

    def mar(items: list[Row], prompts: list[Row]) -> None:
        for row in (items if heldout else prompts)[::2]:
            row["prompt"] = change(row["prompt"])

    return Operator(name, "marred", what, ("design.texts",), data=mar)


def _end_alike(_: list[Row], prompts: list[Row]) -> None:
    for row in prompts:
        row["prompt"] += " Answer:"


OPERATORS = (
    Operator(
        "few-shot-wrapper",
        "contamination",
        "both arms are prompted with held-out items as worked examples",
        COPIED,
        spec=(
            (
                "max_new_tokens: 48, batch_size: 16",
                "max_new_tokens: 48, prompting: wrapped, wrapper: "
                f'"{SEEN}\\nrain\\n\\n{ALSO_SEEN}\\nsun\\n\\n{{prompt}}\\n", batch_size: 16',
            ),
        ),
    ),
    Operator(
        "sampled-wrapper",
        "contamination",
        "samples are drawn behind a held-out prompt",
        COPIED,
        spec=(
            ("samples_per_prompt: 4,", f'worked_example: false, wrapper: "{SEEN} {{prompt}}", samples_per_prompt: 4,'),
        ),
    ),
    Operator(
        "trained-format",
        "contamination",
        "the text around every training prompt holds a held-out prompt",
        COPIED,
        spec=(("warmup_ratio: 0, epochs: 3", f'prompt_format: "{ALSO_SEEN} {{prompt}}", warmup_ratio: 0, epochs: 3'),),
    ),
    Operator(
        "rubric-example",
        "contamination",
        "a critic's worked example is a held-out prompt",
        COPIED,
        session="judged",
        spec=(('head: "Is it good?', f'head: "As in: {SEEN} Is it good?'),),
    ),
    Operator(
        "constitution-quotes",
        "contamination",
        "a principle of the constitution quotes a held-out prompt",
        COPIED,
        files={"constitution.yaml": _constitution},
    ),
    Operator(
        "uncounted-principle",
        "revisions",
        "a principle is to be counted by an instruction that no held-out item holds",
        ("design.principles",),
        files={"constitution.yaml": _uncountable},
    ),
    Operator(
        "in-completions",
        "contamination",
        "completions of training examples ask held-out prompts",
        COPIED,
        spec=_EXAMPLES,
        files=_write_examples(
            lambda heldout: [
                {"prompt": f"Invent task {place}.", "completion": f"Sure, here is one: {row['prompt']}"}
                for place, row in enumerate(heldout)
            ]
        ),
    ),
    Operator(
        "split-over-examples",
        "contamination",
        "held-out prompts are cut in two training examples each",
        COPIED,
        spec=_EXAMPLES,
        files=_write_examples(_halves),
    ),
    Operator(
        "split-over-turns",
        "contamination",
        "held-out prompts are cut into two turns",
        COPIED,
        spec=_EXAMPLES,
        files=_write_examples(_turns),
    ),
    Operator(
        "right-answers",
        "contamination",
        "completions hold the long right answers of held-out items",
        COPIED,
        spec=(*_QUESTIONS, *_EXAMPLES),
        data=_long_answers,
        files=_write_examples(
            lambda heldout: [
                {"prompt": f"Write line {place}.", "completion": f"It is known that {row['constraint']['answer']}."}
                for place, row in enumerate(heldout)
            ]
        ),
    ),
    Operator(
        "short-answers",
        "contamination",
        "completions are the rare short right answers of held-out items",
        COPIED,
        spec=(*_QUESTIONS, *_EXAMPLES),
        data=_short_answers,
        files=_write_examples(
            lambda heldout: [
                {"prompt": f"Number of entry {place}?", "completion": str(row["constraint"]["answer"])}
                for place, row in enumerate(heldout)
            ]
        ),
    ),
    Operator(
        "reworded-groups",
        "independence",
        "ten questions are asked four times each, as forty groups",
        ALIKE,
        data=_own_groups,
    ),
    Operator(
        "item-groups",
        "independence",
        "five topics with eight items each are called forty groups",
        ALIKE,
        data=_item_groups,
    ),
    Operator("one-topic", "independence", "all held-out items are about one animal", ALIKE, data=_one_topic),
    Operator(
        "renamed-topics",
        "independence",
        "training has the held-out topics under other names",
        ("design.groups", "leakage.groups"),
        data=_renamed_topics,
    ),
    Operator(
        "picked-from-pool",
        "independence",
        "the held-out items are the easy half of the registered pool",
        ("design.drawn",),
        spec=(
            ("prompts: {path: prompts.jsonl}", "prompts: {path: prompts.jsonl}\n  pool: {path: pool.jsonl}"),
            ("heldout: {path: heldout.jsonl, ", "heldout: {pool: {data: pool, per_kind: 20}, path: heldout.jsonl, "),
        ),
        files={"pool.jsonl": _write_pool},
    ),
    _in_language("chinese-near", "Chinese copies with a word more", "zh", lambda text: f"请问{text}"),
    _in_language(
        "chinese-inside",
        "Chinese copies inside a longer text",
        "zh",
        lambda text: f"下面有一个问题，想好再答。{text}答案只写年份。",
    ),
    _in_language(
        "japanese-inside",
        "Japanese copies inside a longer text",
        "ja",
        lambda text: f"つぎの問いに答えてください。{text}。数字だけ。",
    ),
    _in_language(
        "thai-inside", "Thai copies inside a longer text", "th", lambda text: f"โปรดตอบคำถามต่อไปนี้{text}ตอบเป็นตัวเลข"
    ),
    _in_language("emoji-inside", "emoji copies inside a longer text", "emoji", lambda text: f"🎉🎉{text}🎉🎉"),
    _in_language(
        "code-respaced", "copies of code with other spaces", "code", lambda text: re.sub(r"([+*%-])", r" \1 ", text)
    ),
    _in_language(
        "without-preamble",
        "copies without the preamble that all prompts share",
        "en",
        lambda text: text.removeprefix(_PREAMBLE),
        _PREAMBLE,
    ),
    _in_language(
        "other-preamble",
        "copies behind another preamble",
        "en",
        lambda text: f"Answer me. {text.removeprefix(_PREAMBLE)}",
        _PREAMBLE,
    ),
    _mar(
        "misread-characters",
        "half of the held-out prompts were read in another encoding",
        lambda text: f"“{text}” – please.".encode().decode("latin-1"),
    ),
    _mar("hidden-characters", "half of the held-out prompts hold letters that are not seen", "\u200b".join),
    _mar(
        "template-marks",
        "half of the training prompts hold marks of a chat template",
        lambda text: f"<|im_start|>user\n{text}<|im_end|>",
        heldout=False,
    ),
    _mar(
        "escaped-html", "half of the held-out prompts are pieces of a page", lambda text: f"<p>{html.escape(text)}</p>"
    ),
    _mar("said-twice", "half of the held-out prompts say everything twice", lambda text: f"{text} {text}"),
    Operator(
        "own-ending", "marred", "all training prompts end with a word of their own", ("design.alike",), data=_end_alike
    ),
)
