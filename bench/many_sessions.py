"""Many sessions at once on one Postgres, and one long session. `bench.view` measures long lists.

    .venv/bin/python -m bench.many_sessions
    .venv/bin/python -m bench.many_sessions --sessions 20 --stages 100 --folder DIR

Everything is real but the jobs, whose rows are written at once: sessions are processes with their own leases, trails,
gates and reports; the server is Debian's Postgres, started for this in a temporary folder. ``0`` leaves a part out.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reviews.audit.verify import verify_run
from reviews.trail.chain.envelope import RecordedEntry, entries_of
from reviews.trail.integrity import walk_trail
from reviews.trail.tables.open_table import read_entries, read_trail
from reviews.trail.trail import Trail
from sessions.pages.overview import overview
from sessions.pages.report.session_list import glance, list_overviews
from sessions.run.lease import lease, take_up
from sessions.runtime import registration, runtime
from specs.session.session_spec import ResolvedSpec
from specs.system.digests import digest_path
from specs.trail.session_bodies import CloseEntry, LaunchEntry, ModelEntry, OpenEntry, PauseEntry
from testing.factories.evidence_on_disk import resolved_spec, weights
from testing.fixtures.postgres_server import MISSING, Server, programs, running
from testing.fixtures.quick_session import POWERED, ROOMY, QuickLauncher, Silent, no_plots, quick_session
from testing.fixtures.reviewer_here import lenient
from training.running_code import code_state


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=200, help="processes at once, on one Postgres")
    parser.add_argument("--stages", type=int, nargs="*", default=[100, 1000], help="attempts in one session")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; a temporary folder by default")
    namespace = parser.parse_args()
    if programs() is None:
        sys.exit(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="sessions-bench-", dir=namespace.folder))
    try:
        with no_plots(), running(max_connections="1000", shared_buffers="128MB") as server:
            spec = write_spec_file(folder)
            if namespace.sessions:
                at_once(folder / "many", server, spec, namespace.sessions)
            for stages in filter(None, namespace.stages):
                long_session(folder / f"long{stages}", server, spec, stages)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Spec:
    """A spec that was loaded once, and weights of a few bytes."""

    def __init__(self, path: Path, resolved: ResolvedSpec, model: Path) -> None:
        self.path, self.resolved, self.model = path, resolved, model


def write_spec_file(folder: Path) -> Spec:
    """Write the small spec of the unit tests."""
    home = folder / "spec"
    home.mkdir(parents=True)
    resolved = resolved_spec(home, POWERED, ROOMY)
    model = home / "model"
    model.mkdir(exist_ok=True)
    (model / "model.safetensors").write_bytes(weights("untouched"))
    return Spec(home / "spec.yaml", resolved, model)


def begin(runs: Path, name: str, spec: Spec) -> Path:
    """Register a session, with the weights it starts from."""
    run = runs / name
    registration.register(run, spec.resolved, registration.material_of(spec.path, spec.resolved), code_state())
    trail = Trail(run / "trail.sqlite", name)
    source = spec.resolved.spec.model.source
    trail.append(ModelEntry(source=source, kind="instruct", path=str(spec.model), digest=digest_path(spec.model)))
    trail.close()
    return run


class SessionCount(QuickLauncher):
    """Writes down every start of a job: an effect outside of everything that Peergate keeps."""

    def __init__(self, effects: Path) -> None:
        super().__init__()
        self._effects = effects

    def start(self, folder: Path) -> None:
        """Write the start down, then what the job leaves."""
        handle = os.open(self._effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, f"{folder.name}\n".encode())
        os.close(handle)
        super().start(folder)


def whole_session(runs: Path, name: str, spec: Spec, effects: Path) -> None:
    """Register a session and run it to its end, as `peergate start` does."""
    run = begin(runs, name, spec)
    with lease(run) as judged_conversation:
        session = quick_session(run, launcher=SessionCount(effects), display=Silent())  # pyright: ignore[reportArgumentType]
        take_up(session.trail, judged_conversation)
        judged_conversation.on_loss = session.stop.set
        runtime.drive(session, None)


def at_once(folder: Path, server: Server, spec: Spec, count: int) -> None:
    """Run sessions as processes of their own that begin at the same moment, and look at everything they did."""
    os.environ["PEERGATE_DATABASE"] = server.new_database()
    runs, effects = folder / "runs", folder / "effects"
    # The first one makes keys and tables, and imports what is imported late: processes share that memory.
    whole_session(runs, "first", spec, folder / "first")
    gc.collect()
    gc.freeze()
    gate, go = os.pipe()
    started_at = time.monotonic()
    names: dict[int, str] = {}

    def one(name: str) -> None:
        os.close(go)
        os.read(gate, 1)
        whole_session(runs, name, spec, effects)

    for number in range(count):
        name = f"s{number:04}"
        names[fork_session(lambda name=name: one(name))] = name
    os.close(go)
    released = time.monotonic()
    took: list[float] = []
    failed: list[str] = []
    for _ in range(count):
        pid, status = os.wait()
        took.append(time.monotonic() - released)
        if os.waitstatus_to_exitcode(status):
            failed.append(names[pid])
    os.close(gate)
    print(f"{count} sessions at once, forked in {released - started_at:.1f} s; 2 cores: load {os.getloadavg()[0]:.1f}")
    quarters = statistics.quantiles(took, n=20) if len(took) > 1 else took * 20
    print(
        f"  ended after: first {min(took):.1f} s, 5% {quarters[0]:.1f}, median {statistics.median(took):.1f},"
        f" 95% {quarters[-1]:.1f}, last {max(took):.1f} s; {count / max(took):.2f} sessions a second"
    )
    processor = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"  processor: {(processor.ru_utime + processor.ru_stime) / (count + 1):.2f} s a session")
    started = Counter(effects.read_text(encoding="utf-8").splitlines())
    states = Counter(f"{overview.state} {overview.decision}" for overview in list_overviews(runs))
    damaged = [name for name in names.values() if walk_trail(read_trail(runs / name / "trail.sqlite")).damage]
    sample = [f"s{number:04}" for number in range(0, count, max(1, count // 10))]
    audited = [verify_run(runs / name, "trail.sqlite", "store").exit_code for name in sample]
    print(
        f"  failed: {len(failed)}; states: {dict(states)}; jobs started: {started.total()},"
        f" of them twice or more: {sum(1 for many in started.values() if many > 1)};"
        f" damaged trails: {len(damaged)}; audits of {len(sample)}: {sum(1 for code in audited if code == 0)} verified"
    )
    database = os.environ["PEERGATE_DATABASE"].split("/@/")[-1].rpartition("/")[2].partition("?")[0]
    rows = server.sql(database, "SELECT count(*) FROM peergate.entry")
    size = server.sql(database, "SELECT pg_database_size(current_database()) / 1024")
    print(f"  {rows} entries, {int(size) / (count + 1):.0f} kB a session in the database")


def fork_session(action: Callable[[], None]) -> int:
    """Do something in a separate process that has all imports already; return its number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        action()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def time_call(what: Callable[[], Any], repeats: int = 3) -> float:
    """Return the least wall time of some tries, in seconds."""
    values: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        what()
        values.append(time.perf_counter() - start)
    return min(values)


