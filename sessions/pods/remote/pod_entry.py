"""What runs on the pod: ``python -P -m sessions.pods.remote.pod_entry VERB ROOT NAME``, called over SSH."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from sessions.pods.protocol import PROTOCOL, Order
from sessions.pods.remote import process_state
from sessions.pods.remote.keeper import end_keeper
from sessions.pods.remote.pod_layout import Layout
from sessions.run.run_layout import TRAIL

START_S = 60.0


def version() -> None:
    """Say which Peergate this is."""
    from importlib.metadata import version
    from importlib.util import find_spec

    from reviews.checks.measuring_code import measuring_code

    told = {"protocol": PROTOCOL, "version": version("peergate"), "measuring": measuring_code()}
    print(json.dumps(told | {"ray": find_spec("ray") is not None}))


def begin(layout: Layout) -> None:
    """Start a keeper, which starts the orchestrator, and wait until both are there."""
    order = Order.model_validate_json(sys.stdin.buffer.read(), strict=True)
    layout.make()
    begun = (layout.run / TRAIL).exists()
    if order.answer is not None and not begun:
        _refuse("there is no session yet that asks anything")
    adopt = process_state.lives(layout.own / process_state.ORCHESTRATOR)
    if adopt and (process_state.lives(layout.own / process_state.KEEPER) or order.answer is not None):
        _refuse("the orchestrator runs already; `peergate pod attach` shows it")
    end_keeper(layout)
    before = (process_state.read(layout.own / process_state.ORCHESTRATOR) or {}).get("number", 0)
    with (layout.own / "keeper.log").open("ab") as log:
        keeper = subprocess.Popen(
            [order.python, "-P", "-m", "sessions.pods.remote.pod_entry", "keep", str(layout.root), layout.name],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=layout.root,
            start_new_session=True,
        )
    assert keeper.stdin
    keeper.stdin.write(order.canonical())
    keeper.stdin.close()
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        told = process_state.read(layout.own / process_state.ORCHESTRATOR) or {}
        if told.get("number", 0) > before or (adopt and process_state.lives(layout.own / process_state.KEEPER)):
            print(json.dumps({"pid": told["pid"], "number": told["number"], "begun": begun}))
            return
        if keeper.poll() is not None:
            _refuse(f"the keeper ended with {keeper.returncode}: {_tail(layout.own / 'keeper.log')}")
        time.sleep(0.05)
    _refuse(f"the orchestrator was not there within {START_S:g} s")


def _refuse(text: str) -> None:
    print(json.dumps({"refused": text}))
    raise SystemExit(0)


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-500:].decode("utf-8", "replace").strip()
    except OSError as error:
        return str(error)


def main(words: list[str]) -> int:
    """Carry out one verb."""
    if words == ["version"]:
        version()
        return 0
    verb, root, name = words
    layout = Layout(Path(root), name)
    if verb == "start":
        begin(layout)
    elif verb == "keep":
        from sessions.pods.remote.keeper import keep

        order = Order.model_validate_json(sys.stdin.buffer.read(), strict=True)
        return keep(layout, order)
    elif verb == "serve":
        from sessions.pods.remote.channel_server import serve

        serve(layout, sys.stdin.buffer, sys.stdout.buffer)
    else:
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
