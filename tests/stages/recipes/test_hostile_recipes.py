"""Hostile scripts in the real sandbox. Skipped where bubblewrap is not installed, and only there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from sessions.jobs.launcher import submit
from sessions.jobs.local_launcher import LocalLauncher
from sessions.jobs.process_usage import ProcessTree
from sessions.jobs.sandbox.code_admission import keep_recipe
from sessions.jobs.sandbox.recipe_job import SCRIPT
from sessions.jobs.sandbox.sandbox import RecipeFiles, arguments, why_not
from specs.stages.recipes.parameters import RecipeParameters
from specs.system.confinement.bubblewrap import Host, find_program, refused_calls, this_host
from testing.factories.recipe_session import RecipeSession, recipe_session
from testing.fixtures.collected import collected
from testing.fixtures.recipe_process import CANARY, EndedProcess, run
from testing.fixtures.sandbox import hide_bubblewrap, needs_sandbox

pytestmark = pytest.mark.integration

HOME = Path(__file__).parents[3]


def left_running(folder: Path) -> list[psutil.Process]:
    """Return the processes that still work on a job folder: the script's own are below bubblewrap, which names it."""
    every = psutil.process_iter(["cmdline"])
    return [process for process in every if str(folder) in " ".join(process.info["cmdline"] or [])]


@pytest.fixture
def session(tmp_path: Path) -> RecipeSession:
    return recipe_session(tmp_path)


# ---- what a script can see ----------------------------------------------------------------------------------

PROBES = """\
import ctypes, json, os, signal, socket, stat, subprocess, sys
told = json.load(open("/inputs/prompts"))
found = {}


def tried(name, attempt):
    try:
        found[name] = repr(attempt())[:200]
    except BaseException as error:
        found[name] = type(error).__name__


def read(path):
    return open(path, "rb").read(100)


def linked(path):
    os.symlink(path, "/out/link")
    try:
        return read("/out/link")
    finally:
        os.unlink("/out/link")


def connect(family, address):
    one = socket.socket(family)
    one.settimeout(2)
    one.connect(address)


def write(path):
    open(path, "w").write("x")


for place in told["secrets"]:
    tried(f"read {place}", lambda: read(place))
    tried(f"read /inputs/..{place}", lambda: read(f"/inputs/..{place}"))
    tried(f"read /out/../../..{place}", lambda: read(f"/out/../../..{place}"))
    tried(f"link {place}", lambda: linked(place))
    for pid in ("1", "self", str(os.getppid())):
        tried(f"root of {pid} {place}", lambda: read(f"/proc/{pid}/root{place}"))
        tried(f"cwd of {pid} {place}", lambda: read(f"/proc/{pid}/cwd/../../../../../../../..{place}"))
for path in ("/x", "/inputs/x", "/code/x", "/code/recipe.py", "/inputs/rows", "/inputs/model/x", "/usr/x", "/dev/x",
             "/etc/x", "/proc/sys/kernel/hostname", f"{sys.prefix}/x", f"{sys.base_prefix}/x", told["secrets"][0]):
    tried(f"write {path}", lambda: write(path))
for path in ("sys/kernel/core_pattern", "sys/kernel/panic", "sysrq-trigger", "self/oom_score_adj", "1/mem"):
    # Opened and not written: this would change the machine.
    tried(f"write /proc/{path}", lambda: os.close(os.open(f"/proc/{path}", os.O_WRONLY)))
tried("tcp", lambda: connect(socket.AF_INET, ("127.0.0.1", told["port"])))
tried("outside", lambda: connect(socket.AF_INET, ("192.0.2.1", 80)))
tried("abstract", lambda: connect(socket.AF_UNIX, "\\0" + told["abstract"]))
tried("unix", lambda: connect(socket.AF_UNIX, told["unix"]))
tried("name", lambda: socket.getaddrinfo("example.org", 80))
tried("kill outside", lambda: os.kill(told["pid"], signal.SIGKILL))
tried("device", lambda: os.mknod("/out/disk", stat.S_IFBLK | 0o600, os.makedev(254, 0)))
libc = ctypes.CDLL(None, use_errno=True)
tried("memfd", lambda: os.memfd_create("x"))
tried("user namespace", lambda: {0: "entered"}.get(libc.unshare(0x10000000), "refused"))
tried("mount", lambda: {0: "mounted"}.get(libc.mount(b"x", b"/tmp", b"tmpfs", 0, None), "refused"))
tried("ptrace", lambda: {0: "attached"}.get(libc.ptrace(16, os.getppid(), 0, 0), "refused"))
tried("nested", lambda: {0: "nested"}.get(subprocess.run([told["bwrap"], "--ro-bind", "/", "/", "true"],
                                                         capture_output=True).returncode, "refused"))
found["uid"] = os.getuid()
found["pids"] = sum(name.isdigit() for name in os.listdir("/proc"))
found["fds"] = sorted(os.listdir("/proc/self/fd"))[:-1]
found["root"] = sorted(os.listdir("/"))
found["interfaces"] = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
found["gpus"] = [name for name in os.listdir("/dev") if name.startswith("nvidia")]
found["variables"] = sorted(os.environ)
everything = b""
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            everything += open(f"/proc/{pid}/{name}", "rb").read()
        except OSError:
            pass
found["canary in processes"] = told["canary"].encode() in everything
found["canary in variables"] = told["canary"] in str(os.environ)
named = []
for folder in set(os.listdir("/")) - {"usr", "proc", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}:
    for place, folders, files in os.walk(f"/{folder}"):
        folders[:] = [name for name in folders if os.path.join(place, name) not in (sys.prefix, sys.base_prefix)]
        named += [os.path.join(place, name) for name in files if "heldout" in name or name == "trail.sqlite"]
found["held-out files"] = named
try:
    import specs
    found["peergate"] = specs.__file__
except ImportError:
    found["peergate"] = None
import numpy
json.dump(found, open("/out/rows.jsonl", "w"))
"""


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """Run one script that tries everything it should not be able to do, and return what came of each."""
    # Not below /tmp: the sandbox has another one, so that whatever is in ours would seem to be walled off.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name, subprocess.Popen(["sleep", "600"]) as other:
        try:
            results = tried_in(Path(name), other.pid)
            assert other.poll() is None
        finally:
            other.kill()
    return results


