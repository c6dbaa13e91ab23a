"""Whether the files that a review cites are there: below the imported folder, or in the git checkout around it.

Nothing outside of these is looked at, and no symbolic link out of them is followed. That a file is there does not say
that it is the file the reviewer saw.
"""

from __future__ import annotations

import os
import posixpath
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from reviews.legacy.citations import Citation
from reviews.legacy.names import name_of

State = Literal["present", "broken", "lines missing"]
_LARGEST = 4_000_000
"""Lines of larger files are not counted."""


class Reference(NamedTuple):
    """One citation and what became of it."""

    line: int
    cited: Citation
    state: State
    found: str | None
    note: str

    def as_json(self) -> dict[str, Any]:
        """Return the reference as a JSON value."""
        lines = None if self.cited.first is None else [self.cited.first, self.cited.last]
        return {
            "line": self.line,
            "cited": self.cited.path,
            "lines": lines,
            "state": self.state,
            "found": self.found,
            "note": self.note,
        }


class Shelf:
    """The files that citations can mean."""

    def __init__(self, folder: Path, present: Iterable[str], checkout: Path | None, tracked: Iterable[str]) -> None:
        """Take stock.

        Args:
            folder: the imported folder.
            present: every file below it, by its path from there.
            checkout: the top of the git checkout around it, if there is one.
            tracked: every committed file of the checkout, by its path from the top.
        """
        self.root = (checkout or folder).resolve()
        below = folder.resolve().relative_to(self.root).as_posix() if checkout else "."
        self._name = folder.resolve().name
        self._prefix = "" if below == "." else below + "/"
        self._in_checkout = checkout is not None
        self._known = {self._prefix + name for name in present} | set(tracked)
        self._by_name: dict[str, list[str]] = defaultdict(list)
        self._by_topic: dict[frozenset[str], list[str]] = defaultdict(list)
        for path in sorted(self._known):
            self._by_name[posixpath.basename(path)].append(path)
        for name in present:
            if topic := name_of(name).topic:
                self._by_topic[topic].append(name)
        self._counts: dict[str, int | None] = {}

    def below_folder(self, found: str | None) -> str | None:
        """Return the path from the imported folder of a file that was found, if it lies below it."""
        if found is None or not found.startswith(self._prefix):
            return None
        return found[len(self._prefix) :]

    def look_up(self, cited: Citation, source: str, line: int) -> Reference:
        """Return what became of a citation in the file ``source`` of the imported folder."""
        wanted = cited.path.removeprefix("~")
        found, note = self._find(wanted, self._prefix + source)
        if found is None:
            return Reference(line, cited, "broken", None, note or self._not_there(wanted))
        if cited.first is not None and cited.last is not None:
            count = self._count(found)
            if count is not None and max(cited.first, cited.last) > count:
                return Reference(line, cited, "lines missing", found, f"it has {count} lines now")
        return Reference(line, cited, "present", found, note)

    def _find(self, wanted: str, source: str) -> tuple[str | None, str]:
        parts = [part for part in PurePosixPath(wanted).parts if part not in ("/", ".")]
        if not wanted.startswith("/"):
            place = posixpath.dirname(source)
            while True:
                path = posixpath.normpath(posixpath.join(place, wanted))
                if not path.startswith("..") and self._is_there(path):
                    return path, ""
                if not place:
                    break
                place = posixpath.dirname(place)
        if ".." in parts:
            parts = parts[len(parts) - parts[::-1].index("..") :]
        for start in range(len(parts)):
            # A path of another machine, or one that begins above the folder: its end still tells which file is meant.
            tail = "/".join(parts[start:])
            fits = [path for path in self._by_name.get(parts[-1], ()) if path == tail or path.endswith("/" + tail)]
            if fits and (start < len(parts) - 1 or len(parts) == 1 or self._whole_tail(fits, parts)):
                note = "" if len(fits) == 1 else f"{len(fits)} files have this name"
                return fits[0], note
        elsewhere = self._by_name.get(parts[-1]) if parts else None
        return None, f"a file of this name is at {elsewhere[0]}" if elsewhere else ""

    def _whole_tail(self, fits: list[str], parts: list[str]) -> bool:
        """Say whether a path of the folder ends what was cited: "reviews/a.md" is a.md of the folder reviews."""
        cited = "/" + "/".join(parts)
        below = [fit[len(self._prefix) :] for fit in fits if fit.startswith(self._prefix)]
        return any(cited.endswith(f"/{self._name}/{path}") for path in below)

    def _is_there(self, path: str) -> bool:
        if path in self._known:
            return True
        full = self.root / path
        try:
            return full.is_file() and full.resolve().is_relative_to(self.root)
        except (OSError, ValueError):
            return False

    def _not_there(self, wanted: str) -> str:
        name = posixpath.basename(wanted)
        asked = name_of(name)
        near = (
            [one for one in self._by_topic.get(asked.topic, ()) if posixpath.basename(one) != name]
            if asked.stamp
            else []
        )
        where = (
            "the git checkout" if self._in_checkout else "the folder, and there is no git checkout around it to look in"
        )
        return f"not in {where}" + (f"; {near[0]} has the same topic" if near else "")

    def _count(self, path: str) -> int | None:
        """Return how many lines a file has; None when that cannot be told."""
        if path not in self._counts:
            full = self.root / path
            count: int | None = None
            try:
                if full.resolve().is_relative_to(self.root) and full.is_file() and full.stat().st_size <= _LARGEST:
                    raw = full.read_bytes()
                    count = raw.count(b"\n") + (1 if raw and not raw.endswith(b"\n") else 0)
            except (OSError, ValueError):
                count = None
            self._counts[path] = count
        return self._counts[path]


def listed(folder: Path, most: int) -> tuple[list[str], bool]:
    """Return every file below a folder that is not in a hidden one, at most ``most``, and whether there are more."""
    found: list[str] = []
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in sorted(names):
            if len(found) >= most:
                return found, True
            found.append((Path(place) / name).relative_to(folder).as_posix())
    return found, False
