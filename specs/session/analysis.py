"""What an analysis registers beside its one test: what each kind of item has to show, and which controls there are."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from specs.digests import Contract
from specs.stages.stage import Criterion, Name

PrimaryMetric = Literal["accuracy", "conversation_pass_rate"]
Least = Annotated[int, Field(ge=1, le=1000)]


class KindRule(Contract):
    """What the kinds of held-out items have to show one by one; it is part of the registered hypothesis.

    Each kind has its own exact McNemar test, and the p-values are adjusted over all kinds (Benjamini and Hochberg).
    """

    primary: Name | None = None
    """A kind that has to gain by itself."""
    risen: Least | None = None
    """Kinds: how many at least have to gain."""
    kept: Least | None = None
    """Kinds: how many at least must not fall. A kind has not fallen where the lower end of the 95 % interval of its
    gain is above ``-margin``: that nothing was shown is not enough."""
    false_discovery: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """A kind gains where it gained more than it lost and its adjusted p is below this."""
    margin: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    """Fraction of the items of a kind: the largest loss that would not matter."""

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.primary is None and self.risen is None and self.kept is None:
            raise ValueError("a rule on kinds asks for primary, risen or kept")
        return self

    def criteria(self) -> tuple[Criterion, ...]:
        """Return what it asks of the metrics of the treatment."""
        found: list[Criterion] = []
        if self.primary is not None:
            found.append(Criterion(metric="primary_kind_p", below=self.false_discovery))
            found.append(Criterion(metric="primary_kind_gain", above=0.0))
        if self.risen is not None:
            found.append(Criterion(metric="kinds_risen", at_least=float(self.risen)))
        if self.kept is not None:
            found.append(Criterion(metric="kinds_kept", at_least=float(self.kept)))
        return tuple(found)


class Control(Contract):
    """The two arms once more, with a history that tells nothing: what is gained there did not come from memory."""

    before: Name
    """A multi_turn stage with the baseline's model."""
    after: Name
    """A multi_turn stage with the treatment's model."""


def control_criteria(alpha: float) -> tuple[Criterion, ...]:
    """Return what is asked where controls are registered: the gain is larger than under each of them."""
    return (Criterion(metric="control_excess_p", below=alpha), Criterion(metric="control_excess", above=0.0))
