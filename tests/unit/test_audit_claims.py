"""`peergate audit show RUN claim`: numbers of a report followed to the rows, and lies in it that are found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.playbook import Playbook
from agents.turns import ToolCall
from agents.workbench_protocol import Workbench
from reviews.audit.export import export_run
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.audit.claim_command import show_claim
from sessions.report.claims import Report
from specs.digests import digest_file
from specs.errors import UserError
from specs.trail.builder_tools import SubmitStage
from specs.trail.grant_and_claim import Claim
from tests.fixtures.quick_session import drive, open_quick, quick_session

CLAIMS = (
    Claim(stage="tuned", metric="accuracy_gain", value=1.0),
    Claim(stage="tuned", metric="accuracy", value=0.9999, tolerance=0.001),
)


class Claiming(Playbook):
    """Follows the spec, and states numbers of the treatment arm."""

    def work(self, bench: Workbench) -> None:
        if bench.phase == "submit" and bench.view.stage == "tuned":
            bench.call(ToolCall(id="1", name="submit_stage", arguments=SubmitStage(claims=CLAIMS).model_dump_json()))
        else:
            super().work(bench)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = open_quick(tmp_path_factory.mktemp("claimed"))
    drive(quick_session(run, builder=Claiming()))
    return run


@pytest.fixture
def run(session: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "runs" / "small"
    shutil.copytree(session, copy)
    return copy


def shown(run: Path, name: str | None, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Return the exit code and what `--json` gives."""
    code = 0
    try:
        show_claim(run, name, True)
    except SystemExit as ended:
        code = int(str(ended.code))
    return code, json.loads(capsys.readouterr().out)


def test_a_number_is_followed_to_its_rows_and_to_who_claims_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = shown(run, "accuracy_gain", capsys)
    assert (code, data["problems"]) == (0, [])
    (one,) = data["claims"]
    measured = next(each for each in read_entries(run / "trail.sqlite") if each.entry.key == "metrics/tuned.1")
    assert (one["name"], one["entry"]) == ("tuned.1.accuracy_gain", measured.entry.seq)
    assert one["metric_set"] == measured.body["metrics"] and one["code"] == measured.body["code"]
    assert one["code_is_at_hand"] and one["computed_again"] == one["metric"]["value"] == 1
    places = {each["where"] for each in one["stated"] if each["part"] == "value"}
    assert {"report.json /comparison/metrics/accuracy_gain/value", "report.md line 1"} < places
    assert {each["part"] for each in one["stated"]} == {"value", "low", "high", "n"}
    assert [(each["name"], each["entry"] is not None, each["holds"]) for each in one["rows"]] == [
        ("baseline", True, True), ("tuned", True, True)
    ]  # fmt: skip
    every = list(range(1, 13))
    assert [(each["rows"], each["lines"]) for each in one["parts"]] == [
        ("rows", every), ("baseline", every), ("rows", []), ("baseline", [])
    ]  # fmt: skip
    (claim,) = one["builder_claims"]
    assert (claim["status"], claim["status_now"], claim["claim"]["value"]) == ("supported", "supported", 1)
    assert [each["kind"] for each in one["way"]][-1] == "decision"


