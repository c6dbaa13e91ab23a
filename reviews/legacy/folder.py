"""From a folder to a trail of records: one record a file, then what only several files show."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path

from reviews.legacy.dates import SLACK, Times, times_of
from reviews.legacy.history import commits_of
from reviews.legacy.pairing import contradictions_of, file_of, pairs_of
from reviews.legacy.reader import read_file, unread
from reviews.legacy.records import Record, Trail, one_line
from specs.errors import UserError

SUFFIXES = (".md", ".markdown", ".txt", ".text", ".json", ".jsonl", ".log", ".html", ".htm")
MAX_FILES = 10_000
_SKIPPED = ("node_modules", "__pycache__", "site-packages")


def read_folder(folder: Path, progress: Callable[[int, int], None] = lambda read, of: None) -> Trail:
    """Return the trail of a folder: a record for every review file below it, in the order of their paths.

    Links are not followed; hidden folders are passed over and named. ``progress`` is called after each file with how
    many were read, of how many. Raises UserError if there is no such folder, or it holds too many files.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "there is no such folder"
        raise UserError(what, where=one_line(str(folder)), hint="name the folder that holds the reviews")
    passed: list[str] = []
    found = dict(_files(folder, passed))
    if len(found) > MAX_FILES:
        what = f"holds {len(found)} review files, at most {MAX_FILES} are read"
        raise UserError(what, where=one_line(str(folder)), hint="name one of its folders")
    commits, why = commits_of(folder)
    records: dict[str, Record] = {}
    for name, problem in sorted(found.items()):
        shown = one_line(name)
        one = unread(shown, problem, "transport_error") if problem else read_file(folder / name, shown)
        records[name] = one._replace(time=times_of(name, commits.get(name), one.time.stated))
        progress(len(records), len(found))
    files = [
        # A statement that is no verdict may contradict the other half of a pair.
        file_of(
            name,
            one.verdict or ("undetermined" if one.status == "undetermined" and one.said else None),
            one.digest,
            commits[name].id if name in commits else None,
        )
        for name, one in records.items()
    ]
    pairs = pairs_of(files)
    for pair in pairs:
        for one, other in permutations(pair.sources) if pair.kind == "duplicate" else ():
            time = _compared(records[one].time, records[other].time, other)
            records[one] = records[one]._replace(time=time)
    why = why or ("" if commits.keys() >= records.keys() else "some files are not committed")
    return Trail(tuple(records.values()), tuple(pairs), tuple(contradictions_of(files, pairs)), tuple(passed), why)


def _compared(time: Times, other: Times, source: str) -> Times:
    """Return the times of a file, with a conflict when its other half has another date."""
    if time.name is None or other.name is None or time.name.whole or time.name.apart(other.name.moment) <= SLACK:
        return time
    conflict = f"its name says {time.name}, but {one_line(source)} is the same review"
    return time._replace(conflicts=(*time.conflicts, conflict))


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