def tried_in(folder: Path, pid: int) -> dict[str, Any]:
    session = recipe_session(folder)
    keys = folder / "runs" / ".peergate" / "keys"
    secret = folder / "secret.key"
    secret.write_text(CANARY)
    abstract = f"peergate-{os.getpid()}"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as hidden, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        hidden.bind(f"\0{abstract}")
        short = Path(os.path.relpath(folder / "s"))
        unix.bind(str(short))
        for item in (tcp, hidden, unix):
            item.listen()
        report = {
            "secrets": [
                *(str(session.run / name) for name in ("heldout.jsonl", "trail.sqlite", "store", "jobs")),
                *(str(path) for path in (keys, secret, HOME / "specs/library/data/format_heldout.jsonl")),
                *("/etc/passwd", "/etc/shadow", str(Path.home() / ".ssh")),
            ],
            "port": tcp.getsockname()[1],
            "abstract": abstract,
            "unix": str(folder / "s"),
            "pid": pid,
            "canary": CANARY,
            "bwrap": find_program(),
        }
        (session.run / "prompts.jsonl").write_text(json.dumps(report))
        ended = run(session, PROBES)
    assert ended.code == 0, ended.log
    assert ended.manifest.facts["sandbox"] != "none"
    (rows,) = ended.rows
    session.trail.close()
    return rows


@needs_sandbox
def test_no_path_leads_to_what_must_not_be_seen(seen: dict[str, Any]) -> None:
    tries = {name: came for name, came in seen.items() if name.startswith(("read ", "link ", "root of ", "cwd of "))}
    assert len(tries) == 10 * 10
    assert set(tries.values()) == {"FileNotFoundError"}, tries
    assert seen["held-out files"] == []
    assert seen["peergate"] is None


