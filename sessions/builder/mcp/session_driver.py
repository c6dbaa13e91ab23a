"""Run a session for a client: drive it while it can continue, tell the client the session's state while it cannot."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import NamedTuple

from agents.external_builder import NAME, Exchange, ExternalBuilder
from agents.workbench_protocol import Workbench
from reviews.trail.tables.open_table import read_entries
from sessions import runtime
from sessions.builder.mcp.tool_server import make_server
from sessions.builder.mcp.transports import Transport
from sessions.jobs.job_state import newest_progress
from sessions.jobs.launcher import job_folder
from sessions.money.ledger import Balance
from sessions.report.live_display import Terminal
from sessions.report.overview import Overview, overview
from sessions.report.report import REPORT_JSON
from sessions.run.run_layout import TRAIL, is_run
from sessions.session import Paused, Session
from specs.errors import UserError
from specs.job_records import Progress
from specs.session.loading import find_spec, load_spec
from specs.stages.metric import MetricSet
from specs.text import plain
from specs.trail.verdict import CheckResult, Decision

LOOK_S = 1.0
LAST_WORDS_S = 0.5
"""How long answers that are on their way get before the process ends."""
TOLD_WITHIN_S = 600.0
"""Over HTTP nobody sees a client go: this long a closed session waits for somebody to hear how it ended."""


class Target(NamedTuple):
    """What is served: a run folder, and the spec to open it with if it is not there yet."""

    run: Path
    spec: Path | None = None
    profile: str | None = None


def find_target(named: str, runs: Path, name: str | None, profile: str | None = None) -> Target:
    """Return what a person means by a run or a spec.

    A spec whose session was opened before goes on with it, so that a client's configuration can name the spec.

    Raises:
        UserError: there is neither, the session was opened with another spec, or its builder is not external.
    """
    for run in (runs / named, Path(named)):
        if is_run(run):
            return Target(_checked(run.resolve()))
    spec = find_spec(named)
    resolved = load_spec(spec, profile)
    if resolved.spec.builder.vendor != NAME:
        raise _not_external(resolved.spec.builder.vendor, str(spec))
    run = (runs / (name or resolved.spec.name)).resolve()
    if not is_run(run):
        return Target(run, spec, profile)
    opened = read_entries(run / TRAIL)[0].body.get("registration")
    if opened != resolved.registration():
        raise UserError(
            f"the session was opened with {opened}, the spec is {resolved.registration()} now",
            where=str(run),
            hint="name the run folder to go on with it, or choose another --name",
        )
    return Target(_checked(run))


class Serving:
    """One session and one transport, for as long as there is something to do for the client."""

    def __init__(self, transport: Transport) -> None:
        self.exchange = Exchange()
        self._display = Onlooker(self.exchange)
        self._transport = transport
        self._gone = threading.Event()
        self._session: Session | None = None
        self._serves = False

    def serve(self, target: Target) -> Path:
        """Run the session until it is closed and the client knows, or the client goes; returns the run folder.

        Raises:
            Paused: the client has gone, or Ctrl-C.
            PeergateError: as the session raises it; the client is told that it stopped.
        """
        run = target.run
        try:
            if target.spec is not None:
                runtime.start(target.spec, run.parent, run.name, self._display, self._wire, target.profile)
            else:
                runtime.resume(run, self._display, wire=self._wire)
            while True:
                state = overview(run)
                self.exchange.closed = state.state == "closed"
                self.exchange.ended = _how_it_stands(run, state)
                if state.state == "closed":
                    self._tell_the_end()
                    return run
                self._wait_for_a_person(run)
                self.exchange.ended = ""
                runtime.resume(run, self._display, wire=self._wire)
        except BaseException:
            self.exchange.ended = "the session has stopped; `peergate mcp` goes on with it"
            raise
        finally:
            time.sleep(LAST_WORDS_S)
            self._transport.stop()

    def _wire(self, session: Session) -> None:
        """Connect the client's builder: the lease is held, so from now on there is something to answer."""
        session.builder = ExternalBuilder(self.exchange, lambda bench: self._goes_on(session, bench))
        self._session = session
        if not self._serves:
            self._serves = True
            self._transport.start(make_server(self.exchange, session.name), self._client_gone)
        if self._gone.is_set():
            session.stop.set()

    def _client_gone(self) -> None:
        """Pause: nobody is there who could go on. Called in the transport's thread."""
        self._gone.set()
        if self._session is not None:
            self._session.stop.set()

    def _goes_on(self, session: Session, bench: Workbench) -> bool:
        """Say whether a phase still needs its builder, and show how far the job is.

        Raises:
            Paused: somebody asked for it, or the client has gone.
            Cancelled: ``peergate cancel``.
        """
        session.checkpoint()
        if bench.phase != "watch":
            return True
        folder = job_folder(session.run, f"{session.name}.{bench.view.stage}.{bench.view.attempt}")
        progress = newest_progress(folder)
        if progress is not None:
            self._display.progress(bench.view.stage, progress)
        return session.launcher.poll(folder).state not in ("exited", "lost")

    def _wait_for_a_person(self, run: Path) -> None:
        """Wait until somebody has done something about the session in another process.

        Raises:
            Paused: the client has gone meanwhile.
        """
        before = len(read_entries(run / TRAIL))
        while len(read_entries(run / TRAIL)) == before or runtime.is_running(run):
            if self._gone.wait(LOOK_S):
                raise Paused(run.name)

    def _tell_the_end(self) -> None:
        """Stay until the client has left, or, where that is not seen, has heard how the session ended."""
        if self._transport.has_one_client:
            self._gone.wait()
        else:
            self.exchange.heard.wait(TOLD_WITHIN_S)


