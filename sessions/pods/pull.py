"""Pulls the trail and the files it names from the pod, checks them before they are kept, and keeps every signed head.

The pod is untrusted. A trail that does not verify, or does not continue every head kept here, is damage. A file is
written only to a place of a run folder that the trail names, and only with the digest the trail names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from filelock import FileLock

from reviews.audit.audit_files import named_files
from reviews.audit.pruning import pruned_weights
from reviews.audit.verify import Audit, verify_run
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.anchor_places import keep_in_folder
from reviews.trail.anchors import check_policy
from reviews.trail.chain.store import Store, write_durably
from reviews.trail.file_seal import seal_path
from reviews.trail.integrity import TrailVerification, walk_trail
from reviews.trail.tables.open_table import read_trail
from sessions.jobs.transfer.received_files import OtherBytes, resume, safe_parts, take_whole
from sessions.pods.connection import Channel, PodRefusal
from sessions.pods.pod_record import PodPlace
from sessions.run.run_layout import STORE, TRAIL
from specs.system.errors import AuditDamage, PeergateError
from specs.system.regular_files import read_regular
from specs.system.text import plain

MAX_TRAIL = 1 << 30
MAX_SEAL = 1 << 12
MAX_LISTING = 1 << 26
MAX_FILE = 1 << 42
REPORT_FROM = 1 << 20
SLOW_S = 600.0
"""The pod may take minutes to list large folders or to copy a long trail."""
_BLOB = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}")
_PLACES = ("jobs", "report", "spec.yaml", "spec.resolved.json")
"""Places of a run folder whose files a trail may name."""
_INDEX = "pulled.json"


class PullResult(NamedTuple):
    """The size of the trail, the number and bytes of transferred files, and whether the session is closed."""

    entries: int
    files: int
    size: int
    closed: bool


class _TrailFault(Exception):
    """The pod's trail fails a check; the message says which."""


