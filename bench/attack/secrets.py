"""Family ``secrets``: every form of the planted set at every door, searched for in all that is left.

Doors: a builder's texts and calls over a stream, their results, a job's log, why a job was lost, a reviewer's words,
the error of a server and of an SDK, a person's reason, a question and the files of a requested review, the spec,
arguments of commands. Searched are trail, store, run folder, export, report, transcript,
terminal and errors, base64 in them decoded.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

from rich.console import Console

from agents.model_builder import ModelBuilder
from bench.attack.outcome import Outcome
from bench.attack.planted import PlantedSecret, Plants, squeeze_text
from reviews.gate.reviewer import PacketReviewer
from sessions.jobs.launcher import JobState
from sessions.pages.report.live_display import Terminal
from sessions.run.run_history import read_history
from sessions.run.terminal import MaskedStream
from specs.jobs.job_records import ExitRecord
from specs.loading.loading import load_spec
from specs.system import masking
from specs.system.digests import digest_file
from specs.system.errors import ReviewerUnavailable, SpecError
from specs.system.vendors import http_exchange
from specs.trail.verdict import Packet, Verdict
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.loopback_api import ANTHROPIC, OPENAI, Step, answered, loopback_api
from testing.fixtures.quick_session import POWERED, QuickLauncher, drive, open_quick, quick_session
from testing.fixtures.scripted_builder import Call, Reply, calls, follows_the_spec, scripted_builder, texts_of

BUILDER = "builder: {vendor: anthropic, model: claude-opus-5}"
AREAS = ("trail", "store", "run folder", "export", "report", "transcript", "terminal", "error")
_CODED = re.compile(rb"[A-Za-z0-9+/]{64,}={0,2}")
_QUESTION = {"recommendation": "Take two seeds.", "risks": ["small sample"], "approve": False}


def run(seed: int, folder: Path) -> Outcome:
    """Plant every form at every door and report each form that occurs in an area."""
    plants, result = Plants(seed), _SecretFinding()
    with _environment(plants):
        _played_session(folder / "played", plants, result)
        _lost_job(folder / "lost", plants, result)
        _specs(folder / "specs", plants, result)
        _commands(folder / "commands", plants, result)
    return result.outcome(plants)


def run_in_process(seed: int, folder: Path, count: int) -> Outcome:
    """Attack with every so many forms, without commands: for the quick test, which turns the masker off as well."""
    plants, result = Plants(seed), _SecretFinding()
    plants.all = plants.all[::count]
    with _environment(plants):
        _played_session(folder / "played", plants, result, commands=False)
        _lost_job(folder / "lost", plants, result)
    return result.outcome(plants)


class _SecretFinding:
    """What was left in each area, and which doors led to it."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {area: [] for area in AREAS}
        self.doors: dict[str, bool] = {}

    def add(self, area: str, data: bytes | str) -> None:
        """Take what is in an area, and what is coded in it."""
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        self.texts[area].append(raw.decode("utf-8", "replace"))
        for match in _CODED.finditer(raw):
            with_padding = match.group() + b"=" * (-len(match.group()) % 4)
            try:
                self.texts[area].append(base64.b64decode(with_padding, validate=True).decode("utf-8", "replace"))
            except ValueError:
                continue

    def add_run(self, run: Path) -> None:
        """Take a run folder with its trail, store and report."""
        for path in sorted(path for path in run.rglob("*") if path.is_file()):
            parts = path.relative_to(run).parts
            area = "transcript" if "transcript" in path.name else {"store": "store", "report": "report"}.get(parts[0])
            self.add(area or "run folder", path.read_bytes())
        for entry in read_history(run):
            self.add("trail", json.dumps(entry.raw, ensure_ascii=False))

    def door(self, name: str, area: str, tag: str) -> None:
        """Note whether what was planted at a door came through: a door that was never open proves nothing."""
        self.doors[name] = any(tag in text for text in self.texts[area])

    def outcome(self, plants: Plants) -> Outcome:
        """Search every area for every form."""
        outcome = Outcome()
        for area in AREAS:
            whole = "\n".join(self.texts[area])
            bare = squeeze_text(whole)
            for value in plants.all:
                outcome.record(not value.is_in(whole, bare), f"{value.name} is in the {area}")
        for door, reached in self.doors.items():
            outcome.record(reached, f"nothing that was planted came through the door '{door}'")
        return outcome


