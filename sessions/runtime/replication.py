"""Further seeds of a closed session: registered in its trail, run one after the other, all of them counted.

The plan is an entry of the first session's trail, so seeds cannot be left out afterwards: each of the sessions names
the plan, and one that is missing or fails counts as a seed that gained nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from reviews.checks.measuring_code import measuring_files
from reviews.comparison.seed_comparison import ReplicationResult, combine_seeds, compare_seed, one_seed
from reviews.evidence.gather import find, registered_spec
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.jobs.benchmarks import environment
from sessions.pages.overview import overview
from sessions.pages.report.live_display import Terminal
from sessions.run.lease import lease
from sessions.run.run_layout import STORE, TRAIL, is_run, require_run, session_name
from sessions.runtime import runtime
from sessions.runtime.preflight import require_startable
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.session_words import session_words
from specs.system.digests import digest_value
from specs.system.errors import EvidenceMissing, UserError
from specs.system.yaml.yaml_positions import dump_yaml
from specs.trail.session_bodies import Replicates, ReplicationResultEntry
from specs.trail.session_bodies import ReplicationEntry as Plan

MOST_SEEDS = 100
LARGEST_SEED = 2**31 - 1


class ReplicationProgress(NamedTuple):
    """The registered plan, and what came of it as far as its sessions have ended."""

    plan: Plan
    entry: RecordedEntry
    result: ReplicationResult
    unfinished: tuple[str, ...]
    """Sessions that have not begun or not ended."""
    is_recorded: bool
    """Whether the figures are in the first session's trail."""


def plan_seeds(run: Path, number: int, by: str) -> RecordedEntry:
    """Register further seeds in the trail of a closed session; returns the entry, also of an equal earlier plan.

    Raises:
        UserError: the session is open, repeats another one, or has another plan already.
        EvidenceMissing: it did not come to its comparison.
    """
    if not 2 <= number <= MOST_SEEDS:
        raise UserError(f"{number} further seeds", hint=f"from 2, so that there is a spread, to {MOST_SEEDS}")
    with lease(require_run(run)):
        entries, store = read_entries(run / TRAIL), Store(run / STORE)
        opened = find(entries, "open")
        if opened is None or find(entries, "close") is None:
            raise UserError("the session has not ended", where=str(run), hint=f"`peergate resume {session_words(run)}`")
        if (of := opened.raw.get("replicates")) is not None:
            hint = f"`peergate replicate {session_words(run.parent / of['session'])}` shows its seeds"
            raise UserError("the session is itself one of several registered seeds", where=str(run), hint=hint)
        if (before := find(entries, "replication")) is not None:
            if len(before.raw["seeds"]) != number:
                message = f"{len(before.raw['seeds'])} further seeds are registered"
                hint = "their number is not changed after results were seen; without --seeds these are run and counted"
                raise UserError(message, where=str(run), hint=hint)
            return before
        first = compare_seed(run, History(entries, store))
        resolved, _ = registered_spec(entries, store)
        measured_by = _require_same_code(run, opened, resolved)
        seeds = tuple(seed for seed, _ in zip(_further(first.seed), range(number), strict=False))
        names = tuple(session_name(f"{run.name}-seed{seed}", run.name) for seed in seeds)
        if texts := [name for name in names if (run.parent / name).exists()]:
            raise UserError(f"{', '.join(texts)} exist already", where=str(run.parent), hint="move them away")
        body = Plan(by=by, design=first.design, measured_by=measured_by, seeds=seeds, sessions=names)
        with closing(Trail(run / TRAIL, entries[0].session)) as trail:
            trail.verify_chain()
            return trail.append_raw("replication", "replication", body.model_dump(mode="json"))


def first_of(run: Path) -> Path:
    """Return the folder of the session whose further seed this session is, or its own."""
    opened = find(read_entries(require_run(run) / TRAIL), "open")
    of = opened.raw.get("replicates") if opened else None
    return run.parent / Path(of["session"]).name if of else run


def run_seeds(run: Path, display: Terminal, say: Callable[[str], None]) -> None:
    """Begin or continue the session of each registered seed that has not ended, one after the other.

    A session that waits for a person is left waiting, and the next one runs.

    Raises:
        UserError: no seeds are registered, or a folder has a planned name and is another session.
        Blocked, EvidenceMissing: the machine lacks something, or other code measures now than in the first session.
        Paused: Ctrl-C.
    """
    entries, store = read_entries(require_run(run) / TRAIL), Store(run / STORE)
    entry = _require_plan(run, entries)
    plan = Plan.model_validate(entry.raw)
    for number, (seed, name) in enumerate(zip(plan.seeds, plan.sessions, strict=True), 1):
        folder = run.parent / name
        if is_run(folder):
            _require_of_plan(folder, entry.digest)
            if overview(folder).state in ("paused", "waiting"):
                say(f"seed {seed}, {number} of {len(plan.seeds)}: continues {name}")
                runtime.resume(folder, display)
            continue
        say(f"seed {seed}, {number} of {len(plan.seeds)}: begins {name}")
        _begin(run, entries, store, folder, seed, Replicates(session=run.name, plan=entry.digest), display)


