"""The server of the page: what each address shows, and the streams that say when something has changed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import TemplateError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from sessions.jobs.launcher import job_folder
from sessions.pages.overview import Overview
from sessions.pages.report.gate_page import gate_page
from sessions.pages.report.page_result import WORDS
from sessions.pages.report.samples.judged_samples import SELECTIONS
from sessions.pages.report.transcript import Transcript
from sessions.pages.view import pages
from sessions.pages.view.answers import MOST_BYTES, PageAnswers
from sessions.pages.view.glances import SessionSummaries
from sessions.pages.view.job_progress import running_key
from sessions.pages.view.number_page import number_page
from sessions.pages.view.places import Read, Scope, TrailCache, stamp_of, state_of
from sessions.pages.view.samples import SampleReader, in_full
from sessions.pages.view.session_page import session_page
from sessions.pages.view.stored_value import RowFiles, value_lines
from sessions.pages.view.trail_state import TrailAudits, entry_page, trail_page
from sessions.run.heartbeat import mark_of
from specs.session.session_spec import ResolvedSpec
from specs.system.errors import AuditDamage, PeergateError, UserError

LOOKS_EVERY_S = 1.0
"""How often a stream looks for changes."""
ALIVE_EVERY = 15
"""Looks after which a stream without changes says that it is there."""


class Viewer:
    """Makes the pages of a scope. Every page is made when it is asked for, in a thread."""

    def __init__(self, scope: Scope, answers: PageAnswers | None = None) -> None:
        self.answers = answers
        self.reader = TrailCache(scope)
        self.samples = SampleReader()
        self.rows = RowFiles()
        self.checks = TrailAudits(scope)
        self.glances = SessionSummaries(self.reader, self.checks)

    def app(self) -> Starlette:
        """Return the application."""
        pages_of = {
            "": self.session,
            "samples": self.sample_list,
            "transcript": self.transcript,
            "trail": self.trail,
            "entry/{seq:int}": self.entry,
            "gate/{stage}/{attempt:int}": self.gate,
            "number/{stage}/{attempt:int}/{metric}": self.number,
            "value/{digest}": self.value,
            "rows/{digest}": self.row_list,
            "samples.json": self.samples_json,
            "sample.json": self.sample_json,
        }
        routes = [Route(f"/s/{{name}}/{path}", _page(make)) for path, make in pages_of.items()]
        return Starlette(
            routes=[
                Route("/", _page(self.sessions)),
                Route("/sessions.json", _page(self.sessions_json)),
                Route("/events", self.list_events),
                Route("/static/{file}", _page(_static)),
                Route("/favicon.ico", _page(_icon)),
                *routes,
                Route("/s/{name}/answer", self.answer, methods=["POST"]),
                Route("/s/{name}/verdict", self.verdict, methods=["POST"]),
                Route("/s/{name}/events", self.events),
            ]
        )

    def sessions(self, request: Request) -> Response:
        """List the sessions."""
        overviews = self.reader.scope.list_sessions()
        known = {"sessions": overviews, "runs": str(self.reader.scope.runs), "glance": self.glances.read_cached}
        known |= {"here": self.reader.scope.is_here, "everywhere": self.reader.scope.everywhere, "words": WORDS}
        known |= {"requested": self.reader.scope.list_requested_reviews()}
        return _html("sessions.html.j2", **known, stamp=_mark(_serialize_overviews(overviews)))

    def sessions_json(self, request: Request) -> Response:
        """Return what the list adds of the sessions that are named."""
        names = request.query_params.getlist("name")[:100]
        return JSONResponse({name: self.glances.of(name) for name in names})

    def session(self, request: Request) -> Response:
        """Show one session, whose trail may be damaged."""
        stamp = _mark(self._stamp(request.path_params["name"]))
        try:
            read = self._read(request)
        except AuditDamage:
            return self.trail(request)
        if not read.is_session:
            return self.trail(request)
        answers = None if read.place.is_export else self.answers
        return self._of("session.html.j2", read, here="", page=session_page(read), answers=answers, stamp=stamp)

    async def answer(self, request: Request) -> Response:
        """Answer what a person is asked, and show the session again."""
        return await self._act(request, lambda answers, read, form: answers.answer(read, _spec(read), form))

    async def verdict(self, request: Request) -> Response:
        """Record a person's verdict, and show the session again."""
        return await self._act(request, lambda answers, read, form: answers.judge(read, form))

    async def _act(self, request: Request, act: Callable[[PageAnswers, Read, dict[str, str]], None]) -> Response:
        data = b""
        async for part in request.stream():
            data += part
            if len(data) > MOST_BYTES:
                return _problem(UserError("this form is too long"), 404, request)

        def handle_post(request: Request) -> Response:
            if self.answers is None:
                raise UserError("this page is read-only", hint="`peergate view --act` answers")
            form, read = self.answers.form(data), self._read(request)
            if read.place.is_export or self.checks.of(read.name).damage:
                raise UserError("a copy or a damaged trail cannot be answered", hint="`peergate audit verify`")
            act(self.answers, read, form)
            return RedirectResponse(f"/s/{quote(read.name, safe='')}/", 303)

        return await _page(handle_post)(request)

    def sample_list(self, request: Request) -> Response:
        """Show the samples; the rows are asked for by the script."""
        read = self._read(request)
        return self._of("samples.html.j2", read, here="samples", samples=self.samples.of(read), selections=SELECTIONS)

    def samples_json(self, request: Request) -> Response:
        """Return some of the selected samples."""
        query_params = request.query_params
        wanted = (query_params.get("show", "all"), query_params.get("kind", ""), query_params.get("text", "")[:500])
        page = self.samples.page(
            self._read(request), wanted, _whole(query_params, "from"), _whole(query_params, "count", 60)
        )
        return JSONResponse(page)

    def sample_json(self, request: Request) -> Response:
        """Return one sample in full."""
        samples = self.samples.of(self._read(request))
        return JSONResponse(in_full(samples, _whole(request.query_params, "number")))

    def transcript(self, request: Request) -> Response:
        """Show what the builder said and did."""
        stamp = _mark(self._stamp(request.path_params["name"]))
        read = self._read(request)
        attempts = list(Transcript(read.store).attempts(read.history))
        return self._of("transcript.html.j2", read, here="transcript", attempts=attempts, stamp=stamp)

    def trail(self, request: Request) -> Response:
        """Show the entries of a trail, damaged or not, and what was verified."""
        name = request.path_params["name"]
        place = self.reader.scope.place(name)
        audit = self.checks.of(name)
        try:
            page = trail_page(self.reader.read(name), _whole(request.query_params, "from"))
        except AuditDamage:
            page = None
        return _html("trail.view.html.j2", here="trail", name=name, page=page, audit=audit, is_export=place.is_export)

    def entry(self, request: Request) -> Response:
        """Show one entry."""
        read = self._read(request)
        return self._of("entry.html.j2", read, page=entry_page(read, request.path_params["seq"]))

    def gate(self, request: Request) -> Response:
        """Show one gate."""
        read, at = self._read(request), request.path_params
        return self._of("gate.html.j2", read, gate=gate_page(read.history, at["stage"], at["attempt"]))

    def number(self, request: Request) -> Response:
        """Show where a number comes from."""
        read, at = self._read(request), request.path_params
        page = number_page(read, at["stage"], at["attempt"], at["metric"])
        return self._of("number.html.j2", read, page=page, at=at)

    def value(self, request: Request) -> Response:
        """Show a stored value, with a place in it marked."""
        read, digest = self._read(request), request.path_params["digest"]
        match = re.fullmatch(r"(\d{1,9})-(\d{1,9})", request.query_params.get("lines", ""))
        pointer = request.query_params.get("at", "")
        lines = value_lines(read.store, digest, pointer, (int(match[1]), int(match[2])) if match else None)
        return self._of("value.html.j2", read, digest=digest, lines=lines, pointer=pointer)

    def row_list(self, request: Request) -> Response:
        """Show rows of a stored file, one of them marked."""
        read, digest = self._read(request), request.path_params["digest"]
        line = _whole(request.query_params, "line")
        return self._of("rows.html.j2", read, digest=digest, line=line, page=self.rows.page(read.store, digest, line))

    async def events(self, request: Request) -> Response:
        """Stream a message whenever the session, its job or who runs it has changed."""
        try:
            place = self.reader.scope.place(request.path_params["name"])
        except PeergateError as error:
            return _problem(error, 404)
        return _stream(request, lambda: self._stamp(place.folder.name))

    async def list_events(self, request: Request) -> Response:
        """Stream a message whenever a session has changed."""
        return _stream(request, lambda: _serialize_overviews(self.reader.scope.list_sessions()))

    def _stamp(self, name: str) -> str:
        place = self.reader.scope.place(name)
        try:
            read = self.reader.read(name)
        except PeergateError:
            return stamp_of(place)
        key = None if place.is_export else running_key(read.history)
        mark = mark_of(job_folder(place.folder, key) / "progress.jsonl") if key else None
        return f"{stamp_of(place)} {mark} {state_of(place, read.history).state}"

    def _read(self, request: Request) -> Read:
        return self.reader.read(request.path_params["name"])

    def _of(self, template: str, read: Read, **values: Any) -> Response:
        """Return a page of a session, with a warning on it if the trail is damaged."""
        return _html(template, name=read.name, damage=self.checks.of(read.name).damage, **values)


