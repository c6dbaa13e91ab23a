"""Whether the files that a review cites are there: below the imported folder, or in the git checkout around it.

Only the lists of names are looked at: no file that a review names is opened. That one is there does not say that it is
the file the reviewer saw.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from reviews.legacy.pairing import name_of
from reviews.legacy.points import Citation

_LISTED = 200_000


class Reference(NamedTuple):
    """One citation and what became of it."""

    line: int
    cited: Citation
    state: Literal["present", "broken"]
    found: str | None
    note: str

    def as_json(self) -> dict[str, Any]:
        """Return the reference as a JSON value."""
        lines = None if self.cited.first is None else [self.cited.first, self.cited.last]
        return {**self._asdict(), "cited": self.cited.path, "lines": lines}


class Shelf:
    """The files that citations can mean."""

    def __init__(self, folder: Path, checkout: Path | None, tracked: Iterable[str]) -> None:
        """List the imported folder and the committed files of the checkout around it, if there is one."""
        root = (checkout or folder).resolve()
        below = folder.resolve().relative_to(root).as_posix()
        self._prefix = "" if below == "." else below + "/"
        self._folder = folder.resolve().name
        self._where = "the git checkout" if checkout else "the folder, and there is no git checkout around it"
        self._known = sorted({self._prefix + name for name in _listed(folder)} | set(tracked))

    def below_folder(self, found: str | None) -> str | None:
        """Return the path from the imported folder of a file that was found, if it lies below it."""
        return found[len(self._prefix) :] if found is not None and found.startswith(self._prefix) else None

    def look_up(self, cited: Citation, line: int) -> Reference:
        """Return what became of a citation: its last two parts, or its bare name, tell which file is meant."""
        wanted = [part for part in cited.path.split("/") if part not in ("", ".", "..", "~")]
        alike = [path for path in self._known if posixpath.basename(path) == wanted[-1]]
        fits = [path for path in alike if len(wanted) < 2 or self._parts(path)[-2:] == wanted[-2:]]
        if fits:
            return Reference(line, cited, "present", fits[0], f"{len(fits)} files have this name" if fits[1:] else "")
        name = name_of(wanted[-1])
        near = [path for path in self._known if name.stamp and name.topic and name_of(path).topic == name.topic]
        note = f"a file of this name is at {alike[0]}" if alike else f"not in {self._where}"
        return Reference(line, cited, "broken", None, note + (f"; {near[0]} has the same topic" if near else ""))

    def _parts(self, path: str) -> list[str]:
        below = self.below_folder(path)
        return path.split("/") if below is None else [self._folder, *below.split("/")]


def _listed(folder: Path) -> list[str]:
    """Return the files below a folder that are neither in a hidden one nor links."""
    found: list[str] = []
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        whole = (Path(place) / name for name in names)
        found += [path.relative_to(folder).as_posix() for path in whole if not path.is_symlink()]
        if len(found) > _LISTED:
            break
    return found[:_LISTED]
