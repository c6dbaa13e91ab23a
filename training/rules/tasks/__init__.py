"""Tasks by name: their verifier and worked example. Free of torch, so that the measurer can use them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from specs.stages.artifacts import Item
from training.rules.tasks import conversation, exact_answer, format_instructions, instruction_following
from training.rules.tasks.form import Verifier, plugin_task

CONVERSATION = "conversation"
"""What ``multi_turn`` stages hold: no task to sample for, but with a verifier all the same."""

_TASKS = {
    "format_instructions": format_instructions,
    "instruction_following": instruction_following,
    "exact_answer": exact_answer,
}


def verifier(task: str) -> Verifier:
    """Return the function that judges an output of a task; of ``conversation``, an answer to the second turn.

    Raises:
        KeyError: no such task.
    """
    return conversation.verify if task == CONVERSATION else _task(task).verify


def strict_verifier(task: str) -> Verifier:
    """Return the function that judges known answers: of a plug-in, one that lets every error through.

    Raises:
        KeyError: no such task.
    """
    found = None if task in (CONVERSATION, *_TASKS) else plugin_task(task)
    return verifier(task) if found is None else found.judged


def _task(name: str) -> Any:
    found = _TASKS.get(name) or plugin_task(name)
    if found is None:
        raise KeyError(name)
    return found


def worked_example(task: str, item: Item) -> tuple[str, str]:
    """Return (instruction, answer) to show before an item while sampling.

    Raises:
        KeyError: no such task, or it has no worked examples.
    """
    return _task(task).worked_example(item)


def load_items(path: Path) -> list[Item]:
    """Read a JSONL file of items.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is not an item.
    """
    with path.open("rb") as handle:
        return [Item.model_validate_json(line) for line in handle if line.strip()]


def write_items(path: Path, items: Iterable[Item]) -> None:
    """Write a JSONL file of items, as :func:`load_items` reads it.

    Raises:
        OSError: the file cannot be written.
    """
    text = "".join(f"{json.dumps(item.model_dump(mode='json'), ensure_ascii=False)}\n" for item in items)
    path.write_text(text, encoding="utf-8")


def choose(items: Iterable[Item], limit: int | None) -> list[Item]:
    """Return the first ``limit`` items, taking the constraint kinds in turn."""
    by_kind: dict[str, list[Item]] = {}
    for item in items:
        by_kind.setdefault(item.kind, []).append(item)
    turns = zip_longest(*by_kind.values())
    return [item for turn in turns for item in turn if item is not None][:limit]
