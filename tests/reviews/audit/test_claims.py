"""`peergate audit show RUN claim`: numbers of a report followed to the rows, and lies in it that are found."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.playbook import Playbook
from agents.workbench_protocol import Workbench
from reviews.audit.export import export_run
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.audit.claim_command import show_claim
from sessions.commands.named_place import place_of
from sessions.pages.report import report
from sessions.pages.report.report_check import ReportCheck
from specs.jobs.grant_and_claim import Claim
from specs.system.digests import digest_file
from specs.system.errors import UserError
from specs.system.masking import current
from specs.system.vendors.conversation import ToolCall
from specs.trail.builder_tools import SubmitStage
from testing.factories.bodies import append_json, body_of
from testing.fixtures.quick_session import drive, open_quick, quick_session

CLAIMS = (
    Claim(stage="tuned", metric="accuracy_gain", value=1.0),
    Claim(stage="tuned", metric="accuracy", value=0.9999, tolerance=0.001),
)


class ClaimingPlaybook(Playbook):
    """Follows the spec, and states numbers of the treatment arm."""

    def work(self, bench: Workbench) -> None:
        if bench.phase == "submit" and bench.view.stage == "tuned":
            bench.call(ToolCall(id="1", name="submit_stage", arguments=SubmitStage(claims=CLAIMS).model_dump_json()))
        else:
            super().work(bench)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = open_quick(tmp_path_factory.mktemp("claimed"))
    drive(quick_session(run, builder=ClaimingPlaybook()))
    return run


@pytest.fixture
def run(session: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "runs" / "small"
    shutil.copytree(session, copy)
    return copy


def read_claim(run: Path, name: str | None, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Return the exit code and what `--json` gives."""
    code = 0
    try:
        show_claim(place_of(run), name, True)
    except SystemExit as ended:
        code = int(str(ended.code))
    return code, json.loads(capsys.readouterr().out)


def test_a_number_is_followed_to_its_rows_and_to_who_claims_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = read_claim(run, "accuracy_gain", capsys)
    assert (code, data["problems"]) == (0, [])
    (item,) = data["claims"]
    measured = next(entry for entry in read_entries(run / "trail.sqlite") if entry.key == "metrics/tuned.1")
    assert (item["name"], item["entry"]) == ("tuned.1.accuracy_gain", measured.seq)
    assert item["metric_set"] == measured.raw["metrics"] and item["code"] == measured.raw["code"]
    assert item["code_is_at_hand"] and item["computed_again"] == item["metric"]["value"] == 1
    assert {"report.json /comparison/metrics/accuracy_gain", "report.md line 1"} < set(item["stated"])
    text = (run / "report" / "report.md").read_text(encoding="utf-8").split("\n")
    lines = [text[int(statement.split()[-1]) - 1] for statement in item["stated"] if statement.startswith("report.md")]
    assert len(lines) == 3 and all("gain" in line and "1" in line for line in lines), lines
    assert sum(line.startswith("| accuracy_gain | 1 |") for line in lines) == 1
    assert sum(line.startswith("<details><summary>tuned.1 ") and " accuracy_gain = 1 [" in line for line in lines) == 1
    assert [(rows_file["name"], rows_file["entry"] is not None, rows_file["holds"]) for rows_file in item["rows"]] == [
        ("baseline", True, True), ("tuned", True, True)
    ]  # fmt: skip
    every = list(range(1, 13))
    assert [(part["rows"], part["lines"]) for part in item["parts"]] == [
        ("rows", every), ("baseline", every), ("rows", []), ("baseline", [])
    ]  # fmt: skip
    (claim,) = item["builder_claims"]
    assert (claim["status"], claim["status_now"], claim["claim"]["value"]) == ("supported", "supported", 1)
    assert [step["kind"] for step in item["way"]][-1] == "decision"


