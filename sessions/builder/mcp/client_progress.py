"""A terminal that also tells the client what goes on while no phase is open, in words that hold nothing to be kept."""

from __future__ import annotations

from agents.external_builder import Exchange
from sessions.money.ledger import Balance
from sessions.report.live_display import Terminal
from specs.job_records import Progress
from specs.stages.metric import MetricSet
from specs.text import plain
from specs.trail.verdict import CheckResult, Decision


class Onlooker(Terminal):
    """The terminal of a session with a client.

    Lines that were said, details of checks and reasons of gates are for the person at the terminal: they may quote
    held-out items. What the builder is to know of them stands in its brief, behind the wall.
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
