"""`peergate check`: every check is listed and explained, other distributions count, attempts are asked again."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import CheckOutcome, GateCheck
from reviews.checks.measuring_code import measuring_code
from reviews.evidence.evidence import Evidence
from reviews.gate import check_list
from reviews.gate.check_catalog import find_check, listing
from reviews.gate.check_list import CHECKS, offered_checks, run_checks
from reviews.gate.design_checks import DESIGN_CHECKS
from reviews.gate.loosening_check import CHECKS as AMENDMENT_CHECKS
from reviews.gate.measurer import measure
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.commands import check
from specs.stages.base.metric import MetricSet
from specs.system import plugins
from specs.system.errors import AuditDamage, PluginFault, UserError
from specs.trail.verdict import CheckResult
from testing.factories.bodies import append_json, body_of
from testing.factories.evidence_on_disk import design_results, evidence_of, heldout_items, prompt_items, resolved_spec


def _always_fails(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Say no to everything."""
    return CheckOutcome("FAIL", f"no to {evidence.stage.name}")


EXTRA = GateCheck("acme.no", "Acme agrees", ("evaluate",), _always_fails, "a test")


class Distribution:
    """What an entry point knows of its distribution."""

    name = "acme-checks"
    files = None

    def __init__(self, version: str) -> None:
        self.version = version


class Offer(EntryPoint):
    """An entry point that loads what the test gives it."""

    def load(self) -> Any:
        if self.value == "acme:broken":
            raise ImportError("no module named acme")
        return {"acme:CHECKS": [EXTRA], "acme:taken": [replace(EXTRA, id=self.name)]}.get(self.value, [1])


def offer(monkeypatch: pytest.MonkeyPatch, value: str, *, name: str = "acme", version: str = "1.0") -> None:
    """Let one distribution offer checks, without installing anything."""
    point = Offer(name, value, "peergate.checks")
    vars(point).update(dist=Distribution(version))

    def find_entry_points(*, group: str) -> list[EntryPoint]:
        return [point] if group == "peergate.checks" else []

    monkeypatch.setattr(plugins, "entry_points", find_entry_points)


def test_the_listing_holds_the_design_checks_as_they_run(tmp_path: Path) -> None:
    ran = design_results(resolved_spec(tmp_path), heldout_items(), {"prompts": prompt_items()})
    listed = {
        catalog_check.id: (catalog_check.title, catalog_check.blocking)
        for catalog_check in listing()
        if catalog_check.stage_kinds == ("design",)
    }
    assert listed == {check_result.id: (check_result.title, check_result.blocking) for check_result in ran}
    assert next(check_result for check_result in ran if check_result.id == "design.power").threshold == ">= 0.8"


def test_a_check_of_an_entry_point_is_listed_with_its_distribution(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(monkeypatch, "acme:CHECKS")
    check.list_checks()
    line = next(text for text in capsys.readouterr().out.splitlines() if text.startswith("acme.no"))
    assert "acme-checks 1.0" in line


def test_every_check_is_listed_once_and_explained_by_its_own_text() -> None:
    assert [item.id for item in listing()] == [
        gate_check.id for gate_check in (*DESIGN_CHECKS, *AMENDMENT_CHECKS, *CHECKS)
    ]
    for catalog_check in listing():
        assert (
            catalog_check.what()
            and f"def {catalog_check.run.__name__}(" in catalog_check.code()
            and catalog_check.source
        ), catalog_check.id


def test_an_unknown_check_is_reported_with_its_family() -> None:
    with pytest.raises(UserError) as caught:
        find_check("leakage.nothing")
    assert "leakage.overlap" in caught.value.hint and "power.n" not in caught.value.hint


def test_a_check_of_another_distribution_runs_and_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "acme:CHECKS")
    evidence = evidence_of(tmp_path, "base")
    results = {check_result.id: check_result for check_result in run_checks(evidence, measure(evidence))}
    assert (results["acme.no"].status, results["acme.no"].blocking) == ("FAIL", True)
    assert find_check("acme.no").distribution == "acme-checks 1.0"


def test_a_check_that_is_installed_after_the_start_does_not_run_in_the_session_and_closes_no_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = evidence_of(tmp_path, "base")
    before = measuring_code(evidence.resolved)
    offer(monkeypatch, "acme:CHECKS")
    assert "acme.no" not in {check_result.id for check_result in run_checks(evidence, measure(evidence))}
    assert measuring_code(evidence.resolved) == before
    assert "acme.no" in {catalog_check.id for catalog_check in listing()}


def test_a_registered_check_that_changes_or_is_uninstalled_is_another_measuring_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, "acme:CHECKS")
    resolved = evidence_of(tmp_path, "base").resolved
    assert list(resolved.plugins) == ["peergate.checks acme-checks/acme"]
    codes = [measuring_code(resolved), measuring_code()]
    offer(monkeypatch, "acme:CHECKS", version="1.1")
    codes.append(measuring_code(resolved))
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: [])  # pyright: ignore[reportUnknownLambdaType]
    codes.append(measuring_code(resolved))
    assert len(set(codes)) == 4


def test_checks_of_two_distributions_may_have_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "acme:CHECKS")
    (point,) = plugins.find_entry_points("peergate.checks")
    other = Offer(point.name, "acme:OTHER", point.group)
    vars(other).update(dist=Distribution("2.0"))
    monkeypatch.setattr(other.dist, "name", "other-checks")
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: [point, other] if group == point.group else [])  # pyright: ignore[reportUnknownLambdaType]
    assert len(evidence_of(tmp_path, "base").resolved.plugins) == 2