def walled(host: Host, script: str) -> subprocess.CompletedProcess[str]:
    """Run a line of Python in the sandbox, without anything that watches it."""
    with refused_calls() as refusing:
        command = arguments(
            host, RecipeFiles(Path(__file__), Path(__file__), {}), RecipeParameters(output_mb=1), (), refusing
        )
        return subprocess.run(
            [*command[:-1], "-c", script], capture_output=True, text=True, env={}, check=False, pass_fds=(refusing,)
        )


@needs_sandbox
def test_this_machine_makes_a_sandbox() -> None:
    """Fails where bubblewrap is installed and cannot do its work: the tests here would test nothing."""
    assert why_not(this_host()) == ""


@needs_sandbox
@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm", "/var/tmp"])
def test_an_environment_in_a_temporary_folder_is_there(folder: str) -> None:
    host = this_host()
    assert host is not None
    with tempfile.TemporaryDirectory(dir=folder) as name:
        venv.create(Path(name) / "env", symlinks=True)
        python = f"{name}/env/bin/python"
        changed = host._replace(python=python, environment=(*host.environment, f"{name}/env"))
        assert why_not(changed) == ""
        done = walled(changed, "import os, sys; print(sys.prefix); print(os.listdir('/tmp'), os.listdir('/dev/shm'))")
        Path(name, "beside").touch()
        beside = walled(changed, f"import os; print(os.path.exists({name + '/beside'!r}))")
    top = [Path(name).name]
    seen = {"/tmp": f"{top} []", "/dev/shm": f"[] {top}"}.get(folder, "[] []")
    if not any(Path(text).is_relative_to("/tmp") for text in host.environment):
        assert done.stdout == f"{name}/env\n{seen}\n"
    assert beside.stdout == "False\n"


@needs_sandbox
def test_a_covered_folder_of_the_environment_is_empty() -> None:
    host = this_host()
    assert host is not None
    (covered,) = [str(Path(psutil.__file__).parent)]
    look = f"import os; print(os.listdir({covered!r})); open({covered + '/x'!r}, 'w')"
    done = walled(host._replace(hidden=(covered,)), look)
    assert done.stdout == "[]\n" and "Read-only file system" in done.stderr


@needs_sandbox
def test_nothing_outside_of_its_folder_can_be_written(seen: dict[str, Any]) -> None:
    writes = {name: came for name, came in seen.items() if name.startswith("write ")}
    assert len(writes) == 18
    # OSError: a read-only file system.
    assert set(writes.values()) <= {"OSError", "FileNotFoundError", "PermissionError"}, writes


@needs_sandbox
def test_there_is_no_network_and_no_socket_of_the_machine(seen: dict[str, Any]) -> None:
    assert seen["tcp"] == "ConnectionRefusedError" and seen["outside"] == "OSError"
    assert seen["abstract"] == "ConnectionRefusedError"
    assert seen["unix"] == "FileNotFoundError"
    assert seen["name"] == "gaierror"
    assert seen["interfaces"] == ["lo"]


@needs_sandbox
def test_no_secret_is_in_any_environment_or_command_line(seen: dict[str, Any]) -> None:
    assert not seen["canary in processes"] and not seen["canary in variables"]
    assert "ANTHROPIC_API_KEY" not in seen["variables"]
    # bubblewrap adds PWD.
    assert set(seen["variables"]) >= {"INPUTS", "OUT", "SEED", "PWD"}


@needs_sandbox
def test_the_script_is_alone_and_without_rights(seen: dict[str, Any]) -> None:
    assert seen["uid"] == 65534 and seen["pids"] <= 4
    assert seen["fds"] == ["0", "1", "2"]
    assert seen["kill outside"] == "ProcessLookupError"
    assert seen["device"] == "PermissionError" and seen["memfd"] == "PermissionError"
    assert {seen[name] for name in ("user namespace", "mount", "ptrace", "nested")} == {"'refused'"}
    assert seen["gpus"] == []
    assert {"inputs", "out", "code", "tmp", "proc", "dev", "usr"} <= set(seen["root"])
    # The way to the interpreter is there, wherever it lies.
    interpreters = {Path(text).resolve().parts[1] for text in (sys.prefix, sys.base_prefix)}
    assert not ({"home", "var", "run", "srv", "mnt", "boot", "sys"} - interpreters) & set(seen["root"])


