"""What a person watching sees on stderr: one line for each event, and a progress bar on a terminal.

Texts of jobs, models and reviewers are untrusted: every line passes :func:`specs.system.text.plain` and rich markup is
off, so no row can colour, move or fake a line.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from agents.turns import ModelTurn, TurnUsage
from sessions.pages.result import drop_repeated_reasons, group_by_detail
from sessions.run.money.ledger import Balance
from sessions.run.terminal import masked_line
from specs.jobs.job_records import JobProgress as JobProgress
from specs.stages.base.metric import MetricSet
from specs.system.masking import current
from specs.system.text import plain
from specs.trail.verdict import CheckResult, Decision, Outcome, Status

LINE_CHARACTERS = 4000
NOTE_CHARACTERS = 80
CALL_CHARACTERS = 100
OUTCOME_CHARACTERS = 160
WAITING_TOOLS = ("job_status", "ask_review", "request_review", "adversarial_review")
"""Tools that may take minutes: their beginning is shown."""
PLAIN_EVERY_S = 15.0
"""Seconds between two reports of a job without a terminal."""

OUTCOME_STYLE: dict[Outcome, str] = {
    "approve": "bold green",
    "revise": "bold yellow",
    "null": "bold yellow",
    "reject": "bold red",
    "escalate": "bold magenta",
}
STATUS_STYLE: dict[Status, str] = {"WARN": "yellow", "FAIL": "red", "BLOCKED": "magenta", "ERROR": "magenta"}


class Terminal:
    """Shows the session to a person; nothing depends on it. ``now`` gets what happens, without untrusted text."""

    def __init__(self, console: Console | None = None, now: Callable[[str], None] = lambda _: None) -> None:
        self._now = now
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._last_plain = 0.0
        self._first: JobProgress | None = None
        self._last_call = ""

    def say(self, text: str, style: str = "") -> None:
        """Show one line with the time before it."""
        stamp = Text(time.strftime("%H:%M:%S "), style="dim")
        # Masked before it is cut: half of a secret is not recognized.
        displayed_text = plain(current().text(text), LINE_CHARACTERS).replace("\n", " ")
        self.console.print(stamp + Text(displayed_text, style=style))

    def stage(self, name: str, attempt: int, position: int, count: int) -> None:
        """Announce an attempt."""
        self._now(f"stage {name} ({position} of {count}), attempt {attempt}, is being prepared")
        self._first = None
        self._last_plain = time.monotonic()
        self.say(f"stage {position}/{count} {name}, attempt {attempt}", "bold cyan")

    def turn(self, turn: ModelTurn, committed_usd: float, most_usd: float) -> None:
        """Show which model answered, how much it read and wrote, and what the builder has taken so far."""
        self._last_call = ""
        usd = f"{turn.usd:.4f} USD{'' if turn.usd_is_measured else ' at most'}"
        asks = f"{len(turn.calls)} call{'' if len(turn.calls) == 1 else 's'}" if turn.calls else turn.stop
        money = f"{usd}, builder {committed_usd:.4f} of {most_usd:g} USD"
        self.say(f"  {masked_line(turn.model, 60)}: {_tokens(turn.usage)}{asks}; {money}", "dim")

    def call_begins(self, tool: str) -> None:
        """Announce a slow tool, once for calls in a row."""
        if tool in WAITING_TOOLS and self._last_call != tool:
            self.say(f"    {masked_line(tool, 64)} ...")

    def call(self, tool: str, arguments: str, text: str, is_error: bool) -> None:
        """Show a call with its outcome in one line, once for the same line in a row."""
        input_text = "" if arguments in ("", "{}") else f" {masked_line(arguments, CALL_CHARACTERS)}"
        message = masked_line(text, OUTCOME_CHARACTERS)
        line = f"    {masked_line(tool, 64)}{input_text} -> {'refused: ' if is_error else ''}{message}"
        if line != self._last_call:
            self.say(line, "yellow" if is_error else "")
        self._last_call = line if tool not in WAITING_TOOLS else tool

    def progress(self, stage: str, progress: JobProgress) -> None:
        """Show the progress of the job, with the time left at the present speed."""
        self._now(f"the job of {stage} runs: {progress.done} of {progress.total} {plain(progress.unit, 20)}")
        visible = {name: value if isinstance(value, str) else f"{value:.4g}" for name, value in progress.note.items()}
        note = masked_line("  ".join(f"{name} {text}" for name, text in visible.items()), NOTE_CHARACTERS)
        if self.console.is_terminal:
            self._show_bar(stage, progress, note)
            return
        remaining = self._estimate_seconds_left(progress)
        now = time.monotonic()
        if now - self._last_plain < PLAIN_EVERY_S and progress.done < progress.total:
            return
        self._last_plain = now
        eta = f", about {remaining:.0f} s left" if remaining >= 1 else ""
        self.say(f"  {stage}: {progress.done}/{progress.total} {progress.unit}{eta}  {note}".rstrip())

    def _estimate_seconds_left(self, progress: JobProgress) -> float:
        if self._first is None or progress.done <= self._first.done:
            self._first = progress
        return progress.seconds_left(self._first)

    def job_ended(self, stage: str, text: str) -> None:
        """Remove the bar and say how the job ended."""
        self._now(f"the job of {stage} has ended; its rows are being measured")
        self._first = None
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self.say(f"  {text}")

    def metrics(self, metrics: MetricSet) -> None:
        """Show what was measured from the raw rows."""
        self._now(f"the rows of {metrics.stage}.{metrics.attempt} are measured; the gate decides next")
        for metric in metrics.metrics.values():
            interval = f"  [{metric.interval[0]:.3f}, {metric.interval[1]:.3f}]" if metric.interval else ""
            self.say(f"    {metric.id:<26} {metric.value:>10.4g}{interval}  n={metric.n} ({metric.unit})")

    def checks(self, results: tuple[CheckResult, ...]) -> None:
        """Count the checks and show every check that did not simply pass."""
        self._now("the checks have run; the gate is being reviewed")
        counts = Counter(result.status for result in results)
        summary = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        self.say(f"  checks: {summary}")
        for status, ids, detail in group_by_detail(results, STATUS_STYLE):
            self.say(f"    {status} {ids}: {masked_line(detail, LINE_CHARACTERS)}", STATUS_STYLE[status])

    def decision(self, decision: Decision, balance: Balance) -> None:
        """Show the gate's decision, its reasons, and the balance."""
        self._now(f"the gate of {decision.stage} decided: {decision.outcome}")
        self.say(f"  gate {decision.stage}: {decision.outcome}", OUTCOME_STYLE[decision.outcome])
        for reason in drop_repeated_reasons(decision.reasons):
            self.say(f"    - {masked_line(reason, LINE_CHARACTERS)}")
        for change in decision.required_changes:
            self.say(f"    required: {masked_line(change.text, LINE_CHARACTERS)}")
        text = f"{balance.left_usd:.4f} USD and {balance.left_hours * 60:.0f} min"
        self.say(f"  spent {balance.spent_usd:.4f} USD, left {text}", "dim")

    def _show_bar(self, stage: str, progress: JobProgress, note: str) -> None:
        if self._bar is None:
            columns = (
                TextColumn("         {task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}", markup=False),
            )
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._bar.start()
            self._bar.add_task(stage, total=progress.total, note=note)
        self._bar.update(self._bar.task_ids[0], completed=progress.done, total=progress.total, note=note)


def _tokens(usage: TurnUsage | None) -> str:
    if usage is None:
        return ""
    cached = f" ({_count(usage.cached_tokens)} cached)" if usage.cached_tokens else ""
    return f"{_count(usage.input_tokens)} tokens in{cached}, {_count(usage.output_tokens)} out, "


def _count(tokens: int) -> str:
    return str(tokens) if tokens < 1000 else f"{tokens / 1000:.1f}k"
