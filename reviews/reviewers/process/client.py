"""The session's side of the reviewer's process: starts, asks and ends it, and never opens the reviewer's key.

Every question has a time limit, after which the process is killed. A process that ends, is killed, or does not answer
with a message gives no verdict; the next question starts another one.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from reviews.reviewers.process import messages
from reviews.reviewers.process.confinement import command, environment
from reviews.trail.chain.keys import key_id
from specs.system.errors import PeergateError, ReviewerUnavailable, UserError
from specs.system.text import plain
from specs.system.vendors.parties import ReviewerSpec

START_S = 120.0
"""Imports of an SDK on a loaded machine; without them the process starts in a quarter of a second."""
ANSWER_S = 60.0
"""For everything that asks no model."""
_PIECE = 2**16
_LOOK_S = 1.0
_ERROR_CHARACTERS = 300
AnswerT = TypeVar("AnswerT", messages.Ready, messages.VerdictMessage, messages.SignatureMessage)


class Child(NamedTuple):
    """A process to talk to, by the ends of its pipes."""

    questions: int
    answers: int
    errors: int
    end: Callable[[], int | None]
    """Kills it, whatever it does, and returns its exit status if it had one by then."""


class Birth(NamedTuple):
    """What a process of a reviewer is started with."""

    reviewers: tuple[ReviewerSpec, ...]
    key: Path
    run: Path | None
    environ: Mapping[str, str]


def spawn(birth: Birth) -> Child:
    """Start the process in its own session, so that Ctrl-C at the terminal does not reach it."""
    process = subprocess.Popen(
        command(birth.key, birth.run),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd="/",
        env=environment(birth.reviewers, birth.environ),
        start_new_session=True,
    )
    assert process.stdin and process.stdout and process.stderr

    def end() -> int | None:
        status = process.poll()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        return status

    return Child(process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno(), end)


def _nothing(look: messages.Look) -> messages.LookupAnswerMessage:
    raise ValueError(f"it calls '{plain(look.tool, 60)}', but lookups are not available")


class ReviewerProcess:
    """The reviewer of one session: started when it is first needed, kept for the session, replaced when it is lost.

    A :class:`reviews.trail.chain.keys.Signer` that signs only its own verdicts.
    """

    def __init__(
        self,
        session: str,
        reviewers: Sequence[ReviewerSpec],
        key: Path,
        run: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        start: Callable[[Birth], Child] = spawn,
    ) -> None:
        self.reviewers = tuple(reviewers)
        self.humans: tuple[str, ...] = ()
        """Public keys that persons sign with, from the trail."""
        self.environ = environ
        self._session = session
        self._birth = Birth(self.reviewers, key, run, environ)
        self._start = start
        self._child: Child | None = None
        self._rest = b""
        """What came after the newest line."""
        self._public = b""
        self.waits: Callable[[float, str], None] = lambda seconds, why: None
        """Called when the process waits before it calls a model again, with how long, and why."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called about once a second during such a wait. What it raises ends the process."""
        self.readable: tuple[str, ...] = ()
        """What the tools of the next review can read, a line each; empty: it has none."""
        self.look: Callable[[messages.Look], messages.LookupAnswerMessage] = _nothing
        """Carries out what a review looks up. What it raises ends the process."""
        self.waiting_usd = 0.0
        """What the review had cost when the newest such wait began."""

    @property
    def public(self) -> bytes:
        """The public half of its key."""
        self._running()
        return self._public

    @property
    def id(self) -> str:
        """The id of its public key."""
        return key_id(self.public)

    def sign(self, data: bytes) -> bytes:
        """Return the signature over an entry; raises ReviewerUnavailable unless it states the process's own verdict."""
        return self.ask(messages.Sign(data=data), messages.SignatureMessage).signature

    def ask(self, question: messages.ProcessMessage, form: type[AnswerT], seconds: float = ANSWER_S) -> AnswerT:
        """Ask, and return the answer.

        Raises:
            ReviewerUnavailable: the process refused, was killed, ended, took too long, or did not answer in the form.
            UserError: it cannot be started: a key or a package is missing.
        """
        return self._exchange(self._running(), question, form, seconds)

    def close(self) -> None:
        """End the process; a later question starts another one."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _running(self) -> Child:
        if self._child is None:
            child, self._rest = self._start(self._birth), b""
            self._child = child
            os.set_blocking(child.questions, False)
            begin = messages.StartMessage(
                session=self._session, reviewers=self.reviewers, key=str(self._birth.key), humans=self.humans
            )
            try:
                self._public = bytes.fromhex(self._exchange(child, begin, messages.Ready, START_S).public)
            except BaseException:
                self.close()
                raise
        return self._child

    def _exchange(
        self, child: Child, question: messages.ProcessMessage, form: type[AnswerT], seconds: float
    ) -> AnswerT:
        try:
            line = messages.line_of(question)
        except ValueError as error:
            what = "the question to the reviewer's process cannot be sent"
            raise ReviewerUnavailable(what, where="reviewer", cause="process_lost", detail=str(error)) from error
        try:
            answer = self._answer(child, line, seconds)
        except (ValueError, OSError) as error:
            message = self._last_words(child)
            self.close()
            what = "the reviewer's process gave no answer"
            raise ReviewerUnavailable(what, cause="process_lost", detail=f"{error}{message}") from error
        except BaseException:
            # Ctrl-C, say. A late answer would be taken for the answer to the next question.
            self.close()
            raise
        if isinstance(answer, form):
            return answer
        if not isinstance(answer, messages.RefusalMessage):
            self.close()
            what = f"the reviewer's process answered '{answer.op}' to another question"
            raise ReviewerUnavailable(what, cause="process_lost")
        kind: type[PeergateError] = UserError if answer.is_users else ReviewerUnavailable
        raise kind(plain(answer.message, 1000), where=plain(answer.where, 300), hint=plain(answer.hint, 300))

    def _answer(
        self, child: Child, line: bytes, seconds: float
    ) -> messages.Ready | messages.VerdictMessage | messages.SignatureMessage | messages.RefusalMessage:
        """Send a line and return the answer to it; while the process waits for a model's API its time does not run."""
        now = time.monotonic()
        waits_until, deadline = now, now + seconds
        while True:
            came, self._rest = _converse(child, line, self._rest, deadline, waits_until, self.meanwhile)
            answer = messages.read_answer(came)
            if isinstance(answer, messages.Look):
                if self._rest:
                    raise ValueError("invalid message: data follows a call")
                line = messages.line_of(self.look(answer))
                waits_until = time.monotonic()
                deadline = waits_until + seconds
                continue
            if not isinstance(answer, messages.Waiting):
                if self._rest:
                    # It would be taken for the answer to the next question.
                    raise ValueError("invalid message: data follows it")
                return answer
            self.waiting_usd = answer.usd
            self.waits(answer.seconds, plain(answer.why, _ERROR_CHARACTERS))
            line, waits_until = b"", time.monotonic() + answer.seconds
            deadline = waits_until + seconds

    def _last_words(self, child: Child) -> str:
        """Return what it wrote to standard error at last, and how it ended."""
        os.set_blocking(child.errors, False)
        statement = b""
        with suppress(OSError):
            statement = os.read(child.errors, _PIECE)
        last = statement.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f" ({plain(last, _ERROR_CHARACTERS)})" if last else ""


