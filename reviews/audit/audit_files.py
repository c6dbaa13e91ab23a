"""The files of a run folder or an export, and their comparison with the entries.

A link shows another place, a FIFO never ends and a socket cannot be read: none of them is opened.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from reviews.audit.pruning import pruned_weights
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.chain.envelope import RecordedEntry
from specs.stages.base.witness import ROWS
from specs.system.digests import canonical_bytes, digest_file, digest_path
from specs.system.regular_files import read_regular
from specs.trail.entry import Body
from specs.trail.session_bodies import (
    ChallengeEntry,
    ExitEntry,
    LaunchEntry,
    ModelEntry,
    OpenEntry,
    ReportEntry,
    WitnessEntry,
)
from specs.trail.stored_evidence import DIGEST, EVIDENCE, IN_THE_RUN, StoredFile, stored_evidence

_STORED = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}")
_PARTIAL = re.compile(r"\.[0-9a-f]{62}\.[0-9]+\.[0-9a-f]{8}")
"""A file of a process that was killed while it wrote to the store (``write_durably``)."""
_TYPES = {
    stat.S_IFLNK: "a link", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
UNNAMED = "no entry names it; its bytes were compared with its name, but nothing requires it"


class FileTree(NamedTuple):
    """Everything below a folder, by POSIX path."""

    files: set[str]
    folders: set[str]
    others: dict[str, str]
    """What is neither, and what it is; a folder that cannot be listed is here too."""

    def below(self, folder: str) -> FileTree:
        """Return the contents of a folder, by the path from there on."""
        start = f"{folder}/"

        def cut(names: Iterable[str]) -> set[str]:
            return {name[len(start) :] for name in names if name.startswith(start)}

        return FileTree(
            cut(self.files), cut(self.folders), {name: self.others[start + name] for name in cut(self.others)}
        )

    def other_at(self, name: str) -> str:
        """Return what a path, or a folder it leads through, is if it is neither file nor folder; empty otherwise."""
        path = Path(name)
        return next(
            (self.others[parent.as_posix()] for parent in (path, *path.parents) if parent.as_posix() in self.others), ""
        )


def tree_of(folder: Path) -> FileTree:
    """List everything below a folder without opening or following any of it."""
    tree = FileTree(set(), set(), {})
    waiting = [""]
    while waiting:
        base = waiting.pop()
        try:
            with os.scandir(folder / base) as listed:
                entries = list(listed)
        except OSError as error:
            tree.others[base or "."] = f"a folder that cannot be listed ({error.strerror})"
            continue
        for entry in entries:
            name = f"{base}/{entry.name}" if base else entry.name
            if entry.is_dir(follow_symlinks=False):
                tree.folders.add(name)
                waiting.append(name)
            elif entry.is_file(follow_symlinks=False):
                tree.files.add(name)
            else:
                mode = entry.stat(follow_symlinks=False).st_mode
                tree.others[name] = _TYPES.get(stat.S_IFMT(mode), "something other than a file")
    return tree


def format_path(name: str) -> str:
    """Return a path for messages: names of files need not be text."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def named_in_store(recorded: RecordedEntry, *, with_report: bool = False) -> Iterator[StoredFile]:
    """Yield the files that must be in the store, for an entry whose body may be anything.

    ``with_report``: also the files of the report, which an export keeps in its store and a run next to it.
    """
    if recorded.kind in EVIDENCE and (with_report or recorded.kind != IN_THE_RUN):
        # What a newer version or a damaged body still names is required too, as verify/ requires it.
        yield from stored_evidence(recorded.kind, recorded.raw)


def named_files(history: RecordedHistory) -> Iterator[tuple[RecordedEntry, str, str]]:
    """Yield ``(entry, path, digest)`` of the files outside the store that entries name, from the run folder on."""
    forms = (OpenEntry, ModelEntry, LaunchEntry, ChallengeEntry, ExitEntry, WitnessEntry, ReportEntry)
    for entry in history.of(*forms):
        for path, digest in _files_of(entry.body):
            if digest is not None:
                yield entry, path, digest


def _files_of(body: Body) -> Iterator[tuple[str, str | None]]:
    match body:
        case OpenEntry():
            yield from (("spec.yaml", body.source), ("spec.resolved.json", body.spec))
        case ModelEntry():
            yield body.path, body.digest
        case LaunchEntry() | ChallengeEntry():
            yield f"jobs/{body.key}/order.json", body.order
        case ExitEntry() | WitnessEntry():
            yield f"jobs/{body.key}/exit.json", body.exit
            yield f"jobs/{body.key}/log.txt", body.log
            yield f"jobs/{body.key}/manifest.json", body.manifest
            if isinstance(body, WitnessEntry):
                yield f"jobs/{body.key}/out/{ROWS}.jsonl", body.rows
            else:
                yield from ((output.path, output.digest) for output in body.outputs.values())
        case ReportEntry():
            yield from body.files.items()
        case _:
            return


