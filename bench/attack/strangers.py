"""Family ``strangers``: a spec, a run or an export by a stranger that attempts more than to be read.

An attack is missed if a verifier ran without a sandbox, a connection was made to a database that the folder names, or
what no trail has is not called damage.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
import threading
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

from starlette.routing import Route

from bench.attack.exports import closed_session
from bench.attack.outcome import Outcome
from reviews.audit.verify import verify_run
from reviews.trail.file_seal import seal_path
from reviews.trail.tables.pointer import Pointer, database_file, pointer_path
from sessions.mcp.reader.mcp_reader import TOOLS, SessionReader
from sessions.pages.view.places import Scope
from sessions.pages.view.server import Viewer
from sessions.run.run_layout import STORE, TRAIL
from specs.system.confinement import bubblewrap, task_file, verifier_process
from testing.factories.task_files import GOOD, TASK
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import drive, open_quick, quick_session
from testing.fixtures.view_client import Client

UNCONFINED = (TASK[0], f"{TASK[1]}\nverifier: {{sandbox: false}}")
READING = (
    *("audit anchor RUN --folder HERE/heads", "audit cosign RUN --name ada --key HERE/key.pem", "audit diff RUN 0 1"),
    *("audit export RUN HERE/export", "audit list RUN", "audit log RUN", "audit search RUN accuracy"),
    *("audit show RUN claim", "audit verify RUN", "audit verify RUN --again", "backlog RUN", "check run RUN"),
    *("cost RUN", "diagnose RUN", "export inspect RUN --out HERE/inspect", "get model RUN HERE/model"),
    *("list --runs RUNS", "list --everywhere --runs RUNS", "pod plan SPEC --host me@there", "replay RUN"),
    *("replicate RUN --show", "report RUN", "retrospective RUN", "review adversarial RUN --out HERE/answers"),
    *("review ask --topic t --question q --session RUN", "review request SPEC --kind design --session RUN"),
    *("review show RUN", "seeds RUN", "ship check RUN/jobs/small.train.1/out/checkpoint --files-only"),
    *("ship push RUN hub:a/b --dry-run", "spec check SPEC", "spec check SPEC --json", "spec pin SPEC"),
    *("spec show SPEC", "status RUN", "transcript RUN"),
)
"""Commands that read a spec or a run, and end; :func:`words_of` puts in what is in capitals."""
FOREIGN = {
    "trigger": "CREATE TRIGGER more AFTER INSERT ON entry BEGIN DELETE FROM head; END",
    "trigger of our name": (
        "DROP TRIGGER entry_is_final; CREATE TRIGGER entry_is_final BEFORE UPDATE ON entry BEGIN SELECT 1; END"
    ),
    "view": "CREATE VIEW more AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x FROM n",
    "table": "CREATE TABLE more (x)",
    "index": "CREATE INDEX more ON entry (payload)",
    "no trigger": "DROP TRIGGER entry_stays",
}
"""What a trail file is made to hold, or to lack."""
SEALS: dict[str, bytes] = {
    "a negative size": b'{"digest":"sha256:0","file":null,"size":-9}',
    "no end": b'{"digest":"sha256:0","file":null,"size":Infinity}',
    "a large number": b'{"digest":"sha256:0","file":null,"size":1e999}',
    "true": b'{"digest":"sha256:0","file":null,"size":true}',
    "a text": b'{"digest":"sha256:0","file":null,"size":"1"}',
    "nested": b"[" * 100_000,
    "a list": b"[]",
    "nothing": b"",
    "too long": b'{"size":1' + b" " * 10_000 + b"}",
    "no text": b"\xff\xfe",
}
"""Seals that are none."""


def run(seed: int, folder: Path) -> Outcome:
    """Read what strangers left, with every command; ``seed`` changes nothing."""
    outcome = Outcome()
    with patch.dict(os.environ, {"XDG_STATE_HOME": str(folder / "state")}):
        os.environ.pop("PEERGATE_DATABASE", None)
        _verifiers(outcome, folder / "verifier")
        _databases(outcome, folder / "database")
    (folder / "closed").mkdir()
    _files(outcome, closed_session(folder / "closed"), folder / "files")
    return outcome


def canary_code(path: Path) -> str:
    """Return a task file that leaves a mark there if it runs without a sandbox."""
    return f"try:\n    open({str(path)!r}, 'w').close()\nexcept OSError:\n    pass\n{GOOD}"


def words_of(command: str, run: Path, spec: Path, here: Path) -> list[str]:
    """Return the words of a command of :data:`READING`."""
    named = {"RUN": run, "RUNS": run.parent, "SPEC": spec, "HERE": here}
    return [re.sub(r"\b[A-Z]{3,}\b", lambda match: str(named[match[0]]), word) for word in command.split()]


def read_served(run: Path) -> None:
    """Read all pages of `peergate view` and use all tools of `peergate mcp --read`."""
    scope = Scope(run.parent)
    client, reader = Client(scope), SessionReader(scope)
    for route in Viewer(scope, None).app().routes:
        if isinstance(route, Route) and not route.path.endswith("/events"):
            client.get(re.sub(r"\{[^}]+\}", "1", route.path.replace("{name}", run.name)))
    words = {"session": run.name, "metric": "accuracy", "stage": "train", "curve": "train.1/loss"}
    for tool in TOOLS:
        reader.call(tool.name, {name: words[name] for name in tool.arguments.model_fields})


def _no_host(*_: object) -> None:
    """Describe a machine without bubblewrap."""


def _verifiers(outcome: Outcome, folder: Path) -> None:
    """A verifier whose spec says that it may run without a sandbox, on a machine that has none."""
    folder.mkdir()
    canary = folder / "canary"
    (folder / "verify.py").write_text(canary_code(canary), encoding="utf-8")
    run = open_quick(folder, UNCONFINED)
    drive(quick_session(run))
    with patch.object(bubblewrap, "this_host", _no_host):
        for command in READING:
            verifier_process.end_all()
            with patch.object(task_file, "_ALLOWED", set[tuple[str, bool]]()):
                called(*words_of(command, run, folder / "spec.yaml", folder / "here"), cwd=folder)
            outcome.record(not canary.exists(), f"verifier without a sandbox: {command}")
            canary.unlink(missing_ok=True)
        read_served(run)
        outcome.record(not canary.exists(), "verifier without a sandbox: view, mcp --read")


def _databases(outcome: Outcome, folder: Path) -> None:
    """A workspace that names a database, which is a port of ours."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server, heard), daemon=True).start()
        run = strangers_run(folder, f"postgresql://me@127.0.0.1:{server.getsockname()[1]}/peergate?sslmode=disable")
        for command in READING:
            called(*words_of(command, run, folder / "spec.yaml", folder / "here"), cwd=folder)
            outcome.record(not heard, f"database of a stranger: {command}")
            heard.clear()
        read_served(run)
        outcome.record(not heard, "database of a stranger: view, mcp --read")


