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
        self.count = next(one.seq for one in self.entries if one.key == key) + 1


def spec_of(run: Path) -> ResolvedSpec:
    return History.read(run / "trail.sqlite", run / "store").resolved


def mirrors(run: Path, trail: Upto, said: list[str], *names: str, **more: Any) -> Mirrors:
    found = spec_of(run)
    spec = found.spec.model_copy(update={"trackers": names})
    given: dict[str, Any] = {"environ": {}} | more
    resolved = found.model_copy(update={"spec": spec})
    return Mirrors(run, cast(Trail, trail), Store(run / "store"), resolved, said.append, **given)


def record(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / RECORD).read_text(encoding="utf-8").splitlines()]


@needs("tensorboardX")
def test_each_part_is_shown_once_while_the_session_runs(run: Path) -> None:
    trail, said = Upto(run), list[str]()
    shown = mirrors(run, trail, said, "tensorboard")
    trail.after("decision/design.1")
    shown.look()
    assert not (run / RECORD).exists()
    trail.after("decision/train.1")
    shown.look()
    shown._mirrors[0].wait(60)  # pyright: ignore[reportPrivateUsage]
    trail.count = len(trail.entries)
    shown.look()
    # Another process of the session knows what the first one has shown.
    mirrors(run, trail, said, "tensorboard").look()
    files = sorted((run / FOLDER / "tensorboard" / "small").iterdir())
    assert len(files) == 2 and said == []
    scalars = [
        [(value.tag, step) for step, value in events(one.read_bytes()) if value.HasField("simple_value")]
        for one in files
    ]
    both = scalars[0] + scalars[1]
    assert len(set(both)) == len(both)
    what = make_tracked_run(ExportSource(run, History(trail.entries, Store(run / "store"))))
    assert {name for name, _ in both} == what.metrics.keys() | what.curves.keys()
    assert ("train.1/loss", 1) in scalars[0] and ("tuned.1/accuracy_gain", 0) in scalars[1]
    assert [one["shown"] for one in record(run)] == [True, True, True] and (run / RECORD).stat().st_mode & 0o077 == 0


def test_a_tracker_that_takes_too_long_or_is_named_wrongly_is_said_and_stops_nothing(run: Path) -> None:
    trail, said = Upto(run), list[str]()
    mirrors(run, trail, said, "tensorboard", within_s=0.01).look()
    assert said == ["tracker tensorboard: not done within 0.01 s"]
    assert [(one["shown"], one["why"]) for one in record(run)] == [(False, "not done within 0.01 s")]
    said.clear()
    mirrors(run, trail, said, environ={EVERYWHERE: "aim, tensorboard:online ,wandb:online"}).look()
    assert [one.partition(": ")[2][:19] for one in said] == [
        "'aim' is ignored; e",
        "it sends nothing: l",
        "variable WANDB_API_",
    ]
    said.clear()
    broken = Upto(run)
    broken.entries = [None]  # type: ignore[list-item]
    mirrors(run, broken, said, "tensorboard").look()
    assert said == ["trackers: AttributeError, nothing was shown there"]


def test_a_tracker_gets_no_key_but_its_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "quite-a-secret-4471")
    given = {"OPENAI_API_KEY": "quite-a-secret-4471", "WANDB_API_KEY": "own-key-3312", "HTTPS_PROXY": "http://p"}
    offline, online = (_Mirror("wandb", how, run, given, 1.0)._variables() for how in (False, True))  # pyright: ignore[reportPrivateUsage]
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


def in_two_parts(run: Path, said: list[str], *names: str, **more: Any) -> None:
    trail = Upto(run)
    shown = mirrors(run, trail, said, *names, **more)
    trail.after("decision/train.1")
    shown.look()
    shown._mirrors[0].wait(60)  # pyright: ignore[reportPrivateUsage]
    trail.count = len(trail.entries)
    shown.look()


@needs("mlflow")
@pytest.mark.slow
def test_mlflow_adds_to_one_run_where_its_variable_says(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    address, said = (tmp_path / "server").as_uri(), list[str]()
    variables = {EVERYWHERE: "mlflow:online", "MLFLOW_TRACKING_URI": address, "MLFLOW_ALLOW_FILE_STORE": "true"}
    in_two_parts(run, said, environ=variables)
    assert said == [] and not list((run / FOLDER / "mlflow").iterdir())
    client: Any = import_module("mlflow.tracking").MlflowClient(tracking_uri=address)
    (found,) = client.search_runs([client.get_experiment_by_name("peergate").experiment_id])
    what = make_tracked_run(ExportSource(run, History.read(run / "trail.sqlite", run / "store")))
    assert {name: found.data.metrics[name] for name in what.metrics} == what.metrics
    history = [one.value for one in client.get_metric_history(found.info.run_id, "train.1/loss")]
    assert history == what.curves["train.1/loss"]
    assert (json.loads(found.data.tags["decision"]), found.info.status) == ("approve", "FINISHED")


@needs("wandb")
@pytest.mark.slow
def test_wandb_keeps_one_offline_run_of_the_whole(run: Path) -> None:
    said = list[str]()
    in_two_parts(run, said, "wandb")
    (path,) = (run / FOLDER / "wandb").glob("wandb/offline-run-*/run-*.wandb")
    data = path.read_bytes()
    what = make_tracked_run(ExportSource(run, History.read(run / "trail.sqlite", run / "store")))
    assert said == [] and all(name.encode() in data for name in (*what.metrics, *what.curves))
