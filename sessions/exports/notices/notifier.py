"""Looks at a trail for notices and sends each once: what was delivered is kept next to the trail."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.exports.notices.delivery import WITHIN_S, deliver
from sessions.exports.notices.news import News, news_of
from specs.notices.notify import Notify
from specs.session.session_spec import ResolvedSpec
from specs.system.masking import current, know
from specs.system.regular_files import read_regular
from specs.system.strict_json import read_json

RECORD = "notices.jsonl"
"""In the run folder: no evidence, so not in the trail."""
EVERYWHERE = "PEERGATE_NOTIFY"
"""The variable that names a receiver of everything, for all sessions of this environment."""


class Notifier:
    """Tells the receivers of one session."""

    def __init__(
        self,
        run: Path,
        trail: Trail,
        store: Store,
        resolved: ResolvedSpec,
        say: Callable[[str], None],
        *,
        environ: Mapping[str, str] | None = None,
        within_s: float = WITHIN_S,
    ) -> None:
        """Know the receivers: those of the spec, and that of the environment."""
        input_environ = os.environ if environ is None else environ
        self._run, self._trail, self._store, self._resolved, self._say = run, trail, store, resolved, say
        self._within_s = within_s
        named = {notify.env: notify for notify in resolved.spec.notify}
        if input_environ.get(EVERYWHERE):
            named.setdefault(EVERYWHERE, Notify(env=EVERYWHERE))
        self._receivers = tuple(named.values())
        self._addresses = {name: input_environ.get(name, "").strip() for name in named}
        for name, address in self._addresses.items():
            know(name, address)
        self._sent = _read_sent_notices(run / RECORD)

    def look(self) -> None:
        """Send notices for new entries. Never raises: failures are printed and recorded."""
        if not self._receivers:
            return
        try:
            news = news_of(self._run, History(self._trail.iterate(), self._store))
            for current_news in news:
                for receiver in self._receivers:
                    if current_news.event in receiver.on and (current_news.key, receiver.env) not in self._sent:
                        self._send(current_news, receiver.env)
        except Exception as error:
            # A notice is never worth a session.
            self._say(f"notices: {type(error).__name__}, no one was notified")

    def _send(self, value: News, name: str) -> None:
        self._sent.add((value.key, name))
        address = self._addresses[name]
        message = current().value(_format_notice(self._run.name, value))
        why = deliver(address, message, self._within_s) if address else f"variable {name} is not set"
        line = {
            "time": time.time(),
            "event": value.event,
            "key": value.key,
            "to": name,
            "delivered": not why,
            "why": why,
        }
        path = self._run / RECORD
        with path.open("a", encoding="utf-8") as handle:
            path.chmod(0o600)
            handle.write(json.dumps(line) + "\n")
        if why:
            self._say(f"notice '{value.event}' did not reach {name}: {why}")


def _format_notice(session: str, value: News) -> dict[str, Any]:
    """Return a notice as it is sent; Slack's webhooks read its ``text``."""
    title = f"Peergate: {session} {value.event}"
    text = "\n".join((f"{session}: {value.text}", *value.commands))
    return {"title": title, "text": text, "session": session, "event": value.event, "commands": list(value.commands)}


def _read_sent_notices(path: Path) -> set[tuple[str, str]]:
    """Return who was notified of what before; a line that a kill cut short is sent again."""
    pairs: set[tuple[str, str]] = set()
    try:
        lines = read_regular(path).decode("utf-8", "replace").splitlines()
    except OSError:
        return pairs
    for line in lines:
        try:
            json = read_json(line.encode())
            pairs.add((str(json["key"]), str(json["to"])))
        except (ValueError, TypeError, LookupError):
            continue
    return pairs
