"""`peergate pod down`: end a pod, after everything there was pulled and verified here, and not before."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from sessions.pods.channel import Channel, PodRefused
from sessions.pods.connection import Connection, ConnectionLost
from sessions.pods.pod_record import Place, PodRecord
from sessions.pods.pod_start import status_of
from sessions.pods.pull import Pulled, pull, require_whole, verify
from specs.errors import Blocked

PAUSE_S = 3600.0
"""A session comes to a safe place between two steps; an answer of a model that is under way is waited for."""
SHUTDOWN_S = 330.0


def down(
    connection: Connection, place: Place, record: PodRecord, say: Callable[[str], None], *, pause: bool
) -> Pulled | None:
    """Pull, verify, end what runs there, and run the shutdown command; returns what was pulled.

    Raises:
        Blocked: the session runs, and it was not to be paused; nothing was ended.
        AuditDamage: what is there does not hold; nothing was ended.
        ConnectionLost: before the end; nothing was ended.
    """
    with Channel(connection, record.python, record.root, place.name) as channel:
        status, _ = status_of(channel, 0)
        if status.orchestrator == "running" and not pause:
            hint = "`peergate pod attach` waits for its end; `peergate pod down --pause` pauses it first"
            raise Blocked("the session runs; the pod was not ended", where=place.name, hint=hint)
        if status.orchestrator == "running":
            _pause(channel, say)
        pulled: Pulled | None = None
        try:
            pulled = pull(channel, place, say)
        except PodRefused as none:
            if status.entries:
                raise
            say(f"there is no trail on the pod: {none.message}")
        if pulled is not None:
            audit = verify(place)
            require_whole(place, audit)
            say(f"verified: {audit.entries} entries, {audit.files} files, {audit.rederived} decisions derived again")
            channel.ask("pulled", entries=pulled.entries)
        if status.ending is not None:
            say("its keeper is ending the pod already, and does not wait any longer")
            return pulled
        channel.ask("sweep", everything=True)
        say("running the shutdown command" if record.pod.shutdown else "no shutdown command is declared")
        with suppress(ConnectionLost):
            # The machine may be gone before it can answer.
            header, _ = channel.ask(
                "shutdown", command=record.pod.shutdown, reason="peergate pod down", seconds=SHUTDOWN_S
            )
            if record.pod.shutdown and header.get("code") != 0:
                hint = "everything is pulled and verified; end the machine at your provider"
                raise Blocked(f"the shutdown command ended with {header.get('code')}", where=place.name, hint=hint)
    return pulled


def _pause(channel: Channel, say: Callable[[str], None]) -> None:
    channel.ask("pause")
    say("asked the session to pause at the next safe place; its job is ended with the pod")
    deadline = time.monotonic() + PAUSE_S
    while status_of(channel, 0)[0].orchestrator == "running":
        if time.monotonic() > deadline:
            raise Blocked(f"the session did not pause within {PAUSE_S:g} s; the pod was not ended")
        time.sleep(1)
