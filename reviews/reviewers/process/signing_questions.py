"""What the session asks of the reviewer's process beside reviews, so that it can sign what follows from them."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.reviewers.process import messages
from reviews.reviewers.process.client import ReviewerProcess
from reviews.reviewers.process.messages import Spoken
from reviews.reviewers.process.reviewer_proxy import read_verdict
from specs.trail.no_verdict import NoVerdict
from specs.trail.verdict import Verdict

__all__ = ["Spoken", "merge", "no_verdict", "repeat"]


def merge(process: ReviewerProcess, packet: str, quorum: int, members: Sequence[Spoken]) -> Verdict:
    """Return the verdict of a panel; it says itself when too few members answered.

    Raises:
        ReviewerUnavailable: the process does not take what a member said for theirs, or is gone.
    """
    asked = messages.Merge(packet=packet, quorum=quorum, members=tuple(members))
    return read_verdict(process.ask(asked, messages.Reviewed), "panel")


def repeat(process: ReviewerProcess, packet: bytes, before: bytes, spoken: Spoken) -> Verdict:
    """Return the earlier verdict on the same evidence, turned to this packet; errors as in :func:`merge`."""
    asked = messages.Repeat(packet=packet.decode(), before=before.decode(), spoken=spoken)
    return read_verdict(process.ask(asked, messages.Reviewed), "earlier verdict")


def no_verdict(process: ReviewerProcess, packet: str, reviewer: str, why: NoVerdict) -> Verdict:
    """State that there is no verdict.

    Raises:
        ReviewerUnavailable: the process is gone.
    """
    asked = messages.NoVerdict(packet=packet, reviewer=reviewer, why=why)
    return read_verdict(process.ask(asked, messages.Reviewed), reviewer)
