"""Frees the disk that weights and snapshots of a closed session take; every digest, row, record and report stays.

The entry that names them comes first and is sealed; each folder is then renamed aside and deleted. A killed process so
leaves a trail that says what is gone, and folders that are whole or gone: repeating it deletes the rest.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from reviews.audit.pruning import not_witnessed_again, pruned_weights, saved_steps, weights_left
from reviews.trail.envelope import Recorded
from reviews.trail.store import Store, sync_folder
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.run.lease import lease
from sessions.run.run_layout import STORE, TRAIL, require_run
from specs.digests import digest_path
from specs.errors import AuditDamage, UserError
from specs.session_words import session_words
from specs.text import size_in_words
from specs.trail.session_bodies import Pruned, PrunedWeights

ASIDE = ".pruned-"
"""Begins the name, in its job's folder, of a folder that is being deleted."""
ENTRY_WEIGHTS = 100
"""At most so many are named in one entry, which has a largest size."""


@dataclass(frozen=True)
class Prunable:
    """What can be deleted from a run folder."""

    weights: tuple[PrunedWeights, ...]
    """Here, and in no entry yet."""
    unfinished: tuple[PrunedWeights, ...]
    """What an interrupted prune recorded and left in its place."""
    aside: tuple[str, ...]
    """What an interrupted prune renamed and did not delete."""
    leftovers: tuple[str, ...]
    """Folders with saved steps of interrupted trainings."""
    gone: tuple[PrunedWeights, ...]
    """Pruned before."""
    loses: tuple[str, ...]
    """What no witness can make again without a copy of it."""
    frees: int
    """Bytes of files that have no name elsewhere."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Return everything that is to be deleted, from the run folder on."""
        return (*(one.path for one in (*self.weights, *self.unfinished)), *self.leftovers, *self.aside)


def prunable(run: Path, keep: Collection[str] = ()) -> Prunable:
    """Return what can be pruned from a run folder, without the weights of stages in ``keep``. Changes nothing.

    Raises:
        UserError: there is no session, it is open, or it has no stage of a name in ``keep``.
        AuditDamage: its trail cannot be read, or a folder on the way is a link.
    """
    entries = read_entries(require_run(run) / TRAIL)
    if not any(one.entry.kind == "close" for one in entries):
        raise UserError(
            "the session has not ended, so nothing is pruned",
            where=str(run),
            hint=f"its jobs and witnesses may still need them; `peergate cancel {session_words(run)}` ends it for good",
        )
    return _prunable(run, entries, keep)


def prune(run: Path, by: str, keep: Collection[str], say: Callable[[str], None]) -> Prunable:
    """Record what is pruned, delete it, and return it. Nothing that was pruned before is recorded again.

    Raises:
        LeaseHeld: a process has the session.
        AuditDamage: the trail, or weights to be deleted, are not what was recorded; nothing was deleted.
        UserError: as :func:`prunable`, or the workspace lacks the key that signs for people.
    """
    with lease(run):
        found = prunable(run, keep)
        with closing(Trail(run / TRAIL, read_entries(run / TRAIL)[0].entry.session)) as trail:
            trail.verify_chain()
            for one in (*found.weights, *found.unfinished):
                say(f"comparing {one.path} ({size_in_words(one.bytes)}) with its record")
                _require_recorded(run, one)
            _record(trail, by, found)
        for path in found.paths:
            say(f"deleting {path}")
            _delete(run, path)
    return found


def _prunable(run: Path, entries: Sequence[Recorded], keep: Collection[str]) -> Prunable:
    left, before = weights_left(entries, Store(run / STORE)), pruned_weights(entries)
    if unknown := sorted(set(keep) - {one.stage for one in left}):
        known = ", ".join(dict.fromkeys(one.stage for one in left)) or "none"
        raise UserError(f"stage '{unknown[0]}' left no weights", where=str(run), hint=f"those that did: {known}")
    here = [one for one in left if _is_here(run, one.path)]
    weights = tuple(one for one in here if one.path not in before and one.stage not in keep)
    kept = {f"jobs/{one.entry.session}.{one.body['stage']}.{one.body['attempt']}" for one in entries
            if one.entry.kind == "launch" and one.body["stage"] in keep}  # fmt: skip
    leftovers = tuple(one for one in saved_steps(entries) if _is_here(run, one) and str(Path(one).parent) not in kept)
    found = Prunable(
        weights=weights,
        unfinished=tuple(one for one in here if one.path in before),
        aside=tuple(path.relative_to(run).as_posix() for path in sorted((run / "jobs").glob(f"*/{ASIDE}*"))),
        leftovers=leftovers,
        gone=tuple(one for one in before.values() if not _is_here(run, one.path)),
        loses=tuple(not_witnessed_again(entries, Store(run / STORE), (*before.values(), *weights))),
        frees=0,
    )
    return replace(found, frees=_frees(run, found.paths))


def _is_here(run: Path, relative: str) -> bool:
    """Say whether a folder is here; raises AuditDamage if it, or one that leads there, is no folder of the run."""
    path = run
    for part in Path(relative).parts:
        path /= part
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(mode):
            raise AuditDamage("is no folder of the run, so nothing is deleted", where=str(path))
    return True


def _frees(run: Path, paths: Sequence[str]) -> int:
    """Add up the files whose every name is deleted."""
    names, sizes = Counter[tuple[int, int]](), dict[tuple[int, int], tuple[int, int]]()
    for relative in paths:
        for folder, _, files in os.walk(run / relative):
            for name in files:
                found = (Path(folder) / name).lstat()
                file = found.st_dev, found.st_ino
                names[file] += 1
                sizes[file] = found.st_nlink, found.st_size
    return sum(size for file, (links, size) in sizes.items() if names[file] >= links)


def _require_recorded(run: Path, one: PrunedWeights) -> None:
    try:
        found = digest_path(run / one.path)
    except (OSError, ValueError) as error:
        found = f"unreadable ({error})"
    if found != one.digest:
        raise AuditDamage(
            f"{one.path} is {found}, recorded as {one.digest}: nothing was deleted",
            where=str(run),
            hint="`peergate audit verify` lists all damage; restore the folder from a copy, or keep it as evidence",
        )


def _record(trail: Trail, by: str, found: Prunable) -> None:
    """Add the entries; a kill before the last leaves what the earlier name for the next prune."""
    before = list(trail.iterate("pruned"))
    names = {path for one in before for path in one.body["leftovers"]}
    leftovers = tuple(one for one in found.leftovers if one not in names)
    for first in range(0, max(len(found.weights), min(len(leftovers), 1)), ENTRY_WEIGHTS):
        some = found.weights[first : first + ENTRY_WEIGHTS]
        body = Pruned(by=by, weights=some, leftovers=leftovers if first == 0 else ())
        trail.append("pruned", f"pruned/{len(before) + 1 + first // ENTRY_WEIGHTS}", body.model_dump(mode="json"))


def _delete(run: Path, relative: str) -> None:
    """Delete a folder; if this is killed, it is whole or out of its place."""
    path = run / relative
    aside = path
    if not path.name.startswith(ASIDE):
        aside = run.joinpath(*Path(relative).parts[:2]) / f"{ASIDE}{path.name}"
        if aside.exists():
            shutil.rmtree(aside)
        path.rename(aside)
        sync_folder(path.parent)
        sync_folder(aside.parent)
    shutil.rmtree(aside)
