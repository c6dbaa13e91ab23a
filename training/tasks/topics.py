"""What the items of `format_instructions` are about.

A topic belongs to one split, so no held-out item shares its topic with a training prompt. The larger lists begin with
the smaller ones.
"""

from __future__ import annotations

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
