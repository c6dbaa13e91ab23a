"""What a spec registers next to its test: gap, drift, paired tests, kinds of items, controls, further arms."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from specs.stages.base.stage import Criterion
from specs.system.digests import Contract, Name, omit_default
from specs.system.exact import exact

MOST_ALPHA = 0.1
"""The laxest level that is still customary for a test."""
LEAST_POWER = 0.5
"""The least probability with which a registered effect is found: a test that mostly misses it answers nothing."""


class Gap(Contract):
    """What must be shown before any training: the base model fails the task, and the task is solvable."""

    base: tuple[Name, ...] = Field(min_length=1)
    """Evaluate or multi_turn stages of the untrained model, one for each way of prompting it."""
    ceiling: Name | None = None
    """The same stage with a model that is known to do the task."""
    base_at_most: Annotated[float, Field(ge=0, le=0.95)] = 0.3
    """Fraction of the items: the most the untrained model may have right, under any prompting."""
    ceiling_at_least: Annotated[float, Field(ge=0.1, le=1)] = 0.8
    """Fraction of the items: the least that the ceiling must have right."""
    slack: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    """How far beyond its limit the end of a rate's 95 % interval may reach."""


class Drift(Contract):
    """A non-inferiority test over the same items, of something that the model must still be able to do."""

    before: Name
    after: Name
    margin: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """The largest loss that would not matter: a fraction of the items, or nats per byte for perplexity."""


class EvaluationPlan(Contract):
    """What a spec registers about its evaluations as a whole."""

    gap: Gap | None = None
    drift: tuple[Drift, ...] = ()
    paired: tuple[PairedTest, ...] = ()
    """Comparisons of stages in addition to the analysis, each with the test that its outcome requires."""
    labelled: Name | None = None
    """The data file with answers that people have labelled, with which the task's verifier is compared."""
    not_evaluated: tuple[Name, ...] = omit_default(())
    """Stages that train and whose checkpoint leads to no measurement: a person says that it is not used."""
    not_judged: tuple[Name, ...] = omit_default(())
    """Stages and data files whose pairs nothing judges, neither the task's verifier nor a judge: a person trains on
    them all the same, and the report's first sentence says so. Pairs that the verifier finds swapped are refused."""


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
    alpha: Annotated[float, Field(gt=0, le=MOST_ALPHA)] = 0.05
    """Significance level of the p-value after adjustment over the tests of the same ``after`` stage."""
    minimum_effect: Annotated[float, Field(gt=0, le=5)]
    """The least gain that would matter: items gained minus lost (risen minus fallen) / items, or d_z (continuous)."""
    expected_lost: Annotated[float, Field(ge=0, lt=0.5)] = 0.05
    """Fraction of the items expected to get worse, for the power; not used with continuous outcomes."""
    power: Annotated[float, Field(ge=LEAST_POWER, lt=1)] = 0.8
    """The least probability with which ``minimum_effect`` has to be found."""
    decides: bool = False
    """Whether the gate of ``after`` closes unless the gain is shown; otherwise it is reported."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.test not in TESTS[self.outcome]:
            raise ValueError(
                f"{self.test} is not a test of a {self.outcome} outcome; {', '.join(TESTS[self.outcome])} is"
            )
        if self.outcome != "continuous" and exact(self.minimum_effect) + 2 * exact(self.expected_lost) > 1:
            raise ValueError("minimum_effect and twice expected_lost exceed all items")
        return self


PrimaryMetric = Literal["accuracy", "conversation_pass_rate", "benchmark_accuracy", "lm_eval_accuracy"]
Least = Annotated[int, Field(ge=1, le=1000)]


class KindRule(Contract):
    """What each kind of held-out items has to show; part of the registered hypothesis.

    Each kind has its own exact McNemar test; the p-values are adjusted over all kinds (Benjamini and Hochberg).
    """

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    primary: Name | None = None
    """A kind that must gain on its items alone."""
    risen: Least | None = None
    """Kinds: the least number that must gain."""
    not_fallen: Least | None = Field(default=None, alias="kept")
    """Kinds: the least number whose 95 % interval of the gain must begin above ``-margin``."""
    false_discovery: Annotated[float, Field(gt=0, le=0.2)] = 0.05
    """A kind gains if it gained more than it lost and its adjusted p is below this."""
    margin: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    """Fraction of the items of a kind: the largest loss that would not matter."""

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.primary is None and self.risen is None and self.not_fallen is None:
            raise ValueError("a rule on kinds needs primary, risen or kept")
        return self

    def criteria(self) -> tuple[Criterion, ...]:
        """Return what it asks of the metrics of the treatment."""
        criteria: list[Criterion] = []
        if self.primary is not None:
            criteria.append(Criterion(metric="primary_kind_p", below=self.false_discovery))
            criteria.append(Criterion(metric="primary_kind_gain", above=0.0))
        if self.risen is not None:
            criteria.append(Criterion(metric="kinds_risen", at_least=float(self.risen)))
        if self.not_fallen is not None:
            criteria.append(Criterion(metric="kinds_kept", at_least=float(self.not_fallen)))
        return tuple(criteria)


class Control(Contract):
    """The two arms again, with an uninformative history: a gain there did not come from memory."""

    before: Name
    """A multi_turn stage with the baseline's model."""
    after: Name
    """A multi_turn stage with the treatment's model."""


