"""Healthy sessions: what differs between them next to the seed, and what their results come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from bench.flaws.languages import LANGUAGES
from bench.flaws.operator import Change
from bench.flaws.small_specs import KINDS
from specs.system.resources import LauncherName


@dataclass(frozen=True)
class Healthy:
    """What a healthy session has otherwise than the twin."""

    session: str
    kinds: tuple[str, ...] = KINDS
    changes: tuple[Change, ...] = ()
    name: str = ""
    task: str = "format_instructions"
    launcher: LauncherName | None = None
    language: str = ""


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
    replace(healthy, name=f"{method} float32 batched {' '.join(KINDS)}, {healthy.name}")
    for method in METHODS
    for healthy in (
        Healthy(method, changes=WITHOUT_EXAMPLE, name="instruction_following", task="instruction_following"),
        Healthy(method, name="local", launcher="local"),
    )
)
"""Another task, and jobs in processes of their own: once for each method, not in every combination."""
LANGUAGE_SESSIONS = tuple(
    Healthy(
        METHODS[place % 2],
        tuple(language.kinds),
        WITHOUT_EXAMPLE,
        f"{METHODS[place % 2]} float32 batched {' '.join(language.kinds)}, {name}",
        language=name,
    )
    for place, (name, language) in enumerate(LANGUAGES.items())
)
"""Items in other languages and scripts, without pairs: a title would be half of so short an answer."""
VARIATIONS = (
    OTHERS
    + LANGUAGE_SESSIONS
    + tuple(
        Healthy(method, items, PRECISIONS[precision] + ENGINES[engine], " ".join((method, precision, engine, *items)))
        for method, precision, engine, items in _EVERY
    )
)


def summary_of(results: Sequence[dict[str, Any]]) -> str:
    """Return how many healthy sessions were rejected, overall and by each thing that varied."""
    wrong = [result for result in results if result["result"] == "rejected"]
    lines = [f"{len(wrong)} of {len(results)} healthy sessions were neither accepted nor ended in a null result"]
    for place, what in enumerate(("method", "precision", "engine")):
        lines.append(_count_healthy(what, [(result["variation"].split()[place], result) for result in results]))
    parts = [(result["variation"].partition(", "), result) for result in results]
    lines.append(_count_healthy("items", [(" and ".join(name.split()[3:]), value) for (name, _, _), value in parts]))
    lines.append(_count_healthy("other task or launcher", [(what or "none", value) for (_, _, what), value in parts]))
    lines.append(_count_healthy("outcome", [(result["outcome"], result) for result in results]))
    lines.append(_count_healthy("commit", [(str(result.get("commit"))[:9], result) for result in results]))
    lines.append(f"warned, in so many sessions: {_checks('warned', results)}")
    alone = [result for result in results if any(after <= before for _, _, before, after in result.get("right", ()))]
    lines.append(f"a kind of items did not gain in {len(alone)} of {sum('right' in result for result in results)}")
    if wrong:
        by_criteria = sum(not result.get("failed") for result in wrong)
        lines.append(f"rejected by: {_checks('failed', wrong)}; by a criterion of their own spec: {by_criteria}")
    return "\n".join(lines)


def _checks(how: str, results: Sequence[dict[str, Any]]) -> str:
    counts = Counter(check for result in results for check in result.get(how, ()))
    return ", ".join(f"{check} {count}" for check, count in counts.most_common()) or "none"


def _count_healthy(what: str, results: Sequence[tuple[str, dict[str, Any]]]) -> str:
    parts: list[str] = []
    for name in dict.fromkeys(key for key, _ in results):
        these = [value for key, value in results if key == name]
        bad = sum(value["result"] == "rejected" for value in these)
        parts.append(f"{name} {len(these)}" + (f" ({bad} rejected)" if bad else ""))
    return f"{what}: {', '.join(parts)}"
