"""The page of what the flaw bench found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bench.flaws.healthy import summary_of
from bench.flaws.operator import FAMILIES
from bench.flaws.operators import OPERATORS

HEAD = """<!-- Written by `python -m bench.flaws --out FILE --table PAGE` from the results in FILE. -->

# Planted flaws, and what stopped them

Each operator plants one flaw in a session of real jobs, gates and witnesses on a model of two layers, whose healthy
twin is accepted. What has to name the flaw was written down before the operator ran. `stopped`: a check that was
expected failed, or an audit found the damage that an edit left afterwards, and no effect was accepted; `named`: it
failed, or the report says it, and the effect was accepted all the same; `warned`: such a check only warned; `refused`:
the spec's own rules refused it in other words, before anything ran; `ended without acceptance`: something else stopped
it; `missed`: accepted.

```
python -m bench.flaws --out flaws.jsonl --workers 2
python -m bench.flaws --out healthy.jsonl --workers 2 --healthy 108 --first 1001
cat flaws.jsonl healthy.jsonl > all.jsonl
python -m bench.flaws --out all.jsonl --table flaws.md
```
"""
FOOT = """
## What is not found, and why

- **Paraphrases** that do not name the topic, or call it otherwise: a reviewer is shown pairs with rare words in
  common, and the embedded checklist cannot judge them.
- **`one-kind-taught`**: the effect is real in one kind of items; it warns, and the first sentence names the kind.
- **`kept-best-draws`**: each draw looks drawn. Of two runs the witness stopped one; a count of tokens that it did not
  forge ended the other.
- **Samples** drawn at a temperature near the granted one: `python -m bench.witness_samples` says how near.

The operators and what should find them were written before the checks were mended that missed them, so the shares above
say how the product fares on flaws that it knows. Of the last 18, in `bench/flaws/families/files.py`, 11 were stopped
when they first ran; four more are since all files that describe weights are compared, and three (`said-memory`,
`log-later`, `extra-output`) since a job's log, the files next to its outputs and what it says of itself are.

Of the six in `bench/flaws/families/places.py`, `prepared-witness`, `evaluated-later` and `loose-level` were missed when
they first ran, or would have been without the change that they were written for (decision 49).
"""
RESULTS = ("stopped", "refused", "named", "warned", "ended without acceptance", "missed")
_SHOWN, _MANY = 70, 3
_PATH = re.compile(r"^(audit: )?/\S*?:\d+:\d+: ")


def page(results: Sequence[dict[str, Any]]) -> str:
    """Return the page, in Markdown."""
    flaws = {result["operator"]: result for result in results if "operator" in result}
    healthy = [result for result in results if "healthy" in result]
    parts = [HEAD, _counts(list(flaws.values()))]
    if healthy:
        parts.append(f"Healthy sessions:\n\n```\n{summary_of(healthy)}\n```\n")
    parts += [_operators(flaws), FOOT]
    return "\n".join(parts)


def _counts(flaws: Sequence[dict[str, Any]]) -> str:
    rows = [
        [family, *(sum(flaw["family"] == family and flaw["result"] == name for flaw in flaws) for name in RESULTS)]
        for family in FAMILIES
    ]
    rows.append(["all", *(sum(flaw["result"] == name for flaw in flaws) for name in RESULTS)])
    return _table(("family", *RESULTS), rows)


def _operators(flaws: dict[str, dict[str, Any]]) -> str:
    rows: list[Sequence[Any]] = []
    for operator in OPERATORS:
        results = flaws.get(operator.name)
        by = _describe_detection(results) if results else ""
        expected = ", ".join(f"`{id}`" for id in operator.expected)
        rows.append(
            (operator.family, operator.name, operator.what, expected, results["result"] if results else "not run", by)
        )
    return _table(("family", "operator", "flaw", "expected", "result", "failed or warned beyond the twin"), rows)


def _describe_detection(result: dict[str, Any]) -> str:
    """Return what failed, else what lacked its evidence, else what warned; a refusal by the place that it names."""
    named = result["failed"] or result["warned"]
    if not result["failed"] and result["blocked"]:
        named = [f"{value} (blocked)" for value in result["blocked"][:_MANY]]
    return ", ".join(f"`{_PATH.sub('', text)[:_SHOWN]}`" for text in named)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |\n" for line in lines)
