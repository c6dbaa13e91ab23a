"""Why a reviewer gave no verdict: a cause that code can branch on, what happened in words, and what helps."""

from __future__ import annotations

from typing import Literal

from specs.system.digests import Contract, Digest
from specs.system.errors import BudgetExceeded, NoVerdictCause, PeergateError, ReviewerUnavailable

Cause = NoVerdictCause | Literal["budget", "withdrawn"]

HELP: dict[Cause, str] = {
    "key_refused": "set a valid key for the reviewer in the environment",
    "rate_limited": "wait, or raise the rate limit of the key",
    "request_refused": "compare the reviewer's model, api and base_url in the spec with what the server offers",
    "server_error": "ask again when the server works",
    "unreachable": "check the network and the reviewer's address, and ask again",
    "timed_out": "raise timeout_s under reviewer.effort in a new session, or ask again when the server is quicker",
    "cut_off": "check the network, and ask again",
    "malformed": "check that the reviewer's address speaks the API that the spec names",
    "incomplete": "raise max_cost_usd or max_output_tokens under reviewer.effort in a new session",
    "refused": "name another model as the reviewer in a new session, or decide yourself",
    "out_of_schema": "ask again, or name a model that keeps to a JSON Schema in a new session",
    "cost_cap": "raise max_cost_usd under reviewer.effort in a new session",
    "budget": "raise the budget with `peergate amend`",
    "withdrawn": "nothing: another attempt begins if one is left",
    "process_lost": "ask again; the reviewer's process is started anew",
    "no_quorum": "mend what kept the members from answering, and ask again",
    "unusable": "ask again, or decide yourself",
}
"""What a person can do, by cause."""


class NoVerdict(Contract):
    """That there is no verdict, and why."""

    cause: Cause
    what: str
    """What happened, in a sentence."""
    detail: str = ""
    """What a server, a model or a process said of it: untrusted, and the first to be cut."""
    help: str
    """What a person can do."""

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}" if self.detail else self.what


class EarlierAnswer(Contract):
    """A whole answer that could not be read, after which the model was asked once more."""

    request: Digest
    response: Digest
    error: str
    """The complaint that the model got."""


class CitedLookup(Contract):
    """What a reviewer had looked up and been answered before its own answer."""

    entry: str
    """The key of the ``look`` entry."""
    answer: Digest


def no_verdict_of(error: PeergateError) -> NoVerdict:
    """Return why there is no verdict, from the error that a review ended with."""
    if isinstance(error, BudgetExceeded):
        return NoVerdict(cause="budget", what=error.message, help=HELP["budget"])
    if isinstance(error, ReviewerUnavailable):
        return NoVerdict(cause=error.cause, what=error.what, detail=error.detail, help=error.hint or HELP[error.cause])
    return NoVerdict(cause="unusable", what=error.message, help=error.hint or HELP["unusable"])