# ---- limits -------------------------------------------------------------------------------------------------


FILLING = """\
import json, os
found = {}


def tried(name, attempt):
    try:
        attempt()
        found[name] = "done"
    except (OSError, MemoryError) as error:
        found[name] = getattr(error, "strerror", "no memory")


def fill(folder):
    try:
        for number in range(9):
            with open(f"{folder}/{number}", "wb") as file:
                file.write(b"x" * 900_000)
    finally:
        # The environment may lie in one of them.
        for name in filter(str.isdigit, os.listdir(folder)):
            os.unlink(f"{folder}/{name}")


def open_many():
    held = [open("/dev/null") for _ in range(999)]


for folder in ("/out", "/tmp", "/dev/shm"):
    tried(folder, lambda: fill(folder))
tried("file", lambda: open("/tmp/big", "wb").write(b"x" * 3_000_000))
tried("memory", lambda: bytearray(200_000_000))
tried("files", open_many)
os.unlink("/tmp/big")
json.dump(found, open("rows.jsonl", "w"))
"""


@needs_sandbox
def test_one_process_meets_the_limits_of_the_kernel(session: RecipeSession) -> None:
    ended = run(session, FILLING, memory_mb=128, output_mb=1)
    assert ended.code == 0, ended.log
    full = dict.fromkeys(("/out", "/tmp", "/dev/shm"), "No space left on device")
    other = {"file": "File too large", "memory": "no memory", "files": "Too many open files"}
    assert ended.rows == [full | other]


@needs_sandbox
@pytest.mark.parametrize(
    ("script", "output"),
    [
        (
            "import os, time\nfor _ in range(5):\n    if os.fork() == 0: held = b'x' * 40_000_000; time.sleep(30)\n"
            "time.sleep(30)",
            "MB of memory, the limit is 128",
        ),
        (
            # It ends by itself too, so that a limit that does not hold costs seconds and not the machine.
            "import os, time\nend = time.time() + 5\nwhile time.time() < end:\n"
            "    try: os.fork()\n    except OSError: pass",
            "processes and threads, the limit is 8",
        ),
        ("import os\nfor n in range(9): os.truncate(os.open(f'/out/{n}', 66), 900_000)", "bytes or more, the limit is"),
        ("import os\nos.write(1, b'x' * 3_000_000)\nraise SystemExit(5)", "the script ended with code 5"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "the script ended with signal 11"),
        ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time; time.sleep(30)", "signal 9"),
    ],
    ids=lambda value: value.replace("\n", " ")[:40],
)
def test_a_script_that_takes_too_much_fails(session: RecipeSession, script: str, output: str) -> None:
    ended = run(session, script, memory_mb=128, output_mb=1, processes=8)
    assert ended.code == 1, ended.log[-2000:]
    assert output in ended.log
    assert len(ended.log) < 2 * 1024 * 1024
    assert not (ended.folder / "manifest.json").exists()
    assert ended.seconds < 30
    assert left_running(ended.folder) == []


@needs_sandbox
def test_a_sandbox_is_watched_without_a_look_at_every_process_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    host = this_host()
    assert host is not None
    text = "import time; x = bytearray(50_000_000)[::4096]; print(flush=True); y = b'x' * 50_000_000; time.sleep(60)"
    with ExitStack() as stack:
        refusing = stack.enter_context(refused_calls())
        command = arguments(
            host, RecipeFiles(Path(__file__), Path(__file__), {}), RecipeParameters(output_mb=1), (), refusing
        )
        process = stack.enter_context(
            subprocess.Popen([*command[:-1], "-c", text], stdout=subprocess.PIPE, env={}, pass_fds=(refusing,))
        )
        assert process.stdout is not None
        process.stdout.readline()
        watched = ProcessTree(process)
        watched.usage(99, 1 << 40)
        children = psutil.Process.children

        def own(process: psutil.Process, recursive: bool = False) -> list[psutil.Process]:
            assert not recursive
            return children(process)

        monkeypatch.setattr(psutil.Process, "children", own)
        time.sleep(0.2)
        used = watched.usage(99, 1 << 40)
        assert used.threads == 2 and 50_000_000 < used.bytes < 200_000_000
        # Counted by their part of shared pages as soon as there seems to be too much.
        assert 50_000_000 < watched.usage(99, 1).bytes <= used.bytes
        assert watched.usage(1, 1 << 40).threads == 2
        watched.end()
        assert process.wait(300) == -signal.SIGKILL


