"""Start, resume and cancel a session: leases, signals and the graph's life cycle."""

from __future__ import annotations

import getpass
import shutil
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal

from reviews.gate.human_answers import why_no_retry
from reviews.gate.reviewer import PendingVerdict
from reviews.history.history import History
from reviews.history.people import last_question
from reviews.trail.tables.pointer import pointer_of
from sessions.jobs.benchmarks import environment
from sessions.nodes import act
from sessions.nodes.budget import answer_of
from sessions.nodes.position import Position, position
from sessions.nodes.witness import end_witnesses
from sessions.pages.overview import spent_nothing
from sessions.pages.report.live_display import Terminal
from sessions.run import pause
from sessions.run.disk_errors import telling_no_room
from sessions.run.heartbeat import present
from sessions.run.lease import is_running as is_running
from sessions.run.lease import lease, stand_by, take_up
from sessions.run.money.estimate import estimate
from sessions.run.run_layout import TRAIL, is_run, require_run, session_name
from sessions.run.signed_specs import needs_signature, require_signature, trust_spec, use_signature
from sessions.runtime.preflight import require_startable
from sessions.runtime.registration import SpecMaterial, material_of, register
from sessions.runtime.wiring import make_reviewer, make_session
from sessions.session import CancelSignal, PauseSignal, Session, State
from specs.jobs.job_records import CodeState
from specs.loading.loading import load_spec
from specs.session.session_spec import ResolvedSpec
from specs.session_words import session_words
from specs.system.errors import LeaseLost, UserError
from specs.system.masking import current
from specs.system.reporting import turn_off_reporting
from specs.system.resources import LauncherName
from specs.system.text import plain
from specs.trail.gate_bodies import HumanAnswerEntry
from specs.trail.session_bodies import BudgetEntry, PauseEntry, Replicates, ReportEntry, SpecSignature

Answer = Literal["retry", "approve", "stop"]


def start(
    spec_path: Path,
    runs: Path,
    name: str | None,
    display: Terminal,
    wire: Callable[[Session], None] | None = None,
    profile: str | None = None,
    launcher: LauncherName | None = None,
    *,
    signed: bool = False,
) -> Path:
    """Register a spec as a new session and run it; returns the run folder.

    ``wire`` changes the session before it runs, to connect an external builder. ``profile`` and ``launcher`` replace
    the values in the spec. ``signed`` needs a person's signature on the spec, as a draft always does.

    Raises:
        Blocked: no person has signed the spec for one more session; nothing was created.
        SpecError: the spec is wrong; nothing was created.
        PluginFault: what the spec uses of other distributions cannot be imported; nothing was created.
        UserError: the name is taken or cannot be a folder name; or the spec requires clean code, and this is not.
    """
    needs = needs_signature(spec_path, signed=signed)
    unconfined = "trusted" if needs else "named"
    resolved = load_spec(spec_path, profile, launcher=launcher, unconfined=unconfined)
    own = session_name(name, resolved.spec.name)
    signature = require_signature(spec_path, runs, resolved.registration()) if needs else None
    state = require_startable(resolved, spec_path, profile, runs)
    environment.prepare(resolved.spec, display.say)
    run = _new_folder(runs, own, display, chosen=name is not None)
    for line in estimate(resolved).lines():
        display.say(line)
    material = material_of(spec_path, resolved)
    if signature is not None:
        use_signature(spec_path, runs, resolved.registration())
    trust_spec(resolved, sandbox=needs or resolved.spec.verifier.sandbox)
    begin(run, resolved, material, state, display, wire, signed=signature)
    return run


