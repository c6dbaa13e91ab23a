"""What a check is: one deterministic question to the evidence, answered with a status, a figure and rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from reviews.evidence.evidence import Evidence
from specs.jobs.job_records import Manifest
from specs.session.design import Design
from specs.stages.base.kind import StageKind
from specs.stages.base.metric import Metric, MetricSet
from specs.stages.registry import STAGE_KINDS
from specs.system.errors import EvidenceMissing, PluginFault
from specs.system.exact import decimal_text
from specs.system.text import plain
from specs.trail.verdict import CheckResult, RequiredChange, Status

PACKET_ROWS = 10
CELL_CHARACTERS = 240


@dataclass(frozen=True)
class CheckOutcome:
    """What a check's function returns."""

    status: Status
    detail: str
    figure: float | None = None
    rows: tuple[dict[str, Any], ...] = ()
    change: RequiredChange | None = None
    repairable: bool = True


def unless(wrong: Sequence[dict[str, Any]], text: str, right: str, *, repairable: bool = True) -> CheckOutcome:
    """Return FAIL with the rows that are wrong, and PASS without any."""
    if wrong:
        return CheckOutcome("FAIL", text, float(len(wrong)), tuple(wrong), repairable=repairable)
    return CheckOutcome("PASS", right, 0.0)


Run = Callable[[Evidence, MetricSet | None], CheckOutcome]
Function = TypeVar("Function", bound=Callable[..., CheckOutcome])
Kinds = tuple[str, ...] | Callable[[StageKind], object]


class CheckLimit(NamedTuple):
    """A threshold that the spec sets, and the side of it on which healthy figures lie."""

    sign: str
    key: str
    """Dotted, from the top of a spec: ``thresholds.truncated_answers``."""

    def value(self, spec: Design) -> float:
        """Return the registered value."""
        matching_spec: Any = spec
        for part in self.key.split("."):
            matching_spec = getattr(matching_spec, part)
        return float(matching_spec)

    def default(self) -> float | None:
        """Return the value of a spec that does not set it, or None where every spec has to."""
        field = self._field()
        return None if field.default is PydanticUndefined else float(field.default)

    def meaning(self) -> str:
        """Return unit and population in words, as far as the contract says them."""
        return " ".join((self._field().description or "").split())

    def format_value(self, value: float) -> str:
        """Return sign and value: ``<= 0.25``."""
        return f"{self.sign} {decimal_text(value)}"

    def _field(self) -> Any:
        model: type[BaseModel] = Design
        *above, last = self.key.split(".")
        for part in above:
            inner: Any = model.model_fields[part].annotation
            model = inner
        return model.model_fields[last]


@dataclass(frozen=True)
class GateCheck:
    """A check of the attempts of stages, which may close their gates."""

    id: str
    """``group.name``; no other check has it."""
    title: str
    """What holds where it passes, in one line."""
    kinds: Kinds
    """The kinds it belongs to, by name or by a trait."""
    run: Callable[..., CheckOutcome]
    """Given evidence and metrics, returns a status with its detail; what it raises closes the gate."""
    source: str
    """The paper or post-mortem it comes from, or the failure it finds."""
    blocking: bool = True
    """Whether FAIL, BLOCKED and ERROR close the gate; otherwise it is advice."""
    threshold: str | None = None
    """In words, for checks of other distributions; Peergate's own name what the spec registers in ``limits``."""
    only_treatment: bool = False
    """Whether it runs for the treatment of the analysis alone."""
    limits: tuple[CheckLimit, ...] = ()
    """The registered values it compares with."""
    reads_weights: bool = False
    """Whether it compares weights. Where they are gone, an audit takes the recorded result and says so."""

    def belongs_to(self, kind: StageKind) -> bool:
        """Return whether stages of a kind are checked by it."""
        return bool(self.kinds(kind)) if callable(self.kinds) else kind.name in self.kinds

    def kind_names(self) -> tuple[str, ...]:
        """Return the names of the known kinds it belongs to."""
        return tuple(kind.name for kind in STAGE_KINDS.values() if self.belongs_to(kind))


