"""The reviewer's process as a process: what it can reach, how it ends, and that the session never opens its key."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reviews.reviewers.process import client, confinement, messages, reviewer_proxy
from reviews.reviewers.process.client import Birth, Child, ReviewerProcess
from reviews.reviewers.process.reviewer_proxy import party
from reviews.trail.chain.keys import create_key, key_apart, load_key
from sessions.jobs.job_environment import job_environment
from sessions.nodes import judge
from specs.system.errors import PeergateError, ReviewerUnavailable, UserError
from specs.system.vendors.parties import ReviewerSpec
from specs.trail.verdict import NoVerdict, Packet
from testing.factories.evidence_on_disk import evidence_of
from testing.fixtures.quick_session import open_quick, quick_session
from testing.fixtures.sandbox import WHY_UNAVAILABLE
from tests.reviews.gate.test_packet import packet_of

pytestmark = pytest.mark.apart
CHECKLIST = (ReviewerSpec(),)
PACKET = "sha256:" + "b" * 64
WHY = NoVerdict(cause="unusable", what="e", help="h")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / ".peergate" / "keys" / "reviewer.pem"
    create_key(path)
    create_key(path.with_name("log.pem"))
    return path


@pytest.fixture
def running(key: Path) -> Iterator[ReviewerProcess]:
    process = ReviewerProcess("small", CHECKLIST, key)
    yield process
    process.close()


def ask(process: ReviewerProcess, seconds: float = 60) -> messages.VerdictMessage:
    return process.ask(
        messages.NoVerdictMessage(packet=PACKET, reviewer="r", why=WHY), messages.VerdictMessage, seconds
    )


def pids_of(process: ReviewerProcess) -> list[int]:
    """Return the processes behind it: bubblewrap, if there is any, and the program."""
    child = process._child  # pyright: ignore[reportPrivateUsage]
    assert child is not None
    pipe = f"pipe:[{os.fstat(child.questions).st_ino}]"
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _input(path) == pipe]


def _input(process: Path) -> str:
    try:
        return str((process / "fd" / "0").readlink())
    except OSError:
        return ""


def send(process: ReviewerProcess, number: signal.Signals) -> list[int]:
    results = pids_of(process)
    assert results
    for pid in results:
        # Bubblewrap and its program end each other: who is last in the list may be gone already.
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return results


def test_it_reviews_and_signs(running: ReviewerProcess, key: Path, tmp_path: Path) -> None:
    packet = packet_of(evidence_of(tmp_path, "base"))
    assert party(running, 0).review(packet, packet.content_digest()).reviewer == "checklist"
    assert running.public == load_key(key).public
    with pytest.raises(ReviewerUnavailable, match="invalid entry"):
        running.sign(b"anything")
    # A refusal ends nothing.
    assert ask(running).no_verdict == WHY


# ---- the key ------------------------------------------------------------------------------------------------------

OPENED: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and WATCHED:
        OPENED.append(str(arguments[0]))


WATCHED: list[bool] = []
sys.addaudithook(_note)


def test_the_session_never_opens_the_reviewers_key(tmp_path: Path) -> None:
    """Not when it is made, not when a gate is judged: what this process opens is watched."""
    OPENED.clear()
    WATCHED.append(True)
    try:
        run = open_quick(tmp_path)
        session = quick_session(run)
        key = session.trail.keys.path("reviewer")
        session.reviewing = session.trail.reviewer = ReviewerProcess("small", CHECKLIST, key, run)
        session.__dict__["reviewer"] = party(session.reviewing, 0)
        judge.design_gate(session, {})
        judged, opened = session.trail.find("verdict/design.1"), session.trail.find("open")
        session.trail.verify_chain()
        session.trail.close()
    finally:
        WATCHED.clear()
    assert judged is not None and judged.raw["error"] == "" and judged.raw["reviewer"] == "checklist"
    assert opened is not None and opened.raw["reviewer_confined"] is confinement.is_confined()
    names = {Path(text).name for text in OPENED}
    assert {"log.pem", "trail.sqlite"} & names, "the control: what is opened is seen"
    assert "reviewer.pem" not in names
    assert key.stat().st_mode & 0o777 == 0o600


def test_what_is_wrong_with_the_key_is_reported_and_nothing_is_signed(key: Path) -> None:
    key.chmod(0o640)
    with pytest.raises(UserError, match="mode 640, others can read it"):
        ask(ReviewerProcess("small", CHECKLIST, key))
    with pytest.raises(UserError, match="mode 640"):
        key_apart(key)
    key.unlink()
    with pytest.raises(UserError, match="the signing key 'reviewer' cannot be read"):
        ask(ReviewerProcess("small", CHECKLIST, key))
    with pytest.raises(UserError, match="cannot be read"):
        key_apart(key)
    assert key_apart(key, make=True) == load_key(key).public
    with pytest.raises(PeergateError, match="opened by its own process only"):
        from reviews.trail.chain.keys import KeyFolder

        KeyFolder(key.parent).signer("reviewer")


# ---- what it can reach --------------------------------------------------------------------------------------------


def test_its_environment_holds_the_key_of_its_own_vendor_only() -> None:
    arguments = {
        "OPENAI_API_KEY": "o",
        "ANTHROPIC_API_KEY": "a",
        "PEERGATE_REVIEWER_KEY": "r",
        "PEERGATE_BUILDER_KEY": "b",
    }
    arguments |= {"HF_TOKEN": "h", "PATH": "/bin", "https_proxy": "p", "OPENAI_BASE_URL": "u"}
    openai = ReviewerSpec(vendor="openai", model="m")
    own = ReviewerSpec.model_validate({"vendor": "openai", "model": "m", "base_url": "http://h/v1"})

    def keys(*reviewers: ReviewerSpec) -> set[str]:
        return confinement.environment(reviewers, arguments).keys() - {"PATH", "https_proxy", *confinement._SET}  # pyright: ignore[reportPrivateUsage]

    assert keys(*CHECKLIST, ReviewerSpec(vendor="person")) == set()
    assert keys(openai) == {"OPENAI_API_KEY"}
    assert keys(own) == {"PEERGATE_REVIEWER_KEY"}
    assert keys(openai, ReviewerSpec(vendor="anthropic", model="m")) == {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"}
    assert not {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "PEERGATE_REVIEWER_KEY"} & job_environment().keys()


PROBE = """
import json, os, pathlib, socket, sys
from reviews.reviewers.process.__main__ import limit
limit()
def tried(do):
    try:
        return do() is not None or True
    except OSError as error:
        return type(error).__name__
