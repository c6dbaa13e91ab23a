"""Instructions that a model wrote and that are held-out prompts: taken out between two jobs, and a stop if many are."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reviews.audit.verify import verify_run
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.nodes import act
from sessions.pages.overview import overview
from sessions.pages.report.report_check import ReportCheck
from testing.fixtures.small_pipeline import InProcessLauncher, open_small, writing_model
from tests.stages.test_pipeline_resumes import to_its_end

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*"),
    pytest.mark.usefixtures("one_thread"),
]
STAGE = "self_instruct_sft.self_instruct.1"
READS = "self_instruct_sft.sample_responses.1"
CRITIC = "self_instruct_sft.judge_instructions.1"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writing_model(tmp_path_factory.mktemp("model") / "model")


class Undisturbed(NamedTuple):
    """What the model writes where none of it is a held-out prompt; what the pilot wrote too is left out."""

    written: list[str]
    answered: list[str]
    """Those that the critic keeps: they get as far as an answer."""


@pytest.fixture(scope="module")
def undisturbed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    run = open_small("self_instruct_sft", tmp_path_factory.mktemp("whole"), model)
    go(run, READS)
    pilot = written(run, "self_instruct_sft.pilot_self_instruct.1")
    answered = dict.fromkeys(row["instruction"] for row in lines(run / "jobs" / READS / "out" / "rows.jsonl"))
    result = Undisturbed(
        [text for text in written(run) if text not in pilot], [item for item in answered if item not in pilot]
    )
    assert len(result.written) >= 4 and len(result.answered) >= 2
    return result


class Stopped(BaseException):
    """Ends a session that has shown what is asked of it."""


class Until(InProcessLauncher):
    """A launcher that ends the session when a job has ended."""

    def __init__(self, key: str) -> None:
        super().__init__(after=self._look)
        self._key = key

    def _look(self, folder: Path) -> None:
        if folder.name == self._key:
            raise Stopped


def go(run: Path, until: str = "") -> InProcessLauncher:
    """Drive a session to its end, or until a job has ended."""
    launcher = Until(until)
    with suppress(Stopped):
        to_its_end(run, launcher)
    return launcher


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def written(run: Path, key: str = STAGE) -> list[str]:
    return [row["prompt"] for row in lines(run / "jobs" / key / "out" / "instructions.jsonl")]


def read_by(run: Path, key: str, role: str) -> list[str]:
    """Return the prompts that a job was given."""
    order = json.loads((run / "jobs" / key / "order.json").read_text(encoding="utf-8"))
    return [row["prompt"] for row in lines(run / order["inputs"][role]["path"])]


def entry(run: Path, key: str) -> RecordedEntry:
    return next(recorded_entry for recorded_entry in read_entries(run / "trail.sqlite") if recorded_entry.key == key)


def otherwise(prompt: str) -> str:
    """Return a prompt with the same words: other letters, and a mark at its end."""
    return f"{prompt.upper()} !"


@pytest.mark.slow
def test_one_is_taken_out_and_counted_and_the_session_goes_on(
    undisturbed: Undisturbed, model: Path, tmp_path: Path
) -> None:
    collides = undisturbed.answered[0]
    run = open_small("self_instruct_sft", tmp_path, model, [otherwise(collides)])
    launcher = go(run)
    assert launcher.ran[-1] == "self_instruct_sft.package.1"
    # It stands in what the model wrote, and in nothing that later jobs read.
    assert collides in written(run)
    handed_on = read_by(run, CRITIC, "items")
    assert handed_on == [text for text in written(run) if text != collides]
    assert all(collides not in row["instruction"] for row in lines(run / "jobs" / READS / "out" / "rows.jsonl"))
    # It is counted, told, and followed to its line.
    checks = entry(run, "checks/self_instruct.1")
    assert checks.raw["summary"]["text.overlap"] == "WARN"
    (result,) = [item for item in Store(run / "store").get_value(checks.raw["checks"]) if item["id"] == "text.overlap"]
    assert "1 of " in result["detail"] and [row["train_text"] for row in result["rows"]] == [collides]
    report = ReportCheck(run, History.read(run / "trail.sqlite", run / "store"), apart=True)
    (claim,) = [
        metric
        for metric in report.measured
        if (metric.set.stage, metric.metric.id) == ("self_instruct", "instructions_held_out")
    ]
    assert claim.metric.value == 1
    part = report.trace(claim).parts[0]
    assert [written(run)[line - 1] for line in part.lines] == [collides]
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.exit_code == 0, audit.damage


@pytest.mark.slow
def test_where_many_are_the_gate_stays_shut(undisturbed: Undisturbed, model: Path, tmp_path: Path) -> None:
    many = undisturbed.written[:4]
    run = open_small("self_instruct_sft", tmp_path, model, [otherwise(text) for text in many])
    launcher = go(run)
    assert launcher.ran[-1] == STAGE and overview(run).decision == "reject"
    assert len(many) >= 0.3 * len(written(run))
    (why,) = [reason for reason in overview(run).reasons if "text.overlap is FAIL" in reason]
    assert f"{len(many)} of {len(written(run))} kept instructions are held-out prompts" in why


def _all(run: Path) -> bytes:
    return (run / "jobs" / STAGE / "out" / "instructions.jsonl").read_bytes()


@pytest.mark.parametrize("tampered", [False, True])
@pytest.mark.slow
def test_without_the_screen_or_with_another_file_in_its_place_a_later_gate_stays_shut(
    undisturbed: Undisturbed, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tampered: bool
) -> None:
    collides, other = undisturbed.answered[:2]
    run = open_small("self_instruct_sft", tmp_path, model, [otherwise(collides)])

    def nothing(*_: object) -> bytes | None:
        """Take nothing out, or a line that is not a held-out prompt."""
        selected = [line for line in _all(run).splitlines(keepends=True) if other.encode() not in line]
        return b"".join(selected) if tampered else None

    monkeypatch.setattr(act, "screen_items", nothing)
    launcher = go(run)
    assert launcher.ran[-1] == READS and overview(run).decision == "reject"
    assert any("text.overlap is FAIL" in reason for reason in overview(run).reasons)
    # And a file that no stage left is seen as such, whatever is in it.
    damage = verify_run(run, "trail.sqlite", "store").damage
    output = f"input 'items' of job {CRITIC} is not what 'self_instruct' left as instructions"
    assert any(output in text for text in damage) == tampered
