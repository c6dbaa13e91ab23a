"""Ship-% in a session that ran: status, report, backlog and retrospective say the same, from the trail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.exports.shipping.model_card import model_card
from sessions.pages.acceptance.backlog import Backlog, backlog_of
from sessions.pages.acceptance.siblings import siblings_of
from sessions.pages.report.report import rendered_again
from sessions.pages.view.places import Scope
from sessions.run.final_model import final_model
from sessions.run.money import ledger
from sessions.runtime.human_actions import lift_check
from specs.jobs.job_records import JobOrder
from specs.system.digests import digest_file
from testing.factories.evidence_on_disk import describe, weights
from testing.factories.flaws import ROW_FLAWS
from testing.factories.spec_files import problems_of, write_spec
from testing.fixtures import quick_session as quick_session_module
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import QuickLauncher, drive, healthy_rows, open_quick, quick_session
from testing.fixtures.view_client import Client
from tests.reviews.acceptance.test_criterion_state import Scenario, registered

ISSUE = "https://example.org/ada/eggs/issues/7?tab=*all*_open_"
CRITERIA = """\
companions:
  plan: {path: prompts.jsonl}
  sibling: {link: "https://example.org/ada/hens"}
criteria:
  - {id: AC-001, text: It answers half of it., stage: tuned, metric: {metric: accuracy, at_least: 0.5}, weight: 4}
  - {id: AC-002, text: It reloads with equal outputs., stage: ship, metric: {metric: identical_outputs, at_least: 1}}
  - {id: AC-003, text: It answers nothing too long., stage: base, metric: {metric: truncation_rate, at_least: 0.4}}
  - {id: AC-004, text: The gradient stayed finite., stage: train, check: training.gradient, effort_hours: 20, weight: 4}
