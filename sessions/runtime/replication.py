"""Further seeds of a closed session: registered in its trail, run one after the other, all of them counted.

The plan is an entry of the first session's trail, so seeds cannot be left out afterwards: each of the sessions names
the plan, and a missing or failed session counts as a seed that gained nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from reviews.checks.measuring_code import measuring_files
from reviews.comparison.seed_comparison import ReplicationResult, combine_seeds, compare_seed, one_seed
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.jobs.benchmarks import environment
from sessions.pages.overview import overview
from sessions.pages.report.live_display import Terminal
from sessions.run.lease import lease
from sessions.run.run_history import read_history
from sessions.run.run_layout import STORE, TRAIL, is_run, require_run, session_name
from sessions.runtime import registration, runtime
from sessions.runtime.preflight import require_startable
from specs.session.session_spec import SessionSpec
from specs.session_words import session_words
from specs.system.digests import digest_value
from specs.system.errors import EvidenceMissing, UserError
from specs.system.yaml.yaml_positions import dump_yaml
from specs.trail.session_bodies import OpenEntry, Replicates, ReplicationEntry
from specs.trail.session_bodies import ReplicationPlanEntry as Plan

MOST_SEEDS = 100
LARGEST_SEED = 2**31 - 1


class ReplicationProgress(NamedTuple):
    """The registered plan, and what came of it as far as its sessions have ended."""

    plan: Plan
    entry: RecordedEntry[Plan]
    result: ReplicationResult
    unfinished: tuple[str, ...]
    """Sessions that have not begun or not ended."""
    is_recorded: bool
    """Whether the figures are in the first session's trail."""


def plan_seeds(run: Path, number: int, by: str) -> RecordedEntry[Plan]:
    """Register further seeds in the trail of a closed session; returns the entry, also of an equal earlier plan.

    Raises:
        UserError: the session is open, repeats another one, or has another plan already.
        EvidenceMissing: it did not come to its comparison.
    """
    if not 2 <= number <= MOST_SEEDS:
        raise UserError(f"expected 2 to {MOST_SEEDS} further seeds, got {number}", hint="a spread needs at least 2")
    with lease(require_run(run)):
        history = read_history(run)
        opened = history.find(OpenEntry)
        if opened is None or not history.is_closed:
            raise UserError("the session has not ended", where=str(run), hint=f"`peergate resume {session_words(run)}`")
        if (of := opened.body.replicates) is not None:
            hint = f"`peergate replicate {session_words(run.parent / of.session)}` shows its seeds"
            raise UserError("the session is itself one of several registered seeds", where=str(run), hint=hint)
        if (before := history.find(Plan)) is not None:
            if len(before.body.seeds) != number:
                message = f"{len(before.body.seeds)} further seeds are registered"
                hint = "their number cannot change after results were seen; without --seeds these are run and counted"
                raise UserError(message, where=str(run), hint=hint)
            return before
        first = compare_seed(run, history)
        measured_by = _require_same_code(run, history)
        seeds = tuple(seed for seed, _ in zip(_further(first.seed), range(number), strict=False))
        names = tuple(session_name(f"{run.name}-seed{seed}", run.name) for seed in seeds)
        if texts := [name for name in names if (run.parent / name).exists()]:
            raise UserError(f"{', '.join(texts)} already exist", where=str(run.parent), hint="move them away")
        body = Plan(by=by, design=first.design, measured_by=measured_by, seeds=seeds, sessions=names)
        with closing(Trail(run / TRAIL, history.session)) as trail:
            trail.verify_chain()
            return trail.append(body)


def first_of(run: Path) -> Path:
    """Return the folder of the session whose further seed this session is, or its own."""
    opened = read_history(require_run(run)).find(OpenEntry)
    of = opened.body.replicates if opened else None
    return run.parent / Path(of.session).name if of else run


def run_seeds(run: Path, display: Terminal, say: Callable[[str], None]) -> None:
    """Begin or continue the session of each registered seed that has not ended, one after the other.

    A session that waits for a person is left waiting, and the next one runs.

    Raises:
        UserError: no seeds are registered, or a folder has a planned name and is another session.
        Blocked, EvidenceMissing: the machine lacks something, or other code measures now than in the first session.
        Paused: Ctrl-C.
    """
    history = read_history(require_run(run))
    entry = _require_plan(run, history)
    plan = entry.body
    for number, (seed, name) in enumerate(zip(plan.seeds, plan.sessions, strict=True), 1):
        folder = run.parent / name
        if is_run(folder):
            _require_of_plan(folder, entry.digest)
            if overview(folder).state in ("paused", "waiting"):
                say(f"seed {seed}, {number} of {len(plan.seeds)}: continues {name}")
                runtime.resume(folder, display)
            continue
        say(f"seed {seed}, {number} of {len(plan.seeds)}: begins {name}")
        _begin(run, history, folder, seed, Replicates(session=run.name, plan=entry.digest), display)


