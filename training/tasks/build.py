"""Write the shipped data files of `format_instructions`: ``python -m training.tasks.build --out specs/library/data``.

A test builds them again and compares, so the files in the repository are what this code makes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from specs.evidence import Item
from training.tasks import write_items
from training.tasks.format_instructions import KINDS, prompt_of
from training.tasks.topics import HELDOUT_TOPICS, LARGE_HELDOUT_TOPICS, LARGE_TRAIN_TOPICS, TRAIN_TOPICS


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
        print("usage: python -m training.tasks.build --out FOLDER", file=sys.stderr)
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
