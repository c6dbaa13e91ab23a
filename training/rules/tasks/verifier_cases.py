"""Answers with known labels, which every verifier must judge right before its verdicts count.

Each answer was written to follow, or to break, one constraint, and was labelled by the constraint's definition, not by
a verifier. Most come in two lengths, so that a verifier that looks at length agrees with the labels only by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from specs.stages.base.artifacts import Item
from training.rules.tasks.form import plugin_task
from training.rules.tasks.format_instructions import KINDS, prompt_of
from training.rules.tasks.instruction_following import constraint_of

PADDING = "bees fly from one flower to the next and carry pollen with them while the sun is out. " * 7
Pad = Callable[[str], str]


class VerifierCase(NamedTuple):
    """One answer with its label."""

    item: Item
    output: str
    good: bool


def _after(text: str) -> str:
    return f"{text} {PADDING.strip()}"


def _before(text: str) -> str:
    return f"{PADDING.strip()} {text}"


def _after_loud(text: str) -> str:
    return f"{text} {PADDING.strip().upper()}"


def _in_quotes(text: str) -> str:
    """Pad inside the first quotation mark, or at the beginning if there is none."""
    return f'"{PADDING}{text[1:]}' if text.startswith('"') else f"{PADDING}{text}"


class ConstraintAnswers(NamedTuple):
    """Answers that follow a constraint, answers that break it, and how to lengthen both."""

    kind: str
    good: tuple[str, ...]
    bad: tuple[str, ...]
    arguments: Mapping[str, Any] = {}
    pad: Pad | None = _after


FORMAT = (
    ConstraintAnswers(
        "lowercase",
        ("tea is a drink made from leaves.", "most tea is grown on hills where it rains often."),
        ("Tea is a drink made from leaves.", "tea is grown in China and drunk everywhere."),
    ),
    ConstraintAnswers(
        "uppercase",
        ("TEA IS A DRINK MADE FROM LEAVES.", "MOST TEA IS GROWN ON HILLS."),
        ("TEA IS A DRINK MADE FROM leaves.", "Tea Is A Drink Made From Leaves."),
        pad=_after_loud,
    ),
    ConstraintAnswers(
        "quoted",
        ('"Tea is a drink made from leaves."', '"Most tea is grown on hills."'),
        ("Tea is a drink made from leaves.", '"Tea is a drink made from leaves.'),
        pad=_in_quotes,
    ),
    ConstraintAnswers(
        "bullets",
        ("- Tea is made from leaves.\n- Tea is often drunk hot.", "- It grows on hills.\n\n- It is picked by hand."),
        ("Tea is made from leaves.\nIt is often drunk hot.", "- Tea is from leaves.\n- It is hot.\n- It is green."),
        {"count": 2},
    ),
    ConstraintAnswers(
        "ending",
        ("Tea is made from leaves. That is all.", "It grows on hills and is picked by hand. That is all."),
        ("That is all. Tea is made from leaves.", "Tea is made from leaves. That is all there is."),
        {"phrase": "That is all."},
        pad=_before,
    ),
    ConstraintAnswers(
        "title",
        ("<<Tea>>\nTea is made from leaves.", "<<A Drink of Leaves>>\nMost tea is grown on hills."),
        ("Tea\nTea is made from leaves.", "Tea is made from leaves.\n<<Tea>>\nIt is hot."),
    ),
)

FOLLOWING = (
    ConstraintAnswers(
        "keywords:existence",
        ("Tea with milk.", "MILK goes into the Tea."),
        ("Tea with sugar.", "Coffee with cream."),
        {"keywords": ["tea", "milk"]},
    ),
    ConstraintAnswers(
        "keywords:frequency",
        ("Tea is tea.", "Green tea or black Tea or no tea."),
        ("Tea is a drink.", "It is a drink."),
        {"keyword": "tea", "relation": "at least", "frequency": 2},
    ),
    ConstraintAnswers(
        "keywords:forbidden_words",
        ("Tea with milk.", "A sugary drink is not meant."),
        ("Tea with Sugar.", "Cream, please."),
        {"forbidden_words": ["sugar", "cream"]},
    ),
    ConstraintAnswers(
        "keywords:letter_frequency",
        ("A quiet place.", "A calm place."),
        ("A quiet Queen.", "Quick quips are quoted."),
        {"letter": "q", "let_relation": "less than", "let_frequency": 2},
    ),
    ConstraintAnswers(
        "language:response_language",
        ("Der Tee ist ein Getränk aus den Blättern und wird heiß getrunken.", "Ich trinke nicht gern Tee mit Milch."),
        ("Tea is a drink made from the leaves of a plant.", "Le thé est une boisson que l'on fait avec les feuilles."),
        {"language": "de"},
        pad=None,
    ),
    ConstraintAnswers(
        "length_constraints:number_sentences",
        ("Tea is hot.", "Dr. Lee drinks tea. She likes it."),
        ("Tea is hot. It is green. It is good.", "Yes! It is. Really? Yes."),
        {"relation": "less than", "num_sentences": 3},
        pad=None,
    ),
    ConstraintAnswers(
        "length_constraints:number_paragraphs",
        ("Tea is hot.\n***\nIt is green.", "One.\n\n***\n\nTwo and a half."),
        ("Tea is hot.\n\nIt is green.", "One.\n***\nTwo.\n***\nThree."),
        {"num_paragraphs": 2},
    ),
    ConstraintAnswers(
        "length_constraints:number_words",
        ("Tea is a drink made from leaves.", "one two three four five six"),
        ("Tea is a drink.", "one two three four five"),
        {"relation": "at least", "num_words": 6},
        pad=None,
    ),
    ConstraintAnswers(
        "length_constraints:nth_paragraph_first_word",
        ("Tea is hot.\n\nGreen tea is too.", 'Once.\n\n"Green," she said.'),
        ("Tea is hot.\n\nBlack tea is too.", "Green.\n\nTea is hot.\n\nGreen tea is too."),
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "green"},
    ),
    ConstraintAnswers(
        "detectable_content:number_placeholders",
        ("Dear [name], meet me at [place].", "[one][two][three]"),
        ("Dear [name], meet me.", "Dear name, meet me at (place)."),
        {"num_placeholders": 2},
    ),
    ConstraintAnswers(
        "detectable_content:postscript",
        ("Goodbye.\nP.S. Bring tea.", "Goodbye.\np. s. bring milk."),
        ("Goodbye.", "Goodbye. I gave him the CPS. Bring tea."),
        {"postscript_marker": "P.S."},
        pad=_before,
    ),
    ConstraintAnswers(
        "detectable_content:postscript",
        ("Goodbye.\nP.P.S Bring tea.", "Goodbye.\nP.P.S. Bring tea."),
        ("Goodbye.\nP.S. Bring tea.", "Goodbye."),
        {"postscript_marker": "P.P.S"},
        pad=_before,
    ),
    ConstraintAnswers(
        "detectable_format:number_bullet_lists",
        ("* tea\n* milk", "Take:\n- tea\n- milk"),
        ("* tea\n* milk\n* sugar", "tea\nmilk"),
        {"num_bullets": 2},
    ),
    ConstraintAnswers(
        "detectable_format:constrained_response",
        ("My answer is yes.", "My answer is maybe."),
        ("Yes.", "My answer is unclear."),
    ),
    ConstraintAnswers(
        "detectable_format:number_highlighted_sections",
        ("*tea* and *milk*", "**tea** and *milk*"),
        ("*tea* and milk", "tea ** and milk ** and sugar"),
        {"num_highlights": 2},
    ),
    ConstraintAnswers(
        "detectable_format:multiple_sections",
        ("SECTION 1\nTea.\nSECTION 2\nMilk.", "SECTION 1 a SECTION 2 b SECTION 3 c"),
        ("SECTION 1\nTea.", "Section one\nTea.\nSection two\nMilk."),
        {"section_spliter": "SECTION", "num_sections": 2},
    ),
    ConstraintAnswers(
        "detectable_format:json_format",
        ('{"drink": "tea"}', '```json\n["tea", "milk", "sugar"]\n```'),
        ("drink: tea", "{'drink': 'tea'}"),
        pad=None,
    ),
    ConstraintAnswers(
        "detectable_format:title",
        ("<<Tea>> is a drink.", "It is called <<A Drink>>."),
        ("Tea is a drink.", "<<>> Tea is a drink."),
    ),
    ConstraintAnswers(
        "combination:two_responses",
        ("Tea.\n******\nMilk.", "Tea is hot. ****** Milk is not."),
        ("Tea.\n\nMilk.", "Tea.\n******\nMilk.\n******\nSugar."),
    ),
    ConstraintAnswers(
        "combination:repeat_prompt",
        ("Write about tea. Tea is a drink.", "write about tea.\n\nIt is hot."),
        ("Tea is a drink.", "You said: Write about tea. Tea is a drink."),
        {"prompt_to_repeat": "Write about tea."},
    ),
    ConstraintAnswers(
        "startend:end_checker",
        ("Tea is hot. Any other questions?", '"Tea is hot. any other questions?"'),
        ("Any other questions? Tea is hot.", "Tea is hot."),
        {"end_phrase": "Any other questions?"},
        pad=_before,
    ),
    ConstraintAnswers(
        "change_case:capital_word_frequency",
        ("TEA is VERY hot.", "DRINK MORE TEA"),
        ("TEA is very hot.", "Tea Is Very Hot."),
        {"capital_relation": "at least", "capital_frequency": 2},
    ),
    ConstraintAnswers(
        "change_case:english_capital", ("TEA IS HOT.", "DRINK 2 CUPS!"), ("TEA is HOT.", "Tea is hot."), pad=_after_loud
    ),
    ConstraintAnswers(
        "change_case:english_lowercase", ("tea is hot.", "drink 2 cups!"), ("Tea is hot.", "tea is HOT.")
    ),
    ConstraintAnswers(
        "punctuation:no_comma",
        ("Tea is hot and green.", "Tea; milk; sugar."),
        ("Tea, milk and sugar.", "Yes, tea is hot."),
    ),
    ConstraintAnswers(
        "startend:quotation", ('"Tea is hot."', '"Drink tea!"'), ("Tea is hot.", '"Tea" is hot.'), pad=_in_quotes
    ),
)

EXACT = (
    ConstraintAnswers(
        "exact",
        ("Paris", " paris. ", "The City of Paris"),
        ("Rome", ""),
        {"answer": "Paris", "answer_2": "the city of Paris"},
        pad=None,
    ),
    ConstraintAnswers(
        "exact", ("Green tea", "the green tea!"), ("black tea", "green"), {"answer": "a green tea"}, pad=None
    ),
    ConstraintAnswers(
        "exact",
        ("So it is 1,200.", "3 + 1197 = 1200.0"),
        ("1200 and then 7", "many"),
        {"answer": 1200, "find": "last_number"},
        pad=None,
    ),
)

TALKS = (
    ConstraintAnswers(
        "memory",
        ("It is called Tom.", "Tom", "That would be tom, your cat."),
        ("I do not know.", "It is called Tommy.", "To m", "You have a cat."),
        {"require_2": "Tom"},
    ),
    ConstraintAnswers(
        "memory",
        ("A blue house in Lisboa.", "Lisbon, and it is Blue."),
        ("A blue house.", "A house in Lisbon.", "Bluer houses stand in Lisbon."),
        {"require_2": "blue; Lisbon|Lisboa"},
        pad=_before,
    ),
    ConstraintAnswers(
        "memory", ("The sky is blue.", "It was reddish."), ("A red sky.", "Crimson!"), {"forbid_2": "red|crimson"}
    ),
    ConstraintAnswers("memory", ("it rains.", "tea for two."), ("It rains.", "TEA"), {"form_2": "lowercase"}),
    ConstraintAnswers(
        "memory", ("IT RAINS.", "TEA FOR TWO."), ("It rains.", "tea"), {"form_2": "uppercase"}, pad=_after_loud
    ),
    ConstraintAnswers(
        "memory",
        ("Bees make honey.", "They fly - and how!", "Four words are enough."),
        ("Five words are one more.", "Bees make honey out of what they find on flowers.", " "),
        {"most_words_2": 4},
        pad=None,
    ),
)


_KNOWN_ANSWERS: dict[
    str, tuple[tuple[ConstraintAnswers, ...], Callable[[ConstraintAnswers], tuple[str, Mapping[str, Any]]]]
] = {
    "format_instructions": (
        FORMAT,
        lambda value: (prompt_of(KINDS[value.kind], "tea", value.arguments), value.arguments),
    ),
    "instruction_following": (
        FOLLOWING,
        lambda value: ("Say something.", constraint_of([(value.kind, value.arguments)])),
    ),
    "exact_answer": (EXACT, lambda value: ("What?", value.arguments)),
    "conversation": (TALKS, lambda value: ("Hello there.", {"turn_2": "And now?", **value.arguments})),
}
"""Task -> its known answers, and the prompt and constraint of the item that they answer."""


def cases_of(task: str) -> tuple[VerifierCase, ...]:
    """Return the cases of a task's verifier; raises KeyError if the task has none, so that it cannot be admitted."""
    if task in _KNOWN_ANSWERS:
        every, function = _KNOWN_ANSWERS[task]
        return tuple(case for number, known in enumerate(every) for case in _cases(known, number, *function(known)))
    plugin_task_result = plugin_task(task)
    if plugin_task_result is None:
        raise KeyError(task)
    return tuple(VerifierCase(item, output, right) for item, output, right in plugin_task_result.known_answers())


def _cases(known: ConstraintAnswers, number: int, prompt: str, constraint: Mapping[str, Any]) -> Iterator[VerifierCase]:
    item = Item(id=f"case-{number}", group="tea", kind=known.kind, prompt=prompt, constraint=dict(constraint))
    for texts, label in ((known.good, True), (known.bad, False)):
        for text in texts:
            yield VerifierCase(item, text, label)
            if known.pad is not None:
                yield VerifierCase(item, known.pad(text), label)
