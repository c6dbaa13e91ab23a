"""Paired tests that a spec registers beside its analysis: which stages, which outcome, which test, which effect."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from specs.digests import Contract
from specs.exact import exact
from specs.stages.sampling import Share
from specs.stages.stage import Name


class Gap(Contract):
    """What has to be shown before anything is trained: the base model fails the task, and it can be done."""

    base: tuple[Name, ...] = Field(min_length=1)
    """Evaluate or multi_turn stages of the untrained model, one for each way of prompting it."""
    ceiling: Name | None = None
    """The same stage with a model that is known to do the task."""
    base_at_most: Share = 0.3
    """Fraction of the items: the most the untrained model may have right, under any prompting."""
    ceiling_at_least: Share = 0.8
    """Fraction of the items: the least the ceiling has to have right."""
    slack: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    """How far beyond its limit the end of a rate's 95 % interval may reach."""


class Drift(Contract):
    """Something the model could do before, and must still do: a non-inferiority test over the same items."""

    before: Name
    after: Name
    margin: Annotated[float, Field(gt=0, le=1)] = 0.05
    """The largest loss that would not matter: a fraction of the items, or nats per byte for perplexity."""


class EvaluationPlan(Contract):
    """What a spec registers about its evaluations as a whole."""

    gap: Gap | None = None
    drift: tuple[Drift, ...] = ()
    paired: tuple[PairedTest, ...] = Field(default=(), exclude_if=lambda given: not given)
    """Comparisons of stages beside the analysis, each with the test that its outcome asks for."""
    labelled: Name | None = None
    """The data file with answers that people have labelled, against which the task's verifier is held."""


Outcome = Literal["binary", "continuous", "ordinal"]

PairedTestName = Literal["exact_mcnemar", "paired_t", "wilcoxon", "sign"]


TESTS: dict[Outcome, tuple[PairedTestName, ...]] = {
    "binary": ("exact_mcnemar",),
    "continuous": ("paired_t", "wilcoxon"),
    "ordinal": ("sign",),
}
"""Which tests fit an outcome. A difference of ordinal scores has a sign and no size, so only its sign is tested."""


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