stages:
"""
OF_MODELS = (
    CRITERIA.replace("stage: base,", f'stage: base, model: model, issue: "{ISSUE}",')
    .replace("stage: tuned,", "stage: tuned, model: train.checkpoint,")
    .replace("stage: train,", "stage: train, model: train.checkpoint,")
    .replace("stage: ship,", "stage: ship, model: train.checkpoint,")
)
CHANGE = ("stages:\n", OF_MODELS)


def ran(folder: Path, flaw: str = "") -> Path:
    run = open_quick(folder, CHANGE)

    def rows(order: Any) -> list[dict[str, Any]]:
        return ROW_FLAWS[flaw]() if flaw and order.kind == "sft" else healthy_rows(order)

    drive(quick_session(run, launcher=QuickLauncher(rows=rows)))
    return run


def read_backlog(run: Path) -> Backlog:
    return backlog_of(History(read_entries(run / "trail.sqlite"), Store(run / "store")))


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(tmp_path_factory.mktemp("accepted"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(tmp_path_factory.mktemp("stopped"), "a dead gradient")


def test_every_command_says_the_same_share(accepted: Path) -> None:
    status = json.loads(called("status", accepted, "--json").stdout)["acceptance"]
    report = json.loads((accepted / "report" / "report.json").read_bytes())["acceptance"]
    looked_back = json.loads(called("retrospective", accepted, "--json").stdout)
    assert status == report and status["ship_percent"] == looked_back["ship_percent"] == 90.0
    assert {criterion["id"]: criterion["state"] for criterion in status["criteria"]} == {
        "AC-001": "discharged",
        "AC-002": "discharged",
        "AC-003": "open",
        "AC-004": "discharged",
    }
    assert status["models"] == {"train.checkpoint": 100.0, "model": 0.0}
    output = called("status", accepted).stdout
    assert "ship 90.0 % (train.checkpoint 100.0 %, model 0.0 %): 3 discharged, 1 open" in output and ISSUE in output
    assert f"issue: {ISSUE}" in called("backlog", accepted).stdout
    page = (accepted / "report" / "report.md").read_text(encoding="utf-8")
    assert "Ship 90.0 %" in page and "| AC-003 | open | 1 |" in page and f"([issue]({ISSUE}))" in page
    digest = digest_file(accepted.parent.parent / "prompts.jsonl")
    entries = read_entries(accepted / "trail.sqlite")
    resolved = History(entries, Store(accepted / "store")).resolved
    model = final_model(History(entries), resolved.spec)
    assert model is not None
    for text in (page, model_card(accepted, History(entries, Store(accepted / "store")), model)):
        assert "- sibling: <https://example.org/ada/hens>\n" in text and f"- plan: `prompts.jsonl`, `{digest}`" in text
    assert rendered_again(accepted)["report/report.md"] == page.encode()
    assert called("audit", "verify", accepted).returncode == 0


def test_a_retrospective_says_how_the_share_moved(accepted: Path) -> None:
    moved = [
        line.split() for line in called("retrospective", accepted).stdout.splitlines() if line.startswith("  entry ")
    ]
    assert [(row[2], row[3], row[5]) for row in moved] == [
        ("AC-001", "discharged,", "80.0"),
        ("AC-002", "discharged,", "90.0"),
        ("AC-004", "discharged,", "40.0"),
    ]


def test_a_closed_session_reaches_nothing_more(accepted: Path) -> None:
    backlog = read_backlog(accepted)
    assert (backlog.now, backlog.ceiling, [backlog_item.id for backlog_item in backlog.items]) == (
        90.0,
        90.0,
        ["AC-003"],
    )
    (item,) = backlog.items
    assert item.priority == "-" and item.out_of_reach.startswith("the session is closed (approve)")
    assert item.missing == "truncation_rate is 0 at base.1, not truncation_rate >= 0.4"
    assert item.refuted_by == "not truncation_rate >= 0.4, at 'base'"
    assert backlog.siblings == ()


def test_what_is_left_is_ranked_by_points_an_hour(stopped: Path) -> None:
    backlog = read_backlog(stopped)
    assert (backlog.now, backlog.ceiling) == (0.0, 100.0)
    # The baseline ran in a second, so that is what it would take again.
    assert [item.id for item in backlog.items] == ["AC-003", "AC-001", "AC-002", "AC-004"]
    by_id = {item.id: item for item in backlog.items}
    assert by_id["AC-001"].stages == ("train", "tuned") and by_id["AC-001"].gain == 40.0
    assert by_id["AC-004"].stages == ("train",) and by_id["AC-004"].basis == "stated" and by_id["AC-004"].worth == 2.0
    assert [item.priority for item in backlog.items] == ["P0", "P0", "P0", "P1"]
    assert by_id["AC-004"].missing == "the gate of train.1 decided 'escalate'"
    assert [item.worth for item in backlog.items] == sorted((item.worth for item in backlog.items), reverse=True)


def test_what_money_does_not_reach_is_under_no_ceiling(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {item.id: item for item in read_backlog(stopped).items}
    assert 0 < whole["AC-004"].usd < whole["AC-001"].usd < whole["AC-002"].usd
    balance = ledger.balance_of

    def poorer(*values: Any) -> Any:
        return balance(*values)._replace(left_usd=whole["AC-001"].usd)

    monkeypatch.setattr(ledger, "balance_of", poorer)
    backlog = read_backlog(stopped)
    (beyond,) = [item for item in backlog.items if item.out_of_reach]
    assert beyond == backlog.items[-1] and (beyond.id, beyond.priority) == ("AC-002", "-")
    assert beyond.out_of_reach == f"its stages may cost {beyond.usd:.2f} USD, {whole['AC-001'].usd:.2f} USD are left"
    assert backlog.ceiling == 100 - beyond.gain


def test_a_defect_names_the_checks_of_its_family_downstream(tmp_path: Path) -> None:
    answer = Scenario(*registered(tmp_path))
    results = {"checkpoint.files": "FAIL", "training.gradient": "PASS", "jobs.exit": "PASS"}
    answer.check("train", 1, results)
    wave = list(siblings_of(History(answer.entries, answer.store)))
    assert {(sibling.check, sibling.stage, sibling.state, sibling.must_pass) for sibling in wave} == {
        ("package.weights", "ship", "not judged", True),
        ("package.probes", "ship", "not judged", True),
        ("package.decoding", "ship", "not judged", False),
        ("checkpoint.files", "ship", "not judged", True),
    }
    assert {sibling.cause for sibling in wave} == {"checkpoint.files at train.1"}
    shipped = {"checkpoint.files": "PASS", "package.weights": "PASS", "package.probes": "WARN"}
    answer.check("ship", 1, shipped | {"package.decoding": "PASS"})
    assert [(sibling.check, sibling.state) for sibling in siblings_of(History(answer.entries, answer.store))] == [
        ("package.probes", "WARN")
    ]
    assert not list(siblings_of(History(answer.entries[:1], answer.store))), "no defect, no wave"


@pytest.mark.parametrize(("defect", "outcome"), [(True, "escalate"), (False, "approve")])
def test_a_defect_has_the_checks_of_other_stages_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: bool, outcome: str
) -> None:
    """What a base lacks too is a warning, which a gate lets pass, as long as its family found no defect elsewhere."""
    model, stops = tmp_path / "base", '{"eos_token_id": 3}'
    model.mkdir()
    (model / "model.safetensors").write_bytes(weights("untouched"))
    describe(model)
    if not defect:
        (model / "generation_config.json").write_text(stops, encoding="utf-8")
    run, healthy = open_quick(tmp_path, model=model), quick_session_module._save  # pyright: ignore[reportPrivateUsage]

    def save(order: JobOrder, run: Path, folder: Path, moved: float) -> None:
        healthy(order, run, folder, moved)
        (folder / "generation_config.json").write_text(stops, encoding="utf-8")

    monkeypatch.setattr(quick_session_module, "_save", save)
    lift_check(run, "checkpoint.files", "train", "ada", "the base does it", None)
    drive(quick_session(run))
    decisions = {entry.key: entry.raw for entry in read_entries(run / "trail.sqlite") if entry.kind == "decision"}
    assert decisions["decision/train.1"]["outcome"] == "approve"
    assert decisions["decision/ship.1"]["outcome"] == outcome
    text = "check checkpoint.files is WARN and must pass because of checkpoint.files at train.1"
    assert any(text in reason for reason in decisions["decision/ship.1"]["reasons"]) == defect
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.damage == [], audit.damage


AUDIT = """\
schema_version: 1
audit: An outside audit of March
recommendations:
  - {id: R1, text: Show that the gradient is finite., criterion: AC-004}
  - {id: R2, text: Use a larger model., rejected: There is one GPU and 300 dollars.}
  - {id: R3, text: Measure the truncation.}
