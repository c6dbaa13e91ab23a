"""A script in a file next to the spec (``script: train.py``): registered with its text, run in the sandbox of recipes.

As with a task's file, a registered spec carries the text, and the file is not reread. A builder's script meets the
same limits (:func:`require_script`).
"""

from __future__ import annotations

import ast
import os
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from specs.system.confinement.task_file import syntax_fault
from specs.system.digests import digest_bytes
from specs.system.errors import BlockedError, UserError
from specs.system.home import HOME

if TYPE_CHECKING:
    from packaging.requirements import Requirement

SCRIPT_BYTES = 32_768
"""A reviewer has to read it as a whole."""
PACKAGES = "PEERGATE_SCRIPT_PACKAGES"
"""Names a folder of packages that conflict with Peergate's."""


def path_of(script: str) -> str:
    """Return the path of a script, without its digest."""
    return script.partition("@")[0]


def digest_of(script: str) -> str:
    """Return the digest that a registered script names; empty before it is registered."""
    return script.partition("@")[2]


def pin_script(script: str, text: str) -> str:
    """Return a script's path with the digest of its text."""
    return f"{path_of(script)}@{digest_bytes(text.encode())}"


def require_script(text: str, where: str = "the script") -> bytes:
    """Return the bytes of a script; raise UserError if it is too long, no text or no Python, with the line."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(f"character {error.start} is not text: {error.reason}", where=where) from error
    if len(data) > SCRIPT_BYTES:
        hint = "a reviewer reads it as a whole; shorten it"
        raise UserError(f"has {len(data)} bytes, the limit is {SCRIPT_BYTES}", where=where, hint=hint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, where)
            compile(tree, where, "exec", dont_inherit=True)
    except SyntaxError as error:
        message = f"line {error.lineno or 0}: {syntax_fault(error, text)}"
        raise UserError(message, where=where, hint="nothing was kept; correct it and hand it in again") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"cannot be compiled: {error or type(error).__name__}", where=where) from error
    if not tree.body:
        raise UserError("holds no statement", where=where)
    return data


def is_requirement(text: str) -> bool:
    """Return whether a text is a requirement as in pip, without an address or extras: ``datasets>=5``."""
    try:
        requirement = _parse_requirement(text)
    except ValueError:
        return False
    return requirement.url is None and requirement.marker is None and not requirement.extras


def packages() -> Path | None:
    """Return the folder of packages that scripts import before those of Peergate's environment, None without one.

    Raises:
        Blocked: what :data:`PACKAGES` names is not a folder, or holds Peergate itself, which no script may see.
    """
    named = os.environ.get(PACKAGES)
    if not named:
        return None
    if not (folder := Path(named).resolve()).is_dir():
        raise BlockedError(f"'{named}' is not a folder", where=PACKAGES, hint="`pip install --target FOLDER` makes one")
    if HOME.is_relative_to(folder):
        raise BlockedError(f"'{named}' holds Peergate", where=PACKAGES, hint="name a folder that holds only packages")
    return folder


def find_installed_versions(requires: tuple[str, ...]) -> dict[str, str]:
    """Return the version of each required distribution that scripts can import and that fits."""
    results: dict[str, str] = {}
    folder = packages()
    path = [*([str(folder)] if folder else []), *sys.path]
    for requirement in map(_parse_requirement, requires):
        version = next((here.version for here in metadata.distributions(name=requirement.name, path=path)), None)
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            results[requirement.name] = version
    return results


def with_needed(requires: tuple[str, ...], needed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requirements, and those distributions of ``needed`` that none of them names."""
    named = {canonical(_parse_requirement(require).name) for require in requires}
    return (*requires, *(text for text in needed if canonical(text) not in named))


def canonical(name: str) -> str:
    """Return a distribution's name as packaging compares it."""
    return name.lower().replace("_", "-").replace(".", "-")


def lacking(requires: tuple[str, ...]) -> list[str]:
    """Return the requirements that this Python environment does not meet."""
    results = find_installed_versions(requires)
    return [require for require in requires if _parse_requirement(require).name not in results]


def _parse_requirement(text: str) -> Requirement:
    # Imported here: most specs name no requirement.
    from packaging.requirements import Requirement

    return Requirement(text)