def begin(
    run: Path,
    resolved: ResolvedSpec,
    material: SpecMaterial,
    state: CodeState,
    display: Terminal,
    wire: Callable[[Session], None] | None = None,
    replicates: Replicates | None = None,
    signed: SpecSignature | None = None,
) -> None:
    """Register a session in a new folder and run it; raises UserError if files are not what the spec registers."""
    register(run, resolved, material, state, replicates, signed)
    with lease(run) as current:
        try:
            session = make_session(run, display, resolved)
            session.trail.fence = 1
            current.on_loss = session.stop.set
            if wire is not None:
                wire(session)
        except BaseException:
            # Nothing was started, so nothing stays, except in a database: it deletes no entries.
            if pointer_of(run / TRAIL) is None:
                shutil.rmtree(run, ignore_errors=True)
            else:
                resume = f"`peergate resume {session_words(run)}` continues it"
                display.say(f"{run.name}: its registration stays in the database, which deletes no entries; {resume}")
            raise
        drive(session, None)


def _new_folder(runs: Path, name: str, display: Terminal, *, chosen: bool) -> Path:
    """Return the folder of a new session, or raise UserError if the name is taken.

    A session that ended or waits without having spent anything does not use up its spec's name: the new one is called
    NAME-2, and so on. Nothing is renamed, because entries are signed with the name. A ``chosen`` name is kept to.
    """
    run = (runs / name).resolve()
    if not run.exists():
        return run
    free = next(runs / f"{name}-{number}" for number in count(2) if not (runs / f"{name}-{number}").exists()).resolve()
    if not chosen and is_run(run) and spent_nothing(run):
        display.say(f"{name} spent nothing and is kept; this session is {free.name}")
        return free
    hint = f"`peergate resume {session_words(run)}` continues it; or choose another name: --name {free.name}"
    raise UserError(f"{run} already exists", hint=hint)


def resume(
    run: Path,
    display: Terminal,
    answer: Answer | None = None,
    reason: str = "",
    by: str | None = None,
    expires: float | None = None,
    wire: Callable[[Session], None] | None = None,
) -> Path:
    """Continue a paused, killed or waiting session; ``answer`` settles what a person (``by``) was asked.

    ``expires``, in seconds since 1970, ends an approval that was not used until then.

    Raises:
        LeaseHeld: another process is running it.
        LeaseLost: another process has taken it over in the meantime.
        UserError: there is no such session, or an answer was given though nothing was asked.
    """
    with lease(require_run(run)) as current:
        session = make_session(run, display)
        if wire is not None:
            wire(session)
        if session.history.is_closed:
            session.trail.close()
            if answer is not None:
                raise UserError("the session is closed and not waiting for an answer", where=str(run))
            return run
        # Now, not at the first gate: a missing key is reported before a job is paid for.
        make_reviewer(session.resolved.spec)
        take_up(session.trail, current)
        # The session stops at the next safe place when another process has taken it over.
        current.on_loss = session.stop.set
        if over := current.over:
            display.say(f"taken over from process {over.pid} on {over.host}, which shows no sign of life")
        arguments = {"answer": answer, "reason": reason, "by": by or getpass.getuser(), "expires": expires}
        drive(session, arguments if answer else None)
    return run


def cancel(run: Path, display: Terminal) -> Path:
    """End a session for good: its job is ended, the trail is closed as cancelled. Safe to repeat."""
    with pause.when_free(require_run(run), pause.CANCEL, lease, display.say) as current:
        session = make_session(run, display)
        try:
            stand_by(session.trail, current)
            _end_cancelled(session)
            session.notify()
        finally:
            session.trail.close()
    return run


def drive(session: Session, answer: dict[str, Any] | None) -> None:
    """Run the graph until it ends, asks a person, is paused or cancelled.

    Raises:
        LeaseLost: another process has taken the session over, and is not disturbed.
        DatabaseUnreachable: the database with the trail did not come back in time.
    """
    if session.trail.fence is None:
        session.trail.fence = session.trail.epoch()
    answer = current().value(answer)
    # A killed process may have left a request to pause.
    pause.take_back(session.run)
    taken_over = False
    try:
        with telling_no_room(session.run), _signals(session), present(session.run):
            _run_graph(session, answer)
            session.notify()
    except PauseSignal:
        _record_pause(session, pause.PAUSE)
        raise
    except PendingVerdict as waiting:
        session.display.say(str(waiting))
        session.notify()
    except CancelSignal:
        _end_cancelled(session)
        session.notify()
    except LeaseLost:
        taken_over = True
        raise
    finally:
        session.trail.close()
        if not taken_over:
            pause.take_back(session.run)


