"""What runs on the pod: ``python -P -m sessions.pods.remote.pod_entry VERB ROOT NAME``, called over SSH.

``start`` starts a keeper, which starts the orchestrator. ``serve`` answers an attached client until it disconnects.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from sessions.pods.protocol import PROTOCOL, Order, line_of, read_frame
from sessions.pods.remote import process_state
from sessions.pods.remote.keeper import end_keeper, is_begun, keep, shut_down
from sessions.pods.remote.pod_layout import Layout
from sessions.pods.remote.process_state import KEEPER, ORCHESTRATOR
from sessions.pods.remote.process_sweep import sweep
from sessions.run.claim import lives, read_record
from sessions.run.run_layout import STORE
from specs.system.digests import list_tree
from specs.system.regular_files import open_regular

LOG_BYTES = 1 << 16
PIECE = 1 << 20
START_S = 60.0


def version() -> None:
    """Print which Peergate this is, and which plug-ins are installed."""
    from importlib.metadata import version
    from pkgutil import iter_modules

    from reviews.checks.measuring_code import measuring_code
    from specs.system.confinement.program_process import require_sandbox
    from specs.system.confinement.verifier_command import NoSandbox
    from specs.system.plugins import identities

    facts = {"protocol": PROTOCOL, "version": version("peergate"), "measuring": measuring_code()}
    try:
        require_sandbox()
        sandbox = ""
    except NoSandbox as error:
        sandbox = str(error)
    modules = sorted({module.name for module in iter_modules()})
    print(json.dumps(facts | {"plugins": identities(), "modules": modules, "sandbox": sandbox}))


def begin(layout: Layout) -> None:
    """Start a keeper, which starts the orchestrator, and wait until both run."""
    order = Order.model_validate_json(sys.stdin.buffer.read(), strict=True)
    layout.make()
    flag = is_begun(layout)
    if order.answer is not None and not flag:
        _refuse("no session asks anything yet")
    adopt = lives(layout.own / ORCHESTRATOR)
    if adopt and (lives(layout.own / KEEPER) or order.answer is not None):
        _refuse("the orchestrator runs already; `peergate pod attach` shows it")
    end_keeper(layout)
    before = (read_record(layout.own / ORCHESTRATOR) or {}).get("number", 0)
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
        record = read_record(layout.own / ORCHESTRATOR) or {}
        if record.get("number", 0) > before or (adopt and lives(layout.own / KEEPER)):
            print(json.dumps({"pid": record["pid"], "number": record["number"], "begun": flag}))
            return
        if keeper.poll() is not None:
            text = (layout.own / "keeper.log").read_bytes()[-500:].decode("utf-8", "replace").strip()
            _refuse(f"the keeper ended with {keeper.returncode}: {text}")
        time.sleep(0.05)
    _refuse(f"the orchestrator was not there within {START_S:g} s")


def _refuse(text: str) -> None:
    print(json.dumps({"refused": text}))
    raise SystemExit(0)


def main(words: list[str]) -> int:
    """Run one verb."""
    if words == ["version"]:
        version()
        return 0
    verb, root, name = words
    layout = Layout(Path(root), name)
    match verb:
        case "start":
            begin(layout)
        case "keep":
            return keep(layout, Order.model_validate_json(sys.stdin.buffer.read(), strict=True))
        case "serve":
            serve(layout, sys.stdin.buffer, sys.stdout.buffer)
        case _:
            return 2
    return 0


class Server:
    """One conversation. Every answer is a header and bytes; ``refused`` in a header says why there are none."""

    def __init__(self, layout: Layout, out: BinaryIO) -> None:
        self.layout, self.out = layout, out
        self._progress = process_state.TrailProgress(layout)
        self._operations: dict[str, Callable[[dict[str, Any]], None]] = {
            "status": self.status,
            "trail": self.trail,
            "store": self.store,
            "list": self.list_path,
            "read": self.read_file,
            "pulled": self.record_pull,
            "sweep": self.sweep_orphans,
            "pause": self.pause,
            "shutdown": self.shutdown,
        }

    def answer(self, requests: dict[str, Any]) -> None:
        """Answer one request."""
        operation = self._operations.get(str(requests.get("op")))
        if operation is None:
            self.send({"refused": "no such operation"})
            return
        try:
            operation(requests)
        except (OSError, ValueError, KeyError, TypeError, sqlite3.Error) as error:
            self.send({"refused": f"{type(error).__name__}: {error}"})

    def send(self, header: dict[str, Any], data: bytes = b"") -> None:
        """Write one answer."""
        self.out.write(line_of(header, len(data)))
        self.out.write(data)
        self.out.flush()

    def status(self, requests: dict[str, Any]) -> None:
        """Send the pod's state and the log from an offset on; the client counts as attached."""
        (self.layout.own / process_state.ATTACHED).touch()
        data = b""
        offset = int(requests["log"])
        if self.layout.log.exists():
            with self.layout.log.open("rb") as log:
                log.seek(offset)
                data = log.read(LOG_BYTES)
        ending = read_record(self.layout.own / process_state.ENDING)
        state = process_state.orchestrator(self.layout) | self._progress.read_progress()
        state |= {
            "keeper": lives(self.layout.own / KEEPER),
            "log": offset + len(data),
            "hours": process_state.Clock(self.layout).hours(),
            "ending": str(ending["reason"]) if ending else None,
        }
        self.send({"status": state}, data)

    def trail(self, _: dict[str, Any]) -> None:
        """Send the trail, and its seal if the file is at rest."""
        data, seal = process_state.snapshot(self.layout)
        self.send({"seal": base64.b64encode(seal).decode() if seal is not None else None}, data)

    def store(self, _: dict[str, Any]) -> None:
        """Send the names and sizes of all files in the content store."""
        root = self.layout.run / STORE
        names = {path.relative_to(root).as_posix(): path.stat().st_size for path in sorted(root.glob("??/*"))}
        self.send({}, json.dumps(names).encode())

    def list_path(self, requests: dict[str, Any]) -> None:
        """Send the size of a file of the run folder, or of all files below a folder."""
        path = self._inside(requests["path"])
        if path.is_file():
            self.send({"kind": "file"}, json.dumps({"": path.stat().st_size}).encode())
        elif path.is_dir():
            files = {
                current_path.relative_to(path).as_posix(): current_path.stat().st_size
                for current_path in list_tree(path)
            }
            self.send({"kind": "folder"}, json.dumps(files).encode())
        else:
            self.send({"refused": "it is not there"})

    def read_file(self, requests: dict[str, Any]) -> None:
        """Send a file of the run folder from an offset to its present end."""
        path, offset = self._inside(requests["path"]), int(requests["offset"])
        with open_regular(path) as file:
            remaining = max(0, os.fstat(file.fileno()).st_size - offset)
            file.seek(offset)
            self.out.write(line_of({}, remaining))
            while remaining:
                piece = file.read(min(PIECE, remaining))
                if not piece:
                    # The file became shorter than was announced; the client sees the connection end.
                    raise SystemExit(1)
                self.out.write(piece)
                remaining -= len(piece)
            self.out.flush()

    def _inside(self, relative: Any) -> Path:
        path = (self.layout.run / str(relative)).resolve()
        if not path.is_relative_to(self.layout.run.resolve()):
            raise ValueError("it lies outside of the run folder")
        return path

    def record_pull(self, requests: dict[str, Any]) -> None:
        """Record that so many entries, with their files, are kept and verified elsewhere."""
        facts = {"entries": int(requests["entries"]), "time": time.time()}
        process_state.write(self.layout.own / process_state.PULLED, facts)
        self.send({})

    def sweep_orphans(self, requests: dict[str, Any]) -> None:
        """End processes of closed sessions, with ``everything`` those of this one too."""
        swept = sweep(self.layout, everything=bool(requests.get("everything")))
        self.send({}, json.dumps(swept).encode())

    def pause(self, _: dict[str, Any]) -> None:
        """Ask the session to pause, as `peergate pause` does."""
        from sessions.run.pause import PAUSE, ask_for

        ask_for(self.layout.run, PAUSE)
        self.send({})

    def shutdown(self, requests: dict[str, Any]) -> None:
        """End the keeper and run the declared command."""
        end_keeper(self.layout)
        command = requests["command"]
        code = shut_down(self.layout, str(command) if command is not None else None, str(requests["reason"]))
        self.send({"code": code})


def serve(layout: Layout, binary_io: BinaryIO, out: BinaryIO) -> None:
    """Answer until the client disconnects."""
    server = Server(layout, out)
    layout.make()
    while (frame := read_frame(binary_io)) is not None:
        server.answer(frame[0])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
