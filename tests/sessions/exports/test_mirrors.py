"""Trackers that follow a session: each part once, by a process without keys; and one that fails stops nothing."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.exports.mirrors import EVERYWHERE, FOLDER, RECORD, Mirrors, _Mirror  # pyright: ignore[reportPrivateUsage]
from sessions.exports.source import ExportSource
from sessions.exports.tracked_run import tracked_of
from sessions.exports.tracking import make_tracked_run
from sessions.jobs.job_environment import job_environment
from sessions.runtime.wiring import make_session
from specs.session.session_spec import ResolvedSpec
from testing.fixtures.quick_session import Silent
from tests.sessions.exports.test_trackers import events, needs

pytestmark = pytest.mark.integration
HAS_TENSORBOARD = importlib.util.find_spec("tensorboardX") is not None


class Upto:
    """A trail that has come to an entry."""

    def __init__(self, run: Path) -> None:
        self.entries = read_entries(run / "trail.sqlite")
        self.count = len(self.entries)

    def iterate(self) -> Iterator[RecordedEntry]:
        return iter(self.entries[: self.count])

    def after(self, key: str) -> None:
        self.count = next(entry.seq for entry in self.entries if entry.key == key) + 1


def spec_of(run: Path) -> ResolvedSpec:
    return History.read(run / "trail.sqlite", run / "store").resolved


def mirrors(run: Path, trail: Upto, messages: list[str], *names: str, **more: Any) -> Mirrors:
    resolved_spec = spec_of(run)
    spec = resolved_spec.spec.model_copy(update={"trackers": names})
    arguments: dict[str, Any] = {"environ": {}} | more
    resolved = resolved_spec.model_copy(update={"spec": spec})
    return Mirrors(run, cast(Trail, trail), Store(run / "store"), resolved, messages.append, **arguments)


def record(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / RECORD).read_text(encoding="utf-8").splitlines()]


@needs("tensorboardX")
def test_each_part_is_shown_once_while_the_session_runs(run: Path) -> None:
    trail, messages = Upto(run), list[str]()
    result = mirrors(run, trail, messages, "tensorboard")
    trail.after("decision/design.1")
    result.look()
    assert not (run / RECORD).exists()
    trail.after("decision/train.1")
    result.look()
    result._mirrors[0].wait(60)  # pyright: ignore[reportPrivateUsage]
    trail.count = len(trail.entries)
    result.look()
    # Another process of the session knows what the first one has shown.
    mirrors(run, trail, messages, "tensorboard").look()
    files = sorted((run / FOLDER / "tensorboard" / "small").iterdir())
    assert len(files) == 2 and messages == []
    scalars = [
        [(value.tag, step) for step, value in events(file.read_bytes()) if value.HasField("simple_value")]
        for file in files
    ]
    both = scalars[0] + scalars[1]
    assert len(set(both)) == len(both)
    what = make_tracked_run(ExportSource(run, History(trail.entries, Store(run / "store"))))
    assert {name for name, _ in both} == what.metrics.keys() | what.curves.keys()
    assert ("train.1/loss", 1) in scalars[0] and ("tuned.1/accuracy_gain", 0) in scalars[1]
    assert [row["shown"] for row in record(run)] == [True, True, True] and (run / RECORD).stat().st_mode & 0o077 == 0


def test_a_tracker_that_takes_too_long_or_is_named_wrongly_is_said_and_stops_nothing(run: Path) -> None:
    trail, messages = Upto(run), list[str]()
    mirrors(run, trail, messages, "tensorboard", within_s=0.01).look()
    assert messages == ["tracker tensorboard: not done within 0.01 s"]
    assert [(row["shown"], row["why"]) for row in record(run)] == [(False, "not done within 0.01 s")]
    messages.clear()
    mirrors(run, trail, messages, environ={EVERYWHERE: "aim, tensorboard:online ,wandb:online"}).look()
    assert [text.partition(": ")[2][:19] for text in messages] == [
        "'aim' is ignored; e",
        "it sends nothing: l",
        "variable WANDB_API_",
    ]
    messages.clear()
    broken = Upto(run)
    broken.entries = [None]  # type: ignore[list-item]
    mirrors(run, broken, messages, "tensorboard").look()
    assert messages == ["trackers: AttributeError, nothing was shown there"]


def test_a_tracker_gets_no_key_but_its_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "quite-a-secret-4471")
    arguments = {"OPENAI_API_KEY": "quite-a-secret-4471", "WANDB_API_KEY": "own-key-3312", "HTTPS_PROXY": "http://p"}
    offline, online = (_Mirror("wandb", how, run, arguments, 1.0)._variables() for how in (False, True))  # pyright: ignore[reportPrivateUsage]
    assert offline == job_environment() and "quite-a-secret-4471" not in str(online)
    assert online == offline | {"WANDB_API_KEY": "own-key-3312", "HTTPS_PROXY": "http://p"}


def test_what_goes_to_the_process_comes_back_as_it_was(run: Path) -> None:
    what = make_tracked_run(ExportSource(run, History.read(run / "trail.sqlite", run / "store")))
    assert tracked_of(what.as_json()) == what
    assert not what.since(what.parts()).metrics and not what.since(what.parts()).curves
    assert what.state["result"].startswith("accepted: ")


def test_every_session_has_the_trackers_of_its_environment(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EVERYWHERE, "tensorboard")
    session = make_session(run, cast(Any, Silent()))
    session.notify()
    session.trail.close()
    (line,) = record(run)
    assert line["shown"] is HAS_TENSORBOARD and (HAS_TENSORBOARD or "peergate[tensorboard]" in line["why"])


def in_two_parts(run: Path, messages: list[str], *names: str, **more: Any) -> None:
    trail = Upto(run)
    result = mirrors(run, trail, messages, *names, **more)
    trail.after("decision/train.1")
    result.look()
    result._mirrors[0].wait(60)  # pyright: ignore[reportPrivateUsage]
    trail.count = len(trail.entries)
    result.look()


@needs("mlflow")
@pytest.mark.slow
def test_mlflow_adds_to_one_run_where_its_variable_says(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    address, messages = (tmp_path / "server").as_uri(), list[str]()
    variables = {EVERYWHERE: "mlflow:online", "MLFLOW_TRACKING_URI": address, "MLFLOW_ALLOW_FILE_STORE": "true"}
    in_two_parts(run, messages, environ=variables)
    assert messages == [] and not list((run / FOLDER / "mlflow").iterdir())
    client: Any = import_module("mlflow.tracking").MlflowClient(tracking_uri=address)
    (result,) = client.search_runs([client.get_experiment_by_name("peergate").experiment_id])
    what = make_tracked_run(ExportSource(run, History.read(run / "trail.sqlite", run / "store")))
    assert {name: result.data.metrics[name] for name in what.metrics} == what.metrics
    history = [item.value for item in client.get_metric_history(result.info.run_id, "train.1/loss")]
    assert history == what.curves["train.1/loss"]
    assert (json.loads(result.data.tags["decision"]), result.info.status) == ("approve", "FINISHED")


@needs("wandb")
@pytest.mark.slow
def test_wandb_keeps_one_offline_run_of_the_whole(run: Path) -> None:
    messages = list[str]()
    in_two_parts(run, messages, "wandb")
    (path,) = (run / FOLDER / "wandb").glob("wandb/offline-run-*/run-*.wandb")
    data = path.read_bytes()
    what = make_tracked_run(ExportSource(run, History.read(run / "trail.sqlite", run / "store")))
    assert messages == [] and all(name.encode() in data for name in (*what.metrics, *what.curves))
