"""Tasks by name: their verifier, worked example and reference answer. The measurer uses them too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from specs.stages.base.artifacts import Example, Item
from specs.system.regular_files import open_regular
from training.rules.tasks import conversation, exact_answer, format_instructions, instruction_following
from training.rules.tasks.form import Asked, PluginTask, Verifier, plugin_task
from training.rules.tasks.format_instructions import KINDS, Judgement

CONVERSATION = "conversation"
"""What ``multi_turn`` stages hold: no task to sample for, but with a verifier all the same."""

One = TypeVar("One", Item, Example)

_TASKS = {
    "format_instructions": format_instructions,
    "instruction_following": instruction_following,
    "exact_answer": exact_answer,
}


def verifier(task: str) -> Verifier:
    """Return what judges an output of a task (of ``conversation`` the second turn); raises KeyError without one."""
    return conversation.verify if task == CONVERSATION else _task(task).verify


def judge_answers(task: str, requests: Sequence[Asked], *, again: bool = False) -> Iterator[Judgement]:
    """Yield what a task's verifier says of answers, in their order; ``again``: in another process than without.

    A verifier of the user's own is asked for all of them at once; one of Peergate's has no process and the same answer.

    Raises:
        KeyError: there is no such task.
        PluginFault: as :meth:`PluginTask.verify`; and what Peergate's own verifiers raise.
    """
    if own := _own(task):
        yield from own.verify_all(requests, again=again)
        return
    judge = verifier(task)
    for item, output in requests:
        yield judge(item, output)


def _own(task: str) -> PluginTask | None:
    return None if task in (CONVERSATION, *_TASKS) else plugin_task(task)


def verifier_of_right(task: str) -> Verifier:
    """Return what judges known right answers: a plug-in's may raise nothing; raises KeyError as :func:`verifier`."""
    plugin_task = _own(task)
    return verifier(task) if plugin_task is None else plugin_task.verify_right


def _task(name: str) -> Any:
    result = _TASKS.get(name) or plugin_task(name)
    if result is None:
        raise KeyError(name)
    return result


def worked_example(task: str, item: Item) -> tuple[str, str]:
    """Return (instruction, answer) to show before an item while sampling; raises KeyError if the task has none."""
    result = getattr(_task(task), "worked_example", None)
    if result is None:
        raise KeyError(f"{task} has no worked example for '{item.id}'")
    return result(item)


def load_items(path: Path) -> list[Item]:
    """Read a JSONL file of items; raises OSError, or ValueError if a line is not an item."""
    with open_regular(path) as handle:
        return [Item.model_validate_json(line) for line in handle if line.strip()]


def write_items(path: Path, items: Iterable[Item]) -> None:
    """Write a JSONL file of items, as :func:`load_items` reads it; raises OSError if the file cannot be written."""
    text = "".join(f"{json.dumps(item.model_dump(mode='json'), ensure_ascii=False)}\n" for item in items)
    path.write_text(text, encoding="utf-8")


def choose(items: Iterable[One], limit: int | None) -> list[One]:
    """Return the first ``limit``, taking the constraint kinds in turn."""
    by_kind: dict[str, list[One]] = {}
    for item in items:
        by_kind.setdefault(item.kind, []).append(item)
    turns = zip_longest(*by_kind.values())
    return [item for turn in turns for item in turn if item is not None][:limit]


def spread(items: Iterable[One], limit: int | None) -> list[One]:
    """Return the first ``limit`` as :func:`choose` does; without a limit all, in their own order."""
    return list(items) if limit is None else choose(items, limit)


def reference(task: str, item: Item) -> str | None:
    """Return an answer that the item's verifier must accept, made from its constraint; None if no rule can make one.

    If the verifier refuses it, no one can answer the item. Raises KeyError or ValueError for an item that is not the
    task's.
    """
    if task == "exact_answer":
        return str(item.constraint["answer"])
    if task == "format_instructions":
        if item.kind != "bullets":
            return KINDS[item.kind].worked(item.constraint)
        return "\n".join(f"- Fact number {place + 1} is about bread." for place in range(int(item.constraint["count"])))
    return None


def stated_values(task: str, item: Item) -> tuple[str, ...]:
    """Return the values that the item's text must state."""
    if task != "format_instructions":
        return ()
    return tuple(str(value) for value in item.constraint.values())
