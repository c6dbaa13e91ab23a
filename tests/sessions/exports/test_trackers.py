"""`peergate export tensorboard | wandb | mlflow | trackio`: what each tracker's own library reads of a session."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.exports.formats import FORMATS
from sessions.exports.source import Source
from sessions.exports.tracked_run import Tracked
from sessions.exports.tracking import tracked
from sessions.report.report import steps_of
from tests.e2e.sessions import called, peergate
from tests.fixtures.hostile_trail import small_trail
from tests.fixtures.quick_session import open_quick


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


@pytest.fixture
def run(closed_quick: Path, tmp_path: Path) -> Path:
    return shutil.copytree(closed_quick.parent, tmp_path / "runs") / "small"


def source_of(run: Path) -> Source:
    return Source(run, read_entries(run / "trail.sqlite"), Store(run / "store"))


def exported(format: str, run: Path, folder: Path) -> tuple[Path, Tracked]:
    """Export over the command and return the folder with what it was made of."""
    # A process: what these libraries set and start there ends with it.
    done = peergate("export", format, run, "--out", folder / "out", "--json")
    assert done.returncode == 0, done.stderr
    what = tracked(source_of(run))
    assert json.loads(done.stdout)["told"] == what.told()
    return folder / "out", what


def test_a_tracker_gets_the_numbers_of_the_trail_and_no_words(run: Path) -> None:
    what, source = tracked(source_of(run)), source_of(run)
    assert what.metrics["tuned.1/accuracy_gain"] == 1.0 and what.metrics["base.1/accuracy"] == 0.0
    assert what.curves["train.1/loss"] == steps_of(source.entries, source.store)["train", 1] != []
    assert ("tuned", 1, "approve", "checklist") in what.gates and what.state["decision"] == "approve"
    assert what.state["newest_entry"] == source.entries[-1].digest and "report/report.md" in what.state["report"]
    assert "Write one line" not in json.dumps(what) and "fine answer" not in json.dumps(what)


def test_of_an_open_session_what_was_measured_is_there(tmp_path: Path) -> None:
    what = tracked(source_of(small_trail(tmp_path)))
    assert what.state["decision"] == "open" and what.state["report"] == {} and what.metrics


def test_what_has_no_numbers_or_no_library_is_one_line_and_leaves_nothing(run: Path, tmp_path: Path) -> None:
    new = open_quick(tmp_path, name="new")
    done = called("export", "tensorboard", new, "--out", tmp_path / "out")
    assert done.returncode == 4 and "nothing was measured yet" in done.stderr
    for name in ("tensorboard", "wandb", "mlflow", "trackio"):
        if importlib.util.find_spec("tensorboardX" if name == "tensorboard" else name) is None:
            done = called("export", name, run, "--out", tmp_path / "out")
            assert done.returncode == 2 and f"pip install 'peergate[{name}]'" in done.stderr
    assert not [*tmp_path.glob("out*"), *tmp_path.glob(".out*")]


def test_a_changed_metric_is_not_exported(run: Path, tmp_path: Path) -> None:
    digest = next(one.body["metrics"] for one in read_entries(run / "trail.sqlite") if one.entry.kind == "metrics")
    kept = run / "store" / digest[7:9] / digest[9:]
    data = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(data.replace(b'"value":0', b'"value":1', 1))
    done = called("export", "tensorboard", run, "--out", tmp_path / "out")
    assert done.returncode == 5 and not (tmp_path / "out").exists(), done.stderr


def test_every_format_says_what_it_is_for() -> None:
    assert all(one.told for one in FORMATS.values())


@needs("tensorboardX")
@pytest.mark.more
def test_tensorboard(run: Path, tmp_path: Path) -> None:
    folder, what = exported("tensorboard", run, tmp_path)
    (path,) = (folder / "small").iterdir()
    scalars: dict[str, list[tuple[int, float]]] = {}
    texts: dict[str, str] = {}
    for step, value in events(path.read_bytes()):
        if value.HasField("simple_value"):
            scalars.setdefault(value.tag, []).append((step, value.simple_value))
        elif value.HasField("tensor"):
            texts[value.tag] = value.tensor.string_val[0].decode()
    assert scalars.keys() == what.metrics.keys() | what.curves.keys()
    loss = what.curves["train.1/loss"]
    assert scalars["train.1/loss"] == [(step, pytest.approx(one)) for step, one in enumerate(loss, 1)]
    assert scalars["tuned.1/accuracy_gain"] == [(0, 1.0)]
    assert "| tuned | 1 | approve | checklist |" in texts["gates/text_summary"]
    assert what.config["registration"] in texts["session/text_summary"]


def events(data: bytes) -> Iterator[tuple[int, Any]]:
    """Read records as TensorFlow frames them: length, checksum, event, checksum."""
    read: Any = import_module("tensorboardX.proto.event_pb2")

    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = read.Event.FromString(data[at + 12 : at + 12 + length])
        at += 16 + length
        for value in event.summary.value:
            yield event.step, value


@needs("wandb")
@pytest.mark.slow
def test_wandb(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    folder, what = exported("wandb", run, tmp_path)
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data = path.read_bytes()
    for name in (*what.metrics, *what.curves, what.config["registration"]):
        assert name.encode() in data, name
    assert f"\n{os.uname().nodename}".encode() not in data and str(tmp_path).encode() not in data


@needs("mlflow")
@pytest.mark.slow
def test_mlflow(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, what = exported("mlflow", run, tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    library: Any = import_module("mlflow.tracking")
    client = library.MlflowClient(tracking_uri=folder.resolve().as_uri())
    experiment = client.get_experiment_by_name("peergate")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == "small" and found.info.status == "FINISHED"
    for name, value in what.metrics.items():
        assert found.data.metrics[name] == value
    history = {one.step: one.value for one in client.get_metric_history(found.info.run_id, "train.1/loss")}
    assert [history[step] for step in sorted(history)] == what.curves["train.1/loss"]
    assert found.data.tags["gate.tuned.1"] == "approve (checklist)"
    assert json.loads(found.data.params["registration"]) == what.config["registration"]


@needs("trackio")
@pytest.mark.slow
def test_trackio(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://127.0.0.1:1")
    folder, what = exported("trackio", run, tmp_path)
    (path,) = folder.glob("*.db")
    with closing(sqlite3.connect(path)) as base:
        logged = [json.loads(row[0]) for row in base.execute("SELECT metrics FROM metrics WHERE run_name = 'small'")]
    merged: dict[str, Any] = {}
    for one in logged:
        merged |= one
    assert merged.keys() >= what.metrics.keys()
    assert [one["train.1/loss"] for one in logged if "train.1/loss" in one] == what.curves["train.1/loss"]
