"""How optional parts of Peergate are installed into the environment that this process runs in."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from importlib.util import find_spec

_OF_EXTRA = re.compile(r"(?P<name>[\w.-]+).*; extra == '(?P<extra>[\w-]+)'")


def install_hint(extra: str) -> str:
    """Return the command that installs an extra into this environment, where Peergate already is.

    The installed distribution satisfies the requirement, so no package index is asked for Peergate itself. An
    environment that uv made has no pip.
    """
    return install_command(f"'peergate[{extra}]'")


def extra_with(package: str) -> str | None:
    """Return the smallest extra of Peergate that brings a package, named as itself or its module; None if none does."""
    extras: dict[str, set[str]] = {}
    try:
        required = requires("peergate") or []
    except PackageNotFoundError:
        return None
    for line in required:
        if match := _OF_EXTRA.fullmatch(line):
            extras.setdefault(match["extra"], set()).add(match["name"].lower())
    wanted = {_normalize(package)}
    if not any(names & wanted for names in extras.values()):
        # Reads the files of every installed distribution: a second.
        wanted = {_normalize(name) for name in packages_distributions().get(package, ())}
    having = [name for name in extras if extras[name] & wanted]
    return min(having, key=lambda name: (name in ("dev", "demo", "llama"), len(extras[name]), name), default=None)


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def install_command(*packages: str) -> str:
    """Return the command that installs packages into this environment."""
    installer = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install --python {sys.executable}"
    return f"{installer} {' '.join(packages)}"
