"""Where the budget ends: the session stops before it spends too much, and goes on when it is given more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agents.playbook import Playbook
from agents.workbench_protocol import Workbench
from reviews.audit.event_order import launch_damage, order_damage
from reviews.audit.verify import verify_run
from reviews.gate import grants
from reviews.gate.gate_decision import settle
from reviews.gate.reviewer import ModelOutcome, ReviewExchange
from reviews.history.history import History
from reviews.reviewers.checklist import Checklist
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.commands import report, status
from sessions.commands import run as commands
from sessions.jobs.launcher import JobState
from sessions.pages.report.timeline import describe_entries
from sessions.run.money import ledger
from sessions.run.money.accounts import Accounts
from sessions.run.run_layout import STORE, TRAIL
from sessions.runtime.human_actions import amend
from sessions.runtime.runtime import Answer
from specs.jobs.job_records import JobOrder
from specs.session.design import Budget
from specs.system.errors import InvalidGrant, SpecError, UserError
from specs.trail.verdict import Finding, Packet, RequiredChange, Span, Verdict
from testing.factories.bodies import append_json, body_of
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.quick_session import POWERED, ROOMY, QuickLauncher, Silent, drive, open_quick, quick_session

pytestmark = pytest.mark.integration

RAISED = ("max_cost_usd: 10", "max_cost_usd: 14")
AMENDED: dict[str, Any] = {"by": "Ada", "reason": "the first stage was slow", "override": False, "display": Silent()}
LACKS = "the attempt may cost 1.0000 USD, 0.7000 USD of 10 are left for it"
STOP: dict[str, Any] = {"answer": "stop", "reason": "enough", "by": "Ada", "expires": None}


def settle_dearly(patched: pytest.MonkeyPatch) -> None:
    """Settle the jobs of :class:`Dear` at what it says: no exit record of a job makes it cost more than it may."""
    real = ledger.settle_job

    def settle_job(trail: Trail, budget: Budget, key: str, seconds: float, seen_s: float = 0.0) -> None:
        if key in CostlyLauncher.usd:
            ledger.settle(trail, key, CostlyLauncher.usd[key], seconds=seconds)
        else:
            real(trail, budget, key, seconds, seen_s)

    CostlyLauncher.usd.clear()
    patched.setattr(ledger, "settle_job", settle_job)


@pytest.fixture(autouse=True)
def dear_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    settle_dearly(monkeypatch)


class CostlyLauncher(QuickLauncher):
    """Its first job costs so much that training does not fit any more. 10 USD, of which 5.5 are held back."""

    usd: ClassVar[dict[str, float]] = {}
    hours = 1.9

    def start(self, folder: Path) -> None:
        super().start(folder)
        if folder.name == "small.base.1":
            self.usd[folder.name] = self.hours * 2.0


class Paid(Checklist):
    """A checklist that wants to be paid."""

    def __init__(self, cap: float) -> None:
        self.cap = cap
        self.requests = 0

    def cost_cap(self, packet: Packet) -> float:
        return self.cap

    def ask(self, packet: Packet, packet_digest: str) -> ModelOutcome[Verdict]:
        self.requests += 1
        exchange = ReviewExchange(b"q", b"a", (200,), "m", None, self.cap, True, 0.1)
        return ModelOutcome(exchange, self.review(packet, packet_digest))


class Thinking(Playbook):
    """A playbook that pays for a turn before each phase."""

    def __init__(self, cap: float) -> None:
        self.cap = cap
        self.phases: list[str] = []

    def work(self, bench: Workbench) -> None:
        bench.release(bench.reserve(self.cap), self.cap)
        self.phases.append(f"{bench.view.stage} {bench.phase}")
        super().work(bench)


def entries(run: Path, *kinds: str) -> list[RecordedEntry]:
    return [entry for entry in read_entries(run / TRAIL) if not kinds or entry.kind in kinds]


def launched(run: Path) -> list[str]:
    return [entry.raw["key"].removeprefix("small.") for entry in entries(run, "launch")]


def audited(run: Path) -> int:
    result = verify_run(run, TRAIL, STORE)
    assert not result.damage, result.damage
    return result.exit_code


def amended_spec(run: Path, *changes: tuple[str, str]) -> Path:
    folder = run.parent.parent / "amended"
    folder.mkdir(exist_ok=True)
    resolved_spec(folder, POWERED, ROOMY, *changes)
    return folder / "spec.yaml"


def resumed(run: Path, answer: Answer | None = None) -> int:
    """Return the exit code of ``peergate resume``."""
    with pytest.raises(SystemExit) as ended:
        commands.resume(Path(run.name), run.parent, answer, "enough")
    return int(str(ended.value.code))


def budget_of(run: Path) -> Budget:
    session = quick_session(run)
    session.trail.close()
    return session.resolved.spec.budget


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session that waits for money before its training starts: only to be copied."""
    run = open_quick(tmp_path_factory.mktemp("waiting"))
    with pytest.MonkeyPatch.context() as patched:
        settle_dearly(patched)
        drive(quick_session(run, launcher=CostlyLauncher()))
    return run


