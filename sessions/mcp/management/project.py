"""What a managing program reaches: specs, sessions and pods of a folder each, behind the wall.

It reads what the builder may read: the same program may be both.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from reviews.trail.chain.store import write_durably
from sessions.builder.redaction import Redactor, without_heldout
from sessions.builder.tools.tool_context import ToolCallRefusal
from sessions.pages.overview import Overview, find_runs, overview
from sessions.pages.report.report import render_waiting_report
from sessions.pages.report.timeline import describe_entries
from sessions.run.run_history import read_history
from sessions.run.run_layout import REPORT_MARKDOWN, STORE, TRAIL, is_run
from sessions.run.signed_specs import DRAFT
from specs.loading.loading import load_spec
from specs.system.errors import EvidenceMissing, PeergateError
from specs.system.masking import current
from specs.system.regular_files import read_regular
from specs.system.text import plain
from specs.system.yaml.yaml_positions import UnreadableError, read_yaml

MOST_FILES = 200
MOST_CHARACTERS = 400_000
MOST_PATH = 4096
LOGS = Path(".peergate") / "managed"


class SessionView:
    """A session as it is read from outside."""

    def __init__(self, run: Path) -> None:
        self.history = read_history(run)
        self.store, self.resolved = self.history.store, self.history.resolved


class Project:
    """One folder of specs and data, one of run folders, and one of what is kept of pods."""

    def __init__(self, folder: Path, runs: Path, pods: Path) -> None:
        self.folder, self.runs, self.pods = folder.resolve(), runs.resolve(), pods.resolve()

    @property
    def runs_option(self) -> list[str]:
        """The option that names the run folders to a command."""
        return ["--runs", str(self.runs)]

    def log(self, session: str) -> Path:
        """Return where a started session writes what a terminal would show."""
        return self.runs / LOGS / f"{session}.log"

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield the files of the folder, without hidden ones and run folders."""
        result = 0
        for top, folders, names in os.walk(self.folder):
            folders[:] = sorted(
                folder
                for folder in folders
                if not folder.startswith(".") and (Path(top) / folder).resolve() not in (self.runs, self.pods)
            )
            for name in sorted(name for name in names if not name.startswith(".")):
                path = Path(top) / name
                if result < MOST_FILES and path.is_file():
                    result += 1
                    yield str(path.relative_to(self.folder)), path.stat().st_size

    def file(self, name: str) -> Path:
        """Return a file at the top of the folder; Refused if there is none, or it is a link."""
        path = self.folder / name
        try:
            if stat.S_ISREG(path.lstat().st_mode):
                return path
        except OSError:
            pass
        raise ToolCallRefusal(f"the project has no file {name}; list_files lists them")

    def write_draft(self, name: str, text: str) -> Path:
        """Write a spec as a draft; Refused if it is not YAML, or names a file outside of the folder or a secret."""
        raw = text.encode("utf-8", "replace")
        if (secret := current().known_in(raw)) is not None:
            raise ToolCallRefusal(f"the text contains the value of {secret}; nothing was written")
        try:
            document = read_yaml(raw)
        except UnreadableError as error:
            at = f"line {error.place.line}, column {error.place.column}"
            raise ToolCallRefusal(f"{at}: {error.message} {error.hint}".strip()) from error
        for current_text in _texts(document.data):
            if current_text.startswith(("/", "~")) or ".." in PurePosixPath(current_text).parts:
                raise ToolCallRefusal(
                    f"'{plain(current_text, 200)}' leads out of the project's folder; nothing was written"
                )
            for kept_path in (self.runs, self.pods) if len(current_text) < MOST_PATH else ():
                if (self.folder / current_text).is_relative_to(kept_path):
                    raise ToolCallRefusal(
                        f"'{plain(current_text, 200)}' leads into the run folders; nothing was written"
                    )
        path = self.folder / f"{name}{DRAFT}"
        write_durably(path, raw, mode=0o600)
        return path

    def has(self, session: str) -> bool:
        """Return whether there is a session with this name."""
        return is_run(self.runs / session)

    def session(self, name: str) -> Path:
        """Return a run folder; Refused if there is no such session."""
        if not self.has(name):
            raise ToolCallRefusal(f"unknown session '{name}'; list_sessions lists them")
        return self.runs / name

    def sessions(self) -> list[Overview]:
        """Return all sessions."""
        return [overview(path) for path in find_runs(self.runs)]

    def overview(self, run: Path) -> Overview:
        """Return the state of a session."""
        return overview(run)

    def clean(self, text: str) -> str:
        """Return a text without secrets, printable."""
        return plain(current().text(text), MOST_CHARACTERS)

    def clean_of(self, spec: Path, text: str) -> str:
        """Return a text about a spec without its held-out texts, as far as it can be loaded."""
        if spec.suffix == ".yaml":
            with suppress(PeergateError, OSError):
                text = without_heldout(load_spec(spec), text)
        return self.clean(text)

    def clean_for(self, run: Path, text: str) -> str:
        """Return a text about a session as its builder may read it; nothing of it if its trail cannot be read."""
        try:
            return Redactor(SessionView(run), os.environ).clean(text, MOST_CHARACTERS)
        except (PeergateError, OSError, ValueError) as error:
            return f"the trail cannot be read ({type(error).__name__}), so that nothing of it is shown"

    def report(self, run: Path) -> str:
        """Return the report of a session, or the report so far; Refused before the first."""
        path = run / REPORT_MARKDOWN
        try:
            text = read_regular(path).decode("utf-8") if path.is_file() else render_waiting_report(run, TRAIL, STORE)[1]
        except EvidenceMissing:
            raise ToolCallRefusal("no report yet: the session neither ended nor waits for a person") from None
        return self.clean_for(run, text)

    def timeline(self, run: Path) -> str:
        """Return what happened in a session, entry by entry."""
        history = read_history(run)
        lines = [
            f"entry {value.entry.seq} {value.entry.kind}: {' | '.join((value.what, *value.lines))}"
            for value in describe_entries(history)
        ]
        return self.clean_for(run, "\n".join(lines))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, element in value.items():
            yield from _texts(key)
            yield from _texts(element)
    elif isinstance(value, list):
        for element in value:
            yield from _texts(element)
