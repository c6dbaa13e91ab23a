"""Sessions for an MCP client that only reads: states, measured numbers, gates and curves, from verified trails.

Nothing that it returns quotes an item, an answer or a reason: who reads may be a builder too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from pydantic import StringConstraints

from sessions.exports.metric_history import history_of
from sessions.exports.source import ExportSource
from sessions.exports.tracking import make_tracked_run
from sessions.mcp.tool_list import describe_tools
from sessions.pages.report.page_result import UNREADABLE
from sessions.pages.view.places import Read, Scope, TrailCache
from sessions.pages.view.trail_state import TrailAudits
from sessions.run.terminal import masked_line
from specs.system.errors import AuditDamage, PeergateError, UserError
from specs.system.masking import current
from specs.trail.builder_tools import Arguments
from specs.trail.tool_arguments import Tool, ToolCallRefusal, read_as, tool_of

MOST_ATTEMPTS = 200
MOST_POINTS = 500
"""Longer curves are thinned evenly to at most so many values."""
INSTRUCTIONS = """\
These tools read Peergate sessions: which there are, what was measured from raw rows, how gates decided, and curves of
trainings. They change nothing. Call sessions first."""
Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Sessions(Arguments):
    """List the sessions: state, newest gate, decision, and since when."""


class Session(Arguments):
    """Show one session: registration, result, newest entries, gates, every metric, and the names of its curves."""

    session: Word


class MetricHistory(Arguments):
    """Show one metric over all attempts, of one session or of all, with what each attempt changed, outcome and cost."""

    metric: Word
    session: Word | None = None
    """All without it."""
    stage: Word | None = None


class Curve(Arguments):
    """Show a curve of a training by step, as its raw rows have it: loss or learning_rate."""

    session: Word
    curve: Word
    """STAGE.ATTEMPT/loss, as `session` names it."""


TOOLS: tuple[Tool, ...] = tuple(map(tool_of, (Sessions, Session, MetricHistory, Curve)))


class SessionReader:
    """Carries out the tools on the sessions of a scope."""

    def __init__(self, scope: Scope) -> None:
        self._reader, self._checks = TrailCache(scope), TrailAudits(scope)
        self._carry_out: tuple[Callable[[Any], Any], ...] = (self._sessions, self._session, self._history, self._curve)

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return what a tool says, and whether that is an error."""
        names = [tool.name for tool in TOOLS]
        if name not in names:
            return f"unknown tool '{masked_line(name, 100)}'; the tools are {', '.join(names)}", True
        number = names.index(name)
        try:
            answered = self._carry_out[number](read_as(TOOLS[number].arguments, json.dumps(arguments)))
        except ToolCallRefusal as refused:
            return masked_line(str(refused), 1000), True
        except PeergateError as error:
            return masked_line(f"{error.message}{f' ({error.hint})' if error.hint else ''}", 1000), True
        except (*UNREADABLE, OSError) as error:
            # Another version of Peergate may have written what is read.
            return f"this cannot be read: {type(error).__name__}", True
        # In ASCII: no control character of a text that others wrote reaches the client's terminal.
        return json.dumps(current().value(answered)), False

    def _sessions(self, _: Sessions) -> Any:
        visible = ("name", "state", "decision", "gate", "stage", "attempt", "started", "ended")
        return [{name: getattr(overview, name) for name in visible} for overview in self._reader.scope.list_sessions()]

    def _session(self, session: Session) -> Any:
        results = make_tracked_run(self._source(session.session))._asdict()
        return results | {"curves": sorted(results["curves"])}

    def _history(self, metric_history: MetricHistory) -> Any:
        named = (
            [metric_history.session]
            if metric_history.session
            else [overview.name for overview in self._reader.scope.list_sessions()]
        )
        parts: list[dict[str, Any]] = []
        known: set[str] = set()
        left_out: list[str] = []
        for name in named:
            try:
                source = self._source(name)
                budget = source.history.resolved.spec.budget
                history = history_of(source.history, budget, metric_history.metric, metric_history.stage)
            except UNREADABLE as error:
                if metric_history.session:
                    raise
                left_out.append(f"{name}: {error.message if isinstance(error, PeergateError) else 'cannot be read'}")
                continue
            known |= history.known
            parts += [{"session": name} | attempt for attempt in history.attempts]
        if not parts and not left_out:
            names = ", ".join(sorted(known)) or "nothing was measured yet"
            raise UserError("no attempt has this metric", hint=f"available: {names}")
        return {"attempts": parts[-MOST_ATTEMPTS:], "left_out": left_out}

    def _curve(self, curve: Curve) -> Any:
        curves = make_tracked_run(self._source(curve.session)).curves
        if curve.curve not in curves:
            raise UserError("no such curve", hint=f"available: {', '.join(sorted(curves)) or 'none'}")
        values = curves[curve.curve]
        step = -(-len(values) // MOST_POINTS)
        return {"steps": len(values), "points": [[place + 1, values[place]] for place in range(0, len(values), step)]}

    def _source(self, name: str) -> ExportSource:
        read: Read = self._reader.read(name)
        if not read.is_session:
            raise UserError("this is not a session")
        if damage := self._checks.of(name).damage:
            raise AuditDamage(f"the trail is damaged: {damage[0]}", hint="`peergate audit verify` lists all damage")
        return ExportSource(read.place.folder, read.history)


def make_server(reader: SessionReader) -> Server[Any]:
    """Return the MCP server."""

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=describe_tools(TOOLS, only_read=True))

    async def call_tool(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        text, is_error = await anyio.to_thread.run_sync(reader.call, params.name, params.arguments or {})
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    return Server(
        "peergate-reader",
        version=version("peergate"),
        title="Peergate sessions",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
