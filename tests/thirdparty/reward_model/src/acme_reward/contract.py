"""The contract of ``reward_model`` stages: importable in milliseconds, no torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specs.stages.base.kind import StageKind
from specs.stages.base.metric import Value, count, every, judged_value, mean, metric, share, where
from specs.stages.base.stage import DeviceParameters
from specs.stages.finetuning.rows import TrainingRow


class Parameters(DeviceParameters):
    """Train the model to give the better of two answers more log-probability a token than the worse one."""

    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-3
    epochs: Annotated[int, Field(ge=1, le=100)] = 1
    save_every: Annotated[int, Field(ge=1)] = 4
    """Steps between two saved ones, from which another attempt can continue."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class Step(TrainingRow):
    """One pair that was trained on."""

    unique_by = ("step",)

    item: str
    margin: float
    """Nats a token: the better answer's log-probability minus the worse one's, before the step."""


KIND = StageKind(
    name="reward_model",
    parameters=Parameters,
    inputs={"model": "checkpoint", "pairs": "items"},
    outputs={"rows": "rows", "checkpoint": "checkpoint"},
    rows={"rows": Step},
    metrics=(
        metric("reward_steps", unit="optimizer steps", over=every, value=count),
        metric("reward_loss", unit="nats", over=every, value=mean("loss"), better="lower"),
        metric(
            "reward_accuracy",
            unit="fraction",
            over=where("steps after the first", lambda row: row.step > 1),
            value=share("steps whose better answer has the larger reward", lambda row: row.margin > 0),
            better="higher",
        ),
        metric(
            "reward_least",
            unit="nats",
            over=every,
            value=Value("the smallest margin of a step", lambda rows: min(row.margin for row in rows)),
        ),
        metric(
            "reward_pairs",
            unit="fraction",
            over=every,
            value=judged_value("pairs of the input that a step is of / pairs of the input"),
            better="higher",
        ),
    ),
    job="acme_reward.job:run",
    replay_job="acme_reward.job:replay",
    judge="acme_reward.judge",
    review_focus=("margins: do they grow for most pairs", "what sets better and worse apart from quality"),
    trains="pairs",
    resumable=True,
)