class CheckRegistry(list[GateCheck]):
    """The checks of a module, in their order; ``kinds`` and ``about`` are the fields that they have in common."""

    def __init__(self, kinds: Kinds = lambda _: True, **about: Any) -> None:
        super().__init__()
        self._common: dict[str, Any] = {"kinds": kinds, **about}

    def add(
        self, id: str, title: str, *, source: str, kinds: Kinds | None = None, **about: Any
    ) -> Callable[[Function], Function]:
        """Decorate the function that carries a check out; ``kinds`` and ``about`` where it differs from the others."""

        def register_check(run: Function) -> Function:
            fields: dict[str, Any] = self._common | about | ({"kinds": kinds} if kinds else {})
            self.append(GateCheck(id=id, title=title, run=run, source=source, **fields))
            return run

        return register_check


def apply(check: GateCheck, evidence: Evidence, metrics: MetricSet | None) -> CheckResult:
    """Run one check. Missing evidence is BLOCKED and a check that breaks is ERROR; neither is ever a pass."""
    if check.only_treatment and evidence.stage.name != evidence.resolved.spec.analysis.treatment:
        outcome = CheckOutcome("NOT_APPLICABLE", "only the treatment arm is compared")
    else:
        outcome = run_guarded(check.run, evidence, metrics)
    return result(check, outcome, evidence.resolved.spec, evidence.output_digests.values())


def run_guarded(run: Callable[..., CheckOutcome], *arguments: Any) -> CheckOutcome:
    """Turn what goes wrong inside a check into a status that closes the gate."""
    try:
        return run(*arguments)
    except EvidenceMissing as error:
        return CheckOutcome(
            "BLOCKED", f"evidence is missing: {f'{error.where}: ' if error.where else ''}{error.message}"
        )
    except PluginFault as error:
        hint = f" ({error.hint})" if error.hint else ""
        return CheckOutcome("ERROR", plain(f"{error.where}: {error.message}{hint}", 800))
    except Exception as error:
        return CheckOutcome("ERROR", f"the check broke: {type(error).__name__}: {plain(str(error), 200)}")


def result(check: GateCheck, outcome: CheckOutcome, spec: Design, evidence: Iterable[str]) -> CheckResult:
    """Put what was found in evidence, given by its digests, into the form the packet carries, with text made plain."""
    return CheckResult(
        id=check.id,
        title=check.title,
        status=outcome.status,
        blocking=check.blocking,
        detail=plain(outcome.detail, 1000),
        figure=outcome.figure if outcome.figure is None or math.isfinite(outcome.figure) else None,
        threshold=_format_limits(check.limits, spec) or check.threshold,
        rows=tuple(_plain_row(row) for row in outcome.rows[:PACKET_ROWS]),
        evidence=tuple(sorted(evidence)),
        required_change=outcome.change,
        repairable=outcome.repairable,
    )


def _format_limits(limits: tuple[CheckLimit, ...], spec: Design) -> str:
    """Return the registered limits in one line."""
    if len(limits) == 1:
        return limits[0].format_value(limits[0].value(spec))
    return "; ".join(f"{limit.key.split('.')[-1]} {limit.format_value(limit.value(spec))}" for limit in limits)


def manifest_of(evidence: Evidence) -> Manifest:
    """Return the job's manifest.

    Raises:
        EvidenceMissing: the job left none.
    """
    if evidence.manifest is None:
        raise EvidenceMissing("the job left no manifest")
    return evidence.manifest


def need(metrics: MetricSet | None, id: str) -> float:
    """Return a measured value, to print and to calculate with; errors as :func:`require_metric`."""
    return require_metric(metrics, id).value


def need_exact(metrics: MetricSet | None, id: str) -> Fraction:
    """Return a measured value exactly, for :func:`specs.system.exact.holds`; errors as :func:`require_metric`."""
    return require_metric(metrics, id).exact()


def require_metric(metrics: MetricSet | None, id: str) -> Metric:
    """Return a metric.

    Raises:
        EvidenceMissing: it was not measured.
    """
    if metrics is None or id not in metrics.metrics:
        raise EvidenceMissing(f"'{id}' was not measured")
    return metrics.metrics[id]


def join_names(names: Iterable[str], limit: int = 5) -> str:
    """Return the first names of a list and how many more there are."""
    every = list(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more


def _plain_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value, CELL_CHARACTERS) if isinstance(value, str) else value for name, value in row.items()}
