"""How optional parts of Peergate are installed into the environment that this process runs in."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def install_hint(extra: str) -> str:
    """Return the command that installs an extra into this environment, where Peergate already is.

    The installed distribution satisfies the requirement, so no package index is asked for Peergate itself. An
    environment that uv made has no pip.
    """
    return install_command(f"'peergate[{extra}]'")


def install_command(*packages: str) -> str:
    """Return the command that installs packages into this environment."""
    installer = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install --python {sys.executable}"
    return f"{installer} {' '.join(packages)}"