def pull(channel: Channel, place: PodPlace, say: Callable[[str], None] = lambda _: None) -> PullResult:
    """Pull everything that is new, and keep the head of the trail.

    Raises:
        AuditDamage: the trail does not verify or does not continue a kept head, or a file has another digest.
        ConnectionLost: the connection ended; whole files are kept, and the next pull resumes.
        PodRefused: no trail yet.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(place.folder / ".pull.lock"):
        header, data = channel.ask("trail", most=MAX_TRAIL, seconds=SLOW_S)
        try:
            walk = keep_trail(place, data, header.get("seal"))
        except (_TrailFault, AuditDamage) as error:
            where = place.refused / time.strftime("trail-%Y%m%dT%H%M%SZ.sqlite", time.gmtime())
            write_durably(where, data)
            message = error.message if isinstance(error, AuditDamage) else str(error)
            raise AuditDamage(
                f"the trail on the pod is damaged: {plain(message, 800)}",
                where=place.name,
                hint=f"the received trail is in {where}; the earlier copy is unchanged",
            ) from error
        courier = _Courier(channel, place, say)
        courier.bring_store()
        courier.bring_files(walk)
    closed = any(entry.kind == "close" for entry in walk.entries)
    return PullResult(walk.tree.size, courier.files, courier.size, closed)


def verify(place: PodPlace, say: Callable[[str], None] = lambda _: None) -> Audit:
    """Verify the copy on this machine against the heads and the policy kept here."""
    return verify_run(place.run, TRAIL, STORE, say, policy=place.policy(), anchors=place.anchors())


def require_whole(place: PodPlace, audit: Audit) -> None:
    """Raise AuditDamage, with the first finding, if the copy does not verify."""
    if audit.damage or not audit.readable:
        message = (audit.damage or audit.notes or ["it cannot be read"])[0]
        hint = f"`peergate audit verify {place.run}` reports everything; nothing on the pod was ended"
        raise AuditDamage(
            f"the copy of the session does not verify: {plain(message, 800)}", where=place.name, hint=hint
        )


def keep_trail(place: PodPlace, data: bytes, seal: object) -> TrailVerification:
    """Check the received trail, keep its head, and replace the earlier copy, with its seal if it can be one."""
    place.incoming.mkdir(parents=True, exist_ok=True)
    path = place.incoming / TRAIL
    for beside in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    path.write_bytes(data)
    try:
        trail = read_trail(path)
    except sqlite3.DatabaseError as error:
        raise _TrailFault(f"it cannot be read: {str(error).splitlines()[0]}") from error
    if trail.head is None:
        raise _TrailFault("it has no signed head")
    walk = walk_trail(trail)
    if walk.damage:
        raise _TrailFault(walk.damage[0])
    if walk.policy is None or walk.session != place.name:
        raise _TrailFault(f"it belongs to session '{walk.session}'")
    policy = place.policy()
    if policy is not None:
        findings = Audit(path=path)
        check_policy(walk, policy, findings)
        if findings.damage:
            raise _TrailFault(findings.damage[0])
    keep_in_folder(place.heads, walk, trail.head[2])
    if policy is None:
        write_durably(place.policy_path, walk.policies[0].canonical())
    sealed = seal_path(place.run / TRAIL)
    sealed.unlink(missing_ok=True)
    write_durably(place.run / TRAIL, data)
    path.unlink()
    if isinstance(seal, str) and len(seal) <= MAX_SEAL:
        # What is not a seal is kept as it came, and an audit calls it unreadable.
        with suppress(ValueError):
            seal_bytes = base64.b64decode(seal, validate=True)
            write_durably(sealed, seal_bytes)
    return walk


class _Courier:
    """Transfers the files of one pull."""

    def __init__(self, channel: Channel, place: PodPlace, say: Callable[[str], None]) -> None:
        self.channel, self.place, self.say = channel, place, say
        self.files = self.size = 0

    def bring_store(self) -> None:
        """Bring missing files of the content store, whose names are their digests."""
        store = Store(self.place.run / STORE)
        _, data = self.channel.ask("store", most=MAX_LISTING, seconds=SLOW_S)
        for name, size in _sizes(data, "store").items():
            target = store.root / name
            if _BLOB.fullmatch(name) and not target.exists():
                digest, path = f"sha256:{name.replace('/', '')}", f"{STORE}/{name}"
                self._take(path, digest, target, partial(self._bring_file, path, size))

    def bring_files(self, walk: TrailVerification) -> None:
        """Bring the files that the trail names outside of the store, unless they are here with the same digest."""
        index = self.place.folder / _INDEX
        remaining: dict[str, str] = json.loads(read_regular(index)) if index.exists() else {}
        history = RecordedHistory(walk.entries)
        pruned = pruned_weights(history)
        wanted = {path: digest for _, path, digest in named_files(history) if path not in pruned}
        for relative, digest in wanted.items():
            # The recorded path of a model on the pod is absolute; it is not a file of the run.
            if PurePosixPath(relative).is_absolute() or remaining.get(relative) == digest:
                continue
            self._bring(relative, digest, self.place.run / _require_run_path(relative))
            remaining[relative] = digest
            write_durably(index, json.dumps(remaining).encode())

    def _bring(self, relative: str, digest: str, target: Path) -> None:
        try:
            header, data = self.channel.ask("list", path=relative, most=MAX_LISTING, seconds=SLOW_S)
        except PodRefusal as error:
            message = f"the trail names {relative}, and the pod does not have it: {error.message}"
            raise AuditDamage(message, where=self.place.name) from error
        files, kind = _sizes(data, relative), header.get("kind")
        size = sum(files.values())
        if kind == "file" and set(files) == {""}:
            bring = partial(self._bring_file, relative, size)
        elif kind == "folder" and "" not in files:
            bring = partial(self._tree, relative, files)
        else:
            raise PeergateError("the pod returned no file list", where=plain(relative, 200))
        if size >= REPORT_FROM:
            self.say(f"pulling {relative}, {size / 1e6:.1f} MB")
        self._take(relative, digest, target, bring)

    def _tree(self, relative: str, files: dict[str, int]) -> tuple[Path, int]:
        """Bring a folder; returns its path and how many bytes were here before."""
        had = 0
        whole = _incoming(self.place, f"{relative}/")
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir(parents=True)
        for name, size in files.items():
            at = whole / _safe(name)
            came, have = self._bring_file(f"{relative}/{name}", size)
            had += have
            try:
                at.parent.mkdir(parents=True, exist_ok=True)
                came.replace(at)
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                raise AuditDamage(f"the pod lists '{plain(name, 300)}' as a file and as a folder") from error
        return whole, had

    def _bring_file(self, relative: str, size: int) -> tuple[Path, int]:
        """Bring a file, resuming an interrupted pull; returns its path and how many bytes were here before."""
        path = _incoming(self.place, relative)

        def fetch(write: Callable[[bytes], Any], have: int) -> None:
            self.channel.fetch("read", write, path=relative, offset=have, most=min(size - have, MAX_FILE))

        have = resume(path, size, fetch)
        self.files += 1
        self.size += size - have
        return path, have

    def _take(self, relative: str, digest: str, target: Path, bring: Callable[[], tuple[Path, int]]) -> None:
        try:
            take_whole(digest, target, bring)
        except OtherBytes as error:
            raise AuditDamage(
                f"{plain(relative, 300)} on the pod has the digest {error}, the trail says {digest}",
                where=self.place.name,
                hint="it was changed after it was recorded, or on the way; it was not kept",
            ) from error


def _incoming(place: PodPlace, relative: str) -> Path:
    """Return where a file lies until it is compared, under a name that the pod cannot choose."""
    return place.incoming / hashlib.sha256(relative.encode("utf-8", "surrogatepass")).hexdigest()


def _sizes(data: bytes, what: str) -> dict[str, int]:
    try:
        result = json.loads(data)
        if not isinstance(result, dict) or not all(
            type(value) is int and 0 <= value <= MAX_FILE for value in result.values()
        ):
            raise ValueError("no table of sizes")
    except (ValueError, RecursionError) as error:
        raise PeergateError("the pod returned no file list", where=plain(what, 200)) from error
    return result


def _require_run_path(relative: str) -> Path:
    """Return a path that the trail names, or raise AuditDamage if no file of a run folder belongs there."""
    path = _safe(relative)
    if path.parts[0] not in _PLACES:
        raise AuditDamage(f"the trail names the file '{plain(relative, 300)}', which is not a place of a run folder")
    return path


def _safe(relative: str) -> Path:
    """Return a relative path, or raise AuditDamage if it leads out of its folder."""
    try:
        return Path(*safe_parts(relative, 64, 255))
    except ValueError as error:
        message = f"the pod names the file '{plain(relative, 300)}', which is not a path below a run folder"
        raise AuditDamage(message) from error
