"""Whom a session notifies of what happened while no one looks at it."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, StringConstraints

from specs.system.digests import Contract

NoticeEvent = Literal["waiting", "budget", "lost", "rejected", "closed"]
"""A person is asked; 50, 80 or 100 % of the budget is spent; a job is lost; a gate rejects; the session ends."""


class Notify(Contract):
    """One receiver. A variable holds its address, because anyone who knows the address can write to it."""

    env: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,99}$")]
    """The environment variable with the address: ``https://...`` of a webhook, or an apprise address such as
    ``mailtos://`` or ``ntfys://``."""
    on: Annotated[tuple[NoticeEvent, ...], Field(min_length=1)] = get_args(NoticeEvent)
    """The events that it is notified of."""
