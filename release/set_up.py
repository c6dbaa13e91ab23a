"""Makes the environment of a clone: `python3 release/set_up.py .venv`, with nothing but Python itself.

Packages come by their hashes, installed by uv in seconds; where uv is not to be had, pip does the same in minutes. uv
reads none of pip's settings (index, certificate, folder of wheels), so they are handed on to it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
NEEDED_MB = 3000
"""On the disk: 2.0 GB installed by uv, 2.4 GB by pip, which also compiles bytecode; and room for downloads."""
HASHED = ("--require-hashes", "--no-deps", "--only-binary", ":all:")
"""Only wheels with the listed hashes: no further dependencies, no package is built."""
UV_SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "trusted-host": "UV_INSECURE_HOST",
    "proxy": "ALL_PROXY",
    "no-index": "UV_NO_INDEX",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""Settings of pip, and the variables in which uv reads the same."""
SOURCES = ("index-url", "extra-index-url", "find-links")
"""The settings that name where packages come from."""


def pip_settings(listing: str) -> dict[str, str]:
    """Return pip's settings from the output of `pip config list`; its variables come before its files."""
    settings: dict[str, str] = {}
    for line in listing.splitlines():
        name, separator, value = line.partition("=")
        scope, _, option = name.partition(".")
        if separator and option and (scope == ":env:" or option not in settings):
            settings[option] = value.strip("'\"").replace("\\n", " ")
    return settings