def _spec(read: Read) -> ResolvedSpec:
    return read.history.resolved


def _html(template: str, /, **values: Any) -> Response:
    return HTMLResponse(pages.render(template, **values))


def _page(make: Callable[[Request], Response]) -> Callable[[Request], Any]:
    """Return an endpoint that makes its page in a thread; what cannot be shown becomes a page that says why."""

    async def endpoint(request: Request) -> Response:
        try:
            return await run_in_threadpool(make, request)
        except UserError as error:
            return _problem(error, 404, request)
        except (
            PeergateError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OSError,
            RecursionError,
            TemplateError,
        ) as error:
            # Entries and stored values are read unverified: what they lack or hold wrongly is not a fault of the page.
            return _problem(error, 409, request)

    return endpoint


def _problem(error: Exception, status: int, request: Request | None = None) -> Response:
    name = request.path_params.get("name", "") if request is not None and status != 404 else ""
    if request is not None and request.url.path.endswith(".json"):
        message = error.message if isinstance(error, PeergateError) else str(error)
        return JSONResponse({"problem": message}, status_code=status)
    return HTMLResponse(pages.error_page(error, name), status_code=status)


def _mark(stamp: str) -> str:
    return str(hash(stamp))


def _serialize_overviews(overviews: Sequence[Overview]) -> str:
    return json.dumps([overview.as_json() for overview in overviews])


