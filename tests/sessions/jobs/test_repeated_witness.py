"""A witness is repeated with a new challenge: what it reads, compares and says, and that it records nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessions.commands.audit import again_command
from sessions.commands.named_place import place_of
from sessions.jobs import repeated_witness
from sessions.jobs.launcher import JobState
from specs.jobs.job_records import ExitRecord, JobOrder, Manifest
from specs.system.digests import digest_path
from testing.factories.evidence_on_disk import replayed, steps, witnessed, write_rows
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import QuickLauncher

Change = Callable[[Path, JobOrder], None]


class InlineLauncher(QuickLauncher):
    """Carries a repeated witness out at once; ``change`` is done to what it leaves."""

    change: Change | None = None
    orders: tuple[JobOrder, ...] = ()

    def start(self, folder: Path) -> None:
        super().start(folder)
        order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
        InlineLauncher.orders = (*InlineLauncher.orders, order)
        if InlineLauncher.change is not None:
            InlineLauncher.change(folder, order)


def rewritten(folder: Path, rows: list[dict[str, Any]], **manifest: Any) -> None:
    path = write_rows(folder / "out" / "witness.jsonl", rows)
    result = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    result = result.model_copy(update={"outputs": {"witness": digest_path(path)}} | manifest)
    (folder / "manifest.json").write_bytes(result.canonical())


@pytest.fixture
def closed(closed_quick: Path) -> Path:
    return closed_quick


@pytest.fixture
def ask(closed: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any]]]:
    monkeypatch.setattr(repeated_witness, "LocalLauncher", InlineLauncher)
    monkeypatch.setattr(InlineLauncher, "change", None)
    monkeypatch.setattr(InlineLauncher, "orders", ())

    def repeat_witness(run: Path = closed, **arguments: Any) -> tuple[int, dict[str, Any]]:
        outcome = again_command.repeat(place_of(run), again_command.RepeatOptions(again=True, **arguments))
        return outcome.exit_code, outcome.as_json()

    return repeat_witness


def test_every_row_of_a_new_challenge_is_reproduced_and_nothing_is_recorded(
    closed: Path, ask: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in closed.rglob("*")}
    done = called("audit", "verify", closed, "--again", "--rows", "5", "--json")
    code, again = done.returncode, json.loads(done.stdout)["again"]
    assert (code, again["not_witnessed_by_the_gate"]) == (0, [])
    counts = [
        (witness["stage"], witness["read"], witness["reproduced"], witness["of"]) for witness in again["witnesses"]
    ]
    every = (("base", 5), ("sample", 5), ("train", 2), ("tuned", 5), ("ship", 2))
    assert {count[:3] for count in counts} == {(stage, read, read) for stage, read in every}
    assert all(read <= of for _, read, _, of in counts)
    assert {
        check["id"] for witness in again["witnesses"] for check in witness["checks"] if check["status"] == "PASS"
    } == {
        "witness.answers",
        "witness.training",
        "witness.weights",
    }
    assert {path: path.stat().st_mtime_ns for path in closed.rglob("*")} == before

    drawn = [order.challenge and order.challenge.rows for order in InlineLauncher.orders]
    assert all(
        Path(artifact.path).is_absolute() for order in InlineLauncher.orders for artifact in order.inputs.values()
    )
    ask(rows=5, seed=again["seed"])
    assert [order.challenge and order.challenge.rows for order in InlineLauncher.orders[5:]] == drawn
    ask(rows=5, seed="another")
    assert [order.challenge and order.challenge.rows for order in InlineLauncher.orders[10:]] != drawn


def _of_other_weights(folder: Path, order: JobOrder) -> None:
    assert order.challenge is not None
    rows = witnessed(order.challenge.rows)
    if order.grant.stage == "base":
        rewritten(folder, [rows[0] | {"gap": 2.5}, *rows[1:]])


def _edited(folder: Path, order: JobOrder) -> None:
    write_rows(folder / "out" / "witness.jsonl", [])


def _of_another_row(folder: Path, order: JobOrder) -> None:
    assert order.challenge is not None
    others = (
        replayed(steps()[5:]) if order.kind == "sft" else witnessed([count + 100 for count in order.challenge.rows])
    )
    rewritten(folder, others)


def _refused(folder: Path, order: JobOrder) -> None:
    (folder / "log.txt").write_text("refused: device: cuda was granted\n", encoding="utf-8")
    record = ExitRecord.model_validate_json((folder / "exit.json").read_bytes())
    (folder / "exit.json").write_bytes(record.model_copy(update={"code": 4}).canonical())


@pytest.mark.parametrize(
    ("change", "why"),
    [(_edited, "other rows than its manifest"), (_of_another_row, "did not re"), (_refused, "cuda was granted")],
)
def test_what_is_not_witnessed_is_reported_and_ends_with_4(
    ask: Callable[..., tuple[int, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, change: Change, why: str
) -> None:
    monkeypatch.setattr(InlineLauncher, "change", change)
    code, report = ask(rows=2)
    assert code == 4 and all(why in witness["why"] and witness["reproduced"] is None for witness in report["witnesses"])


def test_a_row_of_other_weights_is_named(
    closed: Path, ask: Callable[..., tuple[int, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InlineLauncher, "change", _of_other_weights)
    code, report = ask()
    (base, *others) = report["witnesses"]
    assert code == 4 and base["reproduced"] == base["read"] - 1 and not base["holds"]
    assert base["checks"][0]["status"] == "FAIL" and "2.5 below" in base["checks"][0]["rows"][0]["why"]
    assert all(other["holds"] for other in others)
    process = called("audit", "verify", closed, "--again", "--seed", report["seed"])
    assert (
        process.returncode == 4
        and "base.1: NOT REPRODUCED" in process.stdout
        and "FAIL witness.answers" in process.stdout
    )


def test_another_machine_is_reported_and_judged_by_the_coarser_tolerance(
    ask: Callable[..., tuple[int, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def coarse(folder: Path, order: JobOrder) -> None:
        if order.kind == "sft":
            return
        assert order.challenge is not None
        rows = [row | ({"gap": 0.2} if row.get("gap") is not None else {}) for row in witnessed(order.challenge.rows)]
        rewritten(folder, rows, dtype="bfloat16", device="cuda:0")

    monkeypatch.setattr(InlineLauncher, "change", coarse)
    code, report = ask()
    assert code == 0
    assert report["witnesses"][0]["differs"] == [
        "dtype bfloat16, the job's was float32",
        "device cuda:0, the job's was cpu",
    ]


def test_pruned_weights_are_asked_for_and_a_copy_will_do(
    closed: Path, tmp_path: Path, ask: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    run, copy = shutil.copytree(closed.parent, tmp_path / "runs") / "small", tmp_path / "copy"
    shutil.copytree(run / "jobs/small.train.1/out/checkpoint", copy)
    shutil.copytree(closed.parent.parent / "model", tmp_path / "model")
    assert called("prune", run, "--keep", "ship", "--yes").returncode == 0
    assert ask(run, rows=2)[0] == 0, "the package holds the same weights"
    assert called("prune", run, "--yes").returncode == 0
    code, report = ask(run, rows=2)
    lost = [witness["why"] for witness in report["witnesses"] if not witness["holds"]]
    assert code == 4 and len(lost) == 3 and all("--weights" in item for item in lost)
    assert "left.checkpoint" in lost[0] and "train.checkpoint" in lost[1]
    tuned = next(need for need in report["needs"] if need["stage"] == "tuned")
    assert tuned["weights"][0]["digest"] == digest_path(copy) and tuned["dtype"] == "float32"
    assert ask(run, rows=2, weights=[copy])[0] == 0


def test_an_export_is_witnessed_with_copies_and_says_what_it_needs(
    closed: Path, tmp_path: Path, ask: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    target = tmp_path / "export"
    assert called("audit", "export", closed, target).returncode == 0
    copy = closed / "jobs/small.train.1/out/checkpoint"
    page = (target / "report.html").read_text(encoding="utf-8")
    assert digest_path(copy) in page and "torch 2.13.0" in page and 'id="witness"' in page
    assert ask(target, rows=2, weights=[copy])[0] == 0


def test_options_without_again_are_refused(closed: Path) -> None:
    refused = called("audit", "verify", closed, "--rows", "3")
    assert refused.returncode == 2 and "belong to --again" in refused.stderr


def test_a_lost_witness_is_no_answer(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class LosingLauncher(InlineLauncher):
        def poll(self, folder: Path) -> JobState:
            return JobState("lost", message="the machine is gone")

    monkeypatch.setattr(repeated_witness, "LocalLauncher", LosingLauncher)
    outcome = again_command.repeat(place_of(closed), again_command.RepeatOptions(again=True, rows=1))
    assert outcome.exit_code == 4 and "the machine is gone" in outcome.witnesses[0].why


def test_a_session_without_any_witness_is_not_witnessed() -> None:
    assert again_command.RepeatOutcome("seed", (), ("train",), ()).exit_code == 4