def uv_variables(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables that pass pip's settings to uv; variables already set are kept."""
    variables: dict[str, str] = {}
    for option, variable in UV_SETTINGS.items():
        places = [place for place in settings.get(option, "").split() if option not in SOURCES or _exists(place)]
        if places and variable not in environ:
            variables[variable] = ("," if option == "find-links" else " ").join(places)
    if "UV_INDEX" in variables and "UV_INDEX_STRATEGY" not in environ:
        # pip takes a version from whichever index has it; uv would look into the first that knows the package.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return variables


def _exists(place: str) -> bool:
    """Return whether a source of packages can be read: pip passes over a missing folder, uv ends there."""
    address = urlsplit(place)
    if address.scheme not in ("", "file"):
        return True
    return Path(unquote(address.path)).exists()


def torch_backend(settings: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the option with which uv chooses torch's build for this machine, unless other sources are configured."""
    configured = any(option in settings for option in SOURCES) or any(
        name in environ for name in ("UV_FIND_LINKS", "UV_INDEX", "UV_DEFAULT_INDEX", "UV_TORCH_BACKEND")
    )
    return () if configured else ("--torch-backend", "auto")


def pinned_lines(package: str, requirements: str) -> str:
    """Return the lines of one package and its hashes in a file of requirements.

    Raises:
        SystemExit: the file does not name the package.
    """
    lines = requirements.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(f"{package}==")]
    if not starts:
        raise SystemExit(f"error: no version of {package} in the requirements")
    end = starts[0] + 1
    while end < len(lines) and lines[end].startswith(" "):
        end += 1
    return "\n".join(lines[starts[0] : end]) + "\n"


class SetUp:
    """One set-up of an environment, with a line for each step."""

    def __init__(self, venv: Path) -> None:
        self.venv = venv
        self.python = venv / "bin" / "python"
        self.started = time.monotonic()

    def step(self, title: str, *command: str | Path, variables: Mapping[str, str] | None = None) -> bool:
        """Run one step; print what it does, then its seconds and the environment's size. Return whether it worked."""
        print(f"{title} ...", flush=True)
        started = time.monotonic()
        done = subprocess.run(
            [str(part) for part in command], cwd=ROOT, env=os.environ | dict(variables or {}), check=False
        )
        status = "" if done.returncode == 0 else f"failed (exit code {done.returncode}), "
        print(f"  {status}{time.monotonic() - started:.1f} s, {self.size_mb():,} MB in {self.venv}", flush=True)
        return done.returncode == 0

    def size_mb(self) -> int:
        """Return the environment's size on the disk in MB."""
        files = [Path(folder, name) for folder, _, names in os.walk(self.venv) for name in names]
        return sum(path.lstat().st_size for path in files) // 1_000_000

    def run(self, *, with_pip: bool) -> None:
        """Make the environment and install everything.

        Raises:
            SystemExit: a step failed; what to do is printed.
        """
        if not self.python.exists() and not self.step(
            f"environment {self.venv} with Python {sys.version.split()[0]}", sys.executable, "-m", "venv", self.venv
        ):
            shutil.rmtree(self.venv, ignore_errors=True)
            raise SystemExit("error: cannot create an environment. On Debian and Ubuntu: apt-get install python3-venv")
        listing = subprocess.run(
            [self.python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
        )
        settings = pip_settings(listing.stdout)
        if not (with_pip or self._install_uv()):
            print("uv is not available here; pip takes its place (two minutes instead of ten seconds)", flush=True)
            with_pip = True
        self._install(settings, with_pip=with_pip)
        (self.venv / ".installed").touch()
        print(f"ready after {time.monotonic() - self.started:.0f} s, {self.size_mb():,} MB in {self.venv}", flush=True)

    def _install_uv(self) -> bool:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
            file.write(pinned_lines("uv", (ROOT / "requirements-release.txt").read_text(encoding="utf-8")))
            file.flush()
            pip = (self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            return self.step("installer uv", *pip, *HASHED, "-r", file.name)

    def _install(self, settings: Mapping[str, str], *, with_pip: bool) -> None:
        if with_pip:
            install: tuple[str | Path, ...] = (self.python, "-m", "pip", "install", "--disable-pip-version-check")
            variables: dict[str, str] = {}
            backend: tuple[str, ...] = ()
        else:
            install = (self.venv / "bin" / "uv", "pip", "install", "--python", self.python)
            variables = uv_variables(settings, os.environ)
            backend = torch_backend(settings, os.environ)
        requirements = ROOT / "requirements.txt"
        count = sum("==" in line for line in requirements.read_text(encoding="utf-8").splitlines())
        constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
        torch = next(line for line in constraints.splitlines() if line.startswith("torch=="))
        # torch is not among the hashes: which of its wheels is the right one depends on the machine. An open range
        # would pull gigabytes of CUDA libraries, so its version is exact.
        steps: list[tuple[str, tuple[str | Path, ...]]] = [
            (f"{count} packages by their hashes", (*HASHED, "-r", requirements)),
            (torch, (torch, "-c", ROOT / "constraints.txt", *backend)),
            ("peergate itself", ("--no-deps", "--no-build-isolation", "-e", ROOT)),
        ]
        for title, arguments in steps:
            if not self.step(title, *install, *arguments, variables=variables):
                hint = "" if with_pip else f"; with pip instead: {sys.executable} release/set_up.py --pip {self.venv}"
                raise SystemExit(f"error: {title}: not installed, the reason is above{hint}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and make the environment."""
    parser = argparse.ArgumentParser(description="Make an environment with everything that demo and tests need.")
    parser.add_argument("venv", type=Path, help="folder of the environment")
    parser.add_argument("--pip", action="store_true", help="install with pip, without uv")
    options = parser.parse_args(arguments)
    if sys.version_info < OLDEST:
        version = ".".join(map(str, OLDEST))
        raise SystemExit(
            f"error: Python {version} or newer is needed, {sys.executable} is {sys.version.split()[0]}; "
            f"name another: make setup PYTHON=python{version}"
        )
    free_mb = shutil.disk_usage(ROOT).free // 1_000_000
    if free_mb < NEEDED_MB and not (options.venv / ".installed").exists():
        raise SystemExit(f"error: {NEEDED_MB} MB of disk are needed in {ROOT}, {free_mb} MB are free")
    SetUp(options.venv).run(with_pip=options.pip)


if __name__ == "__main__":
    main()