def test_lines_of_a_rate_are_those_it_counts(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item = read_claim(run, "sample.1.acceptance_rate", capsys)[1]["claims"][0]
    (part,) = item["parts"]
    assert len(part["lines"]) / part["of"] == item["metric"]["value"] == 0.5
    digest = next(rows_file["digest"] for rows_file in item["rows"])
    rows = [json.loads(line) for line in Store(run / "store").get(digest).splitlines()]
    assert {rows[line - 1]["completion"].islower() for line in part["lines"]} == {True}
    assert not any(row["completion"].islower() for number, row in enumerate(rows, 1) if number not in part["lines"])


def test_every_number_of_a_report_is_found_and_holds(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = read_claim(run, None, capsys)
    assert (code, data["problems"]) == (0, [])
    report = json.loads((run / "report" / "report.json").read_bytes())
    stages = report["stages"]
    measured = {
        f"{stage['stage']}.{stage_attempt['attempt']}.{name}"
        for stage in stages
        for stage_attempt in stage["attempts"]
        for name in stage_attempt["metrics"]
    }
    assert measured == {number["name"] for number in data["numbers"]}
    text = (run / "report" / "report.md").read_text(encoding="utf-8").split("\n")
    for item in data["numbers"]:
        stage, attempt, name = item["name"].split(".")
        place = next(number for number, reported_stage in enumerate(stages) if reported_stage["stage"] == stage)
        assert f"report.json /stages/{place}/attempts/{int(attempt) - 1}/metrics/{name}" in item["stated"]
        rows = [
            text[int(statement.split()[-1]) - 1]
            for statement in item["stated"]
            if statement.startswith("report.md line")
        ]
        assert any(f" {name} = {item['value']:.4g} " in row for row in rows), item


def test_it_works_on_an_export_too(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export_run(run, "trail.sqlite", "store", tmp_path / "out", no_page)
    code, data = read_claim(tmp_path / "out", "accuracy_gain", capsys)
    assert (code, data["problems"]) == (0, []) and data["claims"][0]["computed_again"] == 1


def no_page(_history: History) -> str:
    return "page"


# ---- planted contradictions --------------------------------------------------------------------------------------


def forge(run: Path, file: str, old: str, new: str) -> None:
    """Change a file of the report once."""
    path = run / "report" / file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text


def recorded_as_it_is(run: Path) -> list[RecordedEntry]:
    """Return the trail as if the report had been recorded as it is now: no one tampered, Peergate itself was wrong."""
    entries = read_entries(run / "trail.sqlite")
    written = next(entry for entry in entries if entry.kind == "report")
    files = {str(path.relative_to(run)): digest_file(path) for path in (run / "report").iterdir()}
    body = written.raw | {"files": files}
    entries[written.seq] = replace(written, entry=written.entry.model_copy(update={"body": body}))
    return entries


@pytest.mark.parametrize(
    ("file", "old", "new", "output"),
    [
        ("report.md", "gain +1.000", "gain +1.001", "report.md line 1 says '"),
        ("report.md", "[+0.587,", "[+0.687,", "report.md line 1 says '"),
        ("report.md", "acceptance_rate = 0.5 [", "acceptance_rate = 0.6 [", "acceptance_rate = 0.5 ["),
        ("report.md", "= 0.1, measured 0.5", "= 0.1, measured 0.7", "= 0.1, measured 0.5"),
        ("report.md", "| treatment accuracy | 1.0000 |", "| treatment accuracy | 0.9999 |", "accuracy | 1.0000 |"),
        ("report.md", "## Gates\n", "## Gates\n\nEvery gate was easy.\n", "the trail says 'Passed checks, one line"),
        ("report.md", "- one seed: variation", "- variation", "the trail says '- one seed: variation"),
        ("report.md", "n = 12", "n = 120", "the trail says '"),
        ("report.json", '"treatment_accuracy": 1', '"treatment_accuracy": 0.99', "says '\"treatment_accuracy\": 1,"),
        ("report.json", '"baseline_metrics": "sha256:', '"baseline_metrics": "sha256:0', "the trail says '"),
        ("report.json", '"gained": {', '"gained ": {', "the trail says '\"gained\": {'"),
        ("report.json", "\n}", ',\n  "more": 1\n}', "the trail says '"),
    ],
)  # fmt: skip
def test_a_report_that_says_something_else_is_found(
    run: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, output: str
) -> None:
    forge(run, file, old, new)
    code, data = read_claim(run, None, capsys)
    assert code == 5 and any(output in problem and f"report/{file} line" in problem for problem in data["problems"]), (
        data["problems"]
    )
    assert any(f"report/{file} is sha256:" in problem for problem in data["problems"])
    # A number by itself is no better than the report it was taken from.
    assert read_claim(run, "sample.acceptance_rate", capsys)[0] == 5


def test_the_first_line_that_differs_is_shown_with_what_the_trail_says_there(run: Path) -> None:
    lines = (run / "report" / "report.md").read_text(encoding="utf-8").split("\n")
    number = next(at for at, line in enumerate(lines, 1) if line.startswith("<details><summary>sample.1"))
    forge(run, "report.md", "acceptance_rate = 0.5 [", "acceptance_rate = 0.6 [")
    forge(run, "report.md", "- one seed: variation", "- variation")
    check = ReportCheck(run, History(recorded_as_it_is(run), Store(run / "store")), apart=True)
    (problem,) = check.problems
    message, _, ran = problem.partition(" (the session ran ")
    assert message.startswith(f"report/report.md line {number} says '") and " acceptance_rate = 0.6 [" in message
    assert " acceptance_rate = 0.5 [" in message.partition("the trail says")[2]
    assert "digest sha256:" in ran


END = "heads of this trail were kept elsewhere"


@pytest.mark.parametrize(
    ("old", "new", "output"),
    [
        ("gain +1.000", "gain +0.900", "report/report.md line 1 says"),
        ("## Gates\n", "", "says '', the trail says '## Gates'"),
        (END, f"{END}\nmore", "says 'more', the trail says ''"),
        (
            "- one seed: variation between seeds is not part of the interval\n",
            "",
            "the trail says '- one seed: variation",
        ),
    ],
)
def test_a_lie_that_was_recorded_is_found_as_well(run: Path, old: str, new: str, output: str) -> None:
    assert ReportCheck(run, History(recorded_as_it_is(run), Store(run / "store")), apart=True).problems == []
    forge(run, "report.md", old, new)
    check = ReportCheck(run, History(recorded_as_it_is(run), Store(run / "store")), apart=True)
    assert len(check.problems) == 1 and output in check.problems[0], check.problems


@pytest.mark.parametrize(
    ("file", "old", "new", "why"),
    [
        ("report.md", "gain +1.000", "the gain is +1.000", ""),
        ("report.json", '"result": "accepted', '"result": "it was accepted', ""),
        ("report.json", '"value": 0.5', '"value": 0.6', " is 0.6, the trail gives 0.5"),
        ("report.json", '"outcome": "approve"', '"outcome": "null"', "/outcome is null, the trail gives approve"),
        ("report.json", "{", "", "report/report.json is not JSON"),
    ],
)
def test_of_a_report_that_other_code_wrote_the_values_are_compared(
    run: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str, why: str
) -> None:
    def changed_since(*_: object) -> str:
        return "sha256:" + "0" * 64

    monkeypatch.setattr("sessions.pages.report.report_check.measuring_code", changed_since)
    forge(run, file, old, new)
    check = ReportCheck(run, History(recorded_as_it_is(run), Store(run / "store")), apart=True)
    assert [why in problem for problem in check.problems] == [True] * bool(why), check.problems
    assert "only the values of report/report.json were compared" in check.note


def test_a_file_that_is_gone_or_that_the_trail_does_not_give_is_found(run: Path) -> None:
    (run / "report" / "other.md").write_text("# What the builder did\n", encoding="utf-8")
    (run / "report" / "report.json").unlink()
    problems = ReportCheck(run, History(recorded_as_it_is(run), Store(run / "store")), apart=True).problems
    assert [problem.split(" says ")[0] for problem in problems] == [
        "report/other.md line 1", "report/report.json line 1"
    ] and "the trail says nothing" in problems[0]  # fmt: skip
    problems = ReportCheck(run, History.read(run / "trail.sqlite", run / "store"), apart=True).problems
    assert len(problems) == 1 and "report/report.json cannot be read" in problems[0], problems


def test_it_is_the_same_where_other_secrets_are_known(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "acceptance_rate")
    assert current().text("acceptance_rate") == "[masked: SOME_TOKEN]"
    assert ReportCheck(run, History.read(run / "trail.sqlite", run / "store"), apart=True).problems == []


def test_what_was_recorded_while_the_report_was_written_does_not_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_quick(tmp_path)
    session = quick_session(run)
    write = report.write

    def and_then_somebody_asks(*arguments: Any) -> dict[str, Any]:
        body = write(*arguments)
        append_json(session.trail, "question", "question/1", body_of("question"))
        return body

    monkeypatch.setattr(report, "write", and_then_somebody_asks)
    drive(session)
    entries = read_entries(run / "trail.sqlite")
    written = next(entry for entry in entries if entry.kind == "report")
    assert written.raw["entries"] == written.seq - 1
    assert ReportCheck(run, History(entries, Store(run / "store")), apart=True).problems == []


@pytest.mark.drawn
def test_plots_are_compared_with_their_digests(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run))
    entries = read_entries(run / "trail.sqlite")
    assert ReportCheck(run, History(entries, Store(run / "store")), apart=True).problems == []
    assert "![pairs.svg](pairs.svg)" in (run / "report" / "report.md").read_text(encoding="utf-8")
    forge(run, "pairs.svg", "</svg>", "<!-- --></svg>")
    (problem,) = ReportCheck(run, History(entries, Store(run / "store")), apart=True).problems
    assert problem.startswith("report/pairs.svg is sha256:")


def test_rows_that_were_changed_are_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = read_claim(run, "sample.acceptance_rate", capsys)[1]["claims"][0]["rows"][0]["digest"]
    path = Store(run / "store").path(digest)
    path.write_bytes(path.read_bytes() + b"\n")
    code, data = read_claim(run, "sample.acceptance_rate", capsys)
    assert code == 5 and any("stored bytes have the digest" in problem for problem in data["problems"])


def test_a_metric_that_the_rows_do_not_give_is_found(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sessions.pages.report import report_check

    true_measure = report_check.measure

    def wrong(evidence: Any) -> Any:
        metric_set = true_measure(evidence)
        metric = metric_set.metrics["accuracy"].model_copy(update={"value": 0.5})
        return metric_set.model_copy(update={"metrics": metric_set.metrics | {"accuracy": metric}})

    monkeypatch.setattr(report_check, "measure", wrong)
    code, data = read_claim(run, "tuned.accuracy", capsys)
    assert code == 5 and any("the rows give 0.5, entry" in problem for problem in data["problems"])


def test_a_claim_that_was_called_supported_and_is_not_is_found(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sessions.pages.report import report_check
    from specs.jobs.grant_and_claim import ClaimResult

    def contradicted(stated: list[Claim], _: Any) -> tuple[ClaimResult, ...]:
        return tuple(ClaimResult(claim=claim, status="contradicted", measured=1.0) for claim in stated)

    monkeypatch.setattr(report_check, "look_up", contradicted)
    code, data = read_claim(run, "tuned.accuracy", capsys)
    assert code == 5 and any(
        "a claim of 0.9999 supported, looked up again it is contradicted" in problem for problem in data["problems"]
    )


def test_what_was_not_measured_is_reported_with_what_was(run: Path) -> None:
    with pytest.raises(UserError, match="no measurement is called 'nothing'") as raised:
        show_claim(place_of(run), "nothing", False)
    assert "accuracy_gain" in raised.value.hint


def test_for_people_it_says_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_claim(place_of(run), "accuracy_gain", False)
    output = capsys.readouterr().out
    assert "tuned.1.accuracy_gain = 1 fraction, 95 % interval 0.5873 to 1, n 12" in output
    assert "\n  report.md line 1\n" in output and "12 of 12 gained: wrong before, right after: lines 1-12" in output
    assert "1 +- 0: supported" in output and output.endswith("every number holds\n")
