"""Takes a person's answer from the page: the same answers as the terminal's, by the same command, under their name."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs

from reviews.reviewers.person import give, verdict_text
from reviews.trail.trail import Trail
from sessions.jobs.orphans import start_detached
from sessions.pages.report.next_steps import waiting_for
from sessions.pages.view.places import Read
from sessions.run.terminal import masked_line
from specs.session.session_spec import ResolvedSpec
from specs.system.errors import UserError
from specs.system.regular_files import open_regular
from specs.trail.gate_bodies import PacketEntry

MOST_BYTES = 200_000
"""The limit of a form."""
LOG = "answered.log"
"""In the run folder: what the started command said."""
WAIT_S = 60.0
"""How long the page waits until the command has recorded the answer or has ended."""
RESUME = "resume"
"""Continues a session that waits for no one."""
BUDGET = "budget"
"""Raises it; the session then waits to be resumed."""


class PageAnswers:
    """Answers that are given here, in the name of one person; ``key`` is in every form of this server."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.key = secrets.token_urlsafe(24)

    def form(self, data: bytes) -> dict[str, str]:
        """Return the fields of a form; raises UserError if another page made it."""
        arguments = {name: values[-1] for name, values in _fields(data).items()}
        if not secrets.compare_digest(arguments.get("key", "").encode(), self.key.encode()):
            raise UserError("this form is not from this page", hint="open the page of the session again")
        return arguments

    def answer(self, read: Read, resolved: ResolvedSpec, form: Mapping[str, str]) -> None:
        """Continue a session with an answer, in a process that outlives the page.

        Raises:
            UserError: something else is asked by now, this answer is not one of those, or the command refused it.
        """
        requests = waiting_for(read.history, read.place.folder)
        answers = [way.answer for way in requests["answers"] if way.answer]
        text, reason = form.get("answer", ""), form.get("reason", "").strip()
        if form.get("since") != str(requests["since"]) or text not in answers:
            raise UserError("the session no longer waits for this answer", hint="open the page of the session again")
        words = ["resume", str(read.place.folder)]
        recorded = RESUME
        if text != RESUME:
            if not reason:
                raise UserError("an answer needs a reason", hint="it is recorded in the trail")
            recorded, answer = "human", ["--answer", text]
            if text == BUDGET:
                words[0], recorded, answer = "amend", "", [f"--max-cost={_usd(form.get('usd', ''))!r}"]
            words += [*answer, f"--reason={reason}", f"--by={self.by}"]
        self._run(read, words, recorded)

    def judge(self, read: Read, form: Mapping[str, str]) -> None:
        """Record a person's verdict on the waiting gate; raises UserError if none waits or a part is missing."""
        approve = form.get("approve") == "yes"
        text = verdict_text(
            _findings(form.get("findings", "")), form.get("reasoning", ""), form.get("recommendation", ""), approve
        )
        with closing(Trail(read.place.trail, read.place.folder.resolve().name)) as trail:
            trail.verify_chain()
            if form.get("packet") not in {entry.body.packet for entry in trail.iterate(PacketEntry)}:
                raise UserError("the gate does not wait for this verdict", hint="open the page of the session again")
            give(trail, read.place.store, text)

    def _run(self, read: Read, words: Sequence[str], kind: str) -> None:
        """Start a command; return when it has recorded an entry of a kind, or has ended well; else raise UserError."""
        log = read.place.folder / LOG
        log.touch(mode=0o600)
        began, known = log.stat().st_size, len(read.history)

        def is_recorded() -> bool:
            return any(entry.kind == kind for entry in read.place.history()[known:])

        command = [sys.executable, "-P", "-m", "sessions.commands.cli", *words]
        process = start_detached(command, log, Path.cwd(), dict(os.environ))
        # Someone has to collect its end, which may be days from now.
        threading.Thread(target=process.wait, daemon=True).start()
        deadline = time.monotonic() + WAIT_S
        while process.poll() is None and time.monotonic() < deadline:
            if is_recorded():
                return
            time.sleep(0.1)
        if process.returncode and not is_recorded():
            with open_regular(log) as file:
                file.seek(began)
                texts = file.read().decode("utf-8", "replace").strip().splitlines()
            raise UserError(masked_line(texts[-1] if texts else f"it ended with {process.returncode}", 1000))


def _usd(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UserError("the budget is not a number of USD") from error


def _fields(data: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(data.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise UserError("the form is malformed") from error


def _findings(text: str) -> list[tuple[str, str]]:
    """Return place and statement of each line; raises UserError for a line without either."""
    pairs: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        place, _, statement = line.partition(" ")
        if not place.startswith("/") or not statement.strip():
            raise UserError(
                "a finding must begin with its place", hint="for example: /checks/3 the sample is too small"
            )
        pairs.append((place, statement.strip()))
    return pairs