def control_criteria(alpha: float) -> tuple[Criterion, ...]:
    """Return the claim to test if controls are registered: the gain is larger than under each of them."""
    return (Criterion(metric="control_excess_p", below=alpha), Criterion(metric="control_excess", above=0.0))


MOST_ARMS = 8
"""With baseline and treatment they are the rows that a check shows."""
Words = Annotated[str, StringConstraints(pattern=r"^\S[^\n\r|]*$", max_length=200)]


class Arm(Contract):
    """Another arm of the comparison: it answers the held-out items as the treatment does, with other weights.

    Its stage comes before the treatment, whose gate judges all arms. The p-values of the table (treatment and each arm
    against the baseline, treatment against each arm) are adjusted together by Holm's method.
    """

    name: Annotated[Words, Field(max_length=60)]
    stage: Name
    """A stage of the treatment's kind, with its parameters and items."""
    shows: Words
    """What the difference to the treatment shows: ``training on the unrevised answers``."""
    beaten: bool
    """Whether the treatment must be better than this arm: more items right, adjusted p below ``alpha``. Otherwise the
    arm is reported and decides nothing."""
    human_minutes: Annotated[float, Field(gt=0, le=1_000_000)] | None = omit_default()
    """Minutes that people spent on the data that its training reads: an arm that people label by hand, for as much time
    as the treatment takes of theirs, shows what automation is worth."""


class Transfer(Contract):
    """A second split that nothing is trained or chosen on: the gain must be shown there as well, by the same test.

    Both have to be met, so neither p-value is adjusted.
    """

    data: Name
    """A file of ``data`` with items, which only its two stages read and no builder sees."""
    before: Name
    """A stage like the baseline, with its model, that answers these items."""
    after: Name
    """The same with the treatment's model; it comes before the treatment, whose gate judges both splits."""
    minimum_effect: Annotated[float, Field(gt=0, lt=1)]
    """The least gain on these items, a fraction as in the analysis."""

    def criteria(self, alpha: float) -> tuple[Criterion, ...]:
        """Return what it asks of the metrics of the treatment."""
        gain = Criterion(metric="transfer_gain", at_least=self.minimum_effect)
        return (Criterion(metric="transfer_p", below=alpha), gain)


CurveForm = Literal["log_linear", "power_law"]
CURVE_PARAMETERS: dict[CurveForm, int] = {"log_linear": 2, "power_law": 3}
"""The parameters that are fitted: ``accuracy = a + b log n``, or ``1 - accuracy = a n^-b + c`` with a floor."""


class LearningCurve(Contract):
    """What more training data would buy: a forecast from the same training on fewer examples, which decides nothing.

    The power law is that of Hestness et al. 2017 (arXiv:1712.00409) and Rosenfeld et al. 2020 (arXiv:1909.12673).
    """

    arms: tuple[Annotated[Words, Field(max_length=60)], ...] = Field(min_length=2, max_length=MOST_ARMS)
    """Arms of the analysis, by name, whose training is the treatment's on fewer examples."""
    at: Annotated[int, Field(ge=1, lt=2**53)]
    """The number of training examples, or pairs, to forecast for."""
    form: CurveForm = "log_linear"
    """With the treatment a curve has one point more than it has arms; a fit needs one more than it has parameters."""

    @model_validator(mode="after")
    def _leaves_freedom(self) -> Self:
        points, needed = len(self.arms) + 1, CURVE_PARAMETERS[self.form] + 1
        if points < needed:
            raise ValueError(f"a {self.form} curve needs {needed - 1} arms besides the treatment, got {points - 1}")
        if len(set(self.arms)) != len(self.arms):
            raise ValueError("arms has a duplicate name")
        return self


def arm_criteria(alpha: float) -> tuple[Criterion, ...]:
    """Return the claim to test if arms must be beaten: the treatment is better than each of them."""
    return (Criterion(metric="arms_p", below=alpha), Criterion(metric="arms_lead", above=0.0))
