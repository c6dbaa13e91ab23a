"""Delivers a notice to one address within a bounded time: a webhook directly, everything else through apprise."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from specs.system.extras import install_hint

WITHIN_S = 20.0
"""The longest that a session waits for the delivery of one notice."""
PAUSES_S = (0.0, 1.0, 4.0)
"""Before each try."""


def deliver(address: str, messages: Mapping[str, Any], within_s: float = WITHIN_S) -> str:
    """Return why a notice was not delivered; empty if it was. The address, which may be a secret, is not in it."""
    why = [f"no answer within {within_s:g} s"]

    def work() -> None:
        for pause in PAUSES_S:
            time.sleep(pause)
            try:
                why[0] = _send(address, messages)
            except Exception as error:
                # Whatever a library or a server does: a notice that fails must not end a session.
                why[0] = type(error).__name__
            if not why[0]:
                return

    # A server that answers byte by byte keeps any timeout of a client waiting.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(within_s)
    return why[0]


def _send(address: str, messages: Mapping[str, Any]) -> str:
    if address.startswith(("https://", "http://")):
        # Imported here: most sessions tell no one.
        import httpx2

        # No redirects: they lead to addresses that no one named.
        answer = httpx2.post(address, json=dict(messages), timeout=10.0, follow_redirects=False)
        return "" if answer.is_success else f"the server answered {answer.status_code}"
    try:
        apprise: Any = import_module("apprise")
    except ModuleNotFoundError:
        return f"it is not a webhook, and package 'apprise' is not installed: {install_hint('notify')}"
    receiver = apprise.Apprise()
    if not receiver.add(address):
        return "apprise reads no address in it"
    return "" if receiver.notify(title=messages["title"], body=messages["text"]) else "apprise could not deliver it"
