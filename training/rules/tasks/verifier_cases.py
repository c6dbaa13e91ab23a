"""Answers whose label is known by construction: what every verifier has to get right before its verdicts count.

Each case is an answer that was written to follow, or to break, one constraint, and was labelled from the constraint's
definition and not from a verifier. Where it can be, a case stands in two lengths: on such a set a verifier that looks
at length agrees with the labels no better than chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from specs.stages.artifacts import Item
from training.rules.tasks.form import plugin_task
from training.rules.tasks.format_instructions import KINDS, prompt_of
from training.rules.tasks.instruction_following import constraint_of

PADDING = "bees fly from one flower to the next and carry pollen with them while the sun is out. " * 7
Pad = Callable[[str], str]


class Case(NamedTuple):
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
    """Pad inside the first quotation mark, or at the beginning where there is none."""
    return f'"{PADDING}{text[1:]}' if text.startswith('"') else f"{PADDING}{text}"


def _in_line(text: str) -> str:
    """Pad the last line."""
    return f"{text} {PADDING.strip()}"


FORMAT: tuple[tuple[str, Mapping[str, str | int], Pad | None, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "lowercase",
        {},
        _after,
        ("tea is a drink made from leaves.", "most tea is grown on hills where it rains often."),
        ("Tea is a drink made from leaves.", "tea is grown in China and drunk everywhere."),
    ),
    (
        "uppercase",
        {},
        _after_loud,
        ("TEA IS A DRINK MADE FROM LEAVES.", "MOST TEA IS GROWN ON HILLS."),
        ("TEA IS A DRINK MADE FROM leaves.", "Tea Is A Drink Made From Leaves."),
    ),
    (
        "quoted",
        {},
        _in_quotes,
        ('"Tea is a drink made from leaves."', '"Most tea is grown on hills."'),
        ("Tea is a drink made from leaves.", '"Tea is a drink made from leaves.'),
    ),
    (
        "bullets",
        {"count": 2},
        _in_line,
        ("- Tea is made from leaves.\n- Tea is often drunk hot.", "- It grows on hills.\n\n- It is picked by hand."),
        (
            "Tea is made from leaves.\nIt is often drunk hot.",
            "- Tea is from leaves.\n- It is hot.\n- It is green.",
        ),
    ),
    (
        "ending",
        {"phrase": "That is all."},
        _before,
        ("Tea is made from leaves. That is all.", "It grows on hills and is picked by hand. That is all."),
        ("That is all. Tea is made from leaves.", "Tea is made from leaves. That is all there is."),
    ),
    (
        "title",
        {},
        _in_line,
        ("<<Tea>>\nTea is made from leaves.", "<<A Drink of Leaves>>\nMost tea is grown on hills."),
        ("Tea\nTea is made from leaves.", "Tea is made from leaves.\n<<Tea>>\nIt is hot."),
    ),
)
"""Kind, constraint, how to lengthen, answers that follow it, answers that break it."""

FOLLOWING: tuple[tuple[str, Mapping[str, Any], Pad | None, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "keywords:existence",
        {"keywords": ["tea", "milk"]},
        _after,
        ("Tea with milk.", "MILK goes into the Tea."),
        ("Tea with sugar.", "Coffee with cream."),
    ),
    (
        "keywords:frequency",
        {"keyword": "tea", "relation": "at least", "frequency": 2},
        _after,
        ("Tea is tea.", "Green tea or black Tea or no tea."),
        ("Tea is a drink.", "It is a drink."),
    ),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["sugar", "cream"]},
        _after,
        ("Tea with milk.", "A sugary drink is not meant."),
        ("Tea with Sugar.", "Cream, please."),
    ),
    (
        "keywords:letter_frequency",
        {"letter": "q", "let_relation": "less than", "let_frequency": 2},
        _after,
        ("A quiet place.", "A calm place."),
        ("A quiet Queen.", "Quick quips are quoted."),
    ),
    (
        "language:response_language",
        {"language": "de"},
        None,
        ("Der Tee ist ein Getränk aus den Blättern und wird heiß getrunken.", "Ich trinke nicht gern Tee mit Milch."),
        ("Tea is a drink made from the leaves of a plant.", "Le thé est une boisson que l'on fait avec les feuilles."),
    ),
    (
        "length_constraints:number_sentences",
        {"relation": "less than", "num_sentences": 3},
        None,
        ("Tea is hot.", "Dr. Lee drinks tea. She likes it."),
        ("Tea is hot. It is green. It is good.", "Yes! It is. Really? Yes."),
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        _after,
        ("Tea is hot.\n***\nIt is green.", "One.\n\n***\n\nTwo and a half."),
        ("Tea is hot.\n\nIt is green.", "One.\n***\nTwo.\n***\nThree."),
    ),
    (
        "length_constraints:number_words",
        {"relation": "at least", "num_words": 6},
        None,
        ("Tea is a drink made from leaves.", "one two three four five six"),
        ("Tea is a drink.", "one two three four five"),
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "green"},
        _after,
        ("Tea is hot.\n\nGreen tea is too.", 'Once.\n\n"Green," she said.'),
        ("Tea is hot.\n\nBlack tea is too.", "Green.\n\nTea is hot.\n\nGreen tea is too."),
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        _after,
        ("Dear [name], meet me at [place].", "[one][two][three]"),
        ("Dear [name], meet me.", "Dear name, meet me at (place)."),
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        _before,
        ("Goodbye.\nP.S. Bring tea.", "Goodbye.\np. s. bring milk."),
        ("Goodbye.", "Goodbye. I gave him the CPS. Bring tea."),
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.P.S"},
        _before,
        ("Goodbye.\nP.P.S Bring tea.", "Goodbye.\nP.P.S. Bring tea."),
        ("Goodbye.\nP.S. Bring tea.", "Goodbye."),
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        _after,
        ("* tea\n* milk", "Take:\n- tea\n- milk"),
        ("* tea\n* milk\n* sugar", "tea\nmilk"),
    ),
    (
        "detectable_format:constrained_response",
        {},
        _after,
        ("My answer is yes.", "My answer is maybe."),
        ("Yes.", "My answer is unclear."),
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        _after,
        ("*tea* and *milk*", "**tea** and *milk*"),
        ("*tea* and milk", "tea ** and milk ** and sugar"),
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        _after,
        ("SECTION 1\nTea.\nSECTION 2\nMilk.", "SECTION 1 a SECTION 2 b SECTION 3 c"),
        ("SECTION 1\nTea.", "Section one\nTea.\nSection two\nMilk."),
    ),
    (
        "detectable_format:json_format",
        {},
        None,
        ('{"drink": "tea"}', '```json\n["tea", "milk", "sugar"]\n```'),
        ("drink: tea", "{'drink': 'tea'}"),
    ),
    (
        "detectable_format:title",
        {},
        _after,
        ("<<Tea>> is a drink.", "It is called <<A Drink>>."),
        ("Tea is a drink.", "<<>> Tea is a drink."),
    ),
    (
        "combination:two_responses",
        {},
        _after,
        ("Tea.\n******\nMilk.", "Tea is hot. ****** Milk is not."),
        ("Tea.\n\nMilk.", "Tea.\n******\nMilk.\n******\nSugar."),
    ),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "Write about tea."},
        _after,
        ("Write about tea. Tea is a drink.", "write about tea.\n\nIt is hot."),
        ("Tea is a drink.", "You said: Write about tea. Tea is a drink."),
    ),
    (
        "startend:end_checker",
        {"end_phrase": "Any other questions?"},
        _before,
        ("Tea is hot. Any other questions?", '"Tea is hot. any other questions?"'),
        ("Any other questions? Tea is hot.", "Tea is hot."),
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "at least", "capital_frequency": 2},
        _after,
        ("TEA is VERY hot.", "DRINK MORE TEA"),
        ("TEA is very hot.", "Tea Is Very Hot."),
    ),
    (
        "change_case:english_capital",
        {},
        _after_loud,
        ("TEA IS HOT.", "DRINK 2 CUPS!"),
        ("TEA is HOT.", "Tea is hot."),
    ),
    (
        "change_case:english_lowercase",
        {},
        _after,
        ("tea is hot.", "drink 2 cups!"),
        ("Tea is hot.", "tea is HOT."),
    ),
    (
        "punctuation:no_comma",
        {},
        _after,
        ("Tea is hot and green.", "Tea; milk; sugar."),
        ("Tea, milk and sugar.", "Yes, tea is hot."),
    ),
    (
        "startend:quotation",
        {},
        _in_quotes,
        ('"Tea is hot."', '"Drink tea!"'),
        ("Tea is hot.", '"Tea" is hot.'),
    ),
)

EXACT: tuple[tuple[Mapping[str, str | int], tuple[str, ...], tuple[str, ...]], ...] = (
    ({"answer": "Paris", "answer_2": "the city of Paris"}, ("Paris", " paris. ", "The City of Paris"), ("Rome", "")),
    ({"answer": "a green tea"}, ("Green tea", "the green tea!"), ("black tea", "green")),
    ({"answer": 1200, "find": "last_number"}, ("So it is 1,200.", "3 + 1197 = 1200.0"), ("1200 and then 7", "many")),
)

TALKS: tuple[tuple[Mapping[str, str | int], Pad | None, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        {"require_2": "Tom"},
        _after,
        ("It is called Tom.", "Tom", "That would be tom, your cat."),
        ("I do not know.", "It is called Tommy.", "To m", "You have a cat."),
    ),
    (
        {"require_2": "blue; Lisbon|Lisboa"},
        _before,
        ("A blue house in Lisboa.", "Lisbon, and it is Blue."),
        ("A blue house.", "A house in Lisbon.", "Bluer houses stand in Lisbon."),
    ),
    ({"forbid_2": "red|crimson"}, _after, ("The sky is blue.", "It was reddish."), ("A red sky.", "Crimson!")),
    ({"form_2": "lowercase"}, _after, ("it rains.", "tea for two."), ("It rains.", "TEA")),
    ({"form_2": "uppercase"}, _after_loud, ("IT RAINS.", "TEA FOR TWO."), ("It rains.", "tea")),
    (
        {"most_words_2": 4},
        None,
        ("Bees make honey.", "They fly - and how!", "Four words are enough."),
        ("Five words are one more.", "Bees make honey out of what they find on flowers.", " "),
    ),
)


def cases_of(task: str) -> tuple[Case, ...]:
    """Return the cases of a task's verifier.

    Raises:
        KeyError: the task has none, so its verifier cannot be admitted.
    """
    makers = {"format_instructions": _format, "instruction_following": _following, "exact_answer": _exact}
    maker = (makers | {"conversation": _talks}).get(task)
    if maker is not None:
        return tuple(maker())
    found = plugin_task(task)
    if found is None:
        raise KeyError(task)
    return tuple(Case(item, output, right) for item, output, right in found.known_answers())


def _format() -> Iterator[Case]:
    for name, constraint, pad, good, bad in FORMAT:
        prompt = prompt_of(KINDS[name], "tea", constraint)
        item = Item(id=f"case-{name}", group="tea", kind=name, prompt=prompt, constraint=dict(constraint))
        yield from _both(item, pad, good, bad)


def _following() -> Iterator[Case]:
    for number, (type_, given, pad, good, bad) in enumerate(FOLLOWING):
        constraint = constraint_of([(type_, given)])
        item = Item(id=f"case-{number}", group="tea", kind=type_, prompt="Say something.", constraint=constraint)
        yield from _both(item, pad, good, bad)


def _exact() -> Iterator[Case]:
    for number, (constraint, good, bad) in enumerate(EXACT):
        item = Item(id=f"case-{number}", group="tea", kind="exact", prompt="What?", constraint=dict(constraint))
        yield from _both(item, None, good, bad)


def _talks() -> Iterator[Case]:
    for number, (due, pad, good, bad) in enumerate(TALKS):
        constraint = {"turn_2": "And now?", **due}
        item = Item(id=f"case-{number}", group="tea", kind="memory", prompt="Hello there.", constraint=constraint)
        yield from _both(item, pad, good, bad)


def _both(item: Item, pad: Pad | None, good: tuple[str, ...], bad: tuple[str, ...]) -> Iterator[Case]:
    for texts, label in ((good, True), (bad, False)):
        for text in texts:
            yield Case(item, text, label)
            if pad is not None:
                yield Case(item, pad(text), label)
