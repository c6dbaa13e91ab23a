"""`peergate export tensorboard | wandb | mlflow | trackio`: what each tracker's own library reads of a session."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from reviews.history.history import History
from reviews.trail.tables.open_table import read_entries
from sessions.exports.formats import FORMATS
from sessions.exports.source import ExportSource
from sessions.exports.tracked_run import TrackedRun
from sessions.exports.tracking import make_tracked_run
from sessions.pages.report.report import steps_of
from testing.fixtures.command_sessions import called, peergate
from testing.fixtures.hostile_trail import small_trail
from testing.fixtures.quick_session import open_quick


def needs(package: str, what: str = "") -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{what or package} is not installed (make -f more.mk test-trackers)")


def source_of(run: Path) -> ExportSource:
    return ExportSource(run, History.read(run / "trail.sqlite", run / "store"))


def exported(format: str, run: Path, folder: Path) -> tuple[Path, TrackedRun]:
    """Export over the command and return the folder with what it was made of."""
    # A process: what these libraries set and start there ends with it.
    done = peergate("export", format, run, "--out", folder / "out", "--json")
    assert done.returncode == 0, done.stderr
    what = make_tracked_run(source_of(run))
    assert json.loads(done.stdout)["lines"] == what.summarize()
    return folder / "out", what


def test_a_tracker_gets_the_numbers_of_the_trail_and_no_words(run: Path) -> None:
    what, source = make_tracked_run(source_of(run)), source_of(run)
    assert what.metrics["tuned.1/accuracy_gain"] == 1.0 and what.metrics["base.1/accuracy"] == 0.0
    assert what.curves["train.1/loss"] == steps_of(source.history)["train", 1] != []
    assert ("tuned", 1, "approve", "checklist") in what.gates and what.state["decision"] == "approve"
    assert what.state["newest_entry"] == source.history[-1].digest and "report/report.md" in what.state["report"]
    assert "Write one line" not in json.dumps(what) and "fine answer" not in json.dumps(what)


def test_of_an_open_session_what_was_measured_is_there(tmp_path: Path) -> None:
    what = make_tracked_run(source_of(small_trail(tmp_path)))
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
    digest = next(entry.raw["metrics"] for entry in read_entries(run / "trail.sqlite") if entry.kind == "metrics")
    saved = run / "store" / digest[7:9] / digest[9:]
    data = saved.read_bytes()
    saved.unlink()
    saved.write_bytes(data.replace(b'"value":0', b'"value":1', 1))
    done = called("export", "tensorboard", run, "--out", tmp_path / "out")
    assert done.returncode == 5 and not (tmp_path / "out").exists(), done.stderr


def test_what_is_sent_nowhere_is_one_line(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("WANDB_API_KEY", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    for row, why in (
        (("mlflow", run, "--send"), "variable MLFLOW_TRACKING_URI is not set"),
        (("tensorboard", run, "--send"), "format 'tensorboard' cannot be sent"),
        (("wandb", run, "--send"), "for `wandb sync`"),
        (("mlflow", run, "--send", "--out", tmp_path / "out"), "--out cannot be used with --send"),
    ):
        done = called("export", *row)
        assert done.returncode == 2 and why in done.stderr and not (tmp_path / "out").exists()


def test_every_format_says_what_it_is_for() -> None:
    assert all(item.description for item in FORMATS.values())


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
    assert scalars["train.1/loss"] == [(step, pytest.approx(number)) for step, number in enumerate(loss, 1)]
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
    assert f"\n{os.uname().nodename}".encode() not in data and str(tmp_path).encode() not in data
    history: dict[str, list[float]] = {}
    summary: dict[str, float] = {}
    config: dict[str, str] = {}
    steps: dict[str, str] = {}
    for value in records_of_wandb(data):
        for item in value.history.item:
            history.setdefault(item.key or "/".join(item.nested_key), []).append(json.loads(item.value_json))
        summary |= {item.key: json.loads(item.value_json) for item in value.summary.update}
        config |= {item.key: json.loads(item.value_json) for item in (*value.config.update, *value.run.config.update)}
        steps |= {value.metric.name: value.metric.step_metric} if value.metric.name else {}
    assert summary.items() >= what.metrics.items() and config["registration"] == what.config["registration"]
    assert {name for name in history if not name.startswith(("_", "gates"))} == {
        *what.curves,
        *(f"{name} step" for name in what.curves),
    }
    for name, values in what.curves.items():
        assert history[name] == values and history[f"{name} step"] == [*range(1, len(values) + 1)]
        assert steps[name.replace(".", r"\.")] == f"{name} step".replace(".", r"\.")


def records_of_wandb(data: bytes) -> Iterator[Any]:
    """Read records as LevelDB frames them, in blocks of 32 KiB: checksum, length, kind, a part of a record."""
    read: Any = import_module("wandb.proto.wandb_internal_pb2")
    at, whole = 7, b""
    while at + 7 <= len(data):
        if (remaining := 32_768 - at % 32_768) < 7:
            at += remaining
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        # Whole, or the last part of several.
        if kind in (1, 4):
            yield read.Record.FromString(whole)
            whole = b""


@needs("mlflow")
@pytest.mark.slow
def test_mlflow(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, what = exported("mlflow", run, tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    library: Any = import_module("mlflow.tracking")
    client = library.MlflowClient(tracking_uri=folder.resolve().as_uri())
    experiment = client.get_experiment_by_name("peergate")
    assert experiment is not None
    (result,) = client.search_runs([experiment.experiment_id])
    assert result.info.run_name == "small" and result.info.status == "FINISHED"
    for name, value in what.metrics.items():
        assert result.data.metrics[name] == value
    history = {item.step: item.value for item in client.get_metric_history(result.info.run_id, "train.1/loss")}
    assert [history[step] for step in sorted(history)] == what.curves["train.1/loss"]
    assert result.data.tags["gate.tuned.1"] == "approve (checklist)"
    assert json.loads(result.data.params["registration"]) == what.config["registration"]


@pytest.fixture(params=["folder", pytest.param("server", marks=needs("flask", "mlflow (its server)"))])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a file store, or of a server of MLFlow's own (in `mlflow`, not in `mlflow-skinny`)."""
    if request.param == "folder":
        yield (tmp_path / "kept").as_uri()
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{tmp_path / 'kept.db'}"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    try:
        deadline = time.monotonic() + 300
        while True:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                break
            assert process.poll() is None and time.monotonic() < deadline, "the server did not begin"
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@needs("mlflow")
@pytest.mark.slow
def test_mlflow_is_sent_once_what_a_session_has(run: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    for _ in range(2):
        done = peergate("export", "mlflow", run, "--send")
        assert done.returncode == 0 and done.stdout.startswith("sent: "), done.stderr
    what = make_tracked_run(source_of(run))
    client: Any = import_module("mlflow.tracking").MlflowClient()
    (result,) = client.search_runs([client.get_experiment_by_name("peergate").experiment_id])
    assert {name: result.data.metrics[name] for name in what.metrics} == what.metrics
    for name, values in what.curves.items():
        history = [(item.step, item.value) for item in client.get_metric_history(result.info.run_id, name)]
        assert history == [*enumerate(values, 1)]
    assert len(client.get_metric_history(result.info.run_id, "tuned.1/accuracy_gain")) == 1
    assert (json.loads(result.data.tags["decision"]), result.info.status) == ("approve", "FINISHED")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    done = peergate("export", "mlflow", run, "--send")
    assert done.returncode == 4 and "rejected it" in done.stderr and "Traceback" not in done.stderr


@needs("trackio")
@pytest.mark.slow
def test_trackio(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://127.0.0.1:1")
    folder, what = exported("trackio", run, tmp_path)
    (path,) = folder.glob("*.db")
    with closing(sqlite3.connect(path)) as base:
        logged = [json.loads(row[0]) for row in base.execute("SELECT metrics FROM metrics WHERE run_name = 'small'")]
    merged: dict[str, Any] = {}
    for item in logged:
        merged |= item
    assert merged.keys() >= what.metrics.keys()
    assert [value["train.1/loss"] for value in logged if "train.1/loss" in value] == what.curves["train.1/loss"]