def long_session(folder: Path, server: Server, spec: Spec, stages: int) -> None:
    """Make a trail as long as that of a session with so many attempts, in a file and in Postgres."""
    for where in ("file", "postgres"):
        use(server, where)
        _long_session(folder, server, spec, stages, where)


def use(server: Server, where: str) -> str | None:
    """Have the sessions from here on in files, or in a new database, whose address is returned."""
    os.environ.pop("PEERGATE_DATABASE", None)
    if where == "file":
        return None
    os.environ["PEERGATE_DATABASE"] = address = server.new_database()
    return address


def _long_session(folder: Path, server: Server, spec: Spec, stages: int, where: str) -> None:
    runs = folder / where
    whole_session(runs, "model", spec, folder / f"{where}-effects")
    recorded = read_entries(runs / "model" / "trail.sqlite")
    pattern = [entry for entry in recorded if not isinstance(entry.body, OpenEntry | CloseEntry)]
    attempts = len(entries_of(pattern, LaunchEntry))
    run = begin(runs, "long", spec)
    trail = Trail(run / "trail.sqlite", "long")
    lenient(trail)
    lengthen(trail, pattern, -(-stages // attempts))
    one_more = iter(range(10_000))
    append = time_call(lambda: trail.append(PauseEntry(by="bench"), PauseEntry.key_of(next(one_more))), 9)
    read = time_call(lambda: list(trail.iterate()))
    chain = time_call(trail.verify_chain, 1)
    size = trail.head().size
    trail.close()
    overview_s = time_call(lambda: overview(run))
    seen_value = time_call(lambda: glance(run), 1) if where == "file" else overview_s
    whole = run / "trail.sqlite"
    size_kb = whole.stat().st_size / 1024 if whole.exists() else trail_kb(server)
    print(
        f"{stages} stages, {where}: {size} entries, {size_kb / size:.2f} kB each; append {append * 1e3:.2f} ms,"
        f" all entries {read * 1e3:.1f} ms, verify_chain {chain * 1e3:.0f} ms, status {overview_s * 1e3:.0f} ms,"
        f" in a list {seen_value * 1e3:.0f} ms"
    )


def lengthen(trail: Trail, pattern: list[RecordedEntry], times: int) -> None:
    """Repeat the entries of a real session under other keys."""
    for number in range(times):
        with trail.alone():
            for recorded in pattern:
                trail.append(recorded.body, f"{recorded.key}#{number}")


def trail_kb(server: Server) -> float:
    """Return what the entries of the newest database take."""
    database = os.environ["PEERGATE_DATABASE"].rpartition("/")[2].partition("?")[0]
    return int(server.sql(database, "SELECT pg_total_relation_size('peergate.entry') / 1024"))


if __name__ == "__main__":
    main()
