"""Every flaw operator says before it runs what has to stop it."""

from __future__ import annotations

from bench.flaws.operator import FAMILIES
from bench.flaws.operators import OPERATORS


def test_operators_have_names_of_their_own_and_something_expected() -> None:
    assert len({one.name for one in OPERATORS}) == len(OPERATORS)
    for one in OPERATORS:
        assert one.family in FAMILIES and one.expected, one
        assert one.spec or one.data or one.lie or one.manifest or one.weights, one
