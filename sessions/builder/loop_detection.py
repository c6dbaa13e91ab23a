"""Detects a builder that repeats itself, from the record of its phase."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from specs.trail.gate_bodies import DecisionEntry, HumanAnswerEntry, RetractionEntry, ToolCallEntry, ToolResultEntry

MOST_CALLS = 120
"""Calls in one phase of one attempt."""
MOST_ERRORS = 8
"""Failed calls in a row."""
SAME_RESULTS = 2
"""A call that has had the same result this often is not carried out again."""
MOST_IDLE_TURNS = 10
"""Turns in a row that brought nothing new."""
MOST_IDLE_CALLS = 24
"""Calls in a row that brought nothing new, also of builders whose turns are unknown."""
MOST_REVISIONS = 3
"""Times in a row that a gate sends a stage back before a person is asked, whatever its ``max_rounds``."""
MAY_REPEAT = ("job_status", "job_logs")
"""Tools whose results change by themselves."""
ACTING = (
    "delegate",
    "write_recipe",
    "propose_plan",
    "propose_amendment",
    "write_note",
    "ask_review",
    "request_review",
    "adversarial_review",
)
"""Tools with an effect, after which the results of others may differ."""


def revisions_in_a_row(history: History, stage: str) -> int:
    """Count how often in a row a gate has sent a stage back since a person answered."""
    count = 0
    for judgement in (entry.body for entry in history.of(DecisionEntry, HumanAnswerEntry, RetractionEntry)):
        if isinstance(judgement, RetractionEntry):
            count = 0
        elif judgement.stage == stage:
            count = count + 1 if isinstance(judgement, DecisionEntry) and judgement.outcome == "revise" else 0
    return count


class PhaseRecord:
    """The calls and results of one phase, in order."""

    def __init__(
        self,
        calls: Sequence[RecordedEntry[ToolCallEntry]],
        results: Sequence[RecordedEntry[ToolResultEntry]],
        turns: int,
        not_theirs: str,
    ) -> None:
        """Take the records; ``not_theirs`` is the digest of the result of calls that the session broke off."""
        self._calls = {call.key: call for call in calls}
        self._results = results
        self._turns = turns
        self._not_theirs = not_theirs
        self._fresh: list[RecordedEntry[ToolResultEntry]] = []
        """Results with a text that no earlier result had."""
        seen_texts: set[str] = set()
        for result in results:
            if not result.body.is_error and result.body.text not in seen_texts:
                self._fresh.append(result)
            seen_texts.add(result.body.text)

    def why_stop(self) -> str:
        """Return why a person must be asked; empty while the builder may continue."""
        refused = takewhile(lambda result: result.body.is_error, reversed(self._results))
        if (failed := sum(result.body.text != self._not_theirs for result in refused)) >= MOST_ERRORS:
            return f"{failed} calls in a row were refused"
        if len(self._calls) >= MOST_CALLS:
            return f"{len(self._calls)} calls were made without an end"
        last = max((self._calls[result.body.call].body.turn for result in self._fresh), default=0)
        # The newest turn is still being carried out.
        if (idle := self._turns - 1 - last) >= MOST_IDLE_TURNS:
            return f"{idle} turns in a row brought nothing new"
        since = self._results.index(self._fresh[-1]) + 1 if self._fresh else 0
        if (idle := len(self._results) - since) >= MOST_IDLE_CALLS:
            return f"{idle} calls in a row brought nothing new"
        return ""

    def repeats(self, call: RecordedEntry[ToolCallEntry], refusal: str) -> bool:
        """Return whether a call has had the same result too often, without an effect since.

        ``refusal`` is its digest.
        """
        if call.body.tool in MAY_REPEAT:
            return False
        acts = [result for result in self._fresh if self._calls[result.body.call].body.tool in ACTING]
        since = acts[-1].seq if acts else -1
        same = {
            key
            for key, current_call in self._calls.items()
            if (current_call.body.tool, current_call.body.arguments) == (call.body.tool, call.body.arguments)
        }
        texts = [
            result.body.text
            for result in self._results
            if result.body.call in same and result.seq > since and result.body.text not in (refusal, self._not_theirs)
        ]
        return len(texts) >= SAME_RESULTS and len(set(texts[-SAME_RESULTS:])) == 1