def test_lines_of_a_rate_are_those_it_counts(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = shown(run, "sample.1.acceptance_rate", capsys)[1]["claims"][0]
    (part,) = one["parts"]
    assert len(part["lines"]) / part["of"] == one["metric"]["value"] == 0.5
    digest = next(each["digest"] for each in one["rows"])
    rows = [json.loads(line) for line in Store(run / "store").get(digest).splitlines()]
    assert {rows[line - 1]["completion"].islower() for line in part["lines"]} == {True}
    assert not any(row["completion"].islower() for number, row in enumerate(rows, 1) if number not in part["lines"])


def test_every_number_of_a_report_is_found_and_holds(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = shown(run, None, capsys)
    assert (code, data["problems"]) == (0, [])
    report = json.loads((run / "report" / "report.json").read_bytes())
    measured = {
        f"{stage['stage']}.{each['attempt']}.{name}"
        for stage in report["stages"]
        for each in stage["attempts"]
        for name in each["metrics"]
    }
    in_text = {one["name"] for one in data["statements"] if one["where"].startswith("report.md")}
    assert measured == in_text == {one["name"] for one in data["statements"]}


def test_it_works_on_an_export_too(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export_run(run, "trail.sqlite", "store", tmp_path / "out", no_page)
    code, data = shown(tmp_path / "out", "accuracy_gain", capsys)
    assert (code, data["problems"]) == (0, []) and data["claims"][0]["computed_again"] == 1


def no_page(_entries: list[Recorded], _store: Store) -> str:
    return "page"


# ---- planted contradictions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("report.md", "gain +1.000", "gain +1.001", "report.md line 1 states accuracy_gain +1.001"),
        ("report.md", "[+0.587,", "[+0.687,", "report.md line 1 states low of accuracy_gain +0.687"),
        ("report.md", "| acceptance_rate | 0.5 |", "| acceptance_rate | 0.6 |", "states acceptance_rate 0.6, entry"),
        ("report.md", ">= 0.1, measured 0.5", ">= 0.1, measured 0.7", "states acceptance_rate 0.7, entry"),
        ("report.md", "| treatment accuracy | 1.0000 |", "| treatment accuracy | 0.9999 |", "accuracy 0.9999, entry"),
        ("report.json", '"treatment_accuracy": 1', '"treatment_accuracy": 0.99', "accuracy 0.99, entry"),
        ("report.json", '"baseline_metrics": "sha256:', '"baseline_metrics": "sha256:0', "which was not measured"),
        ("report.json", '"gained": {', '"gained ": {', "states gained  12, which was not measured"),
    ],
)
def test_a_number_that_is_not_the_measured_one_is_found(
    run: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, told: str
) -> None:
    path = run / "report" / file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    code, data = shown(run, None, capsys)
    assert code == 5 and any(told in one for one in data["problems"]), data["problems"]
    assert any(f"report/{file} is sha256:" in one for one in data["problems"])


def test_a_lie_that_was_recorded_is_found_as_well(run: Path) -> None:
    """A report that states another number, whose digest the trail has: nobody tampered, Peergate itself was wrong."""
    path = run / "report" / "report.md"
    path.write_text(path.read_text(encoding="utf-8").replace("gain +1.000", "gain +0.900", 1), encoding="utf-8")
    entries = read_entries(run / "trail.sqlite")
    written = next(one for one in entries if one.entry.kind == "report")
    body = written.body | {"files": written.body["files"] | {"report/report.md": digest_file(path)}}
    entries[written.entry.seq] = written._replace(entry=written.entry.model_copy(update={"body": body}))
    report = Report(run, entries, Store(run / "store"), apart=True)
    assert report.problems == []
    (traced,) = map(report.trace, report.called("accuracy_gain"))
    assert [one.split(", entry")[0] for one in traced.problems] == ["report.md line 1 states accuracy_gain +0.900"]


def test_rows_that_were_changed_are_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = shown(run, "sample.acceptance_rate", capsys)[1]["claims"][0]["rows"][0]["digest"]
    path = Store(run / "store").path(digest)
    path.write_bytes(path.read_bytes() + b"\n")
    code, data = shown(run, "sample.acceptance_rate", capsys)
    assert code == 5 and any("stored bytes have the digest" in one for one in data["problems"])


def test_a_metric_that_the_rows_do_not_give_is_found(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sessions.report import claims

    true_measure = claims.measure

    def wrong(evidence: Any) -> Any:
        found = true_measure(evidence)
        metric = found.metrics["accuracy"].model_copy(update={"value": 0.5})
        return found.model_copy(update={"metrics": found.metrics | {"accuracy": metric}})

    monkeypatch.setattr(claims, "measure", wrong)
    code, data = shown(run, "tuned.accuracy", capsys)
    assert code == 5 and any("the rows give 0.5, entry" in one for one in data["problems"])


def test_a_claim_that_was_called_supported_and_is_not_is_found(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sessions.report import claims
    from specs.trail.grant_and_claim import ClaimResult

    def contradicted(stated: list[Claim], _: Any) -> tuple[ClaimResult, ...]:
        return tuple(ClaimResult(claim=one, status="contradicted", measured=1.0) for one in stated)

    monkeypatch.setattr(claims, "look_up", contradicted)
    code, data = shown(run, "tuned.accuracy", capsys)
    assert code == 5 and any(
        "a claim of 0.9999 supported, looked up again it is contradicted" in one for one in data["problems"]
    )


def test_what_was_not_measured_is_told_with_what_was(run: Path) -> None:
    with pytest.raises(UserError, match="nothing was measured that is called 'nothing'") as raised:
        show_claim(run, "nothing", False)
    assert "accuracy_gain" in raised.value.hint


def test_for_people_it_says_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_claim(run, "accuracy_gain", False)
    told = capsys.readouterr().out
    assert "tuned.1.accuracy_gain = 1 fraction, 95 % interval 0.5873 to 1, n 12" in told
    assert "report.md line 1: +1.000" in told and "12 of 12 gained: wrong before, right after: lines 1-12" in told
    assert "1 +- 0: supported" in told and told.endswith("every number holds\n")
