"""A path with umlauts, whatever the locale says of names of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration


def test_a_path_with_umlauts_works_in_every_locale(tmp_path: Path) -> None:
    """Whatever the locale says of the encoding of file names: what is written is UTF-8."""
    folder = tmp_path / "Läufe über 3"
    folder.mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    ascii_names = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for locale in ({"LC_ALL": "C"}, ascii_names):
        command = [sys.executable, "-m", "sessions.commands.cli", "start", "demo_leaky", "--name", f"a{len(locale)}"]
        done = subprocess.run(
            [*command, "--runs", folder / "Ä"], env=clean | locale, capture_output=True, text=True, check=False
        )
        assert done.returncode == 3 and "rejected at the gate of 'design'" in done.stdout, done.stderr
        (folder / "Ä").rename(folder / f"Ä{len(list(folder.iterdir()))}")
