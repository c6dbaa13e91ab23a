"""Trackers in which a session shows what its gates saw, while it runs."""

from __future__ import annotations

from typing import Literal

TrackerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]
