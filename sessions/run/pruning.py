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
from reviews.history.history import History
from reviews.trail.chain.store import sync_folder
from reviews.trail.trail import Trail
from sessions.run.lease import lease
from sessions.run.run_history import read_history
from sessions.run.run_layout import TRAIL, require_run
from specs.session_words import session_words
from specs.system.digests import digest_path
from specs.system.errors import AuditDamage, UserError
from specs.system.text import size_in_words
from specs.trail.session_bodies import LaunchEntry, PrunedWeights, PruningEntry

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
        return (
            *(pruned_weights.path for pruned_weights in (*self.weights, *self.unfinished)),
            *self.leftovers,
            *self.aside,
        )


def prunable(run: Path, keep: Collection[str] = ()) -> Prunable:
    """Return what can be pruned from a run folder, without the weights of stages in ``keep``. Changes nothing.

    Raises:
        UserError: no such session, it is open, or it has no stage of a name in ``keep``.
        AuditDamage: its trail cannot be read, or a folder on the way is a link.
    """
    history = read_history(require_run(run))
    if not history.is_closed:
        raise UserError(
            "an unfinished session cannot be pruned",
            where=str(run),
            hint=f"its jobs and witnesses may still need them; `peergate cancel {session_words(run)}` ends it for good",
        )
    return _prunable(run, history, keep)


def prune(run: Path, by: str, keep: Collection[str], say: Callable[[str], None]) -> Prunable:
    """Record what is pruned, delete it, and return it. Nothing that was pruned before is recorded again.

    Raises:
        LeaseHeld: a process has the session.
        AuditDamage: the trail, or weights to be deleted, are not what was recorded; nothing was deleted.
        UserError: as :func:`prunable`, or the workspace lacks the key that signs for people.
    """
    with lease(run):
        prunable_result = prunable(run, keep)
        with closing(Trail(run / TRAIL, read_history(run).session)) as trail:
            trail.verify_chain()
            for pruned_weights in (*prunable_result.weights, *prunable_result.unfinished):
                say(f"comparing {pruned_weights.path} ({size_in_words(pruned_weights.bytes)}) with its record")
                _require_recorded(run, pruned_weights)
            _record(trail, by, prunable_result)
        for path in prunable_result.paths:
            say(f"deleting {path}")
            _delete(run, path)
    return prunable_result


def _prunable(run: Path, history: History, keep: Collection[str]) -> Prunable:
    remaining_pruned_weights, before = weights_left(history), pruned_weights(history)
    if unknown := sorted(set(keep) - {pruned_weights.stage for pruned_weights in remaining_pruned_weights}):
        known = ", ".join(dict.fromkeys(pruned_weights.stage for pruned_weights in remaining_pruned_weights)) or "none"
        raise UserError(f"stage '{unknown[0]}' left no weights", where=str(run), hint=f"stages with weights: {known}")
    here = [pruned_weights for pruned_weights in remaining_pruned_weights if _is_here(run, pruned_weights.path)]
    weights = tuple(
        pruned_weights
        for pruned_weights in here
        if pruned_weights.path not in before and pruned_weights.stage not in keep
    )
    texts = {f"jobs/{launch.body.key}" for launch in history.of(LaunchEntry) if launch.body.stage in keep}
    leftovers = tuple(
        saved_step
        for saved_step in saved_steps(history)
        if _is_here(run, saved_step) and str(Path(saved_step).parent) not in texts
    )
    prunable = Prunable(
        weights=weights,
        unfinished=tuple(pruned_weights for pruned_weights in here if pruned_weights.path in before),
        aside=tuple(path.relative_to(run).as_posix() for path in sorted((run / "jobs").glob(f"*/{ASIDE}*"))),
        leftovers=leftovers,
        gone=tuple(pruned_weights for pruned_weights in before.values() if not _is_here(run, pruned_weights.path)),
        loses=tuple(not_witnessed_again(history, (*before.values(), *weights))),
        frees=0,
    )
    return replace(prunable, frees=_frees(run, prunable.paths))


def _is_here(run: Path, relative: str) -> bool:
    """Return whether a folder is here; raises AuditDamage if it, or a folder above it, is not a folder of the run."""
    path = run
    for part in Path(relative).parts:
        path /= part
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(mode):
            raise AuditDamage("is not a folder of the run, so nothing is deleted", where=str(path))
    return True


def _frees(run: Path, paths: Sequence[str]) -> int:
    """Add up the files whose every name is deleted."""
    names, sizes = Counter[tuple[int, int]](), dict[tuple[int, int], tuple[int, int]]()
    for relative in paths:
        for folder, _, files in os.walk(run / relative):
            for name in files:
                stat_result = (Path(folder) / name).lstat()
                file = stat_result.st_dev, stat_result.st_ino
                names[file] += 1
                sizes[file] = stat_result.st_nlink, stat_result.st_size
    return sum(size for file, (links, size) in sizes.items() if names[file] >= links)


def _require_recorded(run: Path, pruned_weights: PrunedWeights) -> None:
    try:
        text = digest_path(run / pruned_weights.path)
    except (OSError, ValueError) as error:
        text = f"unreadable ({error})"
    if text != pruned_weights.digest:
        raise AuditDamage(
            f"{pruned_weights.path} is {text}, recorded as {pruned_weights.digest}: nothing was deleted",
            where=str(run),
            hint="`peergate audit verify` lists all damage; restore the folder from a copy, or keep it as evidence",
        )


def _record(trail: Trail, by: str, prunable: Prunable) -> None:
    """Add the entries; a kill before the last leaves what the earlier name for the next prune."""
    before = list(trail.iterate(PruningEntry))
    names = {path for entry in before for path in entry.body.leftovers}
    leftovers = tuple(leftover for leftover in prunable.leftovers if leftover not in names)
    for first in range(0, max(len(prunable.weights), min(len(leftovers), 1)), ENTRY_WEIGHTS):
        batch = prunable.weights[first : first + ENTRY_WEIGHTS]
        body = PruningEntry(by=by, weights=batch, leftovers=leftovers if first == 0 else ())
        trail.append(body, PruningEntry.key_of(len(before) + 1 + first // ENTRY_WEIGHTS))


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
