"""The page of what the gate's bench found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from bench.flaws.healthy import summary_of
from bench.flaws.operator import FAMILIES
from bench.flaws.operators import OPERATORS, SETS
from reviews.gate.canaries import EDITS
from reviews.statistics.mcnemar import exact_mcnemar, wilson

HEAD = """<!-- Written by `python -m bench.gate --work FOLDER --page FILE`. -->

# Figures of the gate

Each operator plants one flaw in a session of real jobs, gates and witnesses on a model of two layers, whose healthy
twin is accepted. What has to name the flaw was written down before the operator ran. *Stopped*: such a check failed, or
an audit found the damage, and no effect was accepted; *refused*: the spec's own rules refused the design before
anything ran; *named*: the report says it, and the effect was accepted all the same; *warned*: such a check only
warned; *otherwise*: something else stopped it; *accepted*: nothing did. *Named by any check* also counts what
something else stopped and such a check warned of. Intervals are 95 % score intervals (Wilson 1927).

Operators of the first set were there when the checks were written, and show that nothing was lost. Those of the second
were written, with what has to stop them, before the checks that they led to. Those of the third were sealed: written
after all checks were frozen, 22 of 26 were stopped, 2 warned and 2 accepted when they first ran; checks followed. The
sealed ones of today were written after those, and ran once: they say most about flaws that no check was written for.
Three of them (`shorter-samples`, `wide-nucleus`, `short-answers-of-base`) changed no row of so small a model: there was
nothing to be found. Checks for `level-losses` and `joined-prompts` followed; `pruned-layer` cannot be seen without a
snapshot before its last step.