@pytest.mark.parametrize("id", ["leakage.overlap", "design.power"])
def test_an_id_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch, id: str) -> None:
    offer(monkeypatch, "acme:taken", name=id)
    with pytest.raises(UserError, match=f"check id '{id}' is already used by peergate"):
        offered_checks()


@pytest.mark.parametrize(
    ("value", "output"), [("acme:broken", "cannot be loaded: ImportError"), ("acme:numbers", "which is not a check")]
)
def test_a_check_that_cannot_be_had_is_never_left_out_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, output: str
) -> None:
    offer(monkeypatch, value)
    evidence = evidence_of(tmp_path, "base")
    with pytest.raises((PluginFault, UserError), match=output):
        run_checks(evidence, measure(evidence))


def result(status: Any, *, blocking: bool = True) -> CheckResult:
    return CheckResult(id="x.y", title="t", status=status, blocking=blocking, detail="d")


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([result("PASS"), result("WARN"), result("NOT_APPLICABLE")], 0),
        ([result("FAIL", blocking=False), result("ERROR", blocking=False)], 0),
        ([result("BLOCKED")], 4),
        ([result("ERROR")], 4),
        ([result("BLOCKED"), result("FAIL")], 3),
    ],
)
def test_the_exit_code_is_that_of_a_closed_gate(results: list[CheckResult], code: int) -> None:
    assert check.exit_code(results) == code


def lost_run(folder: Path) -> Path:
    """Write a run whose design fails (too little power) and whose first job was lost."""
    (folder / "spec").mkdir()
    resolved = resolved_spec(folder / "spec")
    run = folder / "run"
    store, trail = Store(run / "store"), Trail(run / "trail.sqlite", "small")
    for path in (folder / "spec").glob("*.jsonl"):
        store.put(path.read_bytes())
    opened = {"registration": resolved.registration(), "spec": store.put_value(resolved)}
    append_json(trail, "open", "open", body_of("open", **opened, measured_by=measuring_code()))
    append_json(trail, "checks", "checks/design.1", body_of("checks", stage="design"))
    for attempt in (1, 2):
        where = {"stage": "base", "attempt": attempt}
        append_json(trail, "plan", f"plan/base.{attempt}", body_of("plan", **where))
        append_json(trail, "lost", f"lost/small.base.{attempt}", body_of("lost", **where, key=f"small.base.{attempt}"))
    append_json(trail, "plan", "plan/base.3", body_of("plan", stage="base", attempt=3))
    trail.close()
    return run


def again(run: Path, capsys: pytest.CaptureFixture[str], **which: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(SystemExit) as ended:
        check.run_again(run, which.get("stage"), which.get("attempt"), as_json=True)
    return int(str(ended.value.code)), json.loads(capsys.readouterr().out)


def test_attempts_are_asked_again_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = lost_run(tmp_path)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, report = again(run, capsys)
    # The third attempt was only planned: the newest that ended is the second.
    assert [(attempt["stage"], attempt["attempt"]) for attempt in report["attempts"]] == [("design", 1), ("base", 2)]
    assert (code, report["schema_version"], report["exit_code"]) == (3, 1, 3)
    statuses = {item["id"]: item["status"] for attempt in report["attempts"] for item in attempt["checks"]}
    assert statuses["design.power"] == "FAIL" and statuses["jobs.exit"] == "BLOCKED"
    assert report["attempts"][1]["metrics"] is None and "missing" in report["attempts"][1]["why_not_measured"]
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path in before} == before


def test_one_attempt_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = lost_run(tmp_path)
    code, report = again(run, capsys, stage="base", attempt=1)
    assert code == 4 and [(attempt["stage"], attempt["attempt"]) for attempt in report["attempts"]] == [("base", 1)]


@pytest.mark.parametrize(
    ("stage", "attempt", "output"),
    [("nowhere", None, "no attempt of stage"), ("base", 3, "has not ended"), (None, 1, "needs --stage")],
)
def test_an_attempt_that_is_not_there_is_a_usage_error(
    tmp_path: Path, stage: str | None, attempt: int | None, output: str
) -> None:
    with pytest.raises(UserError, match=output):
        check.run_again(lost_run(tmp_path), stage, attempt, as_json=True)


def test_an_order_of_another_version_is_one_clear_error(tmp_path: Path) -> None:
    run = lost_run(tmp_path)
    store, trail = Store(run / "store"), Trail(run / "trail.sqlite", "small")
    older = store.put_value({"schema_version": 1, "key": "small.base.4"})
    where = {"stage": "base", "attempt": 4, "key": "small.base.4"}
    append_json(trail, "launch", "launch/small.base.4", body_of("launch", **where, order=older))
    append_json(trail, "lost", "lost/small.base.4", body_of("lost", **where))
    trail.close()
    with pytest.raises(AuditDamage, match="cannot read the order of the job on record: 'kind': Field required"):
        check.run_again(run, "base", 4, as_json=True)


def test_the_plain_forms_name_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    check.list_checks(as_json=False)
    listed = capsys.readouterr().out
    assert max(map(len, listed.splitlines())) <= 100
    assert all(f"\n{gate_check.id}: " in listed for gate_check in check_list.CHECKS)
    check.explain_check("leakage.overlap", as_json=False)
    assert "arXiv:2107.06499" in capsys.readouterr().out
