"""The one error tree: each branch has an exit code, and code branches on the class, never on the text.

Every error is a fact with both values (``message``), where it is (``where``) and the repair (``hint``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal


class ExitCode(IntEnum):
    """Process exit codes; frozen by a test. What each means is in :data:`EXIT_MEANINGS`."""

    DONE = 0
    FAULT = 1
    USAGE = 2
    REJECTED = 3
    BLOCKED = 4
    DAMAGED = 5
    BUDGET = 6
    INTERRUPTED = 130
    """Ctrl-C: the session is paused and can be resumed (128 + SIGINT, the shell convention)."""


EXIT_MEANINGS: dict[ExitCode, str] = {
    ExitCode.DONE: 'Accepted, or closed as a null ("no significant difference"), which is a result; or the command did '
    "what it was asked.",
    ExitCode.FAULT: "Peergate or its environment failed.",
    ExitCode.USAGE: "The request cannot be carried out, the spec has problems, or `--runs` names no place where a "
    "session can be kept. Nothing was started. A session that was already registered in a database stays there as "
    "paused, because entries there are final.",
    ExitCode.REJECTED: "A gate said no, whether a person lifted it or not; or a person stopped the session at a gate.",
    ExitCode.BLOCKED: "Evidence, reviewer or grant is missing; the session waits for a person; another process runs "
    "it or has taken it over; the database of its trail cannot be reached or written; a pod fails a check, its host "
    "key is not confirmed, or its orchestrator is gone; this machine lacks what a stage asks for, such as a GPU; what "
    "another distribution brings cannot be loaded or is not what was registered; the disk is full or cannot be "
    "written (make room, then resume); a run folder, or the place of an export, an anchor or a note, cannot be read "
    "or written.",
    ExitCode.DAMAGED: "Saved evidence or the trail does not match what was recorded, or the database reports that its "
    "own pages are damaged.",
    ExitCode.BUDGET: "The next step exceeds the remaining money or hours: the session waits for a larger "
    "budget, or was closed without one.",
    ExitCode.INTERRUPTED: "Paused with Ctrl-C, SIGTERM or `peergate pause` (resume continues), or cancelled. `pause` "
    "itself ends with 0 when nothing runs any more.",
}
VERIFY_EXIT_MEANINGS: dict[int, str] = {
    0: "Verified, the session is closed, and the anchors that were given reach its end; or verified, and it is a "
    "trail of requested reviews, which is never closed.",
    1: "Tampered: the list says what.",
    2: "Valid, but the session is still open, or anchors were given and none covers the newest entries: it says which.",
    3: "Unreadable: no trail there, or an anchor or policy that was given cannot be read.",
    4: "Verified, but with `--again` a row was not reproduced, or a stage could not be witnessed: it says which.",
}
"""For `peergate audit verify` only."""
NOT_WITNESSED = 4


class PeergateError(Exception):
    """Base of all errors Peergate raises on purpose."""

    exit_code: ExitCode = ExitCode.FAULT

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head}\n  {self.hint}" if self.hint else head


class UserError(PeergateError):
    """The request itself cannot be carried out: wrong name, wrong option, wrong file."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a file: 1-based line and column, the path of keys, what and how to fix it."""

    path: str
    line: int
    column: int
    keys: str
    message: str
    hint: str = ""
    stands_for: int = field(default=1, kw_only=True)
    """How many things the message names; the rest is only counted."""

    def __str__(self) -> str:
        keys = f"{self.keys}: " if self.keys else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.path}:{self.line}:{self.column}: {keys}{self.message}{hint}"


class SpecError(UserError):
    """A spec (or constitution, or data file it names) is wrong; ``problems`` holds all of them."""

    def __init__(self, problems: list[Problem]) -> None:
        count = sum(problem.stands_for for problem in problems)
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
        self.hint = f"{count} problem{'s' if count != 1 else ''} found; nothing was started"


class BlockedError(PeergateError):
    """Something a gate or launcher needs is missing, so it stays closed."""

    exit_code = ExitCode.BLOCKED


class EvidenceMissing(BlockedError):
    """Raw rows, a manifest or an exit record is absent or unreadable."""


class InvalidGrant(BlockedError):
    """A job was asked for without a matching, unused and unexpired grant."""


class BuilderUnavailable(BlockedError):
    """The builder's model cannot be reached for longer than the spec waits. The session pauses; nothing is lost."""


class DiskUnwritable(BlockedError):
    """The disk is full or cannot be written. The session pauses; nothing is half-written or lost."""


class LeaseHeld(BlockedError):
    """Another process is the orchestrator of this session."""


class LeaseLost(BlockedError):
    """Another process has taken the session over; this one may record nothing more in it."""


class PluginFault(BlockedError):
    """What another distribution brings cannot be loaded, breaks its contract, or is not what was registered."""


class UnconfinedTask(PluginFault):
    """A task of the user's own would run without a sandbox, which its spec does not allow."""


class DatabaseUnreachable(BlockedError):
    """The database with the trail cannot be reached. The session pauses; nothing is half-written or lost."""


_OfTheServer = Literal["key_refused", "rate_limited", "request_refused", "server_error", "unreachable"]
_OfTheAnswer = Literal["timed_out", "cut_off", "malformed", "incomplete", "refused", "out_of_schema"]
_OfTheSession = Literal["cost_cap", "process_lost", "no_quorum", "unusable"]
NoVerdictCause = Literal[_OfTheServer, _OfTheAnswer, _OfTheSession]
"""Why a reviewer gave no verdict; what helps against each is in ``specs/trail/verdict.py``."""


class ReviewerUnavailable(BlockedError):
    """The reviewer was not reached, refused, or gave no whole verdict.

    ``what`` is what happened, ``detail`` what a server or a model said; ``message`` is both.
    """

    def __init__(
        self, what: str, *, where: str = "", hint: str = "", cause: NoVerdictCause = "unusable", detail: str = ""
    ) -> None:
        super().__init__(f"{what}: {detail}" if detail else what, where=where, hint=hint)
        self.what = what
        self.detail = detail
        self.cause: NoVerdictCause = cause


class AuditDamage(PeergateError):
    """The trail or evidence does not match what was recorded."""

    exit_code = ExitCode.DAMAGED


class BudgetExceeded(PeergateError):
    """The next step's price cap does not fit in what the ledger has left."""

    exit_code = ExitCode.BUDGET
