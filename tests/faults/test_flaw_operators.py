"""Every flaw operator says before it runs what has to stop it."""

from __future__ import annotations

from bench.flaws.operator import FAMILIES
from bench.flaws.operators import OPERATORS
from reviews.gate.check_list import CHECKS
from reviews.gate.design_checks import DESIGN_CHECKS


def test_operators_have_names_of_their_own_and_something_expected() -> None:
    assert len({one.name for one in OPERATORS}) == len(OPERATORS)
    for one in OPERATORS:
        assert one.family in FAMILIES and one.expected, one
        assert one.spec or one.data or one.lie or one.manifest or one.weights, one


def test_what_has_to_stop_an_operator_is_a_check() -> None:
    ids = {one.id for one in (*CHECKS, *DESIGN_CHECKS)}
    for one in OPERATORS:
        unknown = [
            what
            for what in one.expected
            if not any(id.startswith(what) if what.endswith(".") else id == what for id in ids)
        ]
        assert unknown == [], one.name
