"""The model of a session: where the last line says it is, and a copy that is what the trail recorded, or none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.status import print_summary
from sessions.run.final_model import FinalModel, final_model
from specs.session.session_spec import ResolvedSpec
from specs.system.digests import digest_path
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session, rows_with

PACKAGE, TRAINED = "jobs/small.ship.1/out/package", "jobs/small.train.1/out/checkpoint"


def final_model_of(run: Path, without: str = "") -> FinalModel | None:
    entries = read_entries(run / "trail.sqlite")
    resolved: ResolvedSpec
    resolved = History(entries, Store(run / "store")).resolved
    stages = tuple(stage for stage in resolved.spec.stages if stage.name != without)
    return final_model(History(entries), resolved.spec.model_copy(update={"stages": stages}))


def test_the_package_is_copied_and_it_is_the_recorded_one(run: Path, tmp_path: Path) -> None:
    done = called("get", "model", "small", "--runs", run.parent, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    recorded = next(entry.raw for entry in read_entries(run / "trail.sqlite") if entry.key == "exit/small.ship.1")
    assert (report["path"], report["digest"]) == (PACKAGE, recorded["outputs"]["package"]["digest"])
    copy = tmp_path / "small-model"
    assert digest_path(copy) == report["digest"] and (copy / "model.safetensors").is_file()
    assert (copy / "model.safetensors").stat().st_mode & 0o777 == 0o644, "a copy is the person's own file"
    again = called("get", "model", run, copy)
    assert again.returncode == 2 and "already exists" in again.stderr


def test_without_a_package_it_is_the_evaluated_checkpoint(run: Path) -> None:
    model = final_model_of(run, without="ship")
    assert model is not None and (model.stage, model.path) == ("train", TRAINED)


def test_the_last_line_of_a_session_says_where_its_model_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(run)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"model: {run}/{PACKAGE}; `peergate get model small --runs {run.parent}` copies it"


def test_the_report_says_how_to_load_it(run: Path) -> None:
    text = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert "peergate get model small small-model\n" in text
    assert 'model = AutoModelForCausalLM.from_pretrained("small-model")\n' in text


def test_a_session_that_is_not_accepted_gives_its_model_only_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=QuickLauncher(rows=rows_with(0))))
    assert read_entries(run / "trail.sqlite")[-1].raw["decision"] == "null"
    refused = called("get", "model", run, tmp_path / "copy")
    assert refused.returncode == 2 and "the session is not accepted" in refused.stderr
    assert not (tmp_path / "copy").exists()
    done = called("get", "model", run, tmp_path / "copy", "--unaccepted")
    assert done.returncode == 0 and TRAINED in done.stdout, done.stderr
    print_summary(run)
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"model, not accepted: {run}/{TRAINED}; ")
    assert "**not accepted**" in (run / "report" / "report.md").read_text(encoding="utf-8")


def test_a_session_that_was_taken_back_is_not_accepted(run: Path, tmp_path: Path) -> None:
    taken = ("retract", run, "decision/ship.1", "--reason", "the probes were wrong")
    assert called(*taken).returncode == 0
    assert called("get", "model", run, tmp_path / "copy").returncode == 2


def test_an_open_session_is_not_accepted_and_may_have_left_nothing(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    assert called("get", "model", run, tmp_path / "copy").returncode == 2
    nothing = called("get", "model", run, tmp_path / "copy", "--unaccepted")
    assert nothing.returncode == 4 and "left no model" in nothing.stderr


@pytest.mark.parametrize("damage", ["a changed byte", "a file more", "a link", "a file less", "gone"])
def test_weights_that_are_not_the_recorded_ones_are_not_copied(run: Path, tmp_path: Path, damage: str) -> None:
    weights = run / PACKAGE
    file = weights / "model.safetensors"
    match damage:
        case "a changed byte":
            data = file.read_bytes()
            file.unlink()
            file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "a file more":
            (weights / "more.json").write_text("{}", encoding="utf-8")
        case "a link":
            (weights / "more.json").symlink_to(file)
        case "a file less":
            file.unlink()
        case _:
            shutil.rmtree(weights)
    done = called("get", "model", run, tmp_path / "new" / "copy")
    assert done.returncode == 5 and "nothing was copied" in done.stderr, done.stderr
    assert not list(tmp_path.glob("**/*copy*")), "nothing is left"


def test_pruned_weights_are_distinguished_from_lost_ones(run: Path, tmp_path: Path) -> None:
    assert called("prune", run, "--yes").returncode == 0
    done = called("get", "model", run, tmp_path / "copy")
    assert done.returncode == 4 and f"{PACKAGE} was pruned" in done.stderr


def test_a_damaged_trail_vouches_for_nothing(run: Path, tmp_path: Path) -> None:
    path = run / "trail.sqlite"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"outcome":"approve"', b'"outcome":"approvE"', 1))
    done = called("get", "model", run, tmp_path / "copy")
    assert done.returncode == 5 and not (tmp_path / "copy").exists()
