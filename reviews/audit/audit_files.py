"""The files of a run folder or an export, and their comparison with the entries.

A link shows another place, a FIFO never ends and a socket cannot be read: none of them is opened.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from reviews.audit.pruning import pruned_weights
from reviews.trail.envelope import Recorded
from specs.digests import digest_file, digest_path
from specs.regular_files import read_regular
from specs.stages.witness import ROWS

_STORED = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}")
_PARTIAL = re.compile(r"\.[0-9a-f]{62}\.[0-9]+\.[0-9a-f]{8}")
"""A file of a process that was killed while it wrote to the store (``write_durably``)."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_IN_STORE: dict[str, tuple[str, ...]] = {
    "open": ("spec", "source", "constitution", "measured_by"),
    "turn": ("said", "request", "response"),
    "call": ("arguments",),
    "result": ("text", "image"),
    "note": ("text",),
    "launch": ("order",),
    "exit": ("exit", "manifest", "log"),
    "challenge": ("order",),
    "witness": ("exit", "manifest", "rows", "log"),
    "metrics": ("metrics",),
    "checks": ("checks",),
    "packet": ("packet",),
    "look": ("packet", "arguments", "answer"),
    "verdict": ("packet", "verdict", "request", "response"),
    "decision": ("decision",),
    "amendment": ("spec", "source", "packet", "verdict", "code"),
    "asked": ("request", "read", "instructions", "readable"),
    "answered": ("answer", "request", "response"),
    "replicated": ("result",),
}
"""By kind of entry, the members of its body whose digest is the name of a file in the store."""
_TYPES = {
    stat.S_IFLNK: "a link", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
UNNAMED = "no entry names it; its bytes were compared with its name, but nothing requires it"


class Tree(NamedTuple):
    """Everything below a folder, by POSIX path."""

    files: set[str]
    folders: set[str]
    others: dict[str, str]
    """What is neither, and what it is; a folder that cannot be listed is here too."""

    def below(self, folder: str) -> Tree:
        """Return the contents of a folder, by the path from there on."""
        start = f"{folder}/"

        def cut(names: Iterable[str]) -> set[str]:
            return {name[len(start) :] for name in names if name.startswith(start)}

        return Tree(cut(self.files), cut(self.folders), {name: self.others[start + name] for name in cut(self.others)})

    def other_at(self, name: str) -> str:
        """Say what a path, or a folder it leads through, is if it is neither file nor folder; empty otherwise."""
        path = Path(name)
        return next((self.others[one.as_posix()] for one in (path, *path.parents) if one.as_posix() in self.others), "")


def tree_of(folder: Path) -> Tree:
    """List everything below a folder without opening or following any of it."""
    found = Tree(set(), set(), {})
    waiting = [""]
    while waiting:
        base = waiting.pop()
        try:
            with os.scandir(folder / base) as listed:
                entries = list(listed)
        except OSError as error:
            found.others[base or "."] = f"a folder that cannot be listed ({error.strerror})"
            continue
        for one in entries:
            name = f"{base}/{one.name}" if base else one.name
            if one.is_dir(follow_symlinks=False):
                found.folders.add(name)
                waiting.append(name)
            elif one.is_file(follow_symlinks=False):
                found.files.add(name)
            else:
                mode = one.stat(follow_symlinks=False).st_mode
                found.others[name] = _TYPES.get(stat.S_IFMT(mode), "something else than a file")
    return found


def shown(name: str) -> str:
    """Return a path for messages: names of files need not be text."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def named_in_store(recorded: Recorded, *, with_report: bool = False) -> Iterator[tuple[str, str]]:
    """Yield ``(what, digest)`` of the files that must be in the store, for an entry whose body may be anything.

    ``with_report``: also the files of the report, which an export keeps in its store and a run beside it.
    """
    kind, body = recorded.entry.kind, recorded.body
    named: list[tuple[str, Any]] = [(what, body.get(what)) for what in _IN_STORE.get(kind, ())]
    if kind == "open":
        named += [(f"data {name}", digest) for name, digest in _table(body.get("data")).items()]
    elif kind == "report" and with_report:
        named += _table(body.get("files")).items()
    elif kind == "exit":
        outputs = {name: _table(one) for name, one in _table(body.get("outputs")).items()}
        named += [(name, one.get("digest")) for name, one in outputs.items() if one.get("stored") is True]
    elif kind in ("verdict", "answered"):
        earlier = [_table(one) for one in body.get("earlier") or () if isinstance(body.get("earlier"), list)]
        named += [(f"earlier {what}", one.get(what)) for one in earlier for what in ("request", "response")]
    for what, digest in named:
        if isinstance(digest, str) and _DIGEST.fullmatch(digest):
            yield what, digest


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def named_files(recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Yield ``(path, digest)`` of the files outside the store that an entry speaks of, from the run folder on."""
    body = recorded.body
    match recorded.entry.kind:
        case "open":
            yield "spec.yaml", body["source"]
            yield "spec.resolved.json", body["spec"]
        case "model":
            yield body["path"], body["digest"]
        case "launch" | "challenge":
            yield f"jobs/{body['key']}/order.json", body["order"]
        case "witness":
            left = {"exit": "exit.json", "log": "log.txt", "manifest": "manifest.json", "rows": f"out/{ROWS}.jsonl"}
            for what, name in left.items():
                if body[what]:
                    yield f"jobs/{body['key']}/{name}", body[what]
        case "exit":
            yield f"jobs/{body['key']}/exit.json", body["exit"]
            yield f"jobs/{body['key']}/log.txt", body["log"]
            if body["manifest"]:
                yield f"jobs/{body['key']}/manifest.json", body["manifest"]
            for artifact in body["outputs"].values():
                yield artifact["path"], artifact["digest"]
        case "report":
            yield from body["files"].items()
        case _:
            return


class Compared:
    """Compares what entries name with the files, and counts what was covered."""

    def __init__(self, folder: Path, tree: Tree, store: str, entries: list[Recorded]) -> None:
        self.folder, self.tree, self.entries = folder, tree, entries
        self.store = store
        self.files = 0
        """Files whose digest was compared."""
        self.not_covered: dict[str, str] = {}
        """By path, what no digest of an entry covers, and why."""
        self.notes: list[str] = []
        self._covered: set[str] = set()

    def store_damage(self, *, export: bool) -> Iterator[str]:
        """Compare every file of the store with its name, and find what entries name in it."""
        there = self.tree.below(self.store)
        if self.store in self.tree.files or self.store in self.tree.others:
            yield f"{self.store}: is {self.tree.others.get(self.store, 'a file')}, not the folder of the store"
        for name, what in sorted(there.others.items()):
            yield f"{self.store}/{shown(name)}: is {what}, and no evidence"
        named = {
            f"{digest[7:9]}/{digest[9:]}": (one, what, digest)
            for one in reversed(self.entries)
            for what, digest in named_in_store(one, with_report=export)
        }
        named = {**dict(self._kept_folders(there.files)), **dict(self._looked_into()), **named}
        for name in sorted(there.files):
            path = f"{self.store}/{name}"
            if not _STORED.fullmatch(name):
                if export or not _PARTIAL.fullmatch(name):
                    yield f"{self.store}/{shown(name)}: is no evidence: it has no digest as its name"
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
                yield f"{self.store}: {path} has other bytes than its name says"
        for name, (one, what, digest) in named.items():
            if name not in there.files:
                yield f"entry {one.entry.seq} ({one.entry.kind}): {what} {digest} is missing from the store"

    def _kept_folders(self, there: set[str]) -> Iterator[tuple[str, tuple[Recorded, str, str]]]:
        """Yield what an entry names by naming a folder of which the store keeps a copy: its list of files, and them."""
        for one in self.entries:
            for what, output in _table(one.body.get("outputs") if one.entry.kind == "exit" else None).items():
                digest = _table(output).get("digest")
                if _table(output).get("stored") is not False or not isinstance(digest, str):
                    continue
                listed = f"{digest[7:9]}/{digest[9:]}"
                if listed not in there:
                    continue
                yield listed, (one, what, digest)
                yield from self._listed(digest, one, what)

    def _looked_into(self) -> Iterator[tuple[str, tuple[Recorded, str, str]]]:
        """Yield the texts that a requested review may look into, which its list names."""
        for one in self.entries:
            digest = one.body.get("readable") if one.entry.kind == "asked" else None
            if isinstance(digest, str) and _DIGEST.fullmatch(digest):
                yield from self._listed(digest, one, "readable")

    def _listed(self, digest: str, one: Recorded, what: str) -> Iterator[tuple[str, tuple[Recorded, str, str]]]:
        files: Any = None
        # A list with other bytes than its name is damage anyway.
        with suppress(OSError, ValueError, RecursionError):
            files = json.loads(read_regular(self.folder / self.store / f"{digest[7:9]}/{digest[9:]}"))
        for name, each in _table(files).items():
            if isinstance(each, str) and _DIGEST.fullmatch(each):
                yield f"{each[7:9]}/{each[9:]}", (one, f"{what}/{shown(name)}", each)

    def stored(self) -> list[str]:
        """Return the names of the files that are evidence, from the store on."""
        return sorted(name for name in self.tree.below(self.store).files if _STORED.fullmatch(name))

    def file_damage(self) -> Iterator[str]:
        """Compare every file outside the store that an entry names with its digest."""
        pruned = pruned_weights(self.entries)
        for recorded in self.entries:
            for relative, digest in named_files(recorded):
                if relative in pruned and not self._is_there(relative):
                    continue
                self.files += 1
                self._covered.add(Path(relative).as_posix())
                found = self._digest(relative)
                if found == digest:
                    if relative in pruned:
                        self.notes.append(
                            f"{relative} was recorded as pruned and is still here: `peergate prune` again"
                        )
                    continue
                who = f"entry {recorded.entry.seq} ({recorded.entry.kind})"
                sentence = f"{who}: {relative} is {found}, recorded as {digest}"
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
        """List every file that was compared with nothing; ``own`` are those that the audit itself reads."""
        covered = self._covered | set(own)

        def is_covered(name: str) -> bool:
            path = Path(name)
            return name in covered or any(one.as_posix() in covered for one in path.parents)

        for name in sorted(self.tree.files):
            if not is_covered(name):
                self.not_covered[shown(name)] = "no entry names it"
        for name, what in sorted(self.tree.others.items()):
            # Also inside of an artifact, whose digest covers its regular files.
            self.not_covered[shown(name)] = f"is {what}"