```
python -m bench.gate --work FOLDER --workers 2 --page docs/gate-figures.md
python -m bench.gate --work FOLDER --reviewer REVIEWER.yaml --evidence packets --votes 3 --page docs/gate-figures.md
```
"""
RESULTS = ("stopped", "refused", "named", "warned", "ended without acceptance", "missed")
_TITLES = ("stopped", "refused", "named", "warned", "otherwise", "accepted")
_SHOWN, _MANY = 70, 3
_PATH = re.compile(r"^(audit: )?/\S*?:\d+:\d+: ")
Row = dict[str, Any]


def page(results: Sequence[Row]) -> str:
    """Return the page, in Markdown."""
    flaws = {result["operator"]: result for result in results if "operator" in result}
    healthy = [result for result in results if "healthy" in result]
    parts = [HEAD, "## Planted flaws\n", _count_sets(flaws)]
    parts += [f"### {title}\n\n{_count_families(title, flaws)}" for title in SETS]
    if healthy:
        refused = sum(result["result"] == "rejected" for result in healthy)
        parts.append(f"## Sound sessions\n\nRefused: {_share(refused, len(healthy))}.\n")
        parts.append(f"```\n{summary_of(healthy)}\n```\n")
    parts += ["## Reviewers\n", _compare_reviewers(results), "## Operators\n", _list_operators(flaws)]
    return "\n".join(parts)


def _share(count: int, of: int) -> str:
    if not of:
        return "not run"
    low, high = wilson(count, of)
    return f"{count} of {of} ({count / of:.1%} [{low:.1%}, {high:.1%}])"


def _count_sets(flaws: dict[str, Row]) -> str:
    rows: list[Sequence[Any]] = []
    for title, operators in SETS.items():
        ran = [flaws[operator.name] for operator in operators if operator.name in flaws]
        counts = [sum(flaw["result"] in names for flaw in ran) for names in (RESULTS[:3], RESULTS[3:4], RESULTS[5:])]
        # What something else stopped may have been named by a warning.
        counts.append(sum(flaw["result"] in RESULTS[:4] or _is_warned(flaw) for flaw in ran))
        rows.append([title, *(_share(count, len(ran)) for count in counts)])
    return _table(("set", "stopped, refused or named", "only warned", "accepted", "named by any check"), rows)


def _is_warned(flaw: Row) -> bool:
    expected = next(operator.expected for operator in OPERATORS if operator.name == flaw["operator"])
    return any(wanted in text for wanted in expected for text in flaw["warned"])


def _count_families(title: str, flaws: dict[str, Row]) -> str:
    ran = [flaws[operator.name] for operator in SETS[title] if operator.name in flaws]
    rows = [
        [family, *(sum(flaw["family"] == family and flaw["result"] == name for flaw in ran) for name in RESULTS)]
        for family in FAMILIES
        if any(flaw["family"] == family for flaw in ran)
    ]
    rows.append(["all", *(sum(flaw["result"] == name for flaw in ran) for name in RESULTS)])
    return _table(("family", *_TITLES), rows)


def _compare_reviewers(results: Sequence[Row]) -> str:
    rows = [[f"{who}, {level}", *_figures(judged)] for (who, level), judged in _by_reviewer(results)]
    head = ("reviewer", "planted, beyond the floor", "edits of substance", "named at their place")
    more = ("edits of wording that moved it", "sound packets refused", "substance against sound", "votes split", "USD")
    text = (
        "Each is put the packets that nothing else closes, those of planted sessions and of their healthy twins, and "
    )
    text += "edits of the latter. A flaw is named by a blocking finding at its place. The test is exact McNemar's.\n"
    if all(who == "checklist" for (who, _), _ in _by_reviewer(results)):
        text += "No model was asked: that takes a key, or a server of your own in `--reviewer`.\n"
    return f"{text}\n{_table((*head, *more), rows)}"


def _by_reviewer(results: Sequence[Row]) -> Iterator[tuple[tuple[str, str], list[Row]]]:
    judged = [row for row in results if "reviewer" in row]
    for key in dict.fromkeys((row["reviewer"], row["evidence"]) for row in judged):
        yield key, [row for row in judged if (row["reviewer"], row["evidence"]) == key]


def _figures(judged: Sequence[Row]) -> list[str]:
    """Return the figures of one reviewer; answers without a verdict count as refusals of nothing."""
    by = {kind: [row for row in judged if row["kind"] == kind] for kind in ("planted", "sound", "substance", "wording")}
    refused = {kind: sum(row["approve"] is False for row in rows) for kind, rows in by.items()}
    places = {edit.name: edit.place for edit in EDITS}
    named = sum(
        row["approve"] is False
        and any(place.startswith(f"/{places[row['case'].split()[1]]}") for place in row["places"])
        for row in by["substance"]
    )
    first = {(row["case"], row["gate"]): row["approve"] for row in reversed(judged)}
    moved = sum(row["approve"] != first.get((row["case"], row["gate"])) for row in by["wording"])
    pairs = [(row["approve"], first.get((row["case"].split()[0], row["gate"]))) for row in by["substance"]]
    better, worse = pairs.count((False, True)), pairs.count((True, False))
    votes: dict[tuple[str, str, str], set[Any]] = {}
    for row in judged:
        votes.setdefault((row["case"], row["gate"], row["kind"]), set()).add(row["approve"])
    split = sum(len(answers) > 1 for answers in votes.values())
    return [
        _share(refused["planted"], len(by["planted"])),
        _share(refused["substance"], len(by["substance"])),
        _share(named, len(by["substance"])),
        _share(moved, len(by["wording"])),
        _share(refused["sound"], len(by["sound"])),
        f"{better} to {worse}, p = {exact_mcnemar(better, worse):.2g}",
        _share(split, len(votes)),
        f"{sum(row['usd'] for row in judged):.2f}",
    ]


def _list_operators(flaws: dict[str, Row]) -> str:
    rows: list[Sequence[Any]] = []
    for operator in OPERATORS:
        results = flaws.get(operator.name)
        by = _describe_detection(results) if results else ""
        expected = ", ".join(f"`{id}`" for id in operator.expected)
        rows.append(
            (operator.family, operator.name, operator.what, expected, results["result"] if results else "not run", by)
        )
    return _table(("family", "operator", "flaw", "expected", "result", "failed or warned beyond the twin"), rows)


def _describe_detection(result: Row) -> str:
    """Return what failed, else what lacked its evidence, else what warned; a refusal by the place that it names."""
    named = result["failed"] or result["warned"]
    if not result["failed"] and result["blocked"]:
        named = [f"{value} (blocked)" for value in result["blocked"][:_MANY]]
    return ", ".join(f"`{_PATH.sub('', text)[:_SHOWN]}`" for text in named)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |\n" for line in lines)
