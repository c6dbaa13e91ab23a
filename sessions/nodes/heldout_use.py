"""How often other sessions of the workspace evaluated a registered split of this one, for the trail."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

from reviews.checks.leakage_checks import question_text_of
from reviews.evidence.gather import load_items
from reviews.evidence.text_overlap import find_overlaps
from reviews.history.history import History
from reviews.trail.chain.envelope import restore_entry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.tables.pointer import pointer_of
from reviews.trail.tables.trail_file import reading
from sessions.pages.overview import find_runs
from sessions.run.run_layout import STORE, TRAIL
from sessions.session import Session
from specs.jobs.job_records import HeldoutUse
from specs.stages.registry import Stage, kind_of
from specs.system.errors import PeergateError
from specs.trail.session_bodies import ExitEntry, OpenEntry
from training.rules.disguise import Words
from training.rules.similarity import cluster_groups, words_of

_OPEN_AND_EXIT = """SELECT payload, signatures FROM entry
WHERE json_extract(payload, '$.predicate.kind') IN ('open', 'exit') ORDER BY seq"""


def used_elsewhere(session: Session, stage: Stage) -> HeldoutUse | None:
    """Count the evaluations of a stage's split by other sessions next to this one; None for a stage that reads none.

    The split is the held-out one, or the transfer split, and counts in other sessions as either. A split of which half
    of the items ask what those of another ask counts as that one, in whatever order and words as far as overlap checks
    see through them: one changed letter would begin a new count. Sessions of the same registered seeds are counted
    apart: their design was fixed before any of them ran, so none was chosen by what another found.

    A session that cannot be read, or was moved away, is not counted: nothing else depends on it.
    """
    spec, digests = session.resolved.spec, session.resolved.data_digests
    if not (spec.reads_split(stage) and kind_of(stage).only_measures):
        return None
    transfer = spec.analysis.transfer
    name = "heldout" if stage.reads_heldout or transfer is None else transfer.data
    mine = session.find(OpenEntry)
    prompts = _prompts(session.run, digests[name])
    seen_texts = {mine.digest if mine else ""}
    family = mine.body.replicates if mine else None
    counts, unread, seeds = list[int](), 0, 0
    for run in _others(session.run):
        try:
            history = _ends(run / TRAIL)
            opened = history.find(OpenEntry)
            if opened is None:
                continue
            # A copy of a run folder is the same session.
            if opened.digest not in seen_texts:
                looks = Counter(entry.body.heldout.split for entry in history.of(ExitEntry) if entry.body.heldout)
                texts = {split: opened.body.data[split] for split in looks}
                same = {
                    split
                    for split, theirs in texts.items()
                    if theirs == digests[name] or _has_overlap(prompts, _prompts(run, theirs))
                }
                count = sum(looks[split] for split in same)
                if family and (run.name == family.session or opened.body.replicates == family):
                    seeds += count > 0
                else:
                    counts.append(count)
            seen_texts.add(opened.digest)
        except (sqlite3.Error, PeergateError, OSError, ValueError, KeyError, TypeError, AttributeError):
            unread += 1
    sessions = sum(count > 0 for count in counts)
    return HeldoutUse(sessions=sessions, evaluations=sum(counts), unread=unread, seeds=seeds, split=name)


def _prompts(run: Path, digest: str) -> dict[Words, str]:
    """Return what the items of a split ask, each once, by its words."""
    return {
        words_of(text): text for item in load_items(Store(run / STORE), digest) for text in [question_text_of(item)]
    }


def _has_overlap(ours: dict[Words, str], theirs: dict[Words, str]) -> bool:
    half = max(1, min(len(ours), len(theirs))) / 2
    if len(ours.keys() & theirs.keys()) >= half:
        return True
    mine, others = [f"a{number}" for number in range(len(ours))], [f"b{number}" for number in range(len(theirs))]
    pairs = zip(mine, ours.values(), strict=True), zip(others, theirs.values(), strict=True)
    overlaps = find_overlaps(*pairs, reordered=True)
    # In other words: the same rare words, whatever instruction each side has around them.
    texts, sides = [*ours.values(), *theirs.values()], [*"a" * len(ours), *"b" * len(theirs)]
    clusters = cluster_groups(texts, sides, [*mine, *others]) if texts else {}
    known = {clusters[name] for name in others}
    again = {overlap.train for overlap in overlaps} | {name for name in mine if clusters[name] in known}
    return len(again) >= half


def _others(run: Path) -> list[Path]:
    try:
        return [path for path in find_runs(run.parent) if path.resolve() != run.resolve()]
    except (PeergateError, OSError):
        return []


def _ends(trail: Path) -> History:
    """Return the registration of a session and the ends of its jobs."""
    if pointer_of(trail) is not None:
        return History(read_entries(trail))
    with reading(trail) as connection:
        return History(restore_entry(*row) for row in connection.execute(_OPEN_AND_EXIT))