def strangers_run(folder: Path, address: str) -> Path:
    """Write a run whose workspace names a database, as its owner's Peergate would; return its folder."""
    run = folder / "runs" / "small"
    run.mkdir(parents=True)
    pointer = Pointer(log=uuid4(), database="postgresql://db.example/peergate")
    pointer_path(run / TRAIL).write_bytes(pointer.canonical())
    file = database_file(folder / "runs")
    file.parent.mkdir(mode=0o700, parents=True)
    file.write_text(f"{address}\n", encoding="utf-8")
    file.chmod(0o600)
    return run


def _accept(server: socket.socket, heard: list[bytes]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            heard.append(connection.recv(64))


def _files(outcome: Outcome, closed: Path, folder: Path) -> None:
    """A trail file with what no trail has, and seals that are none."""
    for number, (what, statements) in enumerate(FOREIGN.items()):
        run = shutil.copytree(closed.parent, folder / str(number)) / closed.name
        connection = sqlite3.connect(run / TRAIL)
        connection.executescript(statements)
        connection.close()
        outcome.record(verify_run(run, TRAIL, STORE).exit_code == 1, f"trail file: {what}")
    for what, seal in SEALS.items():
        run = shutil.copytree(closed.parent, folder / what) / closed.name
        seal_path(run / TRAIL).write_bytes(seal)
        outcome.record(verify_run(run, TRAIL, STORE).exit_code == 1, f"seal: {what}")