class FileComparison:
    """Compares what entries name with the files, and counts what was covered."""

    def __init__(self, folder: Path, tree: FileTree, store: str, history: RecordedHistory) -> None:
        self.folder, self.tree, self.history = folder, tree, history
        self.store = store
        self.files = 0
        """Files whose digest was compared."""
        self.not_covered: dict[str, str] = {}
        """The files that no digest of an entry covers, by path, and why."""
        self.notes: list[str] = []
        self._covered: set[str] = set()

    def store_damage(self, *, export: bool) -> Iterator[str]:
        """Compare every file of the store with its name, and find what entries name in it."""
        there = self.tree.below(self.store)
        if self.store in self.tree.files or self.store in self.tree.others:
            yield f"{self.store}: is {self.tree.others.get(self.store, 'a file')}, not the folder of the store"
        for name, what in sorted(there.others.items()):
            yield f"{self.store}/{format_path(name)}: is {what}, not evidence"
        named = {
            f"{digest[7:9]}/{digest[9:]}": (recorded, what, digest)
            for recorded in reversed(self.history)
            for what, digest in self._required_files(recorded, export)
        }
        for name in sorted(there.files):
            path = f"{self.store}/{name}"
            if not _STORED.fullmatch(name):
                if export or not _PARTIAL.fullmatch(name):
                    yield f"{self.store}/{format_path(name)}: is not evidence: it has no digest as its name"
                continue
            self.files += 1
            self._covered.add(path)
            if name not in named:
                self.not_covered[path] = UNNAMED
            try:
                same = digest_file(self.folder / path) == f"sha256:{name.replace('/', '')}"
            except OSError as error:
                yield f"{path}: cannot be read: {error.strerror or error}"
                continue
            if not same:
                yield f"{self.store}: the bytes of {path} do not match its name"
        for name, (value, what, digest) in named.items():
            if name not in there.files:
                yield f"entry {value.seq} ({value.kind}): {what} {digest} is missing from the store"

    def _required_files(self, recorded: RecordedEntry, export: bool) -> Iterator[tuple[str, str]]:
        """Yield what an entry calls each file that it requires in the store, and its digest."""
        for file in named_in_store(recorded, with_report=export):
            yield file.name, file.digest
            if file.is_list:
                yield from self._read_list(file)

    def _read_list(self, file: StoredFile) -> Iterator[tuple[str, str]]:
        files: Any = None
        # A list with other bytes than its name is damage anyway; verify/ reads canonical JSON only.
        with suppress(OSError, ValueError, RecursionError):
            raw = read_regular(self.folder / self.store / f"{file.digest[7:9]}/{file.digest[9:]}")
            files = json.loads(raw)
            files = files if isinstance(files, dict) and canonical_bytes(files) == raw else None
        for name, digest in (files or {}).items():
            if isinstance(digest, str) and DIGEST.fullmatch(digest):
                yield f"{file.name}/{format_path(name)}", digest

    def list_stored_files(self) -> list[str]:
        """Return the names of the files that are evidence, from the store on."""
        return sorted(name for name in self.tree.below(self.store).files if _STORED.fullmatch(name))

    def file_damage(self) -> Iterator[str]:
        """Compare every file outside the store that an entry names with its digest."""
        pruned = pruned_weights(self.history)
        for recorded, relative, digest in named_files(self.history):
            if relative in pruned and not self._is_there(relative):
                continue
            self.files += 1
            self._covered.add(Path(relative).as_posix())
            text = self._digest(relative)
            if text == digest:
                if relative in pruned:
                    self.notes.append(f"{relative} was recorded as pruned and is still here: `peergate prune` again")
                continue
            if relative in pruned and not os.path.lexists(self.folder / relative):
                continue  # A prune deleted it while it was read.
            sentence = f"entry {recorded.seq} ({recorded.kind}): {relative} is {text}, recorded as {digest}"
            if Path(relative).is_absolute():
                self.notes.append(f"{sentence}; it is outside the run folder")
            else:
                yield sentence

    def _is_there(self, relative: str) -> bool:
        return relative in self.tree.files | self.tree.folders or bool(self.tree.other_at(relative))

    def _digest(self, relative: str) -> str:
        if what := self.tree.other_at(relative):
            return what
        try:
            return digest_path(self.folder / relative)
        except (OSError, ValueError) as error:
            return f"unreadable ({error})"

    def list_not_covered(self, own: Iterable[str]) -> None:
        """List every file that was compared with nothing; ``own`` are the files that the audit itself reads."""
        covered = self._covered | set(own)

        def is_covered(name: str) -> bool:
            path = Path(name)
            return name in covered or any(parent.as_posix() in covered for parent in path.parents)

        for name in sorted(self.tree.files):
            if not is_covered(name):
                self.not_covered[format_path(name)] = "no entry names it"
        for name, what in sorted(self.tree.others.items()):
            # Also inside of an artifact, whose digest covers its regular files.
            self.not_covered[format_path(name)] = f"is {what}"
