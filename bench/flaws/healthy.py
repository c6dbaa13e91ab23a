"""Healthy sessions: what differs between them beside the seed, and what their results come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from bench.flaws.operator import Change
from bench.flaws.small_specs import KINDS
from specs.resources import LauncherName


@dataclass(frozen=True)
class Healthy:
    """What a healthy session has otherwise than the twin."""

    session: str
    kinds: tuple[str, ...] = KINDS
    changes: tuple[Change, ...] = ()
    name: str = ""
    task: str = "format_instructions"
    launcher: LauncherName | None = None


PRECISIONS: dict[str, tuple[Change, ...]] = {
    "float32": (),
    "bfloat16": (("warmup_ratio: 0,", "warmup_ratio: 0, precision: bfloat16,"),),
}
ENGINES: dict[str, tuple[Change, ...]] = {
    "batched": (),
    "continuous": (("max_new_tokens: 48", "engine: continuous, max_new_tokens: 48"),),
}
METHODS = ("sft", "lora", "dpo", "scored")
ITEMS = (KINDS, ("lowercase", "title"), ("quoted", "uppercase"))
_EVERY = product(METHODS, PRECISIONS, ENGINES, ITEMS)
WITHOUT_EXAMPLE: tuple[Change, ...] = (("samples_per_prompt: 4,", "worked_example: false, samples_per_prompt: 4,"),)
"""The other task has none to show."""
OTHERS = tuple(
    replace(one, name=f"{method} float32 batched {' '.join(KINDS)}, {one.name}")
    for method in METHODS
    for one in (
        Healthy(method, changes=WITHOUT_EXAMPLE, name="instruction_following", task="instruction_following"),
        Healthy(method, name="local", launcher="local"),
    )
)
"""Another task, and jobs in processes of their own: once for each method, not in every combination."""
VARIATIONS = OTHERS + tuple(
    Healthy(method, items, PRECISIONS[precision] + ENGINES[engine], " ".join((method, precision, engine, *items)))
    for method, precision, engine, items in _EVERY
)


def summary_of(results: Sequence[dict[str, Any]]) -> str:
    """Return how many healthy sessions were rejected, overall and by each thing that varied."""
    wrong = [one for one in results if one["result"] == "rejected"]
    lines = [f"{len(wrong)} of {len(results)} healthy sessions were neither accepted nor ended in a null result"]
    for place, what in enumerate(("method", "precision", "engine")):
        lines.append(_counted(what, [(one["variation"].split()[place], one) for one in results]))
    parts = [(one["variation"].partition(", "), one) for one in results]
    lines.append(_counted("items", [(" and ".join(name.split()[3:]), one) for (name, _, _), one in parts]))
    lines.append(_counted("other task or launcher", [(what or "none", one) for (_, _, what), one in parts]))
    lines.append(_counted("outcome", [(one["outcome"], one) for one in results]))
    lines.append(_counted("commit", [(str(one.get("commit"))[:9], one) for one in results]))
    lines.append(f"warned, in so many sessions: {_checks('warned', results)}")
    alone = [one for one in results if any(after <= before for _, _, before, after in one.get("right", ()))]
    lines.append(f"a kind of items did not gain in {len(alone)} of {sum('right' in one for one in results)}")
    if wrong:
        lines.append(f"rejected by: {_checks('failed', wrong)}")
    return "\n".join(lines)


def _checks(how: str, results: Sequence[dict[str, Any]]) -> str:
    found = Counter(check for one in results for check in one.get(how, ()))
    return ", ".join(f"{check} {count}" for check, count in found.most_common()) or "none"


def _counted(what: str, results: Sequence[tuple[str, dict[str, Any]]]) -> str:
    parts: list[str] = []
    for name in dict.fromkeys(key for key, _ in results):
        these = [one for key, one in results if key == name]
        bad = sum(one["result"] == "rejected" for one in these)
        parts.append(f"{name} {len(these)}" + (f" ({bad} rejected)" if bad else ""))
    return f"{what}: {', '.join(parts)}"