def count_seeds(run: Path) -> ReplicationProgress:
    """Return what came of the registered seeds, from the raw rows of their sessions; a missing one has failed.

    Raises:
        UserError: no seeds are registered.
    """
    history = read_history(require_run(run))
    entry = _require_plan(run, history)
    first, folders = compare_seed(run, history), [run.parent / name for name in entry.body.sessions]
    histories = [read_history(folder) if is_run(folder) else History((), Store(folder / STORE)) for folder in folders]
    seeds = [
        one_seed(folder, theirs, first, seed, entry.digest)
        for folder, theirs, seed in zip(folders, histories, entry.body.seeds, strict=True)
    ]
    unfinished = tuple(folder.name for folder, theirs in zip(folders, histories, strict=True) if not theirs.is_closed)
    is_recorded = history.find(ReplicationEntry) is not None
    return ReplicationProgress(entry.body, entry, combine_seeds(first, seeds), unfinished, is_recorded)


def record_seeds(run: Path, by: str) -> ReplicationProgress:
    """Record the figures in the first session's trail, once, when every registered seed has ended; return them."""
    counted = count_seeds(run)
    if counted.unfinished or counted.is_recorded:
        return counted
    with lease(run):
        heads = {name: read_history(run.parent / name)[-1].digest for name in counted.plan.sessions}
        result = Store(run / STORE).put_value(counted.result.as_json())
        body = ReplicationEntry(by=by, plan=counted.entry.digest, result=result, heads=heads)
        with closing(Trail(run / TRAIL, counted.entry.session)) as trail:
            trail.append(body)
    return counted._replace(is_recorded=True)


def with_seed(spec: SessionSpec, name: str, seed: int) -> SessionSpec:
    """Return a spec with another name and seed, and nothing else changed."""
    data = spec.model_dump(mode="json", by_alias=True)
    data["name"], data["analysis"]["seeds"] = name, [seed]
    for stage in data["stages"]:
        if "seed" in stage["parameters"]:
            stage["parameters"]["seed"] = seed
    return SessionSpec.model_validate(data)


def _begin(
    run: Path,
    history: History,
    folder: Path,
    seed: int,
    replicates: Replicates,
    display: Terminal,
) -> None:
    first, store = history.resolved, history.store
    _require_same_code(run, history)
    resolved = first.model_copy(update={"spec": with_seed(first.spec, folder.name, seed)})
    state = require_startable(resolved, run / "spec.yaml", None, run.parent)
    environment.prepare(resolved.spec, display.say)
    constitution = resolved.constitution_digest
    text = dump_yaml(resolved.spec.model_dump(mode="json", by_alias=True))
    material = registration.SpecMaterial(
        source=f"# {run.name} with another seed, every value written out\n{text}".encode(),
        data={file: store.get(digest) for file, digest in resolved.data_digests.items()},
        constitution=None if constitution is None else store.get(constitution),
    )
    runtime.begin(folder.resolve(), resolved, material, state, display, replicates=replicates)


def _further(seed: int) -> Any:
    """Yield the seeds after one, and after the largest the smallest."""
    return ((seed + step) % (LARGEST_SEED + 1) for step in count(1))


def _require_plan(run: Path, history: History) -> RecordedEntry[Plan]:
    if (entry := history.find(Plan)) is None:
        hint = f"`peergate replicate {session_words(run)} --seeds 3` registers and runs them"
        raise UserError("no further seeds are registered", where=str(run), hint=hint)
    return entry


def _require_of_plan(folder: Path, plan: str) -> None:
    opened = read_history(folder).find(OpenEntry)
    if opened is None or opened.body.replicates is None or opened.body.replicates.plan != plan:
        raise UserError("is not the planned session", where=str(folder), hint="move it away")


def _require_same_code(run: Path, history: History) -> str:
    """Return the digest of the measuring code, or raise EvidenceMissing if it is not that of the first session."""
    now = digest_value(dict(measuring_files(history.resolved)))
    if now != history.opening.measured_by:
        hint = "run them with the version of Peergate that ran the session"
        raise EvidenceMissing(
            "the measuring code has changed: the seeds would not be comparable", where=str(run), hint=hint
        )
    return now
