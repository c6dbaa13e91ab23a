"""What the session asks of the reviewer's process beside reviews, so that it can sign what follows from them."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.process import messages
from reviews.process.client import ReviewerProcess
from reviews.process.messages import Spoken
from reviews.process.parties import read_verdict
from specs.verdicts import Verdict

__all__ = ["Spoken", "merge", "no_verdict", "repeat"]


def merge(process: ReviewerProcess, packet: str, quorum: int, members: Sequence[Spoken]) -> tuple[Verdict, str]:
    """Return the verdict of a panel and why it is none (empty when it is one).

    Raises:
        ReviewerUnavailable: the process does not take what a member said for theirs, or is gone.
    """
    asked = messages.Merge(packet=packet, quorum=quorum, members=tuple(members))
    said = process.ask(asked, messages.Reviewed)
    return read_verdict(said, "panel"), said.error


def repeat(process: ReviewerProcess, packet: bytes, before: bytes, spoken: Spoken) -> Verdict:
    """Return the earlier verdict on the same evidence, turned to this packet; errors as in :func:`merge`."""
    asked = messages.Repeat(packet=packet.decode(), before=before.decode(), spoken=spoken)
    return read_verdict(process.ask(asked, messages.Reviewed), "earlier verdict")


def no_verdict(process: ReviewerProcess, packet: str, reviewer: str, error: str) -> Verdict:
    """State that there is no verdict.

    Raises:
        ReviewerUnavailable: the process is gone.
    """
    asked = messages.NoVerdict(packet=packet, reviewer=reviewer, error=error)
    return read_verdict(process.ask(asked, messages.Reviewed), reviewer)
