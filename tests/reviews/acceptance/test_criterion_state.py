"""Acceptance criteria go open, discharged, retracted by the trail alone; nobody's word moves one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.acceptance.criterion_state import Acceptance, acceptance_of
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.loading.loading import list_shipped_specs, load_spec
from specs.session.session_spec import ResolvedSpec
from specs.stages.packaging import parameters as packaging_parameters
from specs.system.digests import digest_bytes
from specs.system.home import HOME
from specs.trail.entry import GENESIS, Entry, EntryKind
from testing.factories.bodies import body_of
from testing.factories.spec_files import loads, write_spec

CRITERIA = """\
criteria:
  - {id: AC-001, text: The baseline was measured., stage: base}
  - {id: AC-002, text: It answers half of it., stage: tuned, metric: {metric: accuracy, at_least: 0.5}, weight: 2}
  - {id: AC-003, text: The gradient stayed finite., stage: train, check: training.gradient, weight: 3}
  - {id: AC-004, text: The package can be used., stage: ship, ship: true, weight: 4}
stages:
"""


def registered(folder: Path, criteria: str = CRITERIA) -> tuple[ResolvedSpec, Store]:
    folder.mkdir(parents=True, exist_ok=True)
    return loads(write_spec(folder, ("stages:\n", criteria))), Store(folder / "store")


class Scenario:
    """A trail in memory."""

    def __init__(self, resolved: ResolvedSpec, store: Store) -> None:
        self.resolved, self.store, self.entries = resolved, store, list[RecordedEntry]()
        spec = store.put(resolved.canonical())
        self.add("open", "open", spec=spec, registration=resolved.registration())

    def add(self, kind: EntryKind, key: str = "", **body: Any) -> RecordedEntry:
        seq = len(self.entries)
        entry = Entry(
            seq=seq, kind=kind, session="small", key=key or f"{kind}/{seq}", previous=GENESIS,
            time_ns=str(10**18 + seq),
            body=body_of(kind, **body),
        )  # fmt: skip
        self.entries.append(RecordedEntry(entry, digest_bytes(entry.canonical())))
        return self.entries[-1]

    def judge(self, stage: str, attempt: int, outcome: str, accuracy: float = 0.75, **checks: str) -> RecordedEntry:
        """Record the metrics, the checks and the decision of an attempt."""
        metric = {
            "id": "accuracy", "value": accuracy, "unit": "fraction", "population": "p", "definition": "d", "n": 4,
        }  # fmt: skip
        at = {"stage": stage, "attempt": attempt}
        content = self.store.put_value(_metric_set(stage, attempt, accuracy=metric))
        self.add("metrics", f"metrics/{stage}.{attempt}", metrics=content, **at)
        summary = {id.replace("__", "."): status for id, status in checks.items()}
        self.add("checks", f"checks/{stage}.{attempt}", checks=self.store.put_value(summary), summary=summary, **at)
        return self.add("decision", f"decision/{stage}.{attempt}", outcome=outcome, **at)

    def check(self, stage: str, attempt: int, statuses: dict[str, str]) -> None:
        """Record the results of checks alone."""
        results = [
            {"id": id, "title": id, "status": status, "blocking": True, "detail": ""} for id, status in statuses.items()
        ]
        content = self.store.put_value(results)
        self.add("checks", f"checks/{stage}.{attempt}", checks=content, summary=statuses, stage=stage, attempt=attempt)

    def take_back(self, entry: RecordedEntry) -> None:
        self.add("retraction", since=entry.seq, stage=entry.raw["stage"], attempt=entry.raw["attempt"])

    def acceptance(self) -> Acceptance:
        return acceptance_of(History(self.entries, self.store))

    def states(self) -> dict[str, str]:
        return {criterion.criterion.id: criterion.state for criterion in self.acceptance().criteria}


def _metric_set(stage: str, attempt: int, **metrics: dict[str, Any]) -> dict[str, Any]:
    return {"stage": stage, "attempt": attempt, "rows": {}, "code": digest_bytes(b"code"), "metrics": metrics}


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(*registered(tmp_path))


SHIP = {"checkpoint__files": "PASS", "package__weights": "PASS", "package__probes": "PASS"}


def test_a_session_begins_with_everything_open(scenario: Scenario) -> None:
    assert set(scenario.states().values()) == {"open"} and scenario.acceptance().percent == 0.0


def test_each_criterion_is_discharged_by_its_own_gate_with_evidence(scenario: Scenario) -> None:
    scenario.judge("base", 1, "approve")
    assert scenario.states() == {"AC-001": "discharged", "AC-002": "open", "AC-003": "open", "AC-004": "open"}
    assert scenario.acceptance().percent == 10.0
    scenario.judge("train", 1, "approve", training__gradient="PASS")
    scenario.judge("tuned", 1, "approve")
    decided = scenario.judge("ship", 1, "approve", 0.75, **SHIP)
    acceptance = scenario.acceptance()
    assert acceptance.percent == 100.0 and acceptance.line() == "ship 100.0 %: 4 discharged"
    proof = acceptance.criteria[3].proof
    assert proof is not None and (proof.entry, proof.digest) == (decided.seq, decided.digest)
    assert scenario.store.get_value(proof.evidence)["checkpoint.files"] == "PASS"
    assert scenario.store.get_value(acceptance.criteria[1].proof.evidence)["metrics"]["accuracy"]["value"] == 0.75  # type: ignore[union-attr]
    assert [step.percent for criterion in acceptance.criteria for step in criterion.history] == [
        10.0,
        60.0,
        40.0,
        100.0,
    ]


@pytest.mark.parametrize("outcome", ["revise", "reject", "escalate", "null"])
def test_a_gate_that_does_not_approve_discharges_nothing(scenario: Scenario, outcome: str) -> None:
    for stage in ("base", "train", "tuned", "ship"):
        scenario.judge(stage, 1, outcome, 0.75, training__gradient="PASS", **SHIP)
    assert set(scenario.states().values()) == {"open"}
    assert scenario.acceptance().criteria[0].why == f"the gate of base.1 decided '{outcome}'"


def test_a_bound_that_is_missed_leaves_it_open_and_says_by_how_much(scenario: Scenario) -> None:
    scenario.judge("tuned", 1, "approve", accuracy=0.25)
    state = scenario.acceptance().criteria[1]
    assert (state.state, state.why) == ("open", "accuracy is 0.25 at tuned.1, not accuracy >= 0.5")


@pytest.mark.parametrize("status", ["WARN", "FAIL", "BLOCKED", "ERROR", "NOT_APPLICABLE"])
def test_a_check_has_to_pass(scenario: Scenario, status: str) -> None:
    scenario.judge("train", 1, "approve", training__gradient=status)
    scenario.judge("ship", 1, "approve", 0.75, **SHIP | {"package__probes": status})
    assert set(scenario.states().values()) == {"open"}
    assert scenario.acceptance().criteria[2].why == f"check training.gradient is {status} at train.1"


def test_a_check_that_did_not_run_shows_nothing(scenario: Scenario) -> None:
    scenario.judge("train", 1, "approve")
    scenario.judge("ship", 1, "approve")
    criteria = scenario.acceptance().criteria
    assert criteria[2].why == "check training.gradient did not run at train.1"
    assert criteria[3].why == "no check of the ship gate ran at ship.1"


def test_what_a_person_lifts_or_approves_over_a_gate_discharges_nothing(scenario: Scenario) -> None:
    scenario.add("override", check="parity.settings", stage="base")
    scenario.judge("base", 1, "approve")
    scenario.judge("tuned", 1, "escalate")
    scenario.add("human", stage="tuned", attempt=1, answer="approve")
    assert set(scenario.states().values()) == {"open"}
    assert scenario.acceptance().criteria[0].why.startswith("a person lifted parity.settings at base.1")


def test_a_retraction_takes_back_what_it_discharged_and_a_new_attempt_gives_it_again(scenario: Scenario) -> None:
    first = scenario.judge("base", 1, "approve")
    scenario.judge("train", 1, "approve", training__gradient="PASS")
    scenario.take_back(first)
    assert scenario.states()["AC-001"] == scenario.states()["AC-003"] == "retracted"
    acceptance = scenario.acceptance()
    assert acceptance.percent == 0.0 and acceptance.criteria[0].proof is None
    assert acceptance.criteria[0].why == "the approval of base.1 was taken back"
    scenario.judge("base", 2, "approve")
    state = scenario.acceptance().criteria[0]
    assert state.state == "discharged" and [step.state for step in state.history] == [
        "discharged",
        "retracted",
        "discharged",
    ]


def test_a_later_attempt_that_shows_otherwise_retracts(scenario: Scenario) -> None:
    scenario.judge("tuned", 1, "approve")
    scenario.judge("tuned", 2, "approve", accuracy=0.25)
    assert scenario.states()["AC-002"] == "retracted"


@pytest.mark.parametrize(("holds", "state"), [(True, "discharged"), (False, "retracted")])
def test_further_seeds_that_do_not_replicate_retract_what_the_comparison_showed(
    tmp_path: Path, holds: bool, state: str
) -> None:
    gain = CRITERIA.replace("{metric: accuracy, at_least: 0.5}", "{metric: mcnemar_p, below: 0.05}")
    answer = Scenario(*registered(tmp_path, gain))
    p = {
        "id": "mcnemar_p", "value": 0.01, "unit": "probability", "population": "p", "definition": "d", "n": 4,
    }  # fmt: skip
    content = answer.store.put_value(_metric_set("tuned", 1, mcnemar_p=p))
    answer.add("metrics", "metrics/tuned.1", stage="tuned", attempt=1, metrics=content)
    answer.add("decision", "decision/tuned.1", stage="tuned", attempt=1, outcome="approve")
    answer.judge("base", 1, "approve")
    assert answer.states()["AC-002"] == "discharged"
    answer.add(
        "replication", "replication", result=answer.store.put_value({"replicated": holds, "summary": "over 3 seeds"})
    )
    assert answer.states()["AC-002"] == state and answer.states()["AC-001"] == "discharged"


def test_what_does_not_apply_is_said_by_the_registration_and_left_out(tmp_path: Path) -> None:
    export = """\