@pytest.fixture
def short(waiting: Path, tmp_path: Path) -> Path:
    """Return a copy of the session that waits for money."""
    # The keys are next to the runs.
    return shutil.copytree(waiting.parents[1], tmp_path / "work") / "runs" / "small"


def test_a_budget_that_ends_mid_way_stops_the_session_before_the_overspend(short: Path) -> None:
    assert launched(short) == ["base.1", "sample.1"] and entries(short, "close", "report") == []
    (entry,) = entries(short, "budget")
    assert (entry.raw["stage"], entry.raw["attempt"], entry.raw["at"]) == ("train", 1, "launch")
    assert entry.raw["reasons"] == [LACKS]
    now = Accounts(entries(short), budget_of(short))
    assert now.sum_reserved() == 0 and now.left_usd == pytest.approx(6.2)
    # What is held back would still pay for the evaluation.
    ledger_trail = Trail(short / TRAIL, "small")
    ledger.reserve_job(
        ledger_trail, budget_of(short), quick_session(short).resolved.spec.stage("tuned"), "small.tuned.1"
    )
    ledger_trail.close()


def test_the_command_ends_with_6_and_names_both_ways_on(short: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert resumed(short) == 6
    output = capsys.readouterr().out
    assert "0.7000 USD of 10 are left for it" in output
    assert f"peergate amend small --runs {short.parent} --max-cost USD" in output and "--answer stop" in output
    status.status([Path("small")], runs=short.parent, as_json=True)
    record = json.loads(capsys.readouterr().out)
    assert record["state"] == "waiting" and record["reasons"] == [LACKS]
    report.report(Path("small"), short.parent, False)
    text = capsys.readouterr().out
    assert "interim" in text and LACKS in text and "Not reached: tuned, ship" in text
    last = list(describe_entries(History(entries(short), Store(short / STORE))))[-2]
    assert last.what == "train.1 stopped at 'launch': it waits for a larger budget" and last.lines == (LACKS,)
    assert audited(short) == 2


def test_it_goes_on_when_the_budget_is_amended_and_the_unused_grant_is_worth_nothing(short: Path) -> None:
    before = Trail(short / TRAIL, "small")
    order = JobOrder.model_validate(quick_order(short, "train", 1))
    before.close()
    recorded = amend(short, amended_spec(short, RAISED), **AMENDED)
    assert recorded.raw["outcome"] == "approve" and recorded.raw["exploratory"] is False
    session = quick_session(short, launcher=CostlyLauncher())
    with pytest.raises(InvalidGrant, match="spec registration"):
        grants.verify(session.trail, order, session.resolved.registration(), order.grant.inputs)
    drive(session)
    assert launched(short) == ["base.1", "sample.1", "train.2", "tuned.1", "ship.1"]
    (answer,) = entries(short, "human")
    assert answer.raw["by"] == "Ada" and answer.raw["opens"] == {"stage": "train", "attempt": 2}
    assert entries(short)[-1].raw["decision"] == "approve"
    assert audited(short) == 0
    session = quick_session(short)
    with pytest.raises(InvalidGrant, match="decision"):
        grants.verify(session.trail, order, order.grant.registration, order.grant.inputs)
    session.trail.close()


def test_the_audit_finds_a_launch_under_a_grant_that_was_overtaken(short: Path) -> None:
    order = JobOrder.model_validate(quick_order(short, "train", 1))
    amend(short, amended_spec(short, RAISED), **AMENDED)
    waiting = entries(short)
    drive(quick_session(short, launcher=CostlyLauncher()))
    after = entries(short)
    (answer,) = entries(short, "human")
    session = quick_session(short)
    session.trail.close()
    used = next(entry for entry in after if entry.key == "launch/small.train.2")
    body = used.raw | {"key": order.key, "attempt": 1, "grant": order.grant.content_digest()}
    body["order"] = session.store.put(order.canonical())

    def launched_after(before: list[RecordedEntry]) -> list[RecordedEntry]:
        late = {"seq": len(before), "key": f"launch/{order.key}", "body": body}
        return [*before, RecordedEntry(used.entry.model_copy(update=late), used.digest)]

    assert [*order_damage(History(after)), *launch_damage(History(after, session.store))] == []
    forged = launched_after(waiting)
    assert [*launch_damage(History(forged, session.store))] == [
        f"entry {len(waiting)} (launch): job small.train.1 was granted before the registration was amended"
    ]
    forged = launched_after(after[: answer.seq + 1])
    assert [*order_damage(History(forged))] == [
        f"entry {answer.seq + 1} (launch): a newer judgement was in force than that which granted job small.train.1"
    ]


def quick_order(run: Path, stage: str, attempt: int) -> dict[str, Any]:
    """Return the order of a granted attempt that was not launched."""
    from sessions.nodes.job_order import order_of

    session = quick_session(run)
    order = order_of(session, {"stage": stage, "attempt": attempt})
    session.trail.close()
    return order.model_dump(mode="json")


def test_without_an_amendment_it_goes_on_waiting(short: Path) -> None:
    size = len(entries(short))
    drive(quick_session(short, launcher=CostlyLauncher()))
    assert len(entries(short)) == size and launched(short) == ["base.1", "sample.1"]


@pytest.mark.slow
def test_an_amendment_that_does_not_reach_makes_it_ask_again(short: Path) -> None:
    amend(short, amended_spec(short, ("max_cost_usd: 10", "max_cost_usd: 10.1")), **AMENDED)
    drive(quick_session(short, launcher=CostlyLauncher()))
    assert [entry.raw["attempt"] for entry in entries(short, "budget")] == [1, 2]
    amend(short, amended_spec(short, RAISED), **AMENDED)
    drive(quick_session(short, launcher=CostlyLauncher()))
    assert "train.3" in launched(short) and audited(short) == 0


def test_an_amendment_that_was_not_approved_gives_no_money(short: Path) -> None:
    folder = short.parent.parent / "amended"
    folder.mkdir()
    # Twelve items show no effect as small as this one, so the design is not approved.
    resolved_spec(folder, ROOMY, RAISED)
    assert amend(short, folder / "spec.yaml", **AMENDED).raw["outcome"] != "approve"
    drive(quick_session(short, launcher=CostlyLauncher()))
    assert launched(short) == ["base.1", "sample.1"] and entries(short, "human") == []


def test_stop_closes_it_as_out_of_budget(short: Path) -> None:
    assert resumed(short, "stop") == 6
    assert entries(short)[-1].raw["decision"] == "budget"
    report = json.loads((short / "report" / "report.json").read_bytes())
    assert report["outcome"] == "budget" and [person["by"] for person in report["people"]]
    assert audited(short) == 0


@pytest.mark.parametrize("answer", ["approve", "retry"])
def test_no_one_can_approve_over_an_empty_purse(short: Path, answer: str) -> None:
    with pytest.raises(UserError, match=r"cannot answer .*: the budget is exhausted"):
        drive(quick_session(short), STOP | {"answer": answer})
    assert entries(short, "human") == []


def test_an_unused_grant_does_not_use_up_a_round(tmp_path: Path) -> None:
    """Training may be tried twice: its second attempt is the first that ran, so its gate may still ask for another."""
    twice = ("      max_rounds: 3\n", "      max_rounds: 2\n")
    run = open_quick(tmp_path, twice)
    drive(quick_session(run, launcher=CostlyLauncher()))
    amend(run, amended_spec(run, RAISED, twice), **AMENDED)
    drive(quick_session(run, launcher=CostlyLauncher()))
    session = quick_session(run)
    session.trail.close()
    entry = next(recorded_entry for recorded_entry in entries(run, "packet") if recorded_entry.key == "packet/train.2")
    packet = Packet.model_validate(session.store.get_value(entry.raw["packet"]))
    assert [attempt["outcome"] for attempt in packet.attempts] == ["not started", None]
    lower = RequiredChange(text="lower it", parameter="learning_rate", value=5e-6)
    for item, outcome in ((packet, "revise"), (packet.model_copy(update={"attempts": ()}), "escalate")):
        span = Span(artifact=item.content_digest(), pointer="/metrics")
        finding = Finding(id="f", severity="blocking", statement="spikes", evidence=(span,), required_change=lower)
        verdict = (
            Checklist()
            .review(item, item.content_digest())
            .model_copy(update={"findings": (finding,), "approve": False})
        )
        assert settle(session.resolved, item, verdict, 2).outcome == outcome


def set_clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the nanoseconds that the trail reads, to be moved; launches note no other clock of the machine."""
    clock = [10**18]
    monkeypatch.setattr("specs.system.steady_clock.ticks_ns", lambda: clock[0])
    monkeypatch.setattr("sessions.jobs.launcher.clock_here", lambda: None)
    return clock


@pytest.mark.slow
def test_hours_that_end_are_amended_like_money(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = set_clock(monkeypatch)

    class Slow(QuickLauncher):
        def start(self, folder: Path) -> None:
            super().start(folder)
            # Three jobs and three witnesses before the treatment.
            clock[0] += 20 * 60 * 10**9

    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Slow()))
    (entry,) = entries(run, "budget")
    assert entry.raw["reasons"] == ["the session has run 2.00 h of 2 h, the attempt may take 0.17 h"]
    # A night goes by; it is not time of the session's.
    clock[0] += 10 * 3600 * 10**9
    amend(run, amended_spec(run, ("max_hours: 2", "max_hours: 6")), **AMENDED)
    clock[0] += 10 * 3600 * 10**9
    session = quick_session(run, launcher=Slow())
    append_json(session.trail, "resume", "resume/1", body_of("resume"))
    drive(session)
    assert entries(run)[-1].raw["decision"] == "approve" and audited(run) == 0


def test_a_builder_that_thinks_past_the_hours_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = set_clock(monkeypatch)

    class Brooding(Thinking):
        def work(self, bench: Workbench) -> None:
            for _ in range(4):
                text = bench.reserve(self.cap)
                if len(self.phases) < 4:
                    clock[0] += 45 * 60 * 10**9
                self.phases.append(bench.phase)
                bench.release(text, self.cap)
            Playbook.work(self, bench)

    run, builder = open_quick(tmp_path), Brooding(0.01)
    drive(quick_session(run, builder))
    (entry,) = entries(run, "budget")
    assert (entry.raw["at"], entry.raw["stage"]) == ("plan", "base") and builder.phases == ["plan"] * 3
    assert entry.raw["reasons"] == ["the session has run 2.25 h of 2 h: the builder's turn does not begin"]
    assert launched(run) == [] and audited(run) == 2
    amend(run, amended_spec(run, ("max_hours: 2", "max_hours: 9")), **AMENDED)
    session = quick_session(run, builder)
    append_json(session.trail, "resume", "resume/1", body_of("resume"))
    drive(session)
    assert entries(run)[-1].raw["decision"] == "approve" and audited(run) == 0


def test_a_review_that_cannot_be_paid_closes_the_gate_until_the_budget_is_amended(tmp_path: Path) -> None:
    """3 USD for reviews, 0.7 each: design and three gates. The fifth waits, with its evidence on the table."""
    run = open_quick(tmp_path)
    reviewer = Paid(0.7)
    drive(quick_session(run, reviewer=reviewer))
    (entry,) = entries(run, "budget")
    assert (entry.raw["at"], entry.raw["stage"]) == ("review", "tuned") and reviewer.requests == 4
    assert [
        recorded_entry
        for recorded_entry in entries(run, "verdict", "decision")
        if recorded_entry.raw["stage"] == "tuned"
    ] == []
    assert audited(run) == 2
    # At this gate nothing may change by which it is judged.
    with pytest.raises(UserError, match="a gate waits for money"):
        amend(run, amended_spec(run, ("  minimum_effect: 0.8\n", "  minimum_effect: 0.7\n")), **AMENDED)
    amend(run, amended_spec(run, RAISED), **AMENDED)
    jobs = launched(run)
    drive(quick_session(run, reviewer=reviewer))
    assert launched(run) == [*jobs, "ship.1"], "the job of the gate that waited was run again"
    assert entries(run)[-1].raw["decision"] == "approve" and entries(run, "human") == []
    assert audited(run) == 0


@pytest.mark.more
def test_the_design_gate_waits_for_money_too(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    reviewer = Paid(3.2)
    drive(quick_session(run, reviewer=reviewer))
    (entry,) = entries(run, "budget")
    assert (entry.raw["at"], entry.raw["stage"]) == ("design_gate", None) and reviewer.requests == 0
    amend(run, amended_spec(run, ("max_cost_usd: 10", "max_cost_usd: 80")), **AMENDED)
    drive(quick_session(run, reviewer=reviewer))
    assert entries(run)[-1].raw["decision"] == "approve" and audited(run) == 0


def test_a_builder_without_money_waits_where_it_stood(tmp_path: Path) -> None:
    """2 USD for the builder, 0.45 a phase: it plans and submits twice, and the third plan waits."""
    run = open_quick(tmp_path)
    builder = Thinking(0.45)
    drive(quick_session(run, builder))
    (entry,) = entries(run, "budget")
    assert entry.raw["reasons"] == [
        "the builder's turn may cost 0.4500 USD, 0.2000 USD of the 2 USD for the builder are left"
    ]
    assert (entry.raw["at"], entry.raw["stage"], entry.raw["attempt"]) == ("plan", "train", 1)
    amend(run, amended_spec(run, ("  max_hours: 2\n", "  max_hours: 2\n  builder_max_usd: 2.5\n")), **AMENDED)
    drive(quick_session(run, builder))
    assert [recorded_entry.raw["at"] for recorded_entry in entries(run, "budget")] == ["plan", "submit"]
    amend(run, amended_spec(run, ("  max_hours: 2\n", "  max_hours: 2\n  builder_max_usd: 9\n")), **AMENDED)
    drive(quick_session(run, builder))
    assert launched(run) == ["base.1", "sample.1", "train.1", "tuned.1", "ship.1"], "an attempt was made twice"
    assert entries(run)[-1].raw["decision"] == "approve" and audited(run) == 0


def test_keeping_outputs_is_reserved_and_settled_where_the_spec_states_a_rate(tmp_path: Path) -> None:
    rate = 10_000.0
    run = open_quick(tmp_path, ("  max_hours: 2\n", f"  max_hours: 2\n  storage_usd_per_gb: {rate:g}\n"))
    drive(quick_session(run))
    lines = {entry.key.removeprefix("small."): entry.raw for entry in entries(run, "spend")}
    for stage in ("base", "sample", "train", "tuned", "ship"):
        reserved, settled = (lines[f"{what}/storage/small.{stage}.1"] for what in ("reserve", "settle"))
        (ended,) = (entry.raw for entry in entries(run, "exit") if entry.raw["stage"] == stage)
        count = sum(output["bytes"] for output in ended["outputs"].values())
        assert count > 0 and (settled["bytes"], settled["usd"]) == (count, pytest.approx(count / 1e9 * rate, abs=1e-6))
        assert (reserved["usd"] > 0) is (stage in ("train", "ship")), "only what leaves a checkpoint is known before"
    assert audited(run) == 0


def test_a_job_that_would_fill_the_disk_beyond_the_limit_does_not_begin(tmp_path: Path) -> None:
    run = open_quick(tmp_path, ("  max_hours: 2\n", "  max_hours: 2\n  max_disk_gb: 0.000000001\n"))
    drive(quick_session(run))
    assert launched(run) == ["base.1"], "the first left more than a byte"
    (entry,) = entries(run, "budget")
    assert entry.raw["reasons"][0].startswith("outputs take ") and "budget.max_disk_gb" in entry.raw["reasons"][0]
    with pytest.raises(SpecError, match=r"may leave 1.08 GB .* max_disk_gb is 1"):
        amend(run, amended_spec(run, ("  max_hours: 2\n", "  max_hours: 2\n  max_disk_gb: 1\n")), **AMENDED)
    amend(run, amended_spec(run, ("  max_hours: 2\n", "  max_hours: 2\n  max_disk_gb: 2\n")), **AMENDED)
    drive(quick_session(run))
    assert entries(run)[-1].raw["decision"] == "approve" and audited(run) == 0


def test_what_a_lost_job_left_counts_against_the_limit(tmp_path: Path) -> None:
    class Losing(QuickLauncher):
        """Loses the first job when it has written half a megabyte."""

        def start(self, folder: Path) -> None:
            super().start(folder)
            if folder.name == "small.base.1":
                (folder / "out" / "half").write_bytes(bytes(500_000))

        def poll(self, folder: Path) -> JobState:
            return JobState("lost") if folder.name == "small.base.1" else super().poll(folder)

    run = open_quick(tmp_path, ("  max_hours: 2\n", "  max_hours: 2\n  max_disk_gb: 0.0004\n"))
    drive(quick_session(run, launcher=Losing()))
    (lost,) = entries(run, "lost")
    assert 500_000 < lost.raw["bytes"] < 600_000
    drive(quick_session(run, launcher=Losing()), {"answer": "retry", "reason": "again", "by": "Ada", "expires": None})
    assert launched(run) == ["base.1"]
    assert entries(run, "budget")[-1].raw["reasons"][0].startswith("outputs take 503 kB of the 0.0004 GB")


def test_the_price_of_keeping_outputs_reserves_snapshots_too(tmp_path: Path) -> None:
    rated = ("  max_hours: 2\n", "  max_hours: 2\n  storage_usd_per_gb: 0.001\n")
    reserved: list[float] = []
    for name, more in (("without", ""), ("with", "snapshot_steps: 4, ")):
        (tmp_path / name).mkdir()
        run = open_quick(tmp_path / name, rated, ("batch_size: 1, seed: 7", f"batch_size: 1, {more}seed: 7"))
        drive(quick_session(run))
        reserved += [
            entry.raw["usd"] for entry in entries(run, "spend") if entry.key == "reserve/storage/small.train.1"
        ]
    # Two moments and a gradient of 134,515,008 weights in float32, once for each of the snapshots.
    snapshots = (reserved[1] - reserved[0]) * 1e12 / (12 * 134_515_008)
    assert reserved[0] < 1e-6 and snapshots >= 1 and snapshots == pytest.approx(round(snapshots), abs=1e-3)
