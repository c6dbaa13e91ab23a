"""What overlap checks find under a disguise, and what they take for an overlap wrongly: ``python -m bench.disguise``.

Each disguise is put on the shipped held-out prompts. False alarms are counted on the shipped data, on IFEval's prompts
after ``make -f more.mk ifeval``, and on three sets written here: their texts all ask different things, so any match is
wrong.
A match of the kind ``reordered`` only warns; all others fail their check. Prompts that show an accepted answer as an
example are counted too.

Paraphrases of held-out prompts are planted among the training prompts, and the pairs counted that a reviewer is then
asked about (``*.nearest``), with those that it is asked about where none was planted.
"""

from __future__ import annotations

import base64
import codecs
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from reviews.checks.definition import SHOWN_ROWS
from reviews.checks.leakage_checks import groups_of, nearest_pairs
from reviews.evidence.text_overlap import find_overlaps
from reviews.stages.evaluation.label_checks import shows_example
from specs.stages.artifacts import Item

DATA = Path("specs/library/data")
IFEVAL = Path("ifeval/ifeval.jsonl")
EXAMPLES: tuple[tuple[str, Path], ...] = (
    ("format_instructions", DATA / "format_heldout_large.jsonl"),
    ("instruction_following", IFEVAL),
)
SPLITS = (("format_train", "format_heldout"), ("format_train_large", "format_heldout_large"))
ALIKE = str.maketrans("aeopcx", "\u0430\u0435\u043e\u0440\u0441\u0445")


def shuffled(text: str) -> str:
    """Return the words in a seeded other order, those with digits in theirs, and a filler in front."""
    words = text.split()
    free = [place for place, word in enumerate(words) if not any(map(str.isdigit, word))]
    order = random.Random(1).sample(free, len(free))
    mixed = list(words)
    for place, source in zip(free, order, strict=True):
        mixed[place] = words[source]
    return "Please " + " ".join(mixed)


DISGUISES: dict[str, Callable[[str], str]] = {
    "look-alike letters": lambda text: text.translate(ALIKE),
    "invisible marks": lambda text: "\u200b".join(text),
    "case and marks": lambda text: f"** {text.upper()} !!",
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "percent signs": lambda text: quote(text),
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "reversed characters": lambda text: text[::-1],
    "reversed words": lambda text: " ".join(reversed(text.split())),
    "shuffled, with a filler": shuffled,
}


OTHER_WORDS = (
    ("Write one sentence about", "Compose a single line on"),
    ("Use only lowercase letters.", "No capitals anywhere, please."),
    ("Use only capital letters.", "Everything must be in upper case."),
    ("Put your whole answer inside double quotation marks.", "Wrap all of what you say in quotes."),
    ("Start every line with '- ' and write nothing else.", "One hyphen and a blank before each, no other text."),
    ("End your answer with the words:", "The last thing you say is"),
    ("Put a title wrapped in << and >> on the first line.", "Begin by a heading between double angle brackets."),
    ("List", "Give"),
    ("facts about", "things that are true of"),
)
PLANTED, DRAWS = (1, 3, 10), 20


