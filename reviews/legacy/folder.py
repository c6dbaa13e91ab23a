"""From a folder to a trail of records: walk it, read each file, and see what shows only between the files.

One file is one record. Links are not followed; hidden folders are passed over and named.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from reviews.legacy.dates import SLACK, times_of
from reviews.legacy.history import commits_of
from reviews.legacy.pairing import Known, Pair, contradictions_of, name_of, pairs_of
from reviews.legacy.reader import Read, read_file, unread
from reviews.legacy.records import Record, Trail, one_line
from specs.errors import UserError

SUFFIXES = (".md", ".markdown", ".txt", ".text", ".json", ".jsonl", ".log", ".html", ".htm")
MAX_FILES = 10_000
_SKIPPED = ("node_modules", "__pycache__", "site-packages")

Progress = Callable[[int, int], None]


def read_folder(folder: Path, progress: Progress | None = None) -> Trail:
    """Return the trail of a folder: a record for every review file below it, in the order of their paths.

    Args:
        folder: the folder that holds the reviews.
        progress: called after each file with how many were read, of how many.

    Raises:
        UserError: there is no such folder, or it holds too many files.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "there is no such folder"
        raise UserError(what, where=one_line(str(folder)), hint="name the folder that holds the reviews")
    passed: list[str] = []
    found = dict(_files(folder, passed))
    if len(found) > MAX_FILES:
        raise UserError(
            f"holds {len(found)} review files, at most {MAX_FILES} are read",
            where=one_line(str(folder)),
            hint="name one of its folders",
        )
    read: dict[str, Read] = {}
    for name, why in sorted(found.items()):
        shown = one_line(name)
        read[name] = read_file(folder / name, shown) if why is None else Read(unread(shown, why, "transport_error"))
        if progress:
            progress(len(read), len(found))
    return _between(folder, read, tuple(passed))


def _between(folder: Path, read: dict[str, Read], passed: tuple[str, ...]) -> Trail:
    """Return the records with what shows only between the files: times and pairs."""
    commits, why = commits_of(folder)
    records = {
        name: one.record._replace(time=times_of(name, commits.get(name), one.stated)) for name, one in read.items()
    }
    known = [
        # Something is decided that is no verdict: that may contradict the other half of a pair.
        Known(
            name,
            name_of(name),
            one.verdict or ("undetermined" if one.status == "undetermined" and one.said else None),
            one.digest,
            commits[name].id if name in commits else None,
        )
        for name, one in records.items()
    ]
    pairs = pairs_of(known)
    for name in records:
        records[name] = _paired(records, name, [one for one in pairs if name in one.sources])
    against = contradictions_of(known, pairs)
    for one in against:
        for name, other in (one.sources, one.sources[::-1]):
            records[name] = records[name]._replace(contradicts=(*records[name].contradicts, one_line(other)))
    why = why or ("" if commits.keys() >= records.keys() else "some files are not committed")
    return Trail(tuple(records.values()), tuple(pairs), tuple(against), passed, why)


def _paired(records: dict[str, Record], name: str, pairs: list[Pair]) -> Record:
    """Return a record with its pairs, and with a conflict where the other half has another time."""
    record = records[name]
    time = record.time
    for pair in pairs:
        other = records[pair.other(name)].time
        if pair.kind != "duplicate" or time is None or other is None:
            continue
        if time.name and other.name and not time.name.whole and time.name.apart(other.name.moment) > SLACK:
            told = f"its name says {time.name.told()}, but {one_line(pair.other(name))} is the same review"
            time = time._replace(conflicts=(*time.conflicts, told))
    return record._replace(pairs=tuple(pairs), time=time)


def _files(folder: Path, passed: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the name below the folder of every review file, and why it cannot be listed if it cannot."""
    broken: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=broken.append, followlinks=False):
        below = Path(place).relative_to(folder)
        for name in sorted(folders):
            if name.startswith(".") or name in _SKIPPED or (Path(place) / name).is_symlink():
                passed.append(one_line((below / name).as_posix() + "/"))
                folders.remove(name)
        folders.sort()
        for name in names:
            if name.lower().endswith(SUFFIXES):
                yield (below / name).as_posix(), None
    for error in broken:
        name = Path(os.fsdecode(error.filename or folder)).relative_to(folder).as_posix()
        yield f"{name}/", f"cannot be listed: {error.strerror or type(error).__name__}"
