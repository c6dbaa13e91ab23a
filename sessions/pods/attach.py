"""`peergate pod attach`: shows the session, pulls at every gate, and reconnects when the connection is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple

from sessions.pods.connection import Channel, ConnectionLost, PodConnection, PodRefusal
from sessions.pods.lifecycle import status_of
from sessions.pods.pod_record import PodPlace, PodRecord
from sessions.pods.protocol import Status
from sessions.pods.pull import PullResult, pull, require_whole, verify
from specs.system.errors import ExitCode
from specs.system.text import plain

LOOK_EVERY_S = 1.0
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
LINE = 4000
MOST_LINES = 10_000
"""Shown of one look: no one reads more in a second."""


class WatchOutcome(NamedTuple):
    """Why there is nothing more to watch."""

    why: Literal["closed", "stopped", "gone", "never"]
    """``stopped``: the orchestrator exited with the session open, ``gone``: it was killed or vanished."""
    status: Status
    pulled: PullResult | None


def was_killed(status: Status) -> bool:
    """Return whether a signal ended the orchestrator; code 130 says that it paused."""
    return status.code is not None and status.code > 128 and status.code != ExitCode.INTERRUPTED


class PodWatcher:
    """Watches one pod until its orchestrator has ended."""

    def __init__(
        self,
        connection: PodConnection,
        place: PodPlace,
        record: PodRecord,
        say: Callable[[str], None],
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.connection, self.place, self.record = connection, place, record
        self.say, self.wait = say, wait
        self._log, self._rest = 0, b""
        self._gates = -1
        self._reported_ending = ""
        self._reported_keeper = False

    def watch(self) -> WatchOutcome:
        """Follow the session to the end of its orchestrator, and reconnect as often as needed.

        Raises:
            AuditDamage: the pulled copy does not verify.
            HostKeyRefused: the pod came back with another host key.
            PodRefused: the pod answers and refuses.
        """
        wait_s = FIRST_WAIT_S
        while True:
            try:
                with Channel(self.connection, self.record.python, self.record.root, self.place.name) as channel:
                    while True:
                        ended = self.look(channel)
                        wait_s = FIRST_WAIT_S
                        if ended is not None:
                            return ended
                        self.wait(LOOK_EVERY_S)
            except ConnectionLost as lost:
                self.say(f"{lost.message}; the session continues there, trying again in {wait_s:g} s")
                self.connection.close()
                self.wait(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def look(self, channel: Channel) -> WatchOutcome | None:
        """Show what is new, pull if a gate has decided, and return why the watch is over, if it is."""
        status, data = status_of(channel, self._log)
        self._show(data)
        self._log = status.log
        if status.ending is not None and status.ending != self._reported_ending:
            self._reported_ending = status.ending
            self.say(f"the pod is being ended: {plain(status.ending, 300)}")
        running = status.orchestrator == "running"
        if running and not status.keeper and not self._reported_keeper:
            self._reported_keeper = True
            again = f"`peergate pod start {self.place.name}`"
            self.say(f"the keeper is gone, so no rule ends the pod: {again} starts another keeper")
        if running and status.gates == self._gates:
            return None
        pulled: PullResult | None = None
        if status.entries or not running:
            with suppress(PodRefusal):
                pulled = pull(channel, self.place, self.say)
                self.say(f"pulled {pulled.entries} entries and {pulled.files} files, the head is kept")
        self._gates = status.gates
        if running:
            return None
        with suppress(PodRefusal, ValueError):
            for line in json.loads(channel.ask("sweep")[1])[:100]:
                self.say(f"ended an orphan: {plain(str(line), 300)}")
        if pulled is not None:
            require_whole(self.place, verify(self.place))
            channel.ask("pulled", entries=pulled.entries)
            if pulled.closed:
                return WatchOutcome("closed", status, pulled)
        if status.orchestrator == "gone" or was_killed(status):
            return WatchOutcome("gone", status, pulled)
        return WatchOutcome("stopped" if status.orchestrator == "ended" else "never", status, pulled)

    def _show(self, data: bytes) -> None:
        whole, _, self._rest = (self._rest + data).rpartition(b"\n")
        for line in whole.decode("utf-8", "replace").split("\n")[:MOST_LINES] if whole else []:
            self.say(f"  | {plain(line, LINE)}")
        if len(self._rest) > LINE:
            self._rest = b""