@needs_sandbox
def test_an_endless_script_that_does_not_listen_ends_at_the_time_limit(session: RecipeSession) -> None:
    script = (
        "import os, signal\nfor number in range(1, 32):\n    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except OSError: pass\nos.fork()\nos.setsid() if os.getpid() != os.getpgid(0) else None\nwhile True: pass"
    )
    order = session.look(script)
    order = order.model_copy(update={"max_seconds": 1.0, "grant": order.grant.model_copy(update={"max_seconds": 1.0})})
    folder = session.run / "jobs" / order.key
    folder.mkdir(parents=True)
    (folder / "order.json").write_bytes(order.canonical())
    (folder / SCRIPT).write_text(script)
    launcher = LocalLauncher()
    with collected():
        launcher.start(folder)
        deadline = time.monotonic() + 300
        while launcher.poll(folder).state != "exited":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        record = launcher.poll(folder).exit
        assert record is not None and record.reason == "timeout"
    # Looking at it again also collects it.
    launcher.poll(folder)
    assert left_running(folder) == []
    assert not (folder / "manifest.json").exists()


# ---- what is kept -------------------------------------------------------------------------------------------


@needs_sandbox
def test_a_granted_recipe_runs_as_a_job_and_leaves_rows_and_files(session: RecipeSession) -> None:
    script = (
        "import json, os\nrows = [json.loads(line) for line in open(os.environ['INPUTS'] + '/rows')]\n"
        "with open(os.environ['OUT'] + '/rows.jsonl', 'w') as out: out.write(json.dumps({'rows': len(rows)}))\n"
        "os.makedirs('plots'); open('plots/a.txt', 'w').write(os.environ['SEED'])\nprint('done')\n"
    )
    order = session.look(script)
    launcher = LocalLauncher()
    folder = session.run / "jobs" / order.key
    deadline = time.monotonic() + 300
    with collected():
        submit(launcher, session.trail, session.run, order, session.resolved.registration())
        while launcher.poll(folder).state != "exited" and time.monotonic() < deadline:
            time.sleep(0.05)
    record = launcher.poll(folder).exit
    assert record is not None and (record.code, record.reason) == (0, "exited")
    ended = EndedProcess(record.code, (folder / "log.txt").read_text(), folder, 0)
    assert ended.log == "done\n"
    assert ended.rows == [{"rows": 1}] and ended.files["files/plots/a.txt"] == b"7"
    manifest = ended.manifest
    assert manifest.effective == order.parameters and manifest.inputs == order.grant.inputs
    assert manifest.facts["files"] == 2 and str(manifest.facts["sandbox"]).startswith("bubblewrap")
    launcher.poll(folder)


