"""Runs a session for a client while it can continue, and reports its state to the client while it cannot."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from agents.external_builder import NAME, BuilderExchange, ExternalBuilder
from agents.workbench_protocol import Workbench
from sessions.builder.redaction import Redactor
from sessions.jobs.job_state import newest_progress
from sessions.jobs.launcher import job_folder
from sessions.mcp.tool_server import make_server
from sessions.mcp.transports import Transport
from sessions.pages.overview import Overview, overview
from sessions.pages.report.live_display import Terminal
from sessions.run.lease import is_running
from sessions.run.run_history import read_history
from sessions.run.run_layout import REPORT_JSON, is_run, run_folder, session_name
from sessions.run.signed_specs import needs_signature
from sessions.session import PauseSignal, Session
from specs.loading.loading import find_spec, load_spec
from specs.system.errors import PeergateError, UserError
from specs.system.regular_files import read_regular

LOOK_S = 1.0
MOST_REFUSAL = 500
"""Characters that a client hears of why a job was not launched."""
LAST_WORDS_S = 0.5
"""Time for the last answers before the process ends."""
ANSWER_WITHIN_S = 600.0
"""Over HTTP, where no end of a client is seen, a closed session waits this long for a client to hear its end."""


class SessionTarget(NamedTuple):
    """A run folder, and the spec to open it with if it is missing."""

    run: Path
    spec: Path | None = None
    profile: str | None = None


def find_target(named: str, runs: Path, name: str | None, profile: str | None = None) -> SessionTarget:
    """Return the run or spec a person means, an open session of a spec too; UserError if no client may drive it."""
    if is_run(run := run_folder(Path(named), runs)):
        _require_external(read_history(run).opening.builder, run.resolve())
        return SessionTarget(run.resolve())
    spec = find_spec(named)
    resolved = load_spec(spec, profile, unconfined="trusted" if needs_signature(spec) else "named")
    _require_external(resolved.spec.builder.vendor, spec)
    run = (runs / session_name(name, resolved.spec.name)).resolve()
    if not is_run(run):
        return SessionTarget(run, spec, profile)
    opened = read_history(run).opening
    if opened.registration != resolved.registration():
        message = f"the session was opened with {opened.registration}, the spec is {resolved.registration()} now"
        hint = "name the run folder to continue it, or choose another --name"
        raise UserError(message, where=str(run), hint=hint)
    _require_external(opened.builder, run)
    return SessionTarget(run)


class Serving:
    """One session and one transport, while there is something to do for the client."""

    def __init__(self, transport: Transport) -> None:
        self.exchange = BuilderExchange()
        # Other lines are for the person at the terminal: they may quote held-out items.
        self._display = Terminal(now=lambda what: setattr(self.exchange, "doing", what))
        self._transport = transport
        self._gone = threading.Event()
        self._session: Session | None = None
        self._wall: Redactor | None = None

    def serve(self, target: SessionTarget) -> Path:
        """Run the session until it is closed and the client knows, or the client leaves; returns the run folder.

        Raises:
            Paused: the client has left, or Ctrl-C.
            PeergateError: from the session; the client hears that it stopped.
        """
        run = target.run
        # First: a client waits seconds for an answer, and what opens a session takes longer to import.
        self._transport.start(make_server(self.exchange, run.name), self._client_gone)
        try:
            from sessions.runtime import runtime

            if target.spec is not None:
                runtime.start(target.spec, run.parent, run.name, self._display, self._wire, target.profile)
            else:
                runtime.resume(run, self._display, wire=self._wire)
            while True:
                state = overview(run)
                self.exchange.closed = state.state == "closed"
                self.exchange.ended = _why_no_phase(run, state)
                if state.state == "closed":
                    # Over HTTP no one sees a client leave: it has left, or has heard how the session ended.
                    if self._transport.serves_single_client:
                        self._gone.wait()
                    else:
                        self.exchange.heard.wait(ANSWER_WITHIN_S)
                    return run
                self._wait_for_a_person(run)
                self.exchange.ended = ""
                runtime.resume(run, self._display, wire=self._wire)
        except BaseException as error:
            if isinstance(error, PeergateError) and self._wall is not None:
                hint = f" ({error.hint})" if error.hint else ""
                self.exchange.refusal = self._wall.clean(f"{error.message}{hint}", MOST_REFUSAL)
            self.exchange.ended = "the session has stopped; `peergate mcp` continues it"
            raise
        finally:
            time.sleep(LAST_WORDS_S)
            self._transport.stop()

    def _wire(self, session: Session) -> None:
        """Connect the client's builder, once the lease is held."""
        session.builder = ExternalBuilder(self.exchange, lambda bench: self._goes_on(session, bench))
        self._session = session
        # Made now: after the end of the session its trail is closed.
        self._wall = Redactor(session, os.environ)
        self.exchange.refusal = ""
        session.on_launch = lambda key: self.exchange.launched.add(key.removeprefix(f"{session.name}."))
        if self._gone.is_set():
            session.stop.set()

    def _client_gone(self) -> None:
        """Pause, because no one builds any more. Called in the transport's thread."""
        self._gone.set()
        if self._session is not None:
            self._session.stop.set()

    def _goes_on(self, session: Session, bench: Workbench) -> bool:
        """Return whether a phase still needs its builder, and show the progress of the job.

        Raises:
            Paused: someone asked for it, or the client has left.
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
        """Wait until someone changes the session in another process; raises Paused if the client leaves."""
        before = len(read_history(run))
        while len(read_history(run)) == before or is_running(run):
            if self._gone.wait(LOOK_S):
                raise PauseSignal(run.name)


def _require_external(vendor: object, where: Path) -> None:
    if vendor != NAME:
        hint = "a session for an MCP client is registered with `builder: {vendor: external}`"
        raise UserError(f"the builder is '{vendor}', which needs no client", where=str(where), hint=hint)


def _why_no_phase(run: Path, state: Overview) -> str:
    """Return why no phase is open, without reasons: they may quote what a builder must not read."""
    if state.state == "closed":
        result = json.loads(read_regular(run / REPORT_JSON))["result"]
        return f"the session is closed, {state.decision}: {result}. There is nothing left to do."
    return (
        "the session waits for a person, who sees why with `peergate status` and answers with `peergate resume` or "
        "`peergate review give`. Stop here, or call brief from time to time: the session continues after the answer."
    )
