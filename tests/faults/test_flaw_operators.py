"""Every flaw operator says before it runs what has to stop it."""

from __future__ import annotations

from collections import Counter

from bench.flaws.operator import AUDIT, FAMILIES, REFUSALS, REPORT, SESSIONS
from bench.flaws.operators import OPERATORS
from reviews.gate import loosening_check
from reviews.gate.check_list import CHECKS
from reviews.gate.design_checks import DESIGN_CHECKS
from reviews.stages.finetuning import replay_checks


def test_operators_have_names_of_their_own_and_something_expected() -> None:
    assert len({one.name for one in OPERATORS}) == len(OPERATORS)
    for one in OPERATORS:
        assert one.family in FAMILIES and one.expected, one
        assert one.changes_something() and one.session in SESSIONS, one
    assert len(OPERATORS) >= 60
    assert min(Counter(one.family for one in OPERATORS)[name] for name in FAMILIES) >= 3


def test_what_has_to_stop_an_operator_is_a_check() -> None:
    named = {one.id for one in (*CHECKS, *DESIGN_CHECKS, *replay_checks.CHECKS, *loosening_check.CHECKS)}
    ids = named | {*REPORT, AUDIT, *REFUSALS}
    for one in OPERATORS:
        unknown = [
            what
            for what in one.expected
            if not any(id.startswith(what) if what.endswith(".") else id == what for id in ids)
        ]
        assert unknown == [], one.name