criteria:
  - {id: AC-001, text: The baseline was measured., stage: base}
  - {id: AC-002, text: llama.cpp reads it., stage: out, check: export.answers, applies_if: out.verify}
stages:
  - name: out
    kind: export
    inputs: {model: model, items: heldout}
    parameters: {verify: VERIFY, seed: 7}
"""
    answer = Scenario(*registered(tmp_path / "no", export.replace("VERIFY", '"no"')))
    assert answer.states() == {"AC-001": "open", "AC-002": "not_applicable"}
    answer.judge("base", 1, "approve")
    assert answer.acceptance().percent == 100.0
    answer.judge("out", 1, "approve", export__answers="PASS")
    assert answer.states()["AC-002"] == "not_applicable"
    other = Scenario(*registered(tmp_path / "yes", export.replace("VERIFY", "llama_cpp")))
    other.judge("out", 1, "approve", export__answers="NOT_APPLICABLE")
    assert other.states()["AC-002"] == "open", "not by surprise: what turns out not to apply stays open"


def test_without_criteria_there_is_no_share(tmp_path: Path) -> None:
    acceptance = Scenario(*registered(tmp_path, "stages:\n")).acceptance()
    assert acceptance.criteria == () and acceptance.percent is None


STAGES = ("base", "train", "tuned", "ship")
WORDS: tuple[EntryKind, ...] = (
    "turn",
    "call",
    "result",
    "note",
    "plan",
    "submit",
    "human",
    "override",
    "close",
    "amendment",
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("judge"),
            st.sampled_from(STAGES),
            st.sampled_from(["approve", "approve", "reject", "escalate", "null"]),
            st.sampled_from([0.25, 0.5, 0.75]),
            st.sampled_from(["PASS", "WARN", "FAIL"]),
        ),
        st.tuples(st.just("retract"), st.integers(0, 20)),
        st.tuples(st.just("word"), st.sampled_from(WORDS)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(events=EVENTS)
def test_any_history_keeps_the_rules(tmp_path_factory: pytest.TempPathFactory, events: list[tuple[Any, ...]]) -> None:
    answer = Scenario(*_REGISTERED(tmp_path_factory))
    attempts = dict.fromkeys(STAGES, 0)
    decided: list[RecordedEntry] = []
    before = answer.acceptance()
    for event in events:
        if event[0] == "judge":
            _, stage, outcome, accuracy, status = event
            attempts[stage] += 1
            checks = {"training__gradient": status, "checkpoint__files": status}
            decided.append(answer.judge(stage, attempts[stage], outcome, accuracy, **checks))
        elif event[0] == "retract" and decided:
            answer.take_back(decided[event[1] % len(decided)])
        elif event[0] == "word":
            # What builders and people say: an override lifts a check of another stage.
            answer.add(event[1], **({"stage": "design"} if event[1] == "override" else {}))
        now = answer.acceptance()
        void = {
            seq
            for entry in answer.entries
            if entry.kind == "retraction"
            for seq in range(entry.raw["since"], entry.seq)
        }
        for old, new in zip(before.criteria, now.criteria, strict=True):
            assert new.history[: len(old.history)] == old.history, "the past does not change"
            newest = next((entry for entry in reversed(decided) if entry.raw["stage"] == new.criterion.stage), None)
            if new.state == "discharged":
                assert newest is not None and newest.raw["outcome"] == "approve" and newest.seq not in void
                assert new.proof is not None and new.proof.entry == newest.seq
                assert answer.store.path(new.proof.evidence).is_file() or new.criterion.id == "AC-001"
            assert (new.state == "retracted") <= any(step.state == "discharged" for step in new.history)
            assert (new.state == "open") == (not new.history), "what was discharged once is never open again"
            if event[0] == "word":
                assert (new.state, new.history) == (old.state, old.history), "no word moves a criterion"
        weights = [criterion.criterion.weight for criterion in now.criteria if criterion.state == "discharged"]
        assert now.percent == 100 * sum(weights) / 10
        before = now


def _registered_once() -> Any:
    selected: list[tuple[ResolvedSpec, Store]] = []

    def once(factory: pytest.TempPathFactory) -> tuple[ResolvedSpec, Store]:
        if not selected:
            selected.append(registered(factory.mktemp("spec")))
        return selected[0]

    return once


_REGISTERED = _registered_once()


@pytest.mark.parametrize(
    ("parameter", "installed", "state"),
    [("", True, "open"), ("", False, "open"), ("verify: no, ", False, "not_applicable")],
)
def test_a_program_that_is_missing_excuses_nothing(
    parameter: str, installed: bool, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without llama.cpp the demo's AC-4 stays open; it does not apply only where its author wrote so."""
    monkeypatch.setattr(packaging_parameters, "is_installed", lambda: installed)
    library = list_shipped_specs()["demo"].parent
    text = (
        list_shipped_specs()["demo"]
        .read_text(encoding="utf-8")
        .replace("{format: f32, ", f"{{format: f32, {parameter}")
    )
    text = text.replace("path: data/", f"path: {library}/data/").replace("../../constitution", f"{HOME}/constitution")
    (tmp_path / "demo.yaml").write_text(text, encoding="utf-8")
    resolved = load_spec(tmp_path / "demo.yaml")
    expected = "no" if parameter else "llama_cpp" if installed else "not_installed"
    assert resolved.spec.stage("export").parameters.verify == expected
    answer = Scenario(resolved, Store(tmp_path / "store"))
    states = {
        criterion.criterion.id: criterion for criterion in acceptance_of(History(answer.entries, answer.store)).criteria
    }
    assert [states[id].state for id in ("AC-2", "AC-3", "AC-4")] == ["open", "open", state]
    assert not parameter or states["AC-4"].why == "by registration it does not apply: export.verify is off"
