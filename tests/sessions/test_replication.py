"""`peergate replicate`: further seeds are registered first, all are counted, and what is cheated is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from reviews.audit.verify import Audit, verify_run
from reviews.checks import measuring_code
from reviews.comparison.seed_comparison import ReplicationResult, SeedComparison, SeedOutcome, combine_seeds
from reviews.evidence.subgroups import ArmPair
from reviews.history.history import History
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions.pages.report.live_display import Terminal
from sessions.runtime import registration, replication
from sessions.runtime.replication import count_seeds, plan_seeds, record_seeds, run_seeds, with_seed
from specs.jobs.job_records import JobOrder
from specs.system.digests import digest_path
from specs.system.errors import EvidenceMissing, UserError
from specs.trail.session_bodies import Replicates
from testing.factories.bodies import append_json
from testing.factories.evidence_on_disk import N, answers
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.quick_session import QuickLauncher, Silent, drive, healthy_rows, open_quick, quick_session

pytestmark = pytest.mark.integration
RIGHT = {7: N, 8: N - 2, 9: N, 10: N}


def rows_of(seed: int) -> Callable[[JobOrder], list[dict[str, Any]]]:
    def rows(order: JobOrder) -> list[dict[str, Any]]:
        if order.grant.stage == "tuned":
            return answers([place < RIGHT[seed] for place in range(N)])
        return healthy_rows(order)

    return rows


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Hold a first session; those of further seeds run as quickly, in place of real jobs."""
    folder = tmp_path_factory.mktemp("seeds")

    def begin(run: Path, resolved: Any, material: Any, state: Any, display: Any, *, replicates: Replicates) -> None:
        registration.register(run, resolved, material, state, replicates)
        model = folder / "model"
        with closing(Trail(run / "trail.sqlite", run.name)) as trail:
            source = resolved.spec.model.source
            body = {"source": source, "kind": "instruct", "path": str(model), "digest": digest_path(model)}
            append_json(trail, "model", "model", body)
        drive(quick_session(run, launcher=QuickLauncher(rows=rows_of(resolved.spec.analysis.seeds[0]))))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(replication.runtime, "begin", begin)
        drive(quick_session(open_quick(folder), launcher=QuickLauncher(rows=rows_of(7))))
        yield folder / "runs"