@contextmanager
def _environment(plants: Plants) -> Generator[None]:
    """Have the values known, as in the process of a session."""
    keys = {"ANTHROPIC_API_KEY": plants.environ["PEERGATE_REVIEWER_KEY"]}
    before, known = dict(os.environ), dict(masking._known)  # pyright: ignore[reportPrivateUsage]
    backoff = http_exchange.BACKOFF_S
    os.environ.update(plants.environ | keys)
    http_exchange.BACKOFF_S = 0.01
    masking.know("the bearer token", plants.bearer)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        http_exchange.BACKOFF_S = backoff
        masking._known.clear()  # pyright: ignore[reportPrivateUsage]
        masking._known.update(known)  # pyright: ignore[reportPrivateUsage]


def _all_of(door: str, plants: Sequence[PlantedSecret]) -> str:
    return "\n\n".join(f"{door}\n{plant.text}" for plant in plants)


def _some_of(door: str, plants: Sequence[PlantedSecret], limit: int) -> str:
    """Return as many as fit: a secret that was cut by anyone who planted it is half of one."""
    while len(text := _all_of(door, plants)) > limit:
        plants = plants[:-1]
    return text


class _LogCapture(QuickLauncher):
    """Jobs that print secrets."""

    log = ""

    def start(self, folder: Path) -> None:
        super().start(folder)
        (folder / "log.txt").write_text(f"loading\n{self.log}\ndone\n", encoding="utf-8")
        record = ExitRecord.model_validate_json((folder / "exit.json").read_bytes())
        changed = record.model_copy(update={"log": digest_file(folder / "log.txt")})
        (folder / "exit.json").write_bytes(changed.canonical())


class _LostExchange(QuickLauncher):
    """Jobs that are lost, with a reason that quotes secrets."""

    why = ""

    def poll(self, folder: Path) -> JobState:
        return JobState("lost", None, self.why)