"""


@pytest.mark.parametrize(("run", "first"), [("accepted", "adopted"), ("stopped", "open")])
def test_an_audit_is_reconciled_with_what_was_done(
    tmp_path: Path, run: str, first: str, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "audit.yaml").write_text(AUDIT, encoding="utf-8")
    done = called("retrospective", request.getfixturevalue(run), "--audit", tmp_path / "audit.yaml", "--json")
    rows = {recommendation["id"]: recommendation for recommendation in json.loads(done.stdout)["recommendations"]}
    assert [rows[id]["answer"] for id in ("R1", "R2", "R3")] == [first, "rejected", "open"]
    assert bool(rows["R1"]["evidence"]) == (first == "adopted")
    assert rows["R3"]["why"].startswith("no criterion is named")


def test_the_file_cannot_say_that_it_was_adopted(accepted: Path, tmp_path: Path) -> None:
    path = tmp_path / "audit.yaml"
    path.write_text(AUDIT.replace("rejected: There", "adopted: There"), encoding="utf-8")
    done = called("retrospective", accepted, "--audit", path)
    assert done.returncode == 2 and "adopted" in done.stderr and f"{path}:5:" in done.stderr
    path.write_text(AUDIT.replace("AC-004", "AC-999"), encoding="utf-8")
    done = called("retrospective", accepted, "--audit", path)
    assert done.returncode == 2 and "AC-001, AC-002, AC-003, AC-004" in done.stderr
    path.write_text(AUDIT.replace("id: R2", "id: R1"), encoding="utf-8")
    assert "'R1' is the id of an earlier one" in called("retrospective", accepted, "--audit", path).stderr


def test_a_session_without_criteria_says_nothing_of_them(closed_quick: Path) -> None:
    assert "acceptance" not in json.loads((closed_quick / "report" / "report.json").read_bytes())
    assert "ship " not in called("status", closed_quick).stdout
    assert "registers no acceptance criterion" in called("backlog", closed_quick).stdout


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("AC-002", "AC-001", "id 'AC-001' is already used by criteria[0]"),
        ("stage: base", "stage: bose", "unknown stage 'bose'"),
        ("at_least: 0.5", "at_least: 50", "is always from 0 to 1"),
        ("metric: identical_outputs", "metric: accuracy", "'accuracy' is measured by evaluate stages"),
        ("check: training.gradient", "check: training.gradient, ship: true", "'AC-004' has check and ship"),
        ("check: training.gradient", "applies_if: train.speed", "stage 'train' has no parameter 'speed'"),
        ("AC-002", "C2", "AC-"),
        ("stage: base,", "stage: base, model: train.checkpoint,", "stage 'base' neither reads nor leaves"),
        ("stage: train,", "stage: train, model: train.checkpoint,", "'AC-001' names no model, and others do"),
        ("stage: base,", 'stage: base, issue: "javascript:alert(1)",', "issue"),
        ("stage: base,", 'stage: base, issue: "https://a.b/)[x](y",', "issue"),
        ("prompts.jsonl}", "plan.md}", "file 'plan.md' does not exist"),
        ("prompts.jsonl}", f'prompts.jsonl, digest: "sha256:{"0" * 64}"}}', "spec pin"),
        ("prompts.jsonl}", 'prompts.jsonl, link: "https://a.b"}', "needs either a path or a link"),
    ],
)
def test_a_criterion_that_nothing_could_discharge_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    path = write_spec(tmp_path, ("stages:\n", CRITERIA.replace(old, new)))
    assert any(why in str(problem) for problem in problems_of(path)), [str(problem) for problem in problems_of(path)]


@pytest.mark.parametrize(
    ("new", "why"),
    [
        ("check: training.gradiant", "no check 'training.gradiant' runs at 'train'"),
        ("check: package.weights", "no check 'package.weights' runs at 'train'"),
    ],
)
def test_a_criterion_names_a_check_that_runs_at_its_stage(tmp_path: Path, new: str, why: str) -> None:
    path = write_spec(tmp_path, ("stages:\n", CRITERIA.replace("check: training.gradient", new)))
    done = called("spec", "check", path)
    assert done.returncode == 2 and why in done.stderr


def test_no_amendment_moves_a_criterion(stopped: Path, tmp_path: Path) -> None:
    path = write_spec(tmp_path, ("stages:\n", CRITERIA.replace("at_least: 0.5", "at_least: 0.1")))
    done = called("amend", stopped, path, "--reason", "it was too hard", "--by", "ada")
    assert done.returncode != 0 and "cannot be amended" in done.stderr, done.stderr


def test_the_page_of_the_session_shows_each_criterion(accepted: Path) -> None:
    page = Client(Scope(accepted.parent)).get(f"/s/{accepted.name}/")
    assert page.status == 200 and "3 discharged, 1 open" in page.text
    assert "It answers nothing too long: " in page.text