run, key, here = map(pathlib.Path, sys.argv[1:4])
print(json.dumps({
    "write": tried(lambda: (here / "new").write_bytes(b"x")),
    "run": tried(lambda: (run / "trail.sqlite").read_bytes()),
    "log key": tried(lambda: key.with_name("log.pem").read_bytes()),
    "own key": tried(lambda: key.read_bytes()),
    "network": tried(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[4])), 5)),
    "processes": sum(one.isdigit() for one in os.listdir("/proc")),
}))
"""


@pytest.mark.parametrize("walled", [True, False])
def test_it_can_write_nowhere_and_reach_the_network(
    key: Path, tmp_path: Path, walled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    if walled and WHY_UNAVAILABLE:
        pytest.skip(f"no sandbox: {WHY_UNAVAILABLE}")
    assert confinement.is_confined() or not walled, "bubblewrap is installed and may not be used"
    monkeypatch.setattr(confinement, "is_confined", lambda: walled)
    run = tmp_path / "runs" / "small"
    run.mkdir()
    (run / "trail.sqlite").write_bytes(b"x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = confinement.command(key, run)[:-2] + ["-c", PROBE, run, key, tmp_path, server.getsockname()[1]]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report.pop("processes") < 5 or not walled
    open_to_all = {"own key": True, "network": True}
    if walled:
        gone = {"run": "FileNotFoundError", "log key": "FileNotFoundError"}
        assert report == {"write": "OSError"} | gone | open_to_all
        assert not (tmp_path / "new").exists(), "not even an empty file"
    else:
        # The limit on file sizes still holds: an empty file can be made, and no byte gets into it.
        assert report == {"write": "OSError", "run": True, "log key": True} | open_to_all
        assert (tmp_path / "new").read_bytes() == b""


# ---- how it ends --------------------------------------------------------------------------------------------------


def test_a_killed_process_gives_no_verdict_and_the_next_question_starts_another(running: ReviewerProcess) -> None:
    ask(running)
    first = send(running, signal.SIGKILL)
    with pytest.raises(ReviewerUnavailable, match="gave no answer"):
        ask(running)
    assert ask(running).no_verdict == WHY and not set(pids_of(running)) & set(first)


def test_a_process_that_hangs_is_killed_in_time(running: ReviewerProcess) -> None:
    ask(running)
    hanging = send(running, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(ReviewerUnavailable, match="timed out and was killed"):
        ask(running, seconds=0.3)
    while [pid for pid in hanging if _input(Path(f"/proc/{pid}"))]:
        assert time.monotonic() - began < 30
        time.sleep(0.01)


def test_it_ends_with_the_session_also_in_the_middle_of_something(key: Path) -> None:
    """The session is killed: no one closes anything in order."""
    read, write = os.pipe()
    own = confinement.environment((), os.environ)
    program = subprocess.Popen(confinement.command(key, None), stdin=read, stdout=subprocess.PIPE, env=own, cwd="/")
    os.close(read)
    os.write(write, b'{"op": "no_verdict", "pac')
    time.sleep(0.2)
    os.close(write)
    assert program.wait(300) is not None
    assert program.stdout is not None
    program.stdout.close()


def _instead(program: str) -> Callable[[Path, Path | None], list[str]]:
    def command(key: Path, run: Path | None) -> list[str]:
        return [sys.executable, "-c", program]

    return command


def played(program: str) -> Callable[[Birth], Child]:
    """Return what starts another program in the place of the reviewer's process."""

    def start(birth: Birth) -> Child:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(client, "command", _instead(program))
            return client.spawn(birth)

    return start