class _Talkative:
    """A reviewer whose client raises once, and that says secrets then."""

    name = "talkative"

    def __init__(self, error: str, words: str) -> None:
        self._error, self._words, self._asked = error, words, 0

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Fail at the second gate, and approve every other one."""
        self._asked += 1
        if self._asked == 2:
            raise ReviewerUnavailable(self._error, where=self.name)
        return Verdict(
            reviewer=self.name, findings=(), recommendation="go on", reasoning=self._words, risks=(), approve=True
        )


def _played_session(folder: Path, plants: Plants, result: _SecretFinding, commands: bool = True) -> None:
    """Drive a session to its end whose builder, jobs, reviewer and person say every secret."""
    folder.mkdir(parents=True)
    run = open_quick(folder, ("builder: {vendor: playbook}", BUILDER))
    notes = [Call("write_note", {"text": f"door-call {value.text}"}) for value in plants.all]
    reads = [Call("read_artifact", {"name": f"note.{number}"}) for number in range(1, 4)]
    script = [
        Reply(_all_of("door-text", plants.all), tuple(notes[:30])),
        Reply("", tuple(notes[30:])),
        calls(*reads),
        calls(Call(f"no-such-{plants.all[0].text}", {"door-tool": plants.all[0].text})),
    ]
    launcher = _LogCapture()
    launcher.log = _all_of("door-log", plants.all)
    screen = io.StringIO()
    reviewer = _Talkative(_all_of("door-exception", plants.all), _all_of("door-words", plants.all))
    with scripted_builder(ANTHROPIC, script, then=_reads_the_log) as played, ExitStack() as undo:
        undo.callback(http_exchange.ADDRESSES.update, dict(http_exchange.ADDRESSES))
        http_exchange.ADDRESSES[ANTHROPIC] = played.address
        terminal = Terminal(Console(file=cast(IO[str], MaskedStream(screen)), width=200, soft_wrap=True))
        reason = _all_of("door-reason", plants.all)
        answers: list[dict[str, Any] | None] = [
            None,
            *[{"answer": "approve", "reason": reason, "by": "me", "expires": None}] * 4,
        ]
        for answer in answers:
            if read_history(run).is_closed:
                break
            chosen: PacketReviewer = reviewer
            session = quick_session(run, launcher=launcher, reviewer=chosen, display=terminal)
            session.builder = ModelBuilder(session.resolved.spec.builder)
            drive(session, answer)
        terminal.console.file.flush()
    result.add("terminal", screen.getvalue())
    result.add_run(run)
    if commands:
        _read_messages(folder, run, result)
    result.doors["the session ends"] = read_history(run).is_closed
    for door in ("door-call", "door-text", "door-log", "door-exception", "door-words"):
        result.door(door, "store" if door != "door-exception" else "trail", door)
    result.door("door-reason", "trail", "door-reason")


def _read_messages(folder: Path, run: Path, result: _SecretFinding) -> None:
    """Run every reading command on the session, and export it."""
    for command in (("report", run), ("transcript", run), ("transcript", run, "--json"), ("audit", "list", run)):
        _peergate(result, *command)
    _peergate(result, "status", run.name, "--runs", run.parent)
    _peergate(result, "audit", "export", run, folder / "export")
    for path in sorted(path for path in (folder / "export").rglob("*") if path.is_file()):
        result.add("export", path.read_bytes())
    result.doors["the export is there"] = (folder / "export").is_dir()


def _reads_the_log(body: dict[str, Any]) -> Reply:
    """Look into the log before each submission, then follow the spec."""
    texts = texts_of(body)
    first = len(texts) == 1 and "phase 'submit'" in texts[0]
    return calls(Call("job_logs", {"lines": 500})) if first else follows_the_spec(body)


def _lost_job(folder: Path, plants: Plants, result: _SecretFinding) -> None:
    """Drive a session until it asks a person, because its job is gone."""
    folder.mkdir(parents=True)
    launcher, screen = _LostExchange(), io.StringIO()
    launcher.why = _all_of("door-lost", plants.all)
    terminal = Terminal(Console(file=cast(IO[str], MaskedStream(screen)), width=200, soft_wrap=True))
    run = open_quick(folder)
    drive(quick_session(run, launcher=launcher, display=terminal))
    terminal.console.file.flush()
    result.add("terminal", screen.getvalue())
    result.add_run(run)
    result.door("door-lost", "trail", "door-lost")


def _specs(folder: Path, plants: Plants, result: _SecretFinding) -> None:
    """Write a spec with each secret in it: it is refused, and the error does not repeat it."""
    folder.mkdir(parents=True)
    resolved_spec(folder, POWERED)
    source = (folder / "spec.yaml").read_text(encoding="utf-8")
    for number, value in enumerate(plants.all):
        path = folder / f"spec-{number}.yaml"
        # What ends a line is written as YAML writes it.
        path.write_text(f"{source}\nnote: {json.dumps(value.text)}\n", encoding="utf-8")
        try:
            load_spec(path)
            result.doors[f"a spec with '{value.name}' is refused"] = False
        except SpecError as error:
            result.add("error", str(error))
            result.doors[f"a spec with '{value.name}' is refused"] = "secret" in str(error)


def _commands(folder: Path, plants: Plants, result: _SecretFinding) -> None:
    """Run commands, each in its own process, whose arguments, files and servers hold the secrets."""
    folder.mkdir(parents=True)
    # What a process has not read it cannot know: the bearer token is known to the server of tools alone.
    forms = [value for value in plants.all if value.name != "bearer token"]
    _peergate(result, "start", _some_of("door-argument", forms, 8000), "--runs", folder / "none", area="error")
    result.door("door-argument", "error", "door-argument")
    database = {"PEERGATE_DATABASE": plants.environ["ANALYTICS_DATABASE_URL"].replace("postgresql", "mysql")}
    _peergate(result, "list", "--everywhere", "--runs", folder / "none", area="error", environ=database)
    requested_path = folder / "asked"
    requested_path.mkdir()
    (requested_path / "notes.md").write_text(_all_of("door-file", forms), encoding="utf-8")
    words = _some_of("door-answer", forms, 1500)
    with loopback_api() as api:
        at = ("--vendor", "openai", "--model", "tiny", "--base-url", api.address, "--price-in", "1", "--price-out", "2")
        api.steps = [answered(OPENAI, json.dumps(_QUESTION | {"reasoning": words}))]
        question = ("review", "ask", "--topic", "arms", "--question", _some_of("door-question", forms, 7900), *at)
        _peergate(result, *question, "--kind", "statistics", cwd=requested_path)
        api.next_review()
        body = json.dumps({"error": {"type": "some_error", "message": _all_of("door-server", forms)}})
        api.steps = [Step(body.encode(), 400)]
        _peergate(result, "review", "request", "notes.md", "--kind", "code", *at, cwd=requested_path, area="error")
        sent = "\n".join(request.body.decode("utf-8", "replace") for request in api.requests)
    for path in sorted(path for path in requested_path.rglob("*") if path.is_file() and path.name != "notes.md"):
        result.add("store", path.read_bytes())
    # What is sent to a reviewer leaves the machine: it is searched as an export is.
    result.add("export", sent)
    result.doors["the reviewer is asked"] = "door-question" in sent and "door-file" in sent
    _run_review(folder, forms, result)


def _run_review(folder: Path, forms: Sequence[PlantedSecret], result: _SecretFinding) -> None:
    """Start sessions whose reviewer, a separate process, is answered with secrets: an error, then a verdict."""
    body = json.dumps({"error": {"type": "some_error", "message": _all_of("door-http", forms)}}).encode()
    verdict = {
        "findings": [], "conditions": [], "risks": [], "not_judged": [], "recommendation": "stop", "approve": False,
        "reasoning": _all_of("door-verdict", forms),
    }  # fmt: skip
    for number, step in enumerate((Step(body, 400), answered(OPENAI, json.dumps(verdict)))):
        with loopback_api() as api:
            api.steps = [step]
            reviewer = (
                f'reviewer: {{vendor: openai, model: tiny, base_url: "{api.address}", '
                "usd_per_million_tokens: {input: 0, output: 0}}"
            )
            at = folder / f"reviewed-{number}"
            at.mkdir()
            resolved_spec(at, POWERED, ("reviewer: {vendor: checklist}", reviewer), ("review: 0.05", "review: 0.3"))
            _peergate(result, "start", at / "spec.yaml", "--runs", at / "runs", area="error")
        result.add_run(at / "runs" / "small")
    result.door("door-http", "store", "door-http")
    result.door("door-verdict", "store", "door-verdict")


def _peergate(
    result: _SecretFinding,
    *arguments: str | Path,
    area: str = "terminal",
    cwd: Path | None = None,
    environ: dict[str, str] | None = None,
) -> None:
    """Run a command and take what it prints."""
    home = Path(__file__).parents[2]
    command = [sys.executable, "-m", "sessions.commands.cli", *map(str, arguments)]
    own = dict(os.environ) | {"PYTHONPATH": str(home)} | (environ or {})
    done = subprocess.run(command, capture_output=True, cwd=cwd or home, env=own, check=False, timeout=300)
    if b"Traceback" in done.stderr:
        result.doors[f"{' '.join(map(str, arguments[:2]))[:60]} ends without a traceback"] = False
    result.add(area, done.stdout)
    result.add(area, done.stderr)
