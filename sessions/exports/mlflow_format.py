"""A session as a run of an MLflow file store: `mlflow ui --backend-store-uri FOLDER`."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from sessions.exports.formats import Source
from sessions.exports.tracked_run import PROJECT, tracked

_BATCH = 1000
"""The most that MLflow takes at once."""


def write(source: Source, folder: Path) -> list[str]:
    """Write the run: metrics, curves, gates and registration."""
    # MLflow warns of its file store; a folder is what an export is.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    run = tracked(source)
    entities: Any = import_module("mlflow.entities")
    tracking: Any = import_module("mlflow.tracking")

    at = int(run.began * 1000)
    client = tracking.MlflowClient(tracking_uri=folder.resolve().as_uri())
    experiment = client.create_experiment(PROJECT)
    made = client.create_run(experiment, start_time=at, run_name=run.name).info.run_id
    points = [entities.Metric(name, value, at, 0) for name, value in run.metrics.items()]
    points += [
        entities.Metric(name, value, at, step)
        for name, values in run.curves.items()
        for step, value in enumerate(values, 1)
    ]
    params = [entities.Param(name, json.dumps(value)[:6000]) for name, value in run.config.items()]
    client.log_batch(made, params=params)
    for first in range(0, len(points), _BATCH):
        client.log_batch(made, metrics=points[first : first + _BATCH])
    for stage, attempt, outcome, reviewer in run.gates:
        client.set_tag(made, f"gate.{stage}.{attempt}", f"{outcome} ({reviewer})")
    client.set_terminated(made, "FINISHED", at)
    return run.told()
