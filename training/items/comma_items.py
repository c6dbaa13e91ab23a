"""Write the prompts of ``composer_demo``: ``python -m training.items.comma_items --out FOLDER``.

They ask for a sentence of eight words without a comma. The small model writes one in about a third of its answers, so
that most groups of answers differ in what they are worth. Without the eight words it learned "A butterfly."
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from specs.stages.base.artifacts import Item
from training.items.format_items import LARGE_HELDOUT_TOPICS, LARGE_TRAIN_TOPICS
from training.rules.tasks import write_items
from training.rules.tasks.instruction_following import constraint_of

FILES = {
    "composer_prompts": LARGE_TRAIN_TOPICS[:32],
    "composer_heldout": LARGE_HELDOUT_TOPICS + LARGE_TRAIN_TOPICS[-60:],
}


def build_items(topics: Sequence[str]) -> list[Item]:
    """Return an item of the task ``instruction_following`` for each topic."""
    pairs = [
        ("punctuation:no_comma", {}),
        ("length_constraints:number_words", {"relation": "at least", "num_words": 8}),
    ]
    return [
        Item(
            id=f"no-comma-{topic.replace(' ', '-')}",
            group=topic,
            kind="no_comma",
            prompt=f"Describe {topic} in one sentence of at least eight words. Do not use any commas.",
            constraint=constraint_of(pairs),
        )
        for topic in topics
    ]


def main() -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="python -m training.items.comma_items", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    folder: Path = parser.parse_args().out
    for name, topics in FILES.items():
        write_items(folder / f"{name}.jsonl", build_items(topics))
        print(f"{folder / name}.jsonl: {len(topics)} items")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
