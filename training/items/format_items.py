"""Writes the items of format instructions."""

from __future__ import annotations

import sys
from pathlib import Path

from specs.stages.base.artifacts import Item
from training.rules.tasks import write_items
from training.rules.tasks.format_instructions import KINDS, prompt_of


def build_items(prefix: str, topics: tuple[str, ...]) -> list[Item]:
    """Return one item per topic and kind, kinds interleaved, so that any beginning of the list is balanced."""
    items: list[Item] = []
    for index, topic in enumerate(topics):
        for kind in KINDS.values():
            constraint = kind.values[index % len(kind.values)]
            items.append(
                Item(
                    id=f"{prefix}-{topic.replace(' ', '-')}-{kind.name}",
                    group=topic,
                    kind=kind.name,
                    prompt=prompt_of(kind, topic, constraint),
                    constraint=dict(constraint),
                )
            )
    return items


def leak(train: list[Item], heldout: list[Item]) -> list[Item]:
    """Return training items with held-out rows mixed in: verbatim, in other letters, and with a word added."""
    leaked: list[Item] = []
    for index, item in enumerate(heldout[:: len(heldout) // 9][:9]):
        text = item.prompt
        prompt = (text, f"{text.upper()} !", f"{text} Please.")[index % 3]
        leaked.append(item.model_copy(update={"id": f"extra-{index}", "group": f"extra-{index}", "prompt": prompt}))
    return [*train, *leaked]


def main() -> int:
    """Write the shipped data files of this task into the folder given after ``--out``."""
    if len(sys.argv) != 3 or sys.argv[1] != "--out":
        print("usage: python -m training.items.format_items --out FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[2])
    train, heldout = build_items("train", TRAIN_TOPICS), build_items("heldout", HELDOUT_TOPICS)
    for name, items in (
        ("format_train", train),
        ("format_heldout", heldout),
        ("format_train_leaky", leak(train, heldout)),
        ("format_train_large", build_items("train", LARGE_TRAIN_TOPICS)),
        ("format_heldout_large", build_items("heldout", LARGE_HELDOUT_TOPICS)),
    ):
        write_items(folder / f"{name}.jsonl", items)
        print(f"{folder / name}.jsonl: {len(items)} items")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())


TRAIN_TOPICS = (
    "the ocean", "bicycles", "honey bees", "the moon", "coffee", "volcanoes", "libraries", "penguins", "glass",
    "railways", "tomatoes", "the desert", "pianos", "salt", "whales", "bridges", "winter", "cotton", "maps",
    "butterflies", "chess", "rivers", "lighthouses", "potatoes",
)  # fmt: skip

HELDOUT_TOPICS = (
    "elephants", "the sun", "tea", "castles", "rain", "violins", "owls", "paper", "icebergs", "apples",
    "airplanes", "markets", "wolves", "clocks", "islands", "gardens", "copper", "kites", "forests", "soccer",
)  # fmt: skip

_MORE_TRAIN = (
    "anchors", "ants", "apricots", "arches", "arrows", "attics", "autumn", "avocados", "axes", "badgers", "bakeries",
    "balconies", "bamboo", "bananas", "bark", "barley", "barns", "baskets", "bats", "bears", "beavers", "beds",
    "bells", "belts", "benches", "berries", "blankets", "boats", "bones", "books", "bottles", "bowls", "boxes",
    "brass", "bricks", "brooms", "buckets", "buses", "buttons", "cabbages", "cactuses", "calendars", "camels",
    "cameras", "canals", "candles", "canoes", "caves", "cellars", "chairs", "chalk", "cheese", "cherries", "chimneys",
    "cinnamon", "clay", "cliffs", "clouds", "coal", "coins", "compasses", "corals", "corn", "crabs", "cranes", "crows",
    "cucumbers", "cups", "curtains", "daisies", "dams", "dates", "deer", "dolphins", "doors", "drums", "ducks", "dust",
    "eagles", "earrings", "eels", "elevators", "elms", "engines", "envelopes", "fences", "ferns", "ferries", "figs",
    "fire", "fireflies", "fishing nets", "flags", "flour", "flutes", "fog", "foxes", "frogs", "frost", "garlic",
    "gates", "geese", "ginger", "giraffes", "glaciers", "gloves", "goats", "gold", "grapes", "grass", "guitars",
    "hail", "hammers", "harbors", "harps", "hats", "hay", "hedgehogs", "helmets", "herons", "hills", "hinges",
    "horses", "hotels", "ice cream", "ink", "iron", "ivy", "jackets", "jam", "jars", "jellyfish", "juggling",
    "kettles", "keys", "kitchens", "knots", "ladders", "lakes", "lamps", "lanterns", "leather", "lemons", "letters",
    "lettuce", "lightning", "lilies", "limestone", "lions", "lizards", "lobsters", "locks", "looms", "magnets",
    "mangoes", "marble", "meadows", "melons", "mice", "milk", "mills", "mirrors", "moles", "monkeys", "moss", "moths",
    "mountains", "mushrooms", "museums", "mustard", "nails", "needles", "nests", "newspapers", "noodles", "oak trees",
    "oats", "octopuses", "olives", "onions", "orchards", "otters", "ovens", "oysters", "paint", "parrots", "peaches",
    "pears", "pearls", "pebbles", "pencils", "pepper", "pigeons", "pillows", "pine cones", "plums", "ponds", "ponies",
    "post offices", "pottery", "puddles", "pumpkins", "puppets", "quilts", "rabbits", "radios", "rainbows", "rafts",
    "rice", "roads", "ropes", "roses", "rubber", "sailing", "sand", "saws",
)  # fmt: skip

_MORE_HELDOUT = (
    "almonds", "bookshops", "carpets", "carrots", "chestnuts", "comets", "crocodiles", "dragonflies", "echoes",
    "feathers", "fountains", "geysers", "hammocks", "hurricanes", "kangaroos", "lavender", "mosaics", "nettles",
    "oranges", "ostriches", "peanuts", "pyramids", "quarries", "robins", "saffron", "sandals", "spinach", "squirrels",
    "stadiums", "swans", "telescopes", "tides", "tortoises", "trumpets", "turnips", "umbrellas", "walnuts",
    "windmills", "wheat", "zebras",
)  # fmt: skip

LARGE_TRAIN_TOPICS = TRAIN_TOPICS + _MORE_TRAIN

LARGE_HELDOUT_TOPICS = HELDOUT_TOPICS + _MORE_HELDOUT
