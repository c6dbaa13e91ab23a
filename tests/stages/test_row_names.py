"""A metric that names what its rows lack is refused when its kind is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specs.stages.base.metric import metric, number, where, wrong_names
from specs.system.digests import Contract


class Row(Contract):
    step: int
    text: str

    @property
    def words(self) -> list[str]:
        return self.text.split()


def read(predicate: Callable[[Any], bool]) -> str:
    return wrong_names(
        metric("x", "rows", number("some", predicate), over=where("some", lambda _: True)), {"rows": Row}
    )


PREDICATES: tuple[Callable[[Any], bool], ...] = (
    lambda row: row.stp > 1,
    lambda row: row.step > 0 and row.stp,
    lambda row: row.step > 0 or row.stp,
    lambda row: bool(row.text) and row.stp,
    lambda row: row.step is None or not row.stp,
)


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_name_that_the_rows_lack_is_reported(predicate: Callable[[Any], bool]) -> None:
    assert read(predicate).startswith("reads 'stp' of its rows, which have: step, text")


def test_names_that_the_rows_have_are_not_reported() -> None:
    assert read(lambda row: row.step > 1 and "x" in row.words and row.text.strip() != "") == ""
