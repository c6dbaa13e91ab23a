"""Loop care: when a builder goes round in circles, from what is on record of its phase and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reviews.trail.envelope import Recorded

MOST_CALLS = 120
"""Calls in one phase of one attempt."""
MOST_ERRORS = 8
"""Failed calls in a row."""
SAME_RESULTS = 2
"""After a call has had the same result this often it is not carried out again."""
MOST_IDLE_TURNS = 10
"""Turns in a row that brought nothing new."""
MOST_IDLE_CALLS = 24
"""Calls in a row that brought nothing new, of builders whose turns are not seen too."""
MOST_REVISIONS = 3
"""Times in a row that a gate sends a stage back before a person is asked, whatever its ``max_rounds``."""
MAY_REPEAT = ("job_status", "job_logs")
"""What they tell changes by itself."""
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
"""Tools that leave something, so that what others tell may be different after them."""


def revisions_in_a_row(judgements: Iterable[Recorded], stage: str) -> int:
    """Count how often in a row a stage's gate has sent it back, since a person last said how it goes on.

    ``judgements`` are decisions, answers of people and retractions, in order.
    """
    count = 0
    for one in judgements:
        if one.entry.kind == "retraction":
            count = 0
        elif one.body["stage"] == stage:
            count = count + 1 if one.body.get("outcome") == "revise" else 0
    return count


class PhaseRecord:
    """The calls of one phase and what came of them, in order."""

    def __init__(self, calls: Sequence[Recorded], results: Sequence[Recorded], turns: int, not_theirs: str) -> None:
        """Take the records; ``not_theirs`` is the digest of the result of calls that the session itself broke off."""
        self._calls = {one.entry.key: one for one in calls}
        self._results = results
        self._turns = turns
        self._not_theirs = not_theirs
        self._fresh = self._bring_news()

    def _bring_news(self) -> list[Recorded]:
        """Return the results that tell what no result of this phase had told before."""
        seen: set[str] = set()
        fresh: list[Recorded] = []
        for one in self._results:
            if not one.body["is_error"] and one.body["text"] not in seen:
                fresh.append(one)
            seen.add(one.body["text"])
        return fresh

    def why_stop(self) -> str:
        """Say why a person has to be asked; empty as long as the builder may go on."""
        if (failed := self._failed_in_a_row()) >= MOST_ERRORS:
            return f"{failed} calls in a row were refused"
        if len(self._calls) >= MOST_CALLS:
            return f"{len(self._calls)} calls were made without an end"
        last = max((self._calls[one.body["call"]].body["turn"] for one in self._fresh), default=0)
        # The newest turn is still being carried out.
        if (idle := self._turns - 1 - last) >= MOST_IDLE_TURNS:
            return f"{idle} turns in a row brought nothing new"
        since = self._results.index(self._fresh[-1]) + 1 if self._fresh else 0
        if (idle := len(self._results) - since) >= MOST_IDLE_CALLS:
            return f"{idle} calls in a row brought nothing new"
        return ""

    def _failed_in_a_row(self) -> int:
        count = 0
        for one in reversed(self._results):
            if not one.body["is_error"]:
                break
            count += one.body["text"] != self._not_theirs
        return count

    def repeats(self, call: Recorded, refusal: str) -> bool:
        """Say whether this very call has had the same result too often, and nothing has happened since.

        ``refusal`` is the digest of the text that says so.
        """
        if call.body["tool"] in MAY_REPEAT:
            return False
        acts = [one for one in self._fresh if self._calls[one.body["call"]].body["tool"] in ACTING]
        since = acts[-1].entry.seq if acts else -1
        same = {
            key
            for key, one in self._calls.items()
            if (one.body["tool"], one.body["arguments"]) == (call.body["tool"], call.body["arguments"])
        }
        texts = [
            one.body["text"]
            for one in self._results
            if one.body["call"] in same
            and one.entry.seq > since
            and one.body["text"] not in (refusal, self._not_theirs)
        ]
        return len(texts) >= SAME_RESULTS and len(set(texts[-SAME_RESULTS:])) == 1