def _checked(run: Path) -> Path:
    opened = read_entries(run / TRAIL)[0].body.get("builder")
    if opened != NAME:
        raise _not_external(str(opened), str(run))
    return run


def _not_external(vendor: str, where: str) -> UserError:
    return UserError(
        f"the builder is '{vendor}', which needs no client",
        where=where,
        hint="a session for an MCP client is registered with `builder: {vendor: external}`",
    )


def _how_it_stands(run: Path, state: Overview) -> str:
    """Tell a client why no phase is open. Reasons stay with the person: they may quote what a builder must not read."""
    if state.state == "closed":
        result = json.loads((run / REPORT_JSON).read_bytes())["result"]
        return f"the session is closed, {state.decision}: {result}. There is nothing left to do."
    return (
        "the session waits for a person, who sees why with `peergate status` and answers with `peergate resume` or "
        "`peergate review give`. Stop here, or call brief from time to time: it goes on after the answer."
    )


class Onlooker(Terminal):
    """The terminal of a session with a client.

    Lines that were said, details of checks and reasons of gates are for the person at the terminal: they may quote
    held-out items. The builder's brief holds what it may know of them, redacted.
    """

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def stage(self, name: str, attempt: int, position: int, count: int) -> None:
        """An attempt begins."""
        self._exchange.doing = f"stage {name} ({position} of {count}), attempt {attempt}, is being prepared"
        super().stage(name, attempt, position, count)

    def progress(self, stage: str, progress: Progress) -> None:
        """A job reports how far it is."""
        unit = plain(progress.unit, 20)
        self._exchange.doing = f"the job of {stage} runs: {progress.done} of {progress.total} {unit}"
        super().progress(stage, progress)

    def job_ended(self, stage: str, text: str) -> None:
        """A job is over."""
        self._exchange.doing = f"the job of {stage} has ended; its rows are being measured"
        super().job_ended(stage, text)

    def metrics(self, metrics: MetricSet) -> None:
        """Metrics were measured."""
        self._exchange.doing = f"the rows of {metrics.stage}.{metrics.attempt} are measured; the gate decides next"
        super().metrics(metrics)

    def checks(self, results: tuple[CheckResult, ...]) -> None:
        """Checks were run."""
        self._exchange.doing = "the checks have run; the gate is being reviewed"
        super().checks(results)

    def decision(self, decision: Decision, balance: Balance) -> None:
        """A gate has decided."""
        self._exchange.doing = f"the gate of {decision.stage} decided: {decision.outcome}"
        super().decision(decision, balance)
