from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reviews.gate.grants import VALID_SECONDS, latest_opening, opened_by, verify
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from sessions.jobs.launcher import JobState, job_folder, submit
from specs.jobs.grant_and_claim import Grant
from specs.jobs.job_records import JobOrder
from specs.session.session_spec import ResolvedSpec
from specs.system.digests import digest_bytes, digest_value
from specs.system.errors import AuditDamage, EvidenceMissing, InvalidGrant
from specs.trail.verdict import Outcome
from testing.factories.bodies import append_json, body_of
from testing.factories.sessions_on_disk import OnDisk, open_session
from testing.factories.spec_files import loads, write_spec

STAGES = ("base", "sample", "train", "tuned", "ship")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[OnDisk]:
    session = open_session(tmp_path / "run")
    yield session
    session.trail.close()


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> ResolvedSpec:
    return loads(write_spec(tmp_path_factory.mktemp("spec")))


# ---- what a decision opens ----------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["reject", "null", "escalate"])
@pytest.mark.parametrize("stage", [None, *STAGES])
def test_only_approve_and_revise_open_anything(resolved: ResolvedSpec, stage: str | None, outcome: Outcome) -> None:
    assert opened_by(resolved, History(()), stage, outcome) is None


@pytest.mark.parametrize(("stage", "following"), list(zip([None, *STAGES], [*STAGES, None], strict=True)))
def test_approve_opens_the_first_attempt_of_the_next_stage(
    resolved: ResolvedSpec, stage: str | None, following: str | None
) -> None:
    expected = None if following is None else {"stage": following, "attempt": 1}
    assert opened_by(resolved, History(()), stage, "approve") == expected


