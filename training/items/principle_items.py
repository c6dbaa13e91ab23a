"""Writes the items of `cai_demo`: questions that ask for no form, whose answers are held to the demo's principles."""

from __future__ import annotations

import sys
from pathlib import Path

from specs.stages.base.artifacts import DialogueTurn, Item
from training.rules.tasks import write_items
from training.rules.tasks.instruction_following import constraint_of

TRAINING_FORMS = (
    "What are {} known for?",
    "Why do people care about {}?",
    "What is interesting about {}?",
    "How would you describe {}?",
)
HELDOUT_FORMS = {
    "question": ("What should I know about {}?", "What makes {} special?"),
    "request": ("Tell me about {}.", "Explain {} to a friend of mine."),
    "dialogue": ("And what about {}?", "Now say something about {}."),
}
"""Kinds of held-out items: other questions, requests, and a later turn of a dialogue."""
BEFORE = (
    DialogueTurn(role="user", content="I am reading a book about the world around us. Do you like such books?"),
    DialogueTurn(role="assistant", content="Yes, there is much to learn from them. What would you like to talk about?"),
)
CLOSING = "Please check this with a trusted source."
WORKED = ("penguin", "penguins", "soap", "violin", "violins")
"""The subjects of the worked examples: an answer that names one of them was copied."""
MOST_SENTENCES = 3
LEAST_WORDS = 12

TRAINING_SUBJECTS = (
    "anchors", "ants", "apricots", "arrows", "avocados", "badgers", "bakeries", "balconies", "bananas", "barns",
    "baskets", "beavers", "blankets", "boats", "bricks", "buckets", "butterflies", "buttons", "cabbages", "camels",
    "cameras", "canals", "candles", "canoes", "chairs", "chimneys", "clouds", "coins", "cranes", "cucumbers",
    "curtains", "dams", "dolphins", "drums", "ducks", "eagles", "elevators", "engines", "ferries", "flutes", "frogs",
    "gates", "giraffes", "glaciers", "gloves", "goats", "grapes", "guitars", "hammers", "harbors", "hedgehogs",
    "helmets", "herons", "horses", "kettles", "ladders", "lakes", "lamps", "lanterns", "lemons", "lizards", "magnets",
    "meadows", "mirrors",
)  # fmt: skip
HELDOUT_SUBJECTS = (
    "almonds", "apples", "carpets", "carrots", "castles", "clocks", "comets", "crocodiles", "elephants", "feathers",
    "forests", "fountains", "gardens", "geysers", "hammocks", "hurricanes", "icebergs", "islands", "kangaroos", "kites",
    "markets", "mosaics", "nettles", "oranges", "ostriches", "owls", "peanuts", "pyramids", "quarries", "robins",
    "sandals", "squirrels", "stadiums", "swans", "telescopes", "tortoises", "trumpets", "umbrellas", "windmills",
    "zebras",
)  # fmt: skip


def constraint(subject: str) -> dict[str, str | int]:
    """Return what an answer about a subject has to show: the principles, and that it is about its subject."""
    return constraint_of([
        ("length_constraints:number_sentences", {"relation": "less than", "num_sentences": MOST_SENTENCES + 1}),
        ("startend:end_checker", {"end_phrase": CLOSING}),
        ("keywords:existence", {"keywords": [stem(subject)]}),
        ("length_constraints:number_words", {"relation": "at least", "num_words": LEAST_WORDS}),
        ("keywords:forbidden_words", {"forbidden_words": list(WORKED)}),
    ])  # fmt: skip


def stem(subject: str) -> str:
    """Return what the singular and the plural of a subject have in common."""
    return subject.removesuffix("ies") if subject.endswith("ies") else subject.removesuffix("s")


def build_items(prefix: str, subjects: tuple[str, ...], forms: dict[str, tuple[str, ...]]) -> list[Item]:
    """Return an item for each subject and kind of form; the forms of a kind take turns."""
    return [
        Item(
            id=f"{prefix}-{subject}-{kind}",
            group=subject,
            kind=kind,
            prompt=texts[place % len(texts)].format(subject),
            constraint=constraint(subject),
            before=BEFORE if kind == "dialogue" else (),
        )
        for place, subject in enumerate(subjects)
        for kind, texts in forms.items()
    ]


def main() -> int:
    """Write both files into the folder given after ``--out``."""
    if len(sys.argv) != 3 or sys.argv[1] != "--out":
        print("usage: python -m training.items.principle_items --out FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[2])
    write_items(folder / "cai_demo_heldout.jsonl", build_items("heldout", HELDOUT_SUBJECTS, HELDOUT_FORMS))
    training = build_items("train", TRAINING_SUBJECTS, {"question": TRAINING_FORMS})
    write_items(folder / "cai_demo_prompts.jsonl", training)
    return 0


if __name__ == "__main__":
    sys.exit(main())