def count_seeds(run: Path) -> ReplicationProgress:
    """Return what came of the registered seeds, from the raw rows of their sessions; a missing one has failed.

    Raises:
        UserError: no seeds are registered.
    """
    entries = read_entries(require_run(run) / TRAIL)
    entry = _require_plan(run, entries)
    plan, first = Plan.model_validate(entry.raw), compare_seed(run, History(entries, Store(run / STORE)))
    folders = [run.parent / name for name in plan.sessions]
    trails = [read_entries(folder / TRAIL) if is_run(folder) else [] for folder in folders]
    seeds = [
        one_seed(folder, History(trail, Store(folder / STORE)), first, seed, entry.digest)
        for folder, trail, seed in zip(folders, trails, plan.seeds, strict=True)
    ]
    unfinished = tuple(
        folder.name
        for folder, recorded_entries in zip(folders, trails, strict=True)
        if find(recorded_entries, "close") is None
    )
    replication_result = combine_seeds(first, seeds)
    return ReplicationProgress(plan, entry, replication_result, unfinished, find(entries, "replicated") is not None)


def record_seeds(run: Path, by: str) -> ReplicationProgress:
    """Record the figures in the first session's trail, once, when every registered seed has ended; return them."""
    counted = count_seeds(run)
    if counted.unfinished or counted.is_recorded:
        return counted
    with lease(run):
        entries, store = read_entries(run / TRAIL), Store(run / STORE)
        heads = {name: read_entries(run.parent / name / TRAIL)[-1].digest for name in counted.plan.sessions}
        result = store.put_value(counted.result.as_json())
        body = ReplicationResultEntry(by=by, plan=counted.entry.digest, result=result, heads=heads)
        with closing(Trail(run / TRAIL, entries[0].session)) as trail:
            trail.append_raw("replicated", "replicated", body.model_dump(mode="json"))
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
    entries: list[RecordedEntry],
    store: Store,
    folder: Path,
    seed: int,
    replicates: Replicates,
    display: Terminal,
) -> None:
    first, _ = registered_spec(entries, store)
    opened = find(entries, "open")
    assert opened is not None
    _require_same_code(run, opened, first)
    resolved = first.model_copy(update={"spec": with_seed(first.spec, folder.name, seed)})
    state = require_startable(resolved, run / "spec.yaml", None, run.parent)
    environment.prepare(resolved.spec, display.say)
    constitution = resolved.constitution_digest
    text = dump_yaml(resolved.spec.model_dump(mode="json", by_alias=True))
    material = runtime.SpecMaterial(
        source=f"# {run.name} with another seed, every value written out\n{text}".encode(),
        data={file: store.get(digest) for file, digest in resolved.data_digests.items()},
        constitution=None if constitution is None else store.get(constitution),
    )
    runtime.begin(folder.resolve(), resolved, material, state, display, replicates=replicates)


def _further(seed: int) -> Any:
    """Yield the seeds after one, and after the largest the smallest."""
    return ((seed + step) % (LARGEST_SEED + 1) for step in count(1))


def _require_plan(run: Path, entries: list[RecordedEntry]) -> RecordedEntry:
    if (entry := find(entries, "replication")) is None:
        hint = f"`peergate replicate {session_words(run)} --seeds 3` registers and runs them"
        raise UserError("no further seeds are registered", where=str(run), hint=hint)
    return entry


def _require_of_plan(folder: Path, plan: str) -> None:
    opened = find(read_entries(folder / TRAIL), "open")
    if opened is None or (opened.raw.get("replicates") or {}).get("plan") != plan:
        raise UserError("is another session than the planned one", where=str(folder), hint="move it away")


def _require_same_code(run: Path, opened: RecordedEntry, resolved: ResolvedSpec) -> str:
    """Return the digest of the measuring code, or raise EvidenceMissing if it is not that of the first session."""
    now = digest_value(dict(measuring_files(resolved)))
    if now != opened.raw["measured_by"]:
        hint = "run them with the version of Peergate that ran the session"
        raise EvidenceMissing("other code measures now: the seeds would not be comparable", where=str(run), hint=hint)
    return now
