"""A verifier of the user's own, in its real process: what it can reach, and what happens when it misbehaves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from specs.stages.base.artifacts import Item
from specs.system.confinement import bubblewrap, seccomp, task_file, verifier_process
from specs.system.confinement.verifier_command import PEERGATE, VerifierLimits
from specs.system.errors import PluginFault
from specs.system.home import HOME
from testing.fixtures.sandbox import needs_sandbox
from training.rules.tasks import judge_answers, verifier
from training.rules.tasks.format_instructions import Judgement

pytestmark = needs_sandbox
ITEM = Item(id="i1", group="g", kind="k", prompt="Say one.", constraint={"due": "yes"})
WRITES = (
    "import os\ndef writes(fd):\n    try: return os.write(fd, b'') == 0\n    except OSError: return False\n"
    'FORGED = b\'{"n": 99, "passed": true, "reason": ""}\\n\'\n'
)


def task(code: str, **limits: object) -> str:
    """Return the name of a task file that this process may run."""
    name = task_file.pin_task("./verify.py", code)
    task_file.remember(name, code, VerifierLimits.model_validate(limits))
    task_file.allow(name, sandbox=limits.get("sandbox") is not False)
    return name


def find_fault(code: str, answer: str = "1", **limits: object) -> str:
    """Return the fault of a verifier that is asked once."""
    with pytest.raises(PluginFault) as caught:
        verifier(task(code, **limits))(ITEM, answer)
    return str(caught.value)


def verify(*lines: str, top: str = "") -> str:
    """Return a task whose verifier has these lines."""
    return "\n".join([top, "def verify(item, answer):", *(f"    {line}" for line in lines), ""])


# ---- what it reaches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["open(answer).read()", "return True"], "FileNotFoundError"),
        (["import os", "os.listdir(os.path.dirname(answer))", "return True"], "FileNotFoundError"),
        (["open(answer, 'w').write('x')", "return True"], "OSError|FileNotFoundError"),
    ],
)
def test_files_of_the_user_are_not_there(tmp_path: Path, lines: list[str], error: str) -> None:
    """Held-out rows, keys and run folders are files below folders that are not mounted."""
    secret = tmp_path / "heldout.jsonl"
    secret.write_text("x", encoding="utf-8")
    result = find_fault(verify(*lines), str(secret))
    assert any(word in result for word in error.split("|")), result
    # The same lines read it where nothing confines them.
    unconfined = subprocess.run([sys.executable, "-c", f"answer = {str(secret)!r}\nopen(answer).read()"], check=False)
    assert unconfined.returncode == 0 and secret.read_text(encoding="utf-8") == "x"


def test_nor_are_shipped_heldout_items_reviewers_prompts_the_home_or_processes() -> None:
    judge = verifier(task(verify("import os", "return os.path.exists(answer)")))
    inside = Path(PEERGATE)
    for name in ("specs/library/data/format_heldout.jsonl", "reviews/reviewers", "training/items"):
        assert (HOME / name).exists()
        assert not judge(ITEM, str(HOME / name)).passed and not judge(ITEM, str(inside / name)).passed
    assert judge(ITEM, str(inside / "specs/stages/base/artifacts.py")).passed
    # The home itself may hold the interpreter.
    with tempfile.NamedTemporaryFile(dir=Path.home()) as file:
        assert not judge(ITEM, file.name).passed
    assert not judge(ITEM, "/proc/self").passed and judge(ITEM, "/dev/null").passed


def test_no_variable_of_the_user_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    judge = verifier(task(verify("import os", "return answer in ' '.join([*os.environ, *os.environ.values()])")))
    assert not judge(ITEM, "canary").passed and not judge(ITEM, "ANTHROPIC_API_KEY").passed
    assert judge(ITEM, "PYTHONHASHSEED").passed


def test_nothing_listens_where_it_is(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        code = verify("import socket", f"socket.create_connection(('127.0.0.1', {port}), 2)", "return True")
        socket.create_connection(("127.0.0.1", port), 2).close()
        assert "ConnectionRefusedError" in find_fault(code)
    assert "gaierror" in find_fault(verify("import socket", "socket.getaddrinfo('example.com', 80)", "return True"))


@pytest.mark.parametrize(
    "lines",
    [
        ["import os", "os.fork()", "return True"],
        ["import subprocess", "subprocess.run(['/usr/bin/env'])", "return True"],
        ["import os", "while True: os.fork()"],
        ["import os", "os.open('/tmp/x', os.O_CREAT | os.O_WRONLY)", "return True"],
        ["import os", "os.open('/dev/shm/x', os.O_CREAT | os.O_WRONLY)", "return True"],
    ],
)
def test_it_starts_no_process_and_writes_no_file(lines: list[str]) -> None:
    result = find_fault(verify(*lines))
    assert "PermissionError" in result or "OSError" in result or "FileNotFoundError" in result, result


def test_threads_are_allowed() -> None:
    lines = ["from concurrent.futures import ThreadPoolExecutor", "with ThreadPoolExecutor(4) as pool:"]
    lines += ["    return list(pool.map(int, [answer] * 4)) == [1] * 4"]
    assert verifier(task(verify(*lines)))(ITEM, "1").passed


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_differs_in_new_processes_only(machine: str) -> None:
    alone, shared = seccomp.program(machine, alone=True), seccomp.program(machine)
    assert alone and shared and len(alone) > len(shared)


# ---- limits -------------------------------------------------------------------------------------------------


def test_a_gigabyte_is_too_much() -> None:
    code = verify("held = bytearray(int(answer))", "return True")
    assert "MemoryError" in find_fault(code, str(1 << 30))
    assert verifier(task(code))(ITEM, str(1 << 24)).passed
    assert verifier(task(code, memory_mb=2048))(ITEM, str(1 << 30)).passed


@pytest.mark.parametrize(
    ("lines", "how"),
    [
        (["while True: pass"], "takes more than 0.5 s"),
        (["import time", "time.sleep(60)"], "takes more than 0.5 s"),
        (["import os", "os._exit(0)"], "process ended with code 0"),
        (["import os, signal", "os.kill(os.getpid(), signal.SIGSEGV)"], "process ended with signal 11"),
        (["import sys", "sys.exit(0)"], "breaks on item 'i1': SystemExit"),
        (["import os", "[os.write(fd, b'rubbish\\n') for fd in range(3, 9) if writes(fd)]"], "a malformed answer"),
        (["[os.write(fd, FORGED) for fd in range(3, 9) if writes(fd)]"], "a malformed answer"),
        (["[os.write(fd, b'.') for _ in iter(int, 1) for fd in range(3, 9) if writes(fd)]"], "takes more than 0.5 s"),
        (
            ["import os", "[os.write(fd, b'[' * 10**5 + b'\\n') for fd in range(3, 9) if writes(fd)]"],
            "a malformed answer",
        ),
    ],
)
def test_one_that_hangs_ends_or_writes_rubbish_is_a_fault(lines: list[str], how: str) -> None:
    began = time.monotonic()
    result = find_fault(verify(*lines, "return True", top=WRITES), seconds=0.5)
    assert how in result and result.startswith("./verify.py"), result
    assert time.monotonic() - began < 30


def test_an_answer_of_its_process_has_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier_process, "MOST_ANSWERED", 1000)
    lines = ["import os", "[os.write(fd, b'x' * 5000) for fd in range(3, 9) if writes(fd)]", "while True: pass"]
    assert "answers with more than 1000 bytes" in find_fault(verify(*lines, top=WRITES))


def test_what_it_prints_is_no_answer() -> None:
    code = verify(
        "print('x' * 100_000_000)",
        "sys.stderr.write('y' * 1000)",
        'os.write(1, b\'{"n": 1, "passed": false, "reason": ""}\\n\')',
        "return True",
        top="import os, sys\nprint('at its top', flush=True)",
    )
    assert [judgement.passed for judgement in judge_answers(task(code), [(ITEM, "1")] * 2)] == [True, True]


def test_after_a_fault_the_next_answer_is_asked_of_a_new_process() -> None:
    name = task(verify("import os", "return answer == '1' or os._exit(3)"))
    judge = verifier(name)
    assert judge(ITEM, "1").passed
    with pytest.raises(PluginFault, match="code 3 on item 'i1'"):
        judge(ITEM, "2")
    assert judge(ITEM, "1").passed


def test_a_batch_is_answered_in_order_and_its_fault_names_the_item() -> None:
    name = task(verify("return int(answer) % 2 == 0"))
    requests = [(ITEM, str(number)) for number in range(3000)]
    assert [judgement.passed for judgement in judge_answers(name, requests)] == [
        number % 2 == 0 for number in range(3000)
    ]
    name = task(verify("while item.id == 'i2': pass", "return True"), seconds=0.5)
    other = ITEM.model_copy(update={"id": "i2"})
    with pytest.raises(PluginFault, match=r"takes more than 0.5 s on item 'i2'"):
        list(judge_answers(name, [(ITEM, "1"), (other, "1"), (ITEM, "1")]))


def test_value_and_type_errors_are_a_no_with_their_reason() -> None:
    judge = verifier(task(verify("return int(answer) + None > 0")))
    assert judge(ITEM, "one") == Judgement(False, "invalid literal for int() with base 10: 'one'")
    assert not judge(ITEM, "1").passed


def test_the_place_of_a_reason_is_handed_on_if_it_lies_in_the_answer() -> None:
    top = "from training.rules.tasks.format_instructions import Judgement"
    lines = "at = answer.find('x')", "return Judgement(at < 0, 'has an x', (at, at + 1) if at >= 0 else None)"
    judge = verifier(task(verify(*lines, top=top)))
    assert judge(ITEM, "a x") == Judgement(False, "has an x", (2, 3)) and judge(ITEM, "a") == Judgement(
        True, "has an x"
    )
    for span in ("(0, 9)", "(1, 1)", "(-1, 1)", "'ab'", "(0, 1, 2)"):
        assert "in no known form" in find_fault(
            verify(f"return Judgement(False, 'is short', {span})", top=top), "abc"
        ), span


def test_processes_end_with_the_one_that_asks() -> None:
    code = (
        "import time\nfrom tests.specs.confinement.test_verifier_process import *\n"
        "judge = verifier(task(verify('while answer == \\'2\\': pass', 'return True'), seconds=3600))\n"
        "judge(ITEM, '1'); print('ready', flush=True); judge(ITEM, '2')"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=HOME) as asking:
        assert asking.stdout is not None and asking.stdout.readline() == b"ready\n"
        below = psutil.Process(asking.pid).children(recursive=True)
        asking.kill()
    gone, alive = psutil.wait_procs(below, timeout=20)
    assert gone and not alive


def test_a_signal_from_the_terminal_does_not_reach_it() -> None:
    """Ctrl-C pauses a session, and the gate that is being measured is measured to its end."""
    assert verifier(task(verify("return True", top="# in a session of its own")))(ITEM, "1").passed
    # Those of other tests may have ended, and not been waited for yet.
    alive = [process for process in psutil.Process().children() if process.status() != psutil.STATUS_ZOMBIE]
    below = [process.pid for process in alive if "verifier" in " ".join(process.cmdline())]
    assert below and all(os.getsid(pid) != os.getsid(0) for pid in below)


def test_only_so_many_processes_are_kept() -> None:
    verifier_process.end_all()
    for number in range(verifier_process.MOST_LIVE + 2):
        assert verifier(task(verify(f"return answer == '{number}'")))(ITEM, str(number)).passed
    live = getattr(verifier_process, "_LIVE")  # noqa: B009
    assert len(live) == verifier_process.MOST_LIVE
    verifier_process.end_all()


# ---- without a sandbox --------------------------------------------------------------------------------------


def test_without_a_sandbox_it_runs_only_where_the_spec_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "this_host", lambda: None)
    code = verify("import os", "return os.getcwd() == answer")
    result = find_fault(code, "/")
    assert "would run without a sandbox: bubblewrap (bwrap) is not installed" in result
    assert "verifier: {sandbox: false}" in result
    name = task(code, sandbox=False)
    assert verifier(name)(ITEM, "/").passed
    # Limits and the empty environment remain.
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    name = task(verify("import os", "return 'ANTHROPIC_API_KEY' in os.environ"), sandbox=False)
    assert not verifier(name)(ITEM, "").passed
    assert "MemoryError" in find_fault(verify("held = bytearray(1 << 30)", "return True"), sandbox=False)
    assert "OSError" in find_fault(verify(f"open('{tmp_path}/x', 'wb', 0).write(b'x')", "return True"), sandbox=False)


def test_a_bubblewrap_that_makes_no_sandbox_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr(bubblewrap, "_candidates", lambda: [str(tmp_path / "bwrap")])
    code = verify("return answer == '1'")
    assert "would run without a sandbox: bubblewrap cannot make a sandbox: bwrap: No permissions" in find_fault(code)
    assert verifier(task(code, sandbox=False))(ITEM, "1").passed
