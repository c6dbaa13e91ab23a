"""What other distributions bring: found by the name of an entry point, loaded when a spec names it, and identified."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args

from specs.system.digests import digest_file, digest_value
from specs.system.errors import PluginFault
from specs.system.home import HOME, PACKAGES
from specs.system.text import plain

Group = Literal["peergate.stages", "peergate.tasks", "peergate.launchers", "peergate.checks", "peergate.reviewers"]
GROUPS: tuple[Group, ...] = get_args(Group)
LOAD_SECONDS = 20.0
"""The longest that importing a plug-in may take."""
NOT_INSTALLED = "not installed"
HEAVY = ("torch", "transformers", "trl")
Loaded = TypeVar("Loaded")


def find_entry_points(group: Group) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, in an order that does not depend on the file system."""
    return _looked_up(entry_points, group)


@cache
def _looked_up(look: Callable[..., EntryPoints], group: Group) -> tuple[EntryPoint, ...]:
    """Look once a process: it takes as long as half a gate, and what is loaded does not change any more."""
    return tuple(
        sorted(look(group=group), key=lambda entry_point: (release(entry_point), entry_point.name, entry_point.value))
    )


def find(group: Group, name: str) -> EntryPoint | None:
    """Return the entry point of a name; None where no one brings it. Raises PluginFault if several do."""
    entry_points = [entry_point for entry_point in find_entry_points(group) if entry_point.name == name]
    return _only(f"{group} {name}", entry_points) if entry_points else None


def _only(key: str, entry_points: Sequence[EntryPoint]) -> EntryPoint:
    if len(entry_points) > 1:
        owners = " and ".join(release(entry_point) for entry_point in entry_points)
        raise PluginFault(f"{key} is provided by {owners}", hint="uninstall all but one of them")
    return entry_points[0]


def release(point: EntryPoint) -> str:
    """Return name and version of the distribution that an entry point belongs to."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown distribution"


def where(point: EntryPoint) -> str:
    """Return which entry point of which distribution it is, for an error."""
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


def key_of(point: EntryPoint) -> str:
    """Return what an entry point is registered as; several distributions may name their checks alike."""
    name = f"{release(point).rpartition(' ')[0]}/{point.name}" if point.group == "peergate.checks" else point.name
    return f"{point.group} {name}"


def identities(wanted: Iterable[str] | None = None) -> dict[str, str]:
    """Return the identity, as it is now, of what was registered under these keys; of everything installed by default.

    Raises:
        PluginFault: files cannot be read, or several distributions bring the same.
    """
    points = [entry_point for group in GROUPS for entry_point in find_entry_points(group)]
    keys = [key_of(point) for point in points] if wanted is None else wanted
    here: dict[str, list[EntryPoint]] = {}
    for point in points:
        here.setdefault(key_of(point), []).append(point)
    return {key: identity(_only(key, here[key])) if key in here else NOT_INSTALLED for key in keys}


def require_unchanged(registered: Mapping[str, str]) -> None:
    """Raise PluginFault if a registered plug-in is gone or has changed since."""
    for what, now in identities(registered).items():
        if now != registered[what]:
            message = f"{what} is {now}, registered was {registered[what]}"
            raise PluginFault(message, hint="install what was registered, or start a new session")


def packages_of(point: EntryPoint) -> list[Path]:
    """Return the files and folders of the package that an entry point names, wherever it is installed."""
    spec = importlib.util.find_spec(point.module.partition(".")[0])
    folders = (
        [Path(submodule_search_location) for submodule_search_location in (spec.submodule_search_locations or ())]
        if spec
        else []
    )
    return folders or ([Path(spec.origin)] if spec and spec.origin else [])


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
    """Return what an entry point names; raises PluginFault as :func:`run_bounded` does."""
    return run_bounded(point.load, where(point))


def run_bounded(work: Callable[[], Loaded], text: str, seconds: float | None = None, what: str = "be loaded") -> Loaded:
    """Return what work on a plug-in returns within a time limit; ``text`` and ``what`` say in an error who does what.

    The limit is :data:`LOAD_SECONDS` where none is given.

    A thread that hangs ends with the process. Work that hangs while it holds the interpreter is not bounded.

    Raises:
        PluginFault: the work fails, takes too long, or imports a library that trains.
    """
    seconds = LOAD_SECONDS if seconds is None else seconds
    results: list[Loaded] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name=f"plug-in {text}", daemon=True)
    guard = _WithoutHeavy(thread)
    sys.meta_path.insert(0, guard)
    try:
        thread.start()
        thread.join(seconds)
    finally:
        sys.meta_path.remove(guard)
    if failed:
        raise broken(failed[0], text, what) from failed[0]
    if not results:
        reported_text = f"cannot {what}: it takes more than {seconds:g} s"
        raise PluginFault(reported_text, where=text, hint="fix or uninstall that distribution")
    return results[0]


def broken(error: BaseException, text: str, what: str = "be loaded") -> PluginFault:
    """Return the fault of the plug-in ``text`` that raised an error, with the file and line where its own code did."""
    reported_text = f"cannot {what}: {type(error).__name__}: {plain(str(error), 200)}"
    ours = ("<frozen", *(f"{HOME / package}/" for package in PACKAGES))
    standard = sysconfig.get_path("stdlib")
    place = line_of(
        error, lambda file: not file.startswith(ours) and (not file.startswith(standard) or "site-packages" in file)
    )
    return PluginFault(
        reported_text, where=f"{text}, {place}" if place else text, hint="fix or uninstall that distribution"
    )


def line_of(error: BaseException | None, theirs: Callable[[str], bool]) -> str:
    """Return ``FILE:LINE`` of the last line of such a file that an error came through; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename and theirs(error.filename):
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    return next((f"{frame.filename}:{frame.lineno}" for frame in reversed(frames) if theirs(frame.filename)), "")


class _WithoutHeavy(MetaPathFinder):
    """Refuses to find the libraries that train, for one thread."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return nothing, so that others look; raises ImportError for one of those libraries."""
        if fullname.partition(".")[0] in HEAVY and threading.current_thread() is self._thread:
            raise ImportError(
                f"it imports {fullname} at module level; contracts and judges must not, jobs only in functions"
            )
        return None
