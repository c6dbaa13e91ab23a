"""From a folder to records: one for each review file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from reviews.legacy.reader import read_file, unread
from reviews.legacy.records import LegacyTrail, Record, one_line
from specs.system.errors import UserError

SUFFIXES = (".md", ".markdown", ".txt", ".text", ".json", ".jsonl", ".log")
MAX_FILES = 10_000
_SKIPPED = ("node_modules", "__pycache__", "site-packages")


def read_folder(folder: Path, progress: Callable[[int, int], None] = lambda read, of: None) -> LegacyTrail:
    """Return a record for every review file below a folder, in the order of their paths.

    Links are not followed; hidden folders are passed over and named. ``progress`` is called after each file with how
    many were read, of how many.

    Raises:
        UserError: there is no such folder, or it holds too many files.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise UserError(what, where=one_line(str(folder)), hint="name the folder that holds the reviews")
    passed: list[str] = []
    files = dict(_files(folder, passed))
    if len(files) > MAX_FILES:
        what = f"holds {len(files)} review files, at most {MAX_FILES} are read"
        raise UserError(what, where=one_line(str(folder)), hint="name one of its folders")
    records: list[Record] = []
    for name, problem in sorted(files.items()):
        text = one_line(name)
        records.append(unread(text, problem, "transport_error") if problem else read_file(folder / name, text))
        progress(len(records), len(files))
    return LegacyTrail(tuple(records), tuple(passed))


def _files(folder: Path, passed: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the name below the folder of every review file, and why it cannot be listed if it cannot."""
    broken: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=broken.append, followlinks=False):
        below = Path(place).relative_to(folder)
        for name in sorted(folders):
            if name.startswith(".") or name in _SKIPPED or (Path(place) / name).is_symlink():
                passed.append(one_line((below / name).as_posix() + "/"))
                folders.remove(name)
        folders.sort()
        yield from (((below / name).as_posix(), "") for name in names if name.lower().endswith(SUFFIXES))
    for error in broken:
        name = Path(os.fsdecode(error.filename or folder)).relative_to(folder).as_posix()
        yield f"{name}/", f"cannot be listed: {error.strerror or type(error).__name__}"