@pytest.fixture(scope="module")
def ended(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run and record three further seeds of it."""
    runs = shutil.copytree(base, tmp_path_factory.mktemp("ended") / "runs")
    all_seeds(runs / "small")
    return runs


@pytest.fixture
def first(base: Path, tmp_path: Path) -> Path:
    return shutil.copytree(base, tmp_path / "runs") / "small"


@pytest.fixture
def counted(ended: Path, tmp_path: Path) -> Path:
    return shutil.copytree(ended, tmp_path / "counted") / "small"


def all_seeds(run: Path, number: int = 3) -> replication.ReplicationProgress:
    plan_seeds(run, number, "ada")
    run_seeds(run, cast(Terminal, Silent()), lambda _: None)
    return record_seeds(run, "ada")


def audited(run: Path) -> Audit:
    return verify_run(run, "trail.sqlite", "store")


def test_further_seeds_are_registered_run_and_counted(counted: Path) -> None:
    entries = read_entries(counted / "trail.sqlite")
    plan, done = (History(entries).find_key(kind) for kind in ("replication_plan", "replication"))
    assert plan and done and done.raw["plan"] == plan.digest
    progress = record_seeds(counted, "ada")
    assert len(read_entries(counted / "trail.sqlite")) == len(entries), "nothing is recorded twice"
    result = progress.result
    assert [seed.seed for seed in result.seeds] == [8, 9, 10] and not progress.unfinished
    gains = [seed.comparison.gain for seed in result.seeds if seed.comparison]
    assert gains[0] < gains[1] == gains[2] and result.failures == 0 and result.is_replicated
    assert f"{result.spread:.3f} between seeds, 0 failed" in result.describe()
    audit = audited(counted)
    assert not audit.damage and not [note for note in audit.notes if "seed" in note], (audit.damage, audit.notes)
    assert not [text for text in audit.not_covered if text.startswith("store/")]
    for command in (("status",), ("report",)):
        assert "replicated over 3 further seeds (8, 9, 10)" in peergate(*command, counted).stdout
    # The newest session is then one of the further seeds.
    process = peergate("replicate", "--show", "--runs", counted.parent)
    assert f"small: {result.describe()}" in process.stdout, process.stderr
    assert "is one of the further seeds of small" in process.stderr
    for name in progress.plan.sessions:
        opened = History(read_entries(counted.parent / name / "trail.sqlite")).find_key("open")
        assert opened and opened.raw["replicates"] == {"session": "small", "plan": plan.digest}
        entries = read_entries(counted.parent / name / "trail.sqlite")
        (looked, *_) = (entry for entry in entries if entry.kind == "exit" and "heldout" in entry.raw)
        before = progress.plan.sessions.index(name) + 1
        assert looked.raw["heldout"] == {"sessions": 0, "evaluations": 0, "unread": 0, "seeds": before}
    assert not audited(counted.parent / "small-seed9").damage


def test_only_name_and_seed_differ(first: Path) -> None:
    resolved = History.read(first / "trail.sqlite", first / "store").resolved
    spec = with_seed(resolved.spec, "other", 11)
    assert {stage.parameters.seed for stage in spec.stages} == {11} and spec.analysis.seeds == (11,)
    assert with_seed(spec, resolved.spec.name, 7) == resolved.spec


def test_a_seed_that_is_dropped_or_swapped_counts_as_no_gain(counted: Path) -> None:
    before = count_seeds(counted).result
    nine, ten = counted.parent / "small-seed9", counted.parent / "small-seed10"
    nine.rename(counted.parent / "elsewhere")
    progress = count_seeds(counted)
    assert progress.unfinished == (nine.name,) and progress.result.failures == 1
    assert progress.result.seeds[1].why == "was not begun by this plan"
    assert progress.result.over.difference < before.over.difference
    audit = audited(counted)
    assert not audit.damage and [note for note in audit.notes if nine.name in note]
    shutil.copytree(ten, nine)
    assert count_seeds(counted).result.seeds[1].why == "registered another design or seed"
    assert any(nine.name in note for note in audited(counted).notes), "not the entries that were counted"


def test_the_number_of_seeds_stays_and_only_closed_sessions_have_any(
    first: Path, counted: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no further seeds are registered"):
        count_seeds(first)
    with pytest.raises(UserError, match="got 1"):
        plan_seeds(first, 1, "ada")
    with pytest.raises(UserError, match="3 further seeds are registered"):
        plan_seeds(counted, 2, "ada")
    with pytest.raises(UserError, match="itself one of several registered seeds"):
        plan_seeds(counted.parent / "small-seed8", 2, "ada")
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UserError, match="has not ended"):
        plan_seeds(open_quick(other), 2, "ada")


def test_other_measuring_code_is_refused(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_code, "_own_code", lambda: {"reviews/other.py": "sha256:0"})
    with pytest.raises(EvidenceMissing, match="the measuring code has changed"):
        plan_seeds(first, 2, "ada")
    assert History(read_entries(first / "trail.sqlite")).find_key("replication_plan") is None


def test_figures_that_are_not_those_of_the_rows_are_damage(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def best(first: SeedComparison, seeds: list[SeedOutcome]) -> ReplicationResult:
        return combine_seeds(first, [seeds[-1]] * len(seeds))

    monkeypatch.setattr(replication, "combine_seeds", best)
    all_seeds(first, 2)
    assert ["the figures differ from those of the raw rows" in text for text in audited(first).damage] == [True]


def test_the_command_shows_seeds_and_continues(first: Path) -> None:
    none = peergate("replicate", first)
    assert none.returncode == 2 and "--seeds 3` registers and runs them" in none.stderr
    plan_seeds(first, 2, "ada")
    process = peergate("replicate", first, "--show")
    assert process.returncode == 4 and "2 of 2 have not ended: small-seed8, small-seed9" in process.stdout
    done = peergate("replicate", first, "--seeds", "2")
    assert done.returncode == 0, done.stderr
    assert "small: replicated over 2 further seeds (8, 9): gain" in done.stdout
    report = json.loads(peergate("replicate", first, "--json").stdout)
    assert report["recorded"] and report["summary"] in done.stdout


def seeded_with(gains: int, of: int, seed: int = 1) -> SeedComparison:
    pairs = tuple(ArmPair("a", str(place), False, place < gains) for place in range(of))
    return SeedComparison("s", seed, "d", pairs, gains / of, 0.01, True, 0.25)


@pytest.mark.parametrize(
    ("gains", "failed", "is_replicated"),
    [
        ((10, 12, 14), 0, True),
        ((5, 5, 5), 0, True),
        ((5, 5, 4), 0, False),
        ((20, 20, 0), 1, False),
        ((10, 0, 0), 2, False),
    ],
)
def test_the_rule(gains: tuple[int, ...], failed: int, is_replicated: bool) -> None:
    first = seeded_with(20, 20)
    read = [seeded_with(gain, 20, seed) if gain else None for seed, gain in enumerate(gains, 2)]
    result = combine_seeds(
        first, [SeedOutcome(seed, f"s{seed}", comparison, "") for seed, comparison in enumerate(read, 2)]
    )
    assert (result.failures, result.is_replicated) == (failed, is_replicated), result.describe()
    assert result.over.difference == pytest.approx(sum(gains) / 60)


def test_a_paper_has_the_registered_seeds_as_they_were_counted(counted: Path, tmp_path: Path) -> None:
    done = peergate("export", "paper", counted, "--out", tmp_path / "paper")
    assert done.returncode == 0, done.stderr
    claims = json.loads((tmp_path / "paper" / "claims.json").read_text(encoding="utf-8"))["claims"].values()
    entry = History(read_entries(counted / "trail.sqlite")).find_key("replication")
    assert entry is not None
    cited = {claim["sources"][0]["pointer"]: claim for claim in claims if claim["sources"][0]["entry"] == entry.seq}
    result = History.read(counted / "trail.sqlite", counted / "store").store.get_value(entry.raw["result"])
    assert (
        cited["/summary"]["value"] == result["summary"]
        and cited["/seeds/0/gain"]["value"] == result["seeds"][0]["gain"]
    )
    text = (tmp_path / "paper" / "paper.md").read_text(encoding="utf-8")
    assert "| Another seed gives another result. | answered |" in text and "One seed: " not in text