def _converse(
    child: Child, line: bytes, rest: bytes, deadline: float, waits_until: float, meanwhile: Callable[[], None]
) -> tuple[bytes, bytes]:
    """Send a line; return the next line of the process, and what came after it.

    Raises ValueError or OSError if the process ends or takes too long, and what ``meanwhile`` raises.
    """
    if b"\n" in rest and not line:
        first, _, rest = rest.partition(b"\n")
        return first + b"\n", rest
    data, pieces, size = memoryview(line), [rest], len(rest)
    with selectors.DefaultSelector() as ready:
        if line:
            ready.register(child.questions, selectors.EVENT_WRITE)
        ready.register(child.answers, selectors.EVENT_READ)
        while True:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise ValueError("it timed out and was killed")
            if time.monotonic() < waits_until:
                meanwhile()
                seconds = min(seconds, _LOOK_S)
            for key, _ in ready.select(seconds):
                if key.fd == child.questions:
                    data = _write_piece(child, data)
                    if not data:
                        ready.unregister(child.questions)
                    continue
                piece = os.read(child.answers, _PIECE)
                if not piece:
                    raise ValueError("it ended")
                pieces.append(piece)
                size += len(piece)
                if size > messages.MAX_LINE_BYTES:
                    raise ValueError(f"its answer is longer than {messages.MAX_LINE_BYTES} bytes")
                if b"\n" in piece:
                    first, _, after = b"".join(pieces).partition(b"\n")
                    return first + b"\n", after


def _write_piece(child: Child, data: memoryview) -> memoryview:
    """Send what the pipe takes and return the rest; raises ValueError if the process has ended."""
    try:
        return data[os.write(child.questions, data[:_PIECE]) :]
    except BlockingIOError:
        return data
    except BrokenPipeError as error:
        raise ValueError("it ended") from error
