"""`make setup`: pip's settings reach uv, and what a machine lacks is named with the way to get it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from release import set_up
from specs.system.home import HOME
from testing.fixtures.skip_reasons import OPTIONAL, how_to_run, lines_of_skipped

SCRIPT = HOME / "release" / "system_packages.sh"
LISTING = """\
:env:.find-links='/wheels'
global.cert='/etc/ca.crt'
global.extra-index-url='file:///nowhere/simple https://one.example/simple https://two.example/simple'
global.find-links='/nowhere'
global.index-url='https://mirror.example/simple'
user.timeout='60'
malformed
"""


def test_pips_settings_are_handed_on_to_uv(tmp_path: Path) -> None:
    settings = set_up.pip_settings(LISTING.replace("/wheels", str(tmp_path)))
    assert set_up.uv_variables(settings, {"UV_HTTP_TIMEOUT": "9"}) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": str(tmp_path),
        "SSL_CERT_FILE": "/etc/ca.crt",
    }


def test_torchs_build_is_chosen_only_where_packages_come_from_the_public_index() -> None:
    assert set_up.torch_backend({"cert": "/etc/ca.crt"}, {}) == ("--torch-backend", "auto")
    assert set_up.torch_backend({"find-links": "/wheels"}, {}) == ()
    assert set_up.torch_backend({}, {"UV_TORCH_BACKEND": "cpu"}) == ()


def test_the_installer_itself_is_pinned_by_hash() -> None:
    lines = set_up.pinned_lines("uv", (HOME / "requirements-release.txt").read_text(encoding="utf-8")).splitlines()
    assert lines[0].startswith("uv==") and len(lines) > 2
    assert all(line.strip().startswith("--hash=sha256:") for line in lines[1:])
    with pytest.raises(SystemExit, match="no version of nothing"):
        set_up.pinned_lines("nothing", "a==1\n")


def test_an_older_python_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "OLDEST", (9, 1))
    with pytest.raises(SystemExit, match=r"Python 9\.1 or newer is needed.*make setup PYTHON=python9\.1"):
        set_up.main([".venv"])


def test_a_failed_step_says_how_to_install_with_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> bool:
        return False

    monkeypatch.setattr(set_up.SetUp, "step", fails)
    with pytest.raises(SystemExit, match=r"set_up\.py --pip"):
        set_up.SetUp(tmp_path)._install({}, with_pip=False)  # pyright: ignore[reportPrivateUsage]


def test_each_step_says_what_it_does_its_seconds_and_the_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    makes = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_bytes(bytes(2_500_000)); sys.exit(int(sys.argv[2]))"
    made = set_up.SetUp(tmp_path)
    assert made.step("90 packages by their hashes", sys.executable, "-c", makes, tmp_path / "a", "0")
    assert not made.step("torch==2.13.0", sys.executable, "-c", makes, tmp_path / "b", "3")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0::2] == ["90 packages by their hashes ...", "torch==2.13.0 ..."]
    assert re.fullmatch(rf"  \d+\.\d s, 2 MB in {tmp_path}", lines[1])
    assert re.fullmatch(rf"  failed \(exit code 3\), \d+\.\d s, 5 MB in {tmp_path}", lines[3])


def reasons_of(text: str) -> Iterator[str]:
    """Yield the reasons for skipping that tests write down, as source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.skip":
            yield from map(ast.unparse, node.args)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.mark.skipif", "pytest.importorskip"):
            yield from (ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "reason")


def test_whoever_needs_what_set_up_does_not_install_says_how_it_is_had() -> None:
    paths = [*(HOME / "tests").rglob("*.py"), *(HOME / "testing").rglob("*.py")]
    reasons = {reason for path in paths for reason in reasons_of(path.read_text(encoding="utf-8"))}
    assert len(reasons) > 40
    silent = {reason for reason in reasons if any(word in reason for word in OPTIONAL) and how_to_run(reason) != reason}
    assert silent == set()


def test_the_summary_has_a_line_a_reason_that_says_how_to_have_the_tests_run() -> None:
    reasons = [
        "chromium is not installed",
        "chromium is not installed",
        "no permission stops root",
        "x (the extra 'y')",
    ]
    reports = [SimpleNamespace(longrepr=("file.py", 1, f"Skipped: {reason}")) for reason in reasons]
    assert list(lines_of_skipped(reports)) == [
        "skipped    2 tests: chromium is not installed (`make system` installs it, or says how)",
        "skipped    1 tests: no permission stops root",
        "skipped    1 tests: x (the extra 'y')",
    ]


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """Return a folder with what the script itself needs, a user who is not root, and no apt-get."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "cat", "cut", "tr", "head", "rm"):
        (folder / name).symlink_to(shutil.which(name) or name)
    (folder / "id").write_text("#!/bin/sh\necho 1000\n")
    (folder / "id").chmod(0o755)
    return folder


def system_packages(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(folder / "bash"), str(SCRIPT), *arguments]
    return subprocess.run(
        command,
        env={"PATH": str(folder), "POLICY_RC_D": str(folder.parent / "policy-rc.d")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_user_without_root_reads_what_is_skipped_and_how_to_get_it(bare_path: Path) -> None:
    done = system_packages(bare_path, "test")
    assert done.returncode == 3 and "command not found" not in done.stderr.replace("sudo", "")
    line = "NOT INSTALLED: openssl; tests that are skipped: an export read without Peergate. "
    assert line + "On Debian and Ubuntu: sudo apt-get install openssl" in done.stderr.splitlines()
    assert "installing" not in done.stdout


def test_root_installs_what_is_missing_once_and_starts_no_service(bare_path: Path, tmp_path: Path) -> None:
    log, policy = tmp_path / "log", tmp_path / "policy-rc.d"
    programs = {
        "id": "echo 0",
        "timeout": 'shift; exec "$@"',
        "apt-get": f'echo "$@" >> {log}; cat {policy} >> {log}; case "$*" in\n'
        f"*openssl*) touch {bare_path}/openssl; chmod +x {bare_path}/openssl;; *xxd*) exit 100;; esac",
    }
    for name, body in programs.items():
        (bare_path / name).write_text(f"#!{bare_path}/bash\n{body}\n")
        (bare_path / name).chmod(0o755)
    for name in ("tee", "chmod", "touch"):
        (bare_path / name).symlink_to(shutil.which(name) or name)
    stamp = tmp_path / "stamp"
    done = system_packages(bare_path, "test", str(stamp))
    calls = log.read_text().splitlines()
    assert done.returncode == 3 and stamp.exists()
    assert "exit 101" in calls and not policy.exists(), "services are not started while packages are installed"
    assert calls[0] == "update -qq" and "install -y -qq --no-install-recommends openssl" in calls
    assert "NOT INSTALLED: xxd" in done.stderr and "NOT INSTALLED: openssl" not in done.stderr
    again = system_packages(bare_path, "test", str(stamp))
    assert len(log.read_text().splitlines()) == len(calls) and "not tried again while" in again.stderr