def _run_graph(session: Session, arguments: dict[str, Any] | None) -> None:
    """Enter the graph where the trail says the session is, and run it until it ends or asks a person."""
    history = session.history
    if history.is_closed:
        return
    at = position(history)
    waits = at is not None and at.state.get("route") == "human"
    answer = _answer_to(session, history, arguments) if waits else None
    if waits and answer is None:
        return
    if arguments is not None and not waits:
        _require_same(session, at, arguments)
    # Imported here: langgraph takes longer to import than all the rest, and much is refused before it is needed.
    from langgraph.types import Command

    from sessions.graph import build_graph

    # Whatever was set since this process began: LangGraph would send every state.
    turn_off_reporting()
    graph = build_graph(session)
    config: Any = {"configurable": {"thread_id": session.name}, "recursion_limit": 10_000}
    begins: State | None = {"session": session.name}
    if at is not None:
        graph.update_state(config, begins | at.state, as_node=at.after)
        begins = None
    graph.invoke(begins, config, durability="exit")
    if answer is not None:
        # The graph has reached only the question, which has no effect.
        graph.invoke(Command(resume=answer), config, durability="exit")


def _answer_to(session: Session, history: History, arguments: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the given answer, or for a budget that of an amendment; or raise UserError if it does not fit."""
    request = last_question(history)
    if isinstance(request.body, BudgetEntry):
        return answer_of(history, request, arguments)
    if arguments is not None and arguments["answer"] == "retry" and (why := why_no_retry(history, request)):
        hint = "change it with `peergate amend`; or --answer approve, which is an override, or --answer stop"
        raise UserError(f"cannot answer 'retry': {why}", where=session.name, hint=hint)
    return arguments


def _require_same(session: Session, at: Position | None, arguments: dict[str, Any]) -> None:
    """Accept an answer that was recorded but not followed yet, as after a kill; raise UserError for any other."""
    recorded = at.entry.body if at else None
    if not isinstance(recorded, HumanAnswerEntry):
        raise UserError("the session is not waiting for an answer", where=session.name, hint="resume without --answer")
    if arguments["answer"] != recorded.answer:
        message = f"the answer is '{recorded.answer}' already, given by {plain(recorded.by, 60)}"
        raise UserError(message, where=session.name, hint="resume without --answer follows it")


def _end_cancelled(session: Session) -> None:
    """End the running job, record its end and close the session as cancelled."""
    history = session.history
    if history.is_closed:
        return
    act.end_jobs(session, history, "the session was cancelled")
    end_witnesses(session, history, "the session was cancelled")
    if history.find(ReportEntry) is None:
        _record_pause(session, pause.CANCEL)
    act.close_with(session, "cancelled")


def _record_pause(session: Session, what: str) -> None:
    """Record who paused the session, or ended it."""
    number = sum(1 for _ in session.trail.iterate(PauseEntry)) + 1
    session.trail.append(PauseEntry(by=pause.find_requester(session.run, what)), PauseEntry.key_of(number))


@contextmanager
def _signals(session: Session) -> Generator[None]:
    """Turn the first Ctrl-C or SIGTERM into a pause at the next safe place; a second one interrupts at once."""
    pause_requested = False

    def ask(number: int, _frame: object) -> None:
        # A client that disconnects stops the session too, and may send a signal after it: that is still the first one.
        nonlocal pause_requested
        if pause_requested:
            raise KeyboardInterrupt
        pause_requested = True
        session.stop.set()
        session.display.say("pausing ... (the running job continues; Ctrl-C again to leave at once)")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
