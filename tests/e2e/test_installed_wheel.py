"""A built wheel, installed outside the checkout, loads every shipped spec and template and runs a session."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest

from release import set_up
from sessions.commands.starters.starter import Template
from sessions.pods.install import wheel_of_this
from specs.loading.loading import list_shipped_specs
from specs.system.home import HOME, PACKAGES, SHARED_FILES
from testing.fixtures.command_sessions import FEWER, write_small_spec

pytestmark = [pytest.mark.more, pytest.mark.integration]
WITH_KEY = {"demo_models": "ANTHROPIC_API_KEY is not set"}
"""Shipped specs whose check stops at a key that tests do not have."""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel."""

    folder: Path

    def peergate(self, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command of the installed wheel; nothing of the checkout is on its path."""
        command = [str(self.folder / "bin" / "peergate"), *map(str, arguments)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PEERGATE_RUNS"))}
        return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=1800)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel as `make release` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    hatchling = Path(sys.executable).with_name("hatchling")
    subprocess.run([hatchling, "build", "-t", "wheel", "-d", folder], cwd=HOME, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return a fresh environment with the wheel; libraries are those of this environment, without its checkout."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, wheel], check=True, capture_output=True)
    return Installed(folder)


def test_both_wheels_hold_what_shipped_specs_name(wheel: Path) -> None:
    """`make release` and a pod's installation build a wheel each."""
    wanted = {path.relative_to(HOME).as_posix() for path in (HOME / "specs" / "library").rglob("*") if path.is_file()}
    for archive in (zipfile.ZipFile(wheel), zipfile.ZipFile(io.BytesIO(wheel_of_this()[1]))):
        names = set(archive.namelist())
        assert wanted | set(SHARED_FILES) <= names
        assert {name.partition("/")[0] for name in names} - set(SHARED_FILES) - set(PACKAGES) == {
            "peergate-0.1.0.dist-info"
        }


@pytest.mark.parametrize("name", list_shipped_specs())
def test_every_shipped_spec_is_checked(installed: Installed, tmp_path: Path, name: str) -> None:
    done = installed.peergate("spec", "check", name, cwd=tmp_path)
    expected = 3 if name == "demo_leaky" else 2 if name in WITH_KEY else 0
    assert done.returncode == expected, done.stdout + done.stderr
    assert WITH_KEY.get(name, "") in done.stderr
    assert str(HOME) not in done.stdout + done.stderr


@pytest.mark.parametrize("template", get_args(Template))
def test_every_template_is_checked(installed: Installed, tmp_path: Path, template: str) -> None:
    options: dict[str, tuple[str | Path, ...]] = {
        "composer": ("--sessions", HOME / "specs" / "library" / "data" / "composer_sessions"),
        "evaluate": ("--against", "hub:owner/other"),
    }
    made = installed.peergate("init", "mine", "--template", template, *options.get(template, ()), cwd=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    done = installed.peergate("spec", "check", "mine", cwd=tmp_path)
    needs = ("API_KEY is not set", "is not in the local hub cache")
    accepted = done.returncode == 0 or any(reason in done.stderr for reason in needs)
    assert accepted, done.stdout + done.stderr


def test_without_the_constitution_the_check_fails(installed: Installed, tmp_path: Path) -> None:
    (site,) = installed.folder.glob("lib/python*/site-packages")
    (site / "constitution.yaml").rename(site / "moved.yaml")
    try:
        done = installed.peergate("spec", "check", "demo", cwd=tmp_path)
        assert done.returncode == 2 and "constitution.yaml" in done.stderr
    finally:
        (site / "moved.yaml").rename(site / "constitution.yaml")


def test_a_session_runs_to_its_end_and_verifies(installed: Installed, tmp_path: Path) -> None:
    spec = write_small_spec(tmp_path, *FEWER, topics=4)
    done = installed.peergate("start", spec, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    verified = installed.peergate("audit", "verify", "small", cwd=tmp_path)
    assert verified.returncode == 0 and "VERIFIED" in verified.stdout, verified.stdout + verified.stderr


@pytest.mark.slow
def test_the_command_of_the_page_on_installation_installs_a_peergate(wheel: Path, tmp_path: Path) -> None:
    """Fetch 2 GB, less what uv has already."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("uv is not in this environment (`make setup` fetches it)")
    page = (HOME / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    install, *commands = re.findall(r"^```\n(uv tool install .*?)```", page, re.M | re.S)[0].splitlines()
    assert commands == ["peergate spec check demo", "peergate start demo"]
    dist = tmp_path / "dist"
    dist.mkdir()
    for path in (wheel, HOME / "constraints.txt", HOME / "release" / "overrides.txt"):
        shutil.copy(path, dist)
    pip = [sys.executable, "-m", "pip", "config", "list"]
    sources = set_up.pip_settings(subprocess.run(pip, capture_output=True, text=True, check=True).stdout)
    if not set_up.torch_backend(sources, os.environ):
        # A mirror of packages has one build of torch, as in `make setup`.
        install = install.replace(" --torch-backend auto", "")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PEERGATE_"))}
    clean |= set_up.uv_variables(sources, clean)
    clean |= {"UV_TOOL_DIR": f"{tmp_path}/tools", "UV_TOOL_BIN_DIR": f"{tmp_path}/bin"}
    clean["PATH"] = f"{tmp_path}/bin:{uv.parent}:{clean['PATH']}"
    for command in (install, commands[0]):
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False, timeout=850
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "bin" / "peergate").exists()