READY = json.dumps({"op": "ready", "public": "0" * 64})
LATER = f"import sys; sys.stdin.readline(); print('{READY}', flush=True); sys.stdin.readline(); "
FAULTS = {
    "ends at once": ("raise SystemExit(3)", "it ended"),
    "ends with an error": ("raise ImportError('no such thing')", "ImportError: no such thing"),
    "says something else": ("print('hello', flush=True); import time; time.sleep(60)", "invalid message"),
    "half a line": ("print('{', end='', flush=True)", "it ended"),
    "no end of line": ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "longer than 100000 bytes"),
    "two lines": (f"print('{READY}\\n{READY}', flush=True); import time; time.sleep(60)", "invalid message"),
    "an answer to nothing": (LATER + f"print('{READY}', flush=True)", "answered 'ready' to another"),
    "a field too many": (
        LATER + """print('{"op": "signed", "signature": "", "x": 1}', flush=True)""",
        "invalid message",
    ),
    "no whole verdict": (LATER + """print('{"op": "reviewed", "verdict": "{}"}', flush=True)""", "no whole verdict"),
    "ends when asked": (LATER + "raise SystemExit", "it ended"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_process_that_does_not_keep_to_the_form_gives_no_verdict(
    key: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, why = FAULTS[name]
    monkeypatch.setattr(messages, "MAX_LINE_BYTES", 100_000)
    process = ReviewerProcess("small", CHECKLIST, key, start=played(program))
    with pytest.raises(ReviewerUnavailable, match=why):
        reviewer_proxy.no_verdict(process, PACKET, "r", WHY)
    process.close()


WAITING = json.dumps({"op": "waiting", "seconds": 0.6, "why": "answered 503", "usd": 0.25})
LAST = json.dumps({"op": "signed", "signature": ""})


def test_a_process_that_waits_for_its_model_is_waited_for_and_says_so(key: Path) -> None:
    """Two waits are each longer than the time that an answer may take."""
    twice = LATER + f"import time\nfor _ in range(2): print('{WAITING}', flush=True); time.sleep(0.6)\nprint('{LAST}')"
    process = ReviewerProcess("small", CHECKLIST, key, start=played(twice))
    lines: list[tuple[float, str]] = []
    process.waits = lambda seconds, why: lines.append((seconds, why))
    assert process.ask(messages.Sign(data=b"x"), messages.SignatureMessage, 0.5).signature == b""
    assert lines == [(0.6, "answered 503")] * 2 and process.waiting_usd == 0.25
    process.close()


def test_a_wait_ends_with_the_session_and_the_process_with_it(key: Path) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    long = json.dumps({"op": "waiting", "seconds": 60, "why": "answered 503", "usd": 0})
    program = LATER + f"print('{long}', flush=True); import time; time.sleep(60)"
    process = ReviewerProcess("small", CHECKLIST, key, start=played(program))
    process.meanwhile = stop
    began = time.monotonic()
    with pytest.raises(Stopped):
        process.ask(messages.Sign(data=b"x"), messages.SignatureMessage, 30)
    assert time.monotonic() - began < 20 and process._child is None  # pyright: ignore[reportPrivateUsage]


def test_a_process_that_does_not_read_is_not_waited_for(key: Path) -> None:
    """More than a pipe holds: writing to it must end in time too."""
    program = f"print('{READY}', flush=True); import time; time.sleep(60)"
    process = ReviewerProcess("small", CHECKLIST, key, start=played(program))
    long = messages.NoVerdictMessage(packet=PACKET, reviewer="r", why=WHY.model_copy(update={"detail": "e" * 2**20}))
    with pytest.raises(ReviewerUnavailable, match="timed out"):
        process.ask(long, messages.VerdictMessage, 0.3)


@pytest.mark.parametrize("line", [b"hello\n", b"{}\n", b'{"op": "sign"}\n', b"\xff\n"])
def test_a_line_that_is_no_question_ends_the_process_with_a_refusal(line: bytes) -> None:
    program = [sys.executable, "-P", "-m", "reviews.reviewers.process"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write(line)
        answer = messages.read_answer(running.stdout.read())
        assert isinstance(answer, messages.RefusalMessage) and running.wait(300) == 1


# ---- at the gate --------------------------------------------------------------------------------------------------


@pytest.fixture
def packet(tmp_path: Path) -> Packet:
    (tmp_path / "evidence").mkdir(exist_ok=True)
    return packet_of(evidence_of(tmp_path, "base"))


def test_a_process_lost_between_verdict_and_signature_closes_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_quick(tmp_path)
    session = quick_session(run)
    session.reviewing = session.trail.reviewer = ReviewerProcess(
        "small", CHECKLIST, session.trail.keys.path("reviewer"), run
    )
    session.__dict__["reviewer"] = party(session.reviewing, 0)
    first = session.store.put_value

    def lose(value: Any) -> str:
        # The verdict is there, and about to be recorded.
        if type(value).__name__ == "Verdict" and not lost:
            lost.append(send(session.reviewing, signal.SIGKILL))
        return first(value)

    lost: list[list[int]] = []
    monkeypatch.setattr(session.store, "put_value", lose)
    route = judge.design_gate(session, {})
    judged = session.trail.find("verdict/design.1")
    assert lost and judged is not None
    assert judged.raw["cause"] == "process_lost"
    assert route == {"route": "human"}, "a person decides whether it is tried again"
    session.trail.verify_chain()
    session.trail.close()


def test_whoever_cannot_be_started_is_reported_and_nothing_is_recorded(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    session = quick_session(run)
    keys = session.trail.keys
    session.reviewing = session.trail.reviewer = ReviewerProcess(
        "small", CHECKLIST, keys.path("reviewer"), run, start=played("raise SystemExit")
    )
    session.__dict__["reviewer"] = party(session.reviewing, 0)
    with pytest.raises(ReviewerUnavailable, match="it ended"):
        judge.design_gate(session, {})
    assert session.trail.find("verdict/design.1") is None
    session.trail.close()
