"""A session as a run of an MLflow file store, `mlflow ui --backend-store-uri FOLDER`, or of a tracking server."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from sessions.exports.tracked_run import PROJECT, TrackedRun

_BATCH = 1000
"""The most that MLflow takes at once."""
_TAG = "peergate.id"


def write(run: TrackedRun, folder: Path, *, online: bool = False) -> None:
    """Write the run, or add to it: metrics, curves, gates, registration and state.

    ``online`` sends it to the server that ``MLFLOW_TRACKING_URI`` names.
    """
    # MLflow warns of its file store; a folder is what an export is.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    entities: Any = import_module("mlflow.entities")
    tracking: Any = import_module("mlflow.tracking")

    at = int(run.began * 1000)
    client = tracking.MlflowClient(tracking_uri=None if online else folder.resolve().as_uri())
    result = client.get_experiment_by_name(PROJECT)
    experiment = result.experiment_id if result else client.create_experiment(PROJECT)
    there = client.search_runs([experiment], filter_string=f"tags.`{_TAG}` = '{run.id}'", max_results=1)
    known: dict[str, int] = {}
    if there:
        made = there[0].info.run_id
        # A point that is logged twice is there twice.
        known = dict.fromkeys(there[0].data.metrics, 1)
        known |= {name: len(client.get_metric_history(made, name)) for name in run.curves if name in known}
    else:
        made = client.create_run(experiment, start_time=at, run_name=run.name, tags={_TAG: run.id}).info.run_id
        params = [entities.Param(name, json.dumps(value)[:6000]) for name, value in run.config.items()]
        client.log_batch(made, params=params)
    series = {**run.curves, **{name: [value] for name, value in run.metrics.items()}}
    points = [
        entities.Metric(name, value, at, step if name in run.curves else 0)
        for name, values in series.items()
        for step, value in enumerate(values[known.get(name, 0) :], known.get(name, 0) + 1)
    ]
    for first in range(0, len(points), _BATCH):
        client.log_batch(made, metrics=points[first : first + _BATCH])
    for stage, attempt, outcome, reviewer in run.gates:
        client.set_tag(made, f"gate.{stage}.{attempt}", f"{outcome} ({reviewer})")
    for name, value in run.state.items():
        client.set_tag(made, name, json.dumps(value)[:4000])
    client.set_terminated(made, "FINISHED" if run.state["decision"] != "open" else "RUNNING", at)
