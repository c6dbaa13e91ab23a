"""What other distributions bring: found by the name of an entry point, loaded when a spec names it, and identified.

Nothing is looked up at import, so that a command which needs no plug-in pays for none. Loading is bounded in time and
refuses the libraries that train: a contract and a judge are read by processes that never run a model.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from specs.digests import digest_file, digest_value
from specs.errors import PluginFault
from specs.text import plain

Group = Literal["peergate.stages", "peergate.tasks", "peergate.launchers", "peergate.checks", "peergate.reviewers"]
GROUPS: tuple[Group, ...] = (
    "peergate.stages",
    "peergate.tasks",
    "peergate.launchers",
    "peergate.checks",
    "peergate.reviewers",
)
LOAD_SECONDS = 20.0
"""The longest that importing a plug-in may take."""
HEAVY = ("torch", "transformers", "trl")
Loaded = TypeVar("Loaded")


def installed(group: Group) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, in an order that does not depend on the file system."""
    return _looked_up(entry_points, group)


@cache
def _looked_up(look: Callable[..., EntryPoints], group: Group) -> tuple[EntryPoint, ...]:
    """Look once a process: it takes as long as half a gate, and what is loaded does not change any more."""
    return tuple(sorted(look(group=group), key=lambda one: (release(one), one.name, one.value)))


def find(group: Group, name: str) -> EntryPoint | None:
    """Return the entry point of a name; None where no distribution brings it.

    Raises:
        PluginFault: several distributions bring it.
    """
    found = [one for one in installed(group) if one.name == name]
    if len(found) > 1:
        owners = " and ".join(release(one) for one in found)
        raise PluginFault(f"'{name}' of {group} is brought by {owners}", hint="uninstall all but one of them")
    return found[0] if found else None


def release(point: EntryPoint) -> str:
    """Return name and version of the distribution that an entry point belongs to."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown distribution"


def where(point: EntryPoint) -> str:
    """Say which entry point of which distribution it is, for an error."""
    return f"{release(point)}, entry point '{point.name}' of {point.group}"


def identity(point: EntryPoint) -> str:
    """Return name, version and digest of the files of the distribution, as they are now.

    An editable installation has its files elsewhere: those of the package that the entry point names count too.

    Raises:
        PluginFault: a file cannot be read.
    """
    try:
        return f"{release(point)} {digest_value(dict(sorted(_files(point))))}"
    except (OSError, ValueError) as error:
        raise PluginFault(f"its files cannot be read: {plain(str(error), 200)}", where=where(point)) from error


def identities() -> dict[str, str]:
    """Return the identity of everything that is installed, by what it brings."""
    return {f"{group} {one.name}: {one.value}": identity(one) for group in GROUPS for one in installed(group)}


def _files(point: EntryPoint) -> Iterator[tuple[str, str]]:
    """Yield each file with its digest; what the installer writes about itself is left out."""
    for file in (point.dist.files or ()) if point.dist else ():
        path = Path(str(file.locate()))
        about = file.parts[0].endswith(".dist-info") and file.name != "entry_points.txt"
        if not about and path.suffix not in (".pyc", ".pth") and path.is_file():
            yield file.as_posix(), digest_file(path)
    top = point.module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix != ".pyc" and path.is_file():
                yield f"{top}/{path.relative_to(folder).as_posix()}", digest_file(path)
    if spec is not None and spec.submodule_search_locations is None and spec.origin:
        yield Path(spec.origin).name, digest_file(Path(spec.origin))


def load(point: EntryPoint) -> Any:
    """Return what an entry point names.

    Raises:
        PluginFault: importing it fails, takes too long, or needs a library that trains.
    """
    return bounded(point.load, where(point))


def bounded(work: Callable[[], Loaded], told: str, seconds: float = LOAD_SECONDS, what: str = "be loaded") -> Loaded:
    """Return what work on a plug-in returns, within a time limit.

    What hangs keeps its thread, which ends with the process; what hangs without letting go of the interpreter is not
    bounded by this.

    Args:
        work: imports or calls the plug-in.
        told: names it in an error.
        seconds: the limit.
        what: the plug-in does then, for an error.

    Raises:
        PluginFault: the work fails, takes too long, or imports a library that trains.
    """
    found: list[Loaded] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name=f"plug-in {told}", daemon=True)
    guard = _WithoutHeavy(thread)
    sys.meta_path.insert(0, guard)
    try:
        thread.start()
        thread.join(seconds)
    finally:
        sys.meta_path.remove(guard)
    hint = "mend or uninstall that distribution"
    if failed:
        kind, said = type(failed[0]).__name__, plain(str(failed[0]), 200)
        raise PluginFault(f"cannot {what}: {kind}: {said}", where=told, hint=hint) from failed[0]
    if not found:
        raise PluginFault(f"cannot {what}: it takes more than {seconds:g} s", where=told, hint=hint)
    return found[0]


class _WithoutHeavy(MetaPathFinder):
    """Refuses to find the libraries that train, for one thread."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return nothing, so that others look.

        Raises:
            ImportError: the module is one of those libraries.
        """
        if fullname.partition(".")[0] in HEAVY and threading.current_thread() is self._thread:
            raise ImportError(f"it imports {fullname} at its top; contracts and judges import it nowhere, jobs inside")
        return None