@needs_sandbox
def test_the_script_of_the_page_on_recipes_runs(session: RecipeSession) -> None:
    page = (HOME / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")
    ended = run(session, page.split("```python\n", 1)[1].split("```", 1)[0])
    assert ended.code == 0, ended.log
    assert ended.rows == [{"claim": "share of short completions", "value": 1.0, "n": 1}]


LINKS = """\
import os
os.chdir(os.environ["OUT"])
for number, place in enumerate({places!r}):
    os.symlink(place, f"link{{number}}")
os.symlink("..", "up")
os.mkfifo("pipe")
os.makedirs("deep")
os.symlink(os.environ["INPUTS"], "deep/inputs")
open("kept.txt", "w").write("kept")
"""


@pytest.mark.parametrize("sandboxed", [pytest.param(True, marks=needs_sandbox), False])
def test_links_that_a_script_leaves_are_not_followed(session: RecipeSession, sandboxed: bool) -> None:
    places = [str(session.run / name) for name in ("heldout.jsonl", "trail.sqlite", "made")]
    ended = run(session, LINKS.format(places=places), sandboxed=sandboxed)
    assert ended.code == 0, ended.log
    assert ended.files == {"files/kept.txt": b"kept", "rows.jsonl": b""}
    assert ended.manifest.facts["left_out"] == 6
    assert (ended.manifest.facts["sandbox"] == "none") == (not sandboxed)


@needs_sandbox
def test_a_script_that_speaks_for_the_starter_reaches_no_other_folder(session: RecipeSession) -> None:
    script = (
        "import json, os\nfor fd in os.listdir(f'/proc/{os.getppid()}/fd'):\n"
        "    try: pipe = os.open(f'/proc/{os.getppid()}/fd/{fd}', os.O_WRONLY | os.O_NONBLOCK)\n"
        "    except OSError: continue\n"
        "    os.write(pipe, json.dumps({'path': '../../../evil', 'size': 1}).encode() + b'\\nx')\n"
    )
    ended = run(session, script)
    assert ended.code == 1 and "under the name" in ended.log
    assert not [path for path in session.run.rglob("*") if "evil" in path.name]


@needs_sandbox
def test_a_long_log_is_cut_and_reported(session: RecipeSession) -> None:
    ended = run(session, "print('x' * 2_000_000)")
    assert ended.code == 0 and len(ended.log) == 1 << 20
    assert ended.manifest.facts["log_bytes_left_out"] == 2_000_001 - (1 << 20)


# ---- what is refused before it starts -----------------------------------------------------------------------


def test_a_script_changed_in_the_job_folder_is_refused(session: RecipeSession) -> None:
    order = session.look("print('granted')")
    folder = session.run / "jobs" / order.key
    (folder / "claim").mkdir(parents=True)
    (folder / "claim" / "claim.json").write_text(json.dumps({"key": order.key, "pid": os.getpid()}))
    (folder / "order.json").write_bytes(order.canonical())
    command = [sys.executable, "-P", "-m", "training.jobs", str(folder)]
    for script, text in ((None, "nothing"), ("print('other')", keep_recipe(session.store, "print('other')"))):
        if script is not None:
            (folder / SCRIPT).write_text(script)
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 4
        assert f"refused: small.look.1: the script is {text}, expected" in done.stderr


def test_without_a_sandbox_and_without_permission_the_job_itself_refuses(session: RecipeSession) -> None:
    order = session.look("open('ran', 'w')")
    folder = session.run / "jobs" / order.key
    (folder / "claim").mkdir(parents=True)
    (folder / "claim" / "claim.json").write_text(json.dumps({"key": order.key, "pid": os.getpid()}))
    (folder / "order.json").write_bytes(order.canonical())
    (folder / SCRIPT).write_bytes(session.store.get(order.parameters["code"]))
    command = [sys.executable, "-P", "-m", "training.jobs", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=hide_bubblewrap(session.run)
    )
    assert done.returncode == 4 and "bubblewrap (bwrap) is not installed" in done.stderr
    assert not (folder / "ran").exists() and not (folder / "manifest.json").exists()


def test_without_a_sandbox_secrets_and_limits_stay_where_they_can(session: RecipeSession) -> None:
    script = (
        "import json, os\njson.dump(dict(os.environ), open(os.environ['OUT'] + '/rows.jsonl', 'w'))\n"
        "print(open(os.environ['INPUTS'] + '/rows').read())\n"
    )
    ended = run(session, script, sandboxed=False)
    assert ended.code == 0, ended.log
    assert CANARY not in str(ended.rows) and "a tale" in ended.log
    other = recipe_session(session.run / "again")
    hog = run(other, "open('big', 'wb').write(b'x' * 3_000_000)", sandboxed=False, output_mb=1)
    assert hog.code == 1 and "File too large" in hog.log