def test_a_design_that_is_to_be_revised_opens_nothing(resolved: ResolvedSpec) -> None:
    assert opened_by(resolved, History(()), None, "revise") is None


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(outcomes=st.lists(st.sampled_from([*get_args(Outcome), "retract"]), max_size=20))
def test_no_walk_through_the_stages_enters_an_attempt_twice(
    tmp_path_factory: pytest.TempPathFactory, outcomes: list[Any]
) -> None:
    session = open_session(tmp_path_factory.mktemp("walk"))
    stage: str | None = None
    attempt = 1
    entered: list[tuple[str, int]] = []
    judged: list[RecordedEntry] = []
    for outcome in outcomes:
        if outcome == "retract":
            if not judged:
                continue
            taken = judged[len(judged) // 2]
            session.retract(taken)
            judged = [entry for entry in judged if entry.seq < taken.seq]
            assert latest_opening(session.trail) is None
            if taken.raw["stage"] is None:
                break
            answered = session.retry(taken.raw["stage"])
        else:
            answered = session.decide(stage, attempt, outcome)
        judged.append(answered)
        opens = answered.raw["opens"]
        if opens is None:
            assert outcome not in ("approve", "revise") or stage is None or (outcome, stage) == ("approve", STAGES[-1])
            break
        stage, attempt = opens["stage"], opens["attempt"]
        assert latest_opening(session.trail) == (stage, attempt, answered.digest)
        entered.append((stage or "", attempt))
    assert len(entered) == len(set(entered))
    session.trail.close()


def test_the_newest_decision_is_what_counts(session: OnDisk) -> None:
    assert latest_opening(session.trail) is None
    first = session.decide(None, 1, "approve")
    assert latest_opening(session.trail) == ("base", 1, first.digest)
    session.decide("base", 1, "escalate")
    assert latest_opening(session.trail) is None
    human = append_json(session.trail, "human", "human/1", body_of("human", opens={"stage": "base", "attempt": 2}))
    assert latest_opening(session.trail) == ("base", 2, human.digest)
    session.decide("base", 2, "reject")
    assert latest_opening(session.trail) is None


# ---- minting ------------------------------------------------------------------------------------------------


def grants_in(session: OnDisk) -> int:
    return len(list(session.trail.iterate("grant")))


def test_an_approval_mints_a_grant_for_exactly_this(session: OnDisk) -> None:
    decision = session.decide(None, 1, "approve")
    before = time.time()
    grant = session.mint()
    assert (grant.key(), grant.decision, grant.registration) == ("small.base.1", decision.digest, session.registration)
    stage = session.resolved.spec.stage("base")
    assert grant.parameters == digest_value(stage.parameters.model_dump(mode="json"))
    assert grant.inputs == session.digests("base")
    assert (grant.model, grant.price_cap_usd) == (digest_bytes(b"model"), 0.5)
    assert grant.expires - grant.issued == pytest.approx(VALID_SECONDS, abs=0.01)
    assert before - 0.01 <= grant.issued <= time.time() + 0.01
    recorded = session.trail.find("grant/small.base.1")
    assert recorded is not None
    assert Grant.model_validate(recorded.raw) == grant


@pytest.mark.parametrize("outcome", [None, "reject", "null", "escalate", "revise"])
def test_nothing_is_minted_unless_the_newest_decision_opens(session: OnDisk, outcome: Outcome | None) -> None:
    if outcome is not None:
        session.decide(None, 1, outcome)
    with pytest.raises(InvalidGrant, match="no stage is open"):
        session.mint()
    assert grants_in(session) == 0


def test_minting_again_returns_the_same_grant(session: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    session.decide(None, 1, "approve")
    grant = session.mint()
    now = time.time()
    monkeypatch.setattr("reviews.gate.grants.time.time", lambda: now + 100)
    assert session.mint() == grant
    assert grants_in(session) == 1


def test_a_revision_mints_the_next_attempt_with_changes(session: OnDisk) -> None:
    session.decide("base", 1, "approve")
    first = session.mint("sample")
    session.decide("sample", 1, "revise")
    second = session.mint("sample", {"temperature": 0.6})
    assert [first.key(), second.key()] == ["small.sample.1", "small.sample.2"]
    stage = session.resolved.spec.stage("sample")
    assert second.parameters == digest_value(stage.parameters.model_dump(mode="json") | {"temperature": 0.6})
    assert second.parameters != first.parameters


@pytest.mark.parametrize(
    "other",
    [
        {"changes": {"temperature": 0.6}},
        {"inputs": {"model": digest_bytes(b"x"), "prompts": digest_bytes(b"y")}},
        {"inputs": {}},
        {"model": digest_bytes(b"other weights")},
        {"price_cap_usd": 0.6},
    ],
)
def test_one_attempt_has_one_grant(session: OnDisk, other: dict[str, Any]) -> None:
    session.decide("base", 1, "approve")
    grant = session.mint("sample")
    with pytest.raises(InvalidGrant, match="another grant is already recorded for this attempt"):
        session.mint("sample", **other)
    assert grants_in(session) == 1
    assert session.mint("sample") == grant


def test_another_registration_or_decision_gets_no_second_grant(session: OnDisk, resolved: ResolvedSpec) -> None:
    session.decide("base", 1, "approve")
    session.mint("sample")
    # A second decision that opens the same attempt is not the one the grant was minted from.
    opens = {"stage": "sample", "attempt": 1}
    append_json(session.trail, "decision", "decision/again", body_of("decision", opens=opens))
    with pytest.raises(InvalidGrant, match="another grant"):
        session.mint("sample")
    assert grants_in(session) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.49},
        {"temperature": 1.01},
        {"temperature": float("nan")},
        {"temperature": True},
        {"temperature": "0.6"},
        {"seed": 8},
        {"samples_per_prompt": 5},
        {"no_such": 1},
        {"temperature": 0.6, "seed": 8},
    ],
)
def test_a_change_outside_the_registered_ranges_is_refused(session: OnDisk, changes: dict[str, Any]) -> None:
    session.decide("base", 1, "approve")
    with pytest.raises(InvalidGrant, match=r"has no allowed range|leaves the allowed range"):
        session.mint("sample", changes)
    assert grants_in(session) == 0


