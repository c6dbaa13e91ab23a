"""One run of the matrix: a session, killed at drawn moments, resumed until it ends, and what must be so at the end."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from sessions.pages.overview import is_waiting
from specs.jobs.job_records import WITNESS
from specs.stages.base.metric import MetricSet
from specs.system.errors import ExitCode
from tests.kill.faults import COUNT, KILL_AT
from tests.kill.house import House
from tests.kill.processes import is_alive
from tests.kill.site import NAME, Command, Site

TARGETS = ("orchestrator", "job", "wrapper", "reviewer", "all")
_WEIGHTS = (4, 2, 2, 2, 1)
MOST_KILLS = 4
MOST_COMMANDS = 40
"""A session that needs more than this many commands does not end."""
WITHIN_S = 300.0
"""A command that takes longer does not end. It takes one to three seconds, and a minute where it trains a model."""
LOOK_S = 0.004
_NAMES = {"orchestrator": "peergate"}


class Kill(NamedTuple):
    """A kill that was drawn."""

    target: str
    jobs: int
    """How many attempts must have been ordered before it is due."""
    after: float
    """How long after that, in parts of the time a stage takes."""
    delay_s: float
    """How long the target may live once it is seen."""
    saved: int = 0
    """The step that a training must have saved before it is due."""


def drawn(seed: int, jobs: int) -> list[Kill]:
    """Return the kills of a seed, in a session of so many jobs."""
    draw = random.Random(seed)
    kills = [
        Kill(draw.choices(TARGETS, _WEIGHTS)[0], draw.randint(0, jobs), draw.random(), draw.random() ** 2 * 0.12)
        for _ in range(draw.randint(1, MOST_KILLS))
    ]
    return sorted(kills, key=lambda kill: (kill.jobs, kill.after))


@dataclass
class InterruptedRun:
    """What is known of a run that ended."""

    ground: Path
    landed: list[str] = field(default_factory=list[str])
    """What was killed while it lived."""
    commands: int = 0
    answers: int = 0
    seconds: float = 0.0

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.ground / "runs" / NAME


class Result(NamedTuple):
    """What an undisturbed and a disturbed run must have in common."""

    decision: str
    stages: dict[str, Any]
    """By stage: the metrics of the accepted attempt and the digests of its outputs."""


def run(
    site: Site, house: House, name: str, kills: list[Kill], whole_s: float, *, command_of: int = 1, **environ: str
) -> InterruptedRun:
    """Run a session to its end, with kills on the way.

    Args:
        site: where.
        house: what it lives in.
        name: of the place.
        kills: in the order of their moments.
        whole_s: how long an undisturbed run takes.
        command_of: which command gets the variables, counted from 1.
        environ: variables; a kill at a counted step is for that command only, the others are for those after it too.

    Raises:
        AssertionError: it does not end, or ends a way it should not.
    """
    ran = InterruptedRun(site.ground(name, house))
    begun = time.monotonic()
    expected = Due(ran, list(kills), whole_s / (house.jobs + 1))
    while True:
        ran.commands += 1
        assert ran.commands <= MOST_COMMANDS, f"{ran.run} does not end: {_last_output(ran)}"
        arguments = {} if ran.commands < command_of else environ if ran.commands == command_of else _kept(environ)
        command = _go_on(site, house, ran, arguments)
        code = _watch(site, house, ran, command, expected)
        if code == -signal.SIGKILL:
            continue
        entries = house.entries(ran.run)
        if any(entry.kind == "close" for entry in entries):
            assert code == ExitCode.DONE, f"it closed with exit code {code}: {_last_output(ran)}"
            break
        assert code == ExitCode.BLOCKED, f"exit code {code}: {_last_output(ran)}"
        assert is_waiting(History(entries)), f"it neither ends nor asks, and exit code is {code}: {_last_output(ran)}"
    ran.seconds = time.monotonic() - begun
    return ran


def _kept(environ: dict[str, str]) -> dict[str, str]:
    """A part that is taken out stays out; a kill at a counted step comes once."""
    return {name: value for name, value in environ.items() if name not in (KILL_AT, COUNT)}


def _go_on(site: Site, house: House, ran: InterruptedRun, environ: dict[str, str]) -> Command:
    """Start the session, or resume it with the answer it waits for."""
    where = ("--runs", "runs")
    if not ran.run.exists():
        return site.peergate(ran.ground, house, "start", "spec.yaml", "--name", NAME, *where, **environ)
    entries = house.entries(ran.run)
    answer: tuple[str, ...] = ()
    if is_waiting(History(entries)):
        answer = ("--answer", "retry", "--reason", "a process was killed")
        ran.answers += 1
    return site.peergate(ran.ground, house, "resume", NAME, *where, *answer, **environ)


@dataclass
class Due:
    """The kills that are left, and since when the next one may come."""

    ran: InterruptedRun
    remaining: list[Kill]
    stage_s: float
    _since: float | None = None

    def now(self) -> Kill | None:
        """Return the next kill, if its moment has come."""
        if not self.remaining:
            return None
        if self._since is None:
            folder = self.ran.run / "jobs"
            if self.remaining[0].jobs and (not folder.exists() or len(list(folder.iterdir())) < self.remaining[0].jobs):
                return None
            if self.remaining[0].saved and not list(
                self.ran.run.glob(f"jobs/*/trainer/checkpoint-{self.remaining[0].saved}")
            ):
                return None
            self._since = time.monotonic()
        return self.remaining[0] if time.monotonic() - self._since >= self.remaining[0].after * self.stage_s else None

    def done(self) -> None:
        """Go on to the one after it."""
        self.remaining.pop(0)
        self._since = None


def _watch(site: Site, house: House, ran: InterruptedRun, command: Command, expected: Due) -> int:
    """Wait for a command to end; kill what is due."""
    until = time.monotonic() + WITHIN_S
    while not command.wait(LOOK_S if expected.remaining else 1.0):
        assert time.monotonic() < until, f"a command does not end: {_last_output(ran)}"
        kill = expected.now()
        if kill is not None and _strike(site, house, ran, kill):
            expected.done()
    return command.code()


def _strike(site: Site, house: House, ran: InterruptedRun, kill: Kill) -> bool:
    """Kill the target, if it is there; say whether it was."""
    there = site.living(ran.ground, house)
    if kill.target == "all":
        victims = [(role, pid) for role, pids in there.items() for pid in pids]
    else:
        role = _NAMES.get(kill.target, kill.target)
        if not there[role]:
            return False
        time.sleep(kill.delay_s * (house.wrapper_takes if role == "wrapper" else 1.0))
        victims = [(role, pid) for pid in there[role]]
    random.Random(kill.delay_s).shuffle(victims)
    hit = False
    for role, pid in victims:
        if is_alive(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                ran.landed.append(role)
                hit = True
    return hit


def _last_output(ran: InterruptedRun) -> str:
    """Return what the newest command said."""
    newest = max(ran.ground.glob("output.*"), default=None)
    return newest.read_text(encoding="utf-8", errors="replace")[-3000:] if newest else "nothing was said"


# ---- what must be so ----------------------------------------------------------------------------------------


def result_of(house: House, run: Path) -> Result:
    """Return what an undisturbed run has as well."""
    entries, store = house.entries(run), house.store(run)
    stages: dict[str, Any] = {}
    for stage in dict.fromkeys(entry.raw["stage"] for entry in entries if entry.kind == "launch"):
        accepted = History(entries).accepted_attempt(stage)
        assert accepted is not None
        measured, ended = _one(entries, f"metrics/{accepted.name}"), _one(entries, f"exit/{accepted.job}")
        metric_set = MetricSet.model_validate(store.get_value(measured.raw["metrics"]))
        stages[stage] = {
            "metrics": {id: metric.model_dump(mode="json") for id, metric in metric_set.metrics.items()},
            "rows": metric_set.rows,
            "outputs": {name: output["digest"] for name, output in ended.raw["outputs"].items()},
        }
    closed = _one(entries, "close")
    return Result(closed.raw["decision"], stages)


def problems(house: House, ran: InterruptedRun, undisturbed: Result) -> list[str]:
    """Return everything about a run that is not as it must be."""
    results: list[str] = []
    entries, store = house.entries(ran.run), house.store(ran.run)
    audit = house.audit(ran.run)
    if (audit.exit_code, audit.damage) != (0, []):
        results.append(f"the trail does not verify: {audit.exit_code}, {audit.damage}, {audit.notes}")
    by_kind: dict[str, list[RecordedEntry]] = {}
    for entry in entries:
        by_kind.setdefault(entry.kind, []).append(entry)
    keys = [recorded_entry.key for recorded_entry in entries]
    results += [f"{key} is recorded twice" for key in sorted({key for key in keys if keys.count(key) > 1})]
    results += _effects(house, ran, by_kind)
    results += _ends(by_kind, store)
    results += _reviews(by_kind)
    try:
        result = result_of(house, ran.run)
    except (AssertionError, KeyError, TypeError) as error:
        return [*results, f"there is no result: {error!r}"]
    if result != undisturbed:
        results.append(f"the result differs: {result} instead of {undisturbed}")
    return results


def _effects(house: House, ran: InterruptedRun, by_kind: dict[str, list[RecordedEntry]]) -> list[str]:
    """Every job that was launched had its effect once, or never began because it was killed before."""
    path = ran.ground / "effects"
    effects = path.read_text(encoding="utf-8").split() if path.exists() else []
    launched = [entry.raw["key"] for kind in ("launch", "challenge") for entry in by_kind.get(kind, [])]
    granted = [entry.key.removeprefix("grant/") for entry in by_kind.get("grant", [])]
    results = [f"{key} ran {effects.count(key)} times" for key in sorted(set(effects)) if effects.count(key) > 1]
    results += [f"{key} ran and was not launched" for key in set(effects) - set(launched)]
    jobs = {key.removesuffix(WITNESS) for key in launched}
    results += [f"{key} was launched without a grant" for key in jobs - set(granted)]
    ends = [entry.raw for entry in by_kind.get("exit", []) if entry.raw["stage"] not in house.silent]
    ended_well = {body["key"] for body in ends if body["manifest"]}
    results += [f"{key} ended well and had no effect" for key in ended_well - set(effects)]
    return results


def _ends(by_kind: dict[str, list[RecordedEntry]], store: Any) -> list[str]:
    """Every job and witness has one end; one that was cut off is followed by a decision and the answer of a person."""
    results: list[str] = []
    ends: dict[str, list[RecordedEntry]] = {}
    for entry in (*by_kind.get("exit", []), *by_kind.get("lost", []), *by_kind.get("witness", [])):
        ends.setdefault(entry.raw["key"], []).append(entry)
    decided = {
        (recorded_entry.raw["stage"], recorded_entry.raw["attempt"]): recorded_entry
        for recorded_entry in by_kind.get("decision", [])
    }
    answered = {recorded_entry.raw["question"]: recorded_entry for recorded_entry in by_kind.get("human", [])}
    for launch in (*by_kind.get("launch", []), *by_kind.get("challenge", [])):
        body = launch.raw
        of_job = ends.get(body["key"], [])
        if len(of_job) != 1:
            results.append(f"{body['key']} has {len(of_job)} ends")
            continue
        record = store.get_value(of_job[0].raw["exit"]) if of_job[0].raw.get("exit") else None
        decision = decided.get((body["stage"], body["attempt"]))
        if decision is None:
            results.append(f"no one decided on {body['key']}")
        elif (record is None or record["code"] != 0) and (
            decision.raw["outcome"] != "escalate" or decision.digest not in answered
        ):
            results.append(f"{body['key']} was cut off, and the decision is {decision.raw['outcome']}")
    return results


def _reviews(by_kind: dict[str, list[RecordedEntry]]) -> list[str]:
    """Every packet has one verdict, and every reservation was settled once."""
    views = [entry.key.removeprefix("packet/") for entry in by_kind.get("packet", [])]
    judged = [entry.key.removeprefix("verdict/") for entry in by_kind.get("verdict", [])]
    results = [] if sorted(views) == sorted(judged) else [f"packets {views}, verdicts {judged}"]
    spent = [entry.key for entry in by_kind.get("spend", [])]
    reserved = {key.removeprefix("reserve/") for key in spent if key.startswith("reserve/")}
    settled = {key.removeprefix("settle/") for key in spent if key.startswith("settle/")}
    if reserved != settled:
        results.append(f"reserved and settled differ in {sorted(reserved ^ settled)}")
    return results


def _one(entries: list[RecordedEntry], key: str) -> RecordedEntry:
    recorded_entries = [entry for entry in entries if entry.key == key]
    assert len(recorded_entries) == 1, f"{len(recorded_entries)} entries have the key {key}"
    return recorded_entries[0]


def describe(seed: int, kills: list[Kill], ran: InterruptedRun | None) -> str:
    """Return how a run can be made again."""
    plan = ", ".join(f"{kill.target} at {kill.jobs + kill.after:.2f}" for kill in kills)
    landed = f"; landed: {ran.landed}, {ran.commands} commands, {ran.answers} answers" if ran else ""
    return f"seed {seed}: {plan}{landed}; again: pytest tests/kill --kill-seed {seed}"
