"""Our reading of the library's plain scorers is compared with the library's own."""

from __future__ import annotations

import pytest

from testing.fixtures.inspect_library import library, needs_inspect
from tests.training.rules.test_inspect_rules import SCORED
from training.rules.evaluation.benchmark_scores import scored_again

pytestmark = [pytest.mark.integration, needs_inspect]

_SCORE = """
import asyncio
from inspect_ai import scorer as scorers
from inspect_ai.model import ModelOutput, ModelName
from inspect_ai.solver import TaskState
result = []
for name, options, answer, targets in arguments["cases"]:
    state = TaskState(
        model=ModelName("mockllm/model"), sample_id=1, epoch=1, input="", messages=[],
        output=ModelOutput.from_content("m", answer),
    )
    score = asyncio.run(getattr(scorers, name)(**options)(state, scorers.Target(targets)))
    result.append(score.value == "C")
"""
WORDS = [
    "cold",
    "42",
    "1,000",
    "$3.50",
    "(7).",
    "-5",
    "1e3",
    "3/4",
    "six",
    "6.0",
    "A",
    "b)",
    "COLD!",
    "",
    "5%",
    "\\$20",
]


def test_the_library_decides_as_we_do_wherever_we_decide() -> None:
    cases = [(name, options, answer, targets) for name, options, answer, targets, flag in SCORED if flag is not None]
    for options in ({}, {"location": "any"}, {"location": "begin"}, {"location": "exact"}, {"ignore_case": False}):
        for numeric in (False, True):
            whole = options | ({"numeric": True} if numeric else {})
            cases += [
                ("match", whole, f"{word} {other}".strip(), [third])
                for word in WORDS
                for other in WORDS[::3]
                for third in WORDS[:12]
            ]
    cases += [
        ("pattern", {"pattern": p, "ignore_case": c, "match_all": a}, text, ["A", "cold"])
        for p in (r"(\w+)", r"ANSWER: *(\w+)", r"(a)|(b)", r"\w+$", r"(\w) (\w)")
        for c in (True, False)
        for a in (True, False)
        for text in ("A", "answer: a", "ANSWER: cold", "b", "a A", "", "so cold")
    ]
    ours = [scored_again(*case) for case in cases]
    theirs = library(_SCORE, cases=cases)
    wrong = [
        (case, flag, other) for case, flag, other in zip(cases, ours, theirs, strict=True) if flag not in (None, other)
    ]
    assert wrong == []
    assert sum(flag is not None for flag in ours) > len(ours) / 2