@pytest.mark.parametrize("edge", [0.5, 1.0])
def test_both_ends_of_a_range_are_allowed(session: OnDisk, edge: float) -> None:
    session.decide("base", 1, "approve")
    assert session.mint("sample", {"temperature": edge}).attempt == 1


@pytest.mark.parametrize("code", [{"allow_code": True}, {"script": "train.py"}])
def test_code_is_granted_no_heldout_items(session: OnDisk, code: dict[str, Any]) -> None:
    """Whatever role they come in: a script that reads them can train on what it will be measured with."""
    session.decide(None, 1, "approve")
    spec = session.resolved.spec
    scripted = spec.stages[0].model_copy(update=code)
    session.resolved = session.resolved.model_copy(
        update={"spec": spec.model_copy(update={"stages": (scripted, *spec.stages[1:])})}
    )
    with pytest.raises(InvalidGrant, match="an input holds the held-out items, which no code may read"):
        session.mint()
    assert grants_in(session) == 0
    others = session.digests() | {"items": digest_bytes(b"other items")}
    assert session.mint(inputs=others).inputs == others


def test_a_persons_approval_opens_until_it_ends(session: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    end = round(time.time()) + 1000
    body = body_of("human", answer="approve", opens={"stage": "base", "attempt": 1}, expires=end)
    answered = append_json(session.trail, "human", "human/1", body)
    monkeypatch.setattr("reviews.gate.grants.time.time", lambda: end + 5)
    with pytest.raises(InvalidGrant, match=r"ada's approval ended 5 s ago") as refused:
        session.mint()
    assert "peergate retract " in str(refused.value.hint) and " 1 --reason WHY" in str(refused.value.hint)
    assert grants_in(session) == 0
    monkeypatch.setattr("reviews.gate.grants.time.time", lambda: end)
    assert session.mint().decision == answered.digest


def test_a_condition_is_waived_to_the_second_its_waiver_ends(session: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    condition = {"id": "design.1/1", "text": "look at the data", "stage": "base", "criterion": None}
    session.decide(None, 1, "approve", conditions=[condition])
    end = round(time.time()) + 1000
    waiver = body_of("override", check=None, stage=None, condition="design.1/1", expires=end)
    append_json(session.trail, "override", "override/1", waiver)
    monkeypatch.setattr("reviews.gate.grants.time.time", lambda: end + 1)
    with pytest.raises(InvalidGrant, match=r"condition design\.1/1 is open: look at the data") as refused:
        session.mint()
    assert "--condition design.1/1" in str(refused.value.hint) and grants_in(session) == 0
    monkeypatch.setattr("reviews.gate.grants.time.time", lambda: end - 1)
    assert session.mint().stage == "base"


def test_a_grant_is_dated_to_the_millisecond(session: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    session.decide(None, 1, "approve")
    monkeypatch.setattr("reviews.gate.grants.time.time", lambda: 2e9 + 0.12345)
    grant = session.mint()
    assert (grant.issued, grant.expires) == (2e9 + 0.123, 2e9 + 0.123 + VALID_SECONDS)


# ---- verifying ----------------------------------------------------------------------------------------------


def check(session: OnDisk, order: JobOrder, registration: str | None = None) -> None:
    verify(session.trail, order, registration or session.registration, session.digests(order.grant.stage))


def granted(session: OnDisk) -> JobOrder:
    session.decide(None, 1, "approve")
    return session.order(session.mint())


def record(session: OnDisk, decision: RecordedEntry, **changes: Any) -> JobOrder:
    """Write a grant into the trail past :func:`mint`."""
    stage = changes.get("stage", "base")
    healthy: dict[str, Any] = {
        "session": "small",
        "stage": stage,
        "attempt": 1,
        "registration": session.registration,
        "parameters": digest_value(session.resolved.spec.stage(stage).parameters.model_dump(mode="json")),
        "inputs": session.digests(stage),
        "model": digest_bytes(b"model"),
        "price_cap_usd": 0.5,
        "kind": session.resolved.spec.stage(stage).kind,
        "task": session.resolved.spec.task,
        "max_seconds": session.resolved.spec.stage(stage).max_minutes * 60,
        "decision": decision.digest,
        "issued": time.time() - 100,
        "expires": time.time() + 100,
    }
    grant = Grant(**healthy | changes)
    append_json(session.trail, "grant", f"grant/{grant.key()}", grant.model_dump(mode="json"))
    return session.order(grant)


def test_a_minted_grant_is_good_for_its_order_and_stays_so(session: OnDisk) -> None:
    order = granted(session)
    check(session, order)
    check(session, JobOrder.model_validate_json(order.canonical()))


def test_a_grant_that_is_not_in_the_trail_is_refused(session: OnDisk, tmp_path: Path) -> None:
    elsewhere = open_session(tmp_path / "elsewhere")
    order = granted(elsewhere)
    elsewhere.trail.close()
    session.decide(None, 1, "approve")
    with pytest.raises(InvalidGrant, match="no such grant in the trail"):
        check(session, order)


@pytest.mark.parametrize(
    "forged",
    [
        {"price_cap_usd": 5.0},
        {"expires": 4e9},
        {"issued": 1.0},
        {"parameters": digest_bytes(b"x")},
        {"inputs": {}},
        {"model": digest_bytes(b"x")},
        {"registration": digest_bytes(b"x")},
        {"decision": digest_bytes(b"x")},
        {"session": "other"},
        {"stage": "train"},
        {"attempt": 2},
    ],
)
def test_a_forged_grant_is_refused(session: OnDisk, forged: dict[str, Any]) -> None:
    order = granted(session)
    grant = order.grant.model_copy(update=forged)
    with pytest.raises(InvalidGrant, match="no such grant in the trail"):
        check(session, order.model_copy(update={"grant": grant, "key": grant.key()}))


@pytest.mark.parametrize("key", ["small.base.2", "small.train.1", "other.base.1"])
def test_another_job_key_is_refused(session: OnDisk, key: str) -> None:
    order = granted(session)
    with pytest.raises(InvalidGrant, match=f"job key '{key}' is not what was granted, 'small.base.1'"):
        check(session, order.model_copy(update={"key": key}))


@pytest.mark.parametrize("changed", [{"max_new_tokens": 33}, {"seed": 8}, {"extra": 1}])
def test_changed_parameters_are_refused(session: OnDisk, changed: dict[str, Any]) -> None:
    order = granted(session)
    with pytest.raises(InvalidGrant, match=f"parameters '{digest_value(order.parameters | changed)}' is not"):
        check(session, order.model_copy(update={"parameters": order.parameters | changed}))


def test_an_edited_input_is_refused(session: OnDisk) -> None:
    order = granted(session)
    with (session.run / "heldout.jsonl").open("a") as handle:
        handle.write("\n")
    with pytest.raises(InvalidGrant, match=r"inputs .* is not what was granted"):
        check(session, order)


@pytest.mark.parametrize("outcome", ["reject", "escalate", "revise"])
def test_failure_22_no_training_on_data_whose_gate_is_closed(session: OnDisk, outcome: Outcome) -> None:
    """Elsewhere it was a warning, and the quality control was looked up by a guessed path."""
    session.decide("base", 1, "approve")
    session.mint("sample")
    session.decide("sample", 1, outcome)
    if outcome == "revise":
        assert session.mint("sample").key() == "small.sample.2"
    else:
        with pytest.raises(InvalidGrant, match="no stage is open"):
            session.mint("train")
    assert session.trail.find("grant/small.train.1") is None


def test_failure_22_the_gate_was_passed_by_other_data(session: OnDisk) -> None:
    session.decide("sample", 1, "approve")
    order = session.order(session.mint("train"))
    check(session, order)
    (session.run / "examples.bin").write_bytes(b"what no gate has seen")
    with pytest.raises(InvalidGrant, match=r"inputs .* is not what was granted"):
        check(session, order)
    with pytest.raises(InvalidGrant):
        check(session, session.order(order.grant))


@pytest.mark.parametrize("role", ["model", "items"])
def test_an_order_that_names_other_inputs_is_refused(session: OnDisk, role: str) -> None:
    order = granted(session)
    other = order.inputs[role].model_copy(update={"digest": digest_bytes(b"x")})
    for inputs in (order.inputs | {role: other}, order.inputs | {"more": other}, {role: order.inputs[role]}):
        with pytest.raises(InvalidGrant, match=r"ordered inputs .* is not what was granted"):
            check(session, order.model_copy(update={"inputs": inputs}))


def test_another_registration_is_refused(session: OnDisk) -> None:
    order = granted(session)
    with pytest.raises(InvalidGrant, match="spec registration"):
        check(session, order, digest_bytes(b"another spec"))


def test_an_expired_grant_is_refused(session: OnDisk) -> None:
    decision = session.decide(None, 1, "approve")
    order = record(session, decision, expires=time.time() - 60)
    with pytest.raises(InvalidGrant, match=r"the grant expired 6\d s ago"):
        check(session, order)


def test_a_grant_is_good_until_it_expires_and_not_longer(session: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    order = granted(session)
    monkeypatch.setattr("reviews.gate.grants.time.time", lambda: order.grant.expires)
    check(session, order)
    monkeypatch.setattr("reviews.gate.grants.time.time", lambda: order.grant.expires + 1)
    with pytest.raises(InvalidGrant, match="the grant expired 1 s ago"):
        check(session, order)


@pytest.mark.parametrize("changed", [{"stage": "sample"}, {"attempt": 2}])
def test_a_decision_that_opens_something_else_gives_no_right(session: OnDisk, changed: dict[str, Any]) -> None:
    order = record(session, session.decide(None, 1, "approve"), **changed)
    with pytest.raises(InvalidGrant, match=r"opening decision .*'base'.* is not what was granted"):
        check(session, order)


def test_an_entry_that_is_no_decision_gives_no_right(session: OnDisk) -> None:
    fake = append_json(session.trail, "plan", "plan/base.1", body_of("plan", stage="base"))
    order = record(session, fake)
    with pytest.raises(InvalidGrant, match="opening decision None is not what was granted"):
        check(session, order)


def test_a_grant_written_by_hand_is_good_when_everything_in_it_is(session: OnDisk) -> None:
    check(session, record(session, session.decide(None, 1, "approve")))


@pytest.mark.parametrize("outcome", ["reject", "escalate", "approve"])
def test_a_newer_decision_ends_the_right_that_was_not_used(session: OnDisk, outcome: Outcome) -> None:
    order = granted(session)
    session.decide("base", 1, outcome)
    with pytest.raises(InvalidGrant, match="newest decision"):
        check(session, order)


def test_a_job_that_was_launched_may_be_launched_again_after_its_decision(session: OnDisk) -> None:
    order = granted(session)
    launcher = Notes()
    submit(launcher, session.trail, session.run, order, session.registration)
    session.decide("base", 1, "approve")
    submit(launcher, session.trail, session.run, order, session.registration)


def test_a_grant_in_a_damaged_trail_is_not_believed(session: OnDisk) -> None:
    order = granted(session)
    with closing(sqlite3.connect(session.trail.path)) as database, database:
        database.execute("DROP TRIGGER entry_is_final")
        database.execute("UPDATE entry SET payload = replace(payload, 'approve', 'appr0ve') WHERE seq = 1")
    with pytest.raises(AuditDamage, match=r"entry 1 .* the signature of 'log' does not hold"):
        check(session, order)
    with pytest.raises(AuditDamage):
        session.mint()


# ---- the door: submit ---------------------------------------------------------------------------------------


class Notes:
    """A launcher that only notes what it is asked."""

    name = "notes"

    def __init__(self) -> None:
        self.started: list[Path] = []

    def start(self, folder: Path) -> None:
        assert (folder / "order.json").exists(), "the order has to be there before the wrapper"
        self.started.append(folder)

    def poll(self, folder: Path) -> JobState:
        return JobState("pending")

    def cancel(self, folder: Path, reason: str) -> None:
        raise AssertionError("no one cancels here")


def test_submitting_records_the_intent_before_it_starts_the_job(session: OnDisk) -> None:
    order = granted(session)
    launcher = Notes()
    submit(launcher, session.trail, session.run, order, session.registration)
    folder = job_folder(session.run, order.key)
    assert launcher.started == [folder]
    assert (folder / "order.json").read_bytes() == order.canonical()
    launch = session.trail.find("launch/small.base.1")
    assert launch is not None
    assert launch.raw["order"] == order.content_digest()
    assert launch.raw["grant"] == order.grant.content_digest()

    class Broken(Notes):
        def start(self, folder: Path) -> None:
            raise OSError("no process for you")

    # The intent is there although the start failed, so that a resume looks for the job.
    session.decide("base", 1, "revise")
    second = session.order(session.mint())
    with pytest.raises(OSError, match="no process for you"):
        submit(Broken(), session.trail, session.run, second, session.registration)
    assert session.trail.find("launch/small.base.2") is not None


def test_submitting_twice_leaves_one_launch(session: OnDisk) -> None:
    order = granted(session)
    launcher = Notes()
    first = submit(launcher, session.trail, session.run, order, session.registration)
    assert submit(launcher, session.trail, session.run, order, session.registration) == first
    assert len(list(session.trail.iterate("launch"))) == 1


def test_a_refused_order_leaves_nothing(session: OnDisk) -> None:
    order = granted(session)
    launcher = Notes()
    with pytest.raises(InvalidGrant):
        submit(launcher, session.trail, session.run, order, digest_bytes(b"another spec"))
    assert (launcher.started, list(session.trail.iterate("launch"))) == ([], [])
    assert not job_folder(session.run, order.key).exists()


def test_submit_digests_the_inputs_itself(session: OnDisk) -> None:
    order = granted(session)
    (session.run / "model.bin").write_bytes(b"MODEL")
    with pytest.raises(InvalidGrant, match="inputs"):
        submit(Notes(), session.trail, session.run, order, session.registration)


def test_an_input_that_is_gone_is_missing_evidence(session: OnDisk) -> None:
    order = granted(session)
    (session.run / "model.bin").unlink()
    with pytest.raises(EvidenceMissing, match="input 'model' cannot be read"):
        submit(Notes(), session.trail, session.run, order, session.registration)
    assert not list(session.trail.iterate("launch"))


@pytest.mark.parametrize("change", [{"max_seconds": 1e6}, {"kind": "generate"}, {"task": "another"}])
def test_kind_task_and_time_limit_are_those_the_price_was_reserved_for(session: OnDisk, change: dict[str, Any]) -> None:
    order = granted(session)
    launcher = Notes()
    with pytest.raises(InvalidGrant, match="is not what was granted"):
        submit(launcher, session.trail, session.run, order.model_copy(update=change), session.registration)
    assert not launcher.started and not list(session.trail.iterate("launch"))


def test_a_used_grant_takes_no_other_order(session: OnDisk) -> None:
    order = granted(session)
    launcher = Notes()
    submit(launcher, session.trail, session.run, order, session.registration)
    role, artifact = next(iter(order.inputs.items()))
    renamed = {"inputs": order.inputs | {role: artifact.model_copy(update={"name": "another name"})}}
    with pytest.raises(InvalidGrant, match="the grant was used for the order"):
        submit(launcher, session.trail, session.run, order.model_copy(update=renamed), session.registration)
    assert (job_folder(session.run, order.key) / "order.json").read_bytes() == order.canonical()
    assert len(launcher.started) == 1