def _stream(request: Request, stamp: Callable[[], str]) -> Response:
    """Stream a stamp's changes; a browser names its page's stamp, or after a reconnect the last stamp it saw."""

    async def changes() -> AsyncGenerator[bytes]:
        seen_text = request.headers.get("last-event-id") or request.query_params.get("seen")
        looks = 0
        while not await request.is_disconnected():
            try:
                now = _mark(await run_in_threadpool(stamp))
            except (PeergateError, OSError):
                now = "unreadable"
            if looks == 0:
                yield f"id: {now}\nretry: 2000\nevent: there\ndata: {now}\n\n".encode()
            looks += 1
            if now != seen_text and seen_text is not None:
                yield f"id: {now}\nevent: changed\ndata: {now}\n\n".encode()
            seen_text = now
            if looks % ALIVE_EVERY == 0:
                yield b": there\n\n"
            await asyncio.sleep(LOOKS_EVERY_S)

    return StreamingResponse(changes(), media_type="text/event-stream")


def _static(request: Request) -> Response:
    return _file(request.path_params["file"])


def _icon(request: Request) -> Response:
    """Return what browsers ask for by themselves."""
    return _file("icon.svg")


def _file(name: str) -> Response:
    pair: tuple[Path, str] | None = pages.STATIC.get(name)
    if pair is None:
        raise UserError("no such file")
    return Response(pair[0].read_bytes(), media_type=pair[1])


def _whole(arguments: Any, name: str, default: int = 0) -> int:
    """Return a whole number of a query; the default for anything else."""
    text = arguments.get(name, "")
    return int(text) if re.fullmatch(r"\d{1,12}", text) else default