def items(path: Path) -> list[Item]:
    """Return the items of a file."""
    return [Item.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def prompts(path: Path) -> list[str]:
    """Return the prompts of a file of items, each once."""
    return list(dict.fromkeys(item.prompt for item in items(path)))


def reworded(text: str) -> str:
    """Return a prompt of the shipped data in other words; what it is about keeps its name."""
    for before, after in OTHER_WORDS:
        text = text.replace(before, after)
    return text


def paraphrases(train: list[Item], heldout: list[Item], count: int, seed: int) -> tuple[int, int, str]:
    """Plant paraphrases; return how many a reviewer is shown, among how many pairs, and the status of the groups."""
    drawn = random.Random(seed)
    rows = [(item.id, item.prompt) for item in train]
    planted = dict(zip(drawn.sample(range(len(rows)), count), drawn.sample(heldout, count), strict=True))
    for place, item in planted.items():
        rows[place] = (rows[place][0], reworded(item.prompt))
    visible = nearest_pairs(rows, heldout).shown[:SHOWN_ROWS]
    results = {pair["train"] for pair in visible} & {rows[place][0] for place in planted}
    named = [item.model_copy(update={"prompt": text}) for item, (_, text) in zip(train, rows, strict=True)]
    return len(results), len(visible), groups_of(named, heldout).status


def questions() -> list[str]:
    """Return questions of arithmetic: the same words, other numbers or another order of them."""
    pairs = itertools.permutations(range(3, 30), 2)
    return [f"A shop has {a} boxes and sells {b} of them today. How many boxes are left?" for a, b in pairs]


def instructions() -> list[str]:
    """Return instructions that differ in form, topic or length."""
    forms, topics = ("poem", "letter", "story", "list", "speech"), ("tea", "rain", "bread", "trains", "owls", "chess")
    return [
        f"Write a {form} about {topic} in {count} sentences and give it a title"
        for form, topic, count in itertools.product(forms, topics, range(2, 12))
    ]


def dialogues() -> list[str]:
    """Return short dialogues that differ in who speaks, about what and when."""
    days, things = ("Monday", "Tuesday", "Friday", "Sunday"), ("a ladder", "a lamp", "a kettle", "a tent", "a saw")
    people = itertools.permutations(("Ana", "Ben", "Cleo", "Dov"), 2)
    return [
        f"User: I lent {thing} to a friend on {day}.\nAssistant: Who has it?\n"
        f"User: {value} has it and {other} does not."
        for (value, other), thing, day in itertools.product(people, things, days)
    ]


def alarms(train: list[str], heldout: list[str]) -> Counter[str]:
    """Return how many pairs match, by the way they do."""
    pairs = [[(str(place), text) for place, text in enumerate(side)] for side in (train, heldout)]
    return Counter(overlap.how for overlap in find_overlaps(pairs[0], pairs[1], reordered=True))


def halves(texts: list[str]) -> tuple[list[str], list[str]]:
    """Return a seeded split of texts in two."""
    mixed = random.Random(1).sample(texts, len(texts))
    return mixed[::2], mixed[1::2]


def main() -> int:
    """Print both tables and the time of a large comparison."""
    texts = prompts(DATA / "format_heldout.jsonl")
    for name, disguise in DISGUISES.items():
        rows = [(str(place), disguise(text)) for place, text in enumerate(texts)]
        overlaps = find_overlaps(rows, [(str(place), text) for place, text in enumerate(texts)], reordered=True)
        caught = {overlap.train for overlap in overlaps if overlap.train == overlap.heldout}
        print(f"{name:26} found {len(caught)} of {len(texts)}")
    sets = {
        f"{text} / {other}": (prompts(DATA / f"{text}.jsonl"), prompts(DATA / f"{other}.jsonl"))
        for text, other in SPLITS
    }
    sets |= {make.__name__: halves(make()) for make in (questions, instructions, dialogues)}
    if IFEVAL.exists():
        sets["IFEval, in halves"] = halves(prompts(IFEVAL))
    else:
        print("IFEval is left out: `make -f more.mk ifeval` downloads it", file=sys.stderr)
    for name, (train, heldout) in sets.items():
        message = ", ".join(f"{count} {how}" for how, count in sorted(alarms(train, heldout).items())) or "0"
        print(f"{name:42} false alarms: {message} of {len(train) * len(heldout)} pairs")
    for name, (train, heldout) in sets.items():
        made = [Item(id=text, group=text, kind="any", prompt=text, constraint={}) for text in heldout]
        figure = nearest_pairs([(text, text) for text in train], made).figure
        print(f"{name:42} a reviewer is asked about {figure:.0f} pairs of {len(train)} and {len(heldout)} texts")
    for text, other in SPLITS:
        for count in PLANTED:
            sides = items(DATA / f"{text}.jsonl"), items(DATA / f"{other}.jsonl")
            tries = [paraphrases(*sides, count, seed) for seed in range(DRAWS)]
            overlaps, value = sum(each[0] for each in tries) / DRAWS, sum(each[1] for each in tries) / DRAWS
            statuses = ", ".join(f"{times} {status}" for status, times in Counter(each[2] for each in tries).items())
            message = f"{overlaps / count:.0%} shown, among {value:.1f} pairs; groups {statuses}"
            print(f"{text:20} {count:>2} paraphrases: {message}")
    for task, path in EXAMPLES:
        known = items(path) if path.exists() else []
        value = sum(shows_example(task, item) is not None for item in known)
        print(f"{path.name:42} {value} of {len(known)} prompts show an example that is accepted")
    drawn = random.Random(1)
    large = [" ".join(f"word{drawn.randrange(5000)}" for _ in range(40)) for _ in range(11_000)]
    started_at = time.perf_counter()
    alarms(large[:10_000], large[10_000:])
    print(f"10,000 texts of 40 words against 1,000: {time.perf_counter() - started_at:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
