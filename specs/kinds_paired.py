"""Paired tests that a spec registers beside its analysis: which stages, which outcome, which test, which effect."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from specs.digests import Contract
from specs.exact import exact
from specs.stage_parts import Name

Outcome = Literal["binary", "continuous", "ordinal"]
PairedTestName = Literal["exact_mcnemar", "paired_t", "wilcoxon", "sign"]

TESTS: dict[Outcome, tuple[PairedTestName, ...]] = {
    "binary": ("exact_mcnemar",),
    "continuous": ("paired_t", "wilcoxon"),
    "ordinal": ("sign",),
}
"""Which tests fit an outcome. A difference of ordinal scores has a sign and no size, so only its sign is tested."""

OUTCOMES: dict[str, tuple[Outcome, ...]] = {
    "evaluate": ("binary",),
    "converse": ("binary", "ordinal"),
    "choose": ("binary", "continuous"),
    "perplexity": ("continuous",),
}
"""What the rows of a stage say of one item; more is better in each.

``evaluate``: accepted. ``converse``: all turns pass (binary), how many pass (ordinal). ``choose``: the right choice is
the likeliest (binary), nats per byte by which it is likelier than the best wrong one (continuous). ``perplexity``: nats
per byte, turned round (continuous).
"""


class PairedTest(Contract):
    """Two stages over the same items, compared by a test that was chosen before there were data."""

    before: Name
    after: Name
    outcome: Outcome
    test: PairedTestName
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Significance level of the p-value after adjustment over the tests of the same ``after`` stage."""
    minimum_effect: Annotated[float, Field(gt=0, le=5)]
    """The least gain that would matter: a fraction of the items gained minus lost (binary) or risen minus fallen
    (ordinal), or mean difference in standard deviations of the differences, d_z (continuous)."""
    expected_lost: Annotated[float, Field(ge=0, lt=0.5)] = 0.05
    """Fraction of the items expected to get worse, for the power; not used with continuous outcomes."""
    power: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """The least probability with which ``minimum_effect`` has to be found."""
    decides: bool = False
    """Whether the gate of ``after`` closes unless the gain is shown; otherwise it is reported."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.test not in TESTS[self.outcome]:
            raise ValueError(f"{self.test} is no test of a {self.outcome} outcome; {', '.join(TESTS[self.outcome])} is")
        if not self.alpha < self.power:
            raise ValueError(f"power {self.power:g} is not above alpha {self.alpha:g}")
        if self.outcome != "continuous" and exact(self.minimum_effect) + 2 * exact(self.expected_lost) > 1:
            raise ValueError("minimum_effect and twice expected_lost exceed all items")
        return self
