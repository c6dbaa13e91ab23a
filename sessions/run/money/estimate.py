"""What a session may cost, shown before anything is opened: the ledger's limits, and a forecast of training.

The forecast divides operations by a speed measured on two CPU cores (docs/explanation/pipeline-training.md) and assumed
for a GPU; the hours are as wrong as that speed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specs.loading.loading import spec_error
from specs.session.evaluation_plan import Arm
from specs.session.operations import attempt_usd, held_hours
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.stages.finetuning.online_parameters import GrpoParameters
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from specs.stages.registry import Stage, kind_of
from specs.system.errors import BlockedError
from specs.system.resources import usd_per_hour
from specs.system.text import size_in_words
from specs.system.yaml.problems import LintProblem
from training.rules.finetuning.schedules import SPEED

if TYPE_CHECKING:
    from training.planning.disk_space import Disk


FROM_SCRATCH = 20
"""Tokens a parameter of a model that is trained from scratch with its compute used best (Hoffmann et al. 2022)."""


class TrainingForecast(NamedTuple):
    """What training of one stage takes with the most data it can get; ``tokens`` counts one pass and whole pairs."""

    stage: str
    tokens: int
    hours: float
    usd: float
    operations_a_second: float
    trained_parameters: int

    def tokens_a_parameter(self) -> float:
        """Return tokens of one pass for each parameter that is trained."""
        return self.tokens / self.trained_parameters


class ArmCost(NamedTuple):
    """What one further arm of the analysis takes: an attempt of each stage that nothing else reads."""

    arm: str
    stages: tuple[str, ...]
    most_hours: float
    most_usd: float
    human_minutes: float | None = None
    """What its data took of people, as the spec states it."""


class Estimate(NamedTuple):
    """What one attempt of each stage takes."""

    most_hours: float
    most_usd: float
    """For jobs and models together."""
    builder_usd: float
    """The part for the builder's model, 0 without one."""
    review_usd: float
    """The part for reviewers that are models, 0 without one."""
    budget_usd: float
    forecasts: tuple[TrainingForecast, ...]
    unknown: tuple[str, ...]
    """Training stages of which nothing is forecast."""
    auto: tuple[str, ...]
    """Stages with a model that take a GPU or the CPU, whichever is there."""
    disk: Disk
    """For checkpoints, packages and snapshots."""
    arms: tuple[ArmCost, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as `spec check --json` prints it."""
        stages = [stage.as_json() for stage in self.disk.stages]
        disk = {"stages": stages, "bytes": self.disk.total()._asdict(), "unknown": self.disk.unknown()}
        forecasts = [_as_json(forecast) for forecast in self.forecasts]
        arms = [arm._asdict() for arm in self.arms]
        return self._asdict() | {"forecasts": forecasts, "disk": disk, "arms": arms}

    def lines(self) -> Iterator[str]:
        """Yield the printed lines."""
        jobs = self.most_usd - self.builder_usd - self.review_usd
        parties = (("jobs", jobs), ("builder", self.builder_usd), ("reviews", self.review_usd))
        models = self.builder_usd or self.review_usd
        parts = "".join(f"{party} {usd:.2f}, " for party, usd in parties if usd > 0) if models else ""
        yield (
            f"at most, an attempt of each stage: {self.most_hours:.1f} h, {self.most_usd:.2f} of "
            f"{self.budget_usd:.2f} USD ({parts}the limits, not a forecast)"
        )
        for arm in self.arms:
            people = f", and {arm.human_minutes:g} minutes of people" if arm.human_minutes else ""
            yield (
                f"of that only for the arm '{arm.arm}': {60 * arm.most_hours:.0f} minutes, {arm.most_usd:.2f} USD"
                f"{people} ({', '.join(arm.stages)})"
            )
        for forecast in self.forecasts:
            yield (
                f"training of {forecast.stage}, if nothing before it is refused: {forecast.tokens:,} tokens a pass, "
                f"{forecast.hours:.2f} h, {forecast.usd:.2f} USD at {forecast.operations_a_second / 1e12:g} TFLOP/s"
                f" (a forecast)"
            )
            tokens_per_parameter = forecast.tokens_a_parameter()
            yield (
                f"  {tokens_per_parameter:.2g} tokens a trained parameter, "
                f"{100 * tokens_per_parameter / FROM_SCRATCH:.2g} % of the {FROM_SCRATCH} of "
                "training from scratch (arXiv:2203.15556)"
            )
        for stage in self.unknown:
            yield f"no forecast of {stage}: the size of its model or of its data is not known"
        least, most = (size_in_words(round(value)) for value in self.disk.total())
        if self.disk.stages:
            message = least if least == most else f"{least} to {most}"
            yield f"disk for weights and snapshots, an attempt of each stage: {message}"
        if unknown := self.disk.unknown():
            yield f"no forecast of the disk that {', '.join(unknown)} takes: the size of model or data is not known"
        if self.auto:
            yield f"device: auto, a GPU if there is one, else the CPU: {', '.join(self.auto)}"


def _as_json(forecast: TrainingForecast) -> dict[str, Any]:
    return forecast._asdict() | {"tokens_a_parameter": forecast.tokens_a_parameter()}


def forecasts(resolved: ResolvedSpec) -> tuple[TrainingForecast, ...]:
    """Return what is forecast of the stages that train."""
    matching_forecasts = (_forecast(resolved, stage) for stage in resolved.spec.stages if kind_of(stage).trains)
    return tuple(forecast for forecast in matching_forecasts if forecast is not None)


def estimate(resolved: ResolvedSpec) -> Estimate:
    """Return what a spec may cost."""
    spec = resolved.spec
    known = forecasts(resolved)
    named = {forecast.stage for forecast in known}
    builder_usd = spec.budget.builder_usd if spec.builder.asks_a_model else 0.0
    review_usd = spec.budget.review_usd if any(reviewer.asks_a_model for reviewer in spec.reviewers()) else 0.0
    jobs_usd = sum(attempt_usd(spec.budget, stage) for stage in spec.stages)
    return Estimate(
        most_hours=sum(held_hours(stage) for stage in spec.stages),
        most_usd=round(jobs_usd + builder_usd + review_usd, 6),
        builder_usd=builder_usd,
        review_usd=review_usd,
        budget_usd=spec.budget.max_cost_usd,
        forecasts=known,
        unknown=tuple(stage.name for stage in spec.stages if kind_of(stage).trains and stage.name not in named),
        disk=_disk(resolved),
        arms=tuple(_cost_of_arm(spec, arm) for arm in spec.analysis.arms),
        auto=tuple(stage.name for stage in spec.stages if kind_of(stage).loads_model and _device(stage) == "auto"),
    )


def _cost_of_arm(spec: SessionSpec, arm: Arm) -> ArmCost:
    """Return what goes with an arm: its stage, and each whose readers all go; what only measures keeps no stage."""
    compared, only = spec.analysis.list_compared_stages(), {arm.stage}
    reading = [stage for stage in spec.stages if stage.name in compared or not kind_of(stage).only_measures]
    for stage in reversed(spec.stages):
        readers = {
            other.name
            for other in reading
            if other.pilot == stage.name or stage.name in {value.partition(".")[0] for value in other.inputs.values()}
        }
        if readers and readers <= only:
            only.add(stage.name)
    stages = [stage for stage in spec.stages if stage.name in only]
    usd = sum(attempt_usd(spec.budget, stage) for stage in stages)
    names = tuple(stage.name for stage in stages)
    return ArmCost(arm.name, names, sum(held_hours(stage) for stage in stages), round(usd, 6), arm.human_minutes)


def _disk(resolved: ResolvedSpec) -> Disk:
    from training.planning.disk_space import disk

    return disk(resolved.spec, Path(resolved.origin))


def require_disk(resolved: ResolvedSpec, runs: Path) -> None:
    """Raise Blocked where a session's checkpoints alone take more than is free where runs are kept."""
    least = _disk(resolved).total().least
    place = next(parent for parent in (runs.absolute(), *runs.absolute().parents) if parent.is_dir())
    free = shutil.disk_usage(place).free
    if least > free:
        need, has = size_in_words(round(least)), size_in_words(free)
        raise BlockedError(
            f"one attempt of each stage leaves at least {need} of weights, {has} are free",
            where=str(place),
            hint="`peergate prune` frees the disk of closed sessions; or name another disk with --runs",
        )


def require_disk_limit(resolved: ResolvedSpec, path: Path, profile: str | None) -> None:
    """Raise SpecError where an attempt of each stage may leave more than ``budget.max_disk_gb``, or no one knows.

    What a plug-in's stage leaves is never known before; its jobs are held by what they have left.
    """
    spec, allowed = resolved.spec, resolved.spec.budget.max_disk_gb
    if allowed is None:
        return
    disk = _disk(resolved)
    place = ("budget", "max_disk_gb")
    if unknown := [name for name in disk.unknown() if not kind_of(spec.stage(name)).plugin]:
        message = f"what {', '.join(unknown)} may leave is not known, so max_disk_gb cannot be kept"
        hint = "declare model.shape for weights that are not here, or omit max_disk_gb"
        raise spec_error(path, profile, LintProblem(place, message, hint))
    if disk.total().most > allowed * 1e9:
        stage_sizes = ", ".join(
            f"{stage.stage} {size_in_words(ceil(stage.most()))}" for stage in disk.stages if stage.most()
        )
        message = (
            f"one attempt of each stage may leave {size_in_words(ceil(disk.total().most))} of weights and snapshots"
        )
        hint = "raise it, or keep fewer snapshots: a larger snapshot_steps"
        raise spec_error(
            path, profile, LintProblem(place, f"{message} ({stage_sizes}), max_disk_gb is {allowed:g}", hint)
        )


def snapshot_bytes(resolved: ResolvedSpec, stage: Stage) -> int:
    """Return how many bytes the snapshots of a stage may take; 0 where the size of its model or data is not known."""
    result = next(
        (stage_disk.snapshots for stage_disk in _disk(resolved).stages if stage_disk.stage == stage.name), None
    )
    return 0 if result is None else ceil(result.most)


def _device(stage: Stage) -> str:
    return str(getattr(stage.parameters, "device", "auto"))


def _forecast(resolved: ResolvedSpec, stage: Stage) -> TrainingForecast | None:
    from training.planning.prompt_lengths import volume
    from training.planning.rollout_time import rollout_time
    from training.planning.stage_plans import shape_of_source
    from training.planning.training_memory import as_texts, trained_parameters, training_hours

    spec, origin, parameters = resolved.spec, Path(resolved.origin), stage.parameters
    shape, _ = shape_of_source(spec.model, origin)
    data = volume(spec, stage.inputs[kind_of(stage).trains], origin)
    if shape is None or data is None:
        return None
    speed = SPEED["cuda" if _device(stage) == "cuda" else "cpu"]
    an_hour = usd_per_hour(spec.budget, stage.resources)
    match parameters:
        case SftParameters() | DpoParameters():
            sides = 2 if isinstance(parameters, DpoParameters) else 1
            tokens, texts = data.texts * min(data.tokens, parameters.max_length) * sides, parameters
            hours = training_hours(shape, parameters, tokens=tokens, operations_a_second=speed)
        case GrpoParameters():
            texts = as_texts(parameters, data.tokens)
            tokens, hours = rollout_time(
                shape, parameters, prompts=data.texts, prompt=data.tokens, operations_a_second=speed
            )
        case _:
            return None
    return TrainingForecast(stage.name, tokens, hours, hours * an_hour, speed, trained_parameters(shape, texts))
