"""`peergate seeds`: sessions of one design with different seeds, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.gather import gather
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.seeds import seeds
from specs.jobs.job_records import JobOrder
from specs.system.errors import EvidenceMissing, UserError
from testing.factories.evidence_on_disk import N, answers, resolved_spec
from testing.fixtures.quick_session import POWERED, ROOMY, QuickLauncher, drive, healthy_rows, open_quick, quick_session

pytestmark = pytest.mark.integration

PAIRED = (
    "stages:\n",
    "evaluation:\n  paired: [{before: base, after: tuned, outcome: binary, test: exact_mcnemar, minimum_effect: 0.8, "
    "decides: true}]\nstages:\n",
)


def rows_with(right: int) -> Callable[[JobOrder], list[dict[str, Any]]]:
    """Return rows of a session in which training makes the first few items right."""

    def rows(order: JobOrder) -> list[dict[str, Any]]:
        if order.grant.stage == "tuned":
            return answers([place < right for place in range(N)])
        return healthy_rows(order)

    return rows


def run_session(folder: Path, seed: int, right: int, *changes: tuple[str, str]) -> Path:
    """Hold a whole session with one seed, to its end or to the question that its gate asks."""
    run = open_quick(fresh(folder / f"seed{seed}"), *changes)
    drive(quick_session(run, launcher=QuickLauncher(rows=rows_with(right))))
    return run


def fresh(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def seed_of(number: int, tokens: int = 32) -> tuple[tuple[str, str], ...]:
    """Return the changes of the small spec that give it another seed, and answers of another length."""
    arm, other = "items: heldout}\n    parameters: {max_new_tokens: 32, seed: 7}", f"max_new_tokens: {tokens}"
    changed = arm.replace("max_new_tokens: 32", other).replace("seed: 7", f"seed: {number}")
    return (
        ("seeds: [7]", f"seeds: [{number}]"),
        (f"{{model: model, {arm}", f"{{model: model, {changed}"),
        (f"{{model: train.checkpoint, {arm}", f"{{model: train.checkpoint, {changed}"),
        ("samples_per_prompt: 2, seed: 7", f"samples_per_prompt: 2, seed: {number}"),
        ("batch_size: 1, seed: 7", f"batch_size: 1, seed: {number}"),
        ("probe_items: 2, seed: 7", f"probe_items: 2, seed: {number}"),
    )


def test_seeds_of_one_design_with_a_null_among_them_and_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run_session(tmp_path, seed, right, *seed_of(seed)) for seed, right in ((7, N), (8, N), (9, 3))]
    seeds(runs, as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert [(session["seed"], session["gain"], session["as_registered"]) for session in report["sessions"]] == [
        (7, 1.0, True),
        (8, 1.0, True),
        (9, 0.25, False),
    ]
    assert (report["items"], report["gain"]) == (N, pytest.approx(0.75))
    # By hand: two means of 1 and one of 1/4; Student's t on 2 degrees of freedom is 4.302653.
    half = 4.302653 * (0.75 / 3**0.5) / 3**0.5
    assert report["seed_interval"] == pytest.approx([0.75 - half, 0.75 + half], abs=1e-5)
    low, high = report["interval"]
    assert 0.25 <= low < 0.75 < high <= 1.0
    seeds(runs, as_json=False)
    assert "gain over 3 seeds and 12 items: +0.7500" in capsys.readouterr().out

    seven, eight, _ = runs
    other = run_session(tmp_path, 10, N, *seed_of(10, tokens=33))
    for named, error, why in (
        ([seven], UserError, "not enough to compare seeds"),
        ([seven, eight, seven], UserError, "both have seed 7"),
        ([seven, other], UserError, "another design"),
        ([seven, tmp_path], UserError, "(no|unknown) session"),
        ([seven, open_quick(fresh(tmp_path / "open"))], EvidenceMissing, "did not reach its comparison"),
    ):
        with pytest.raises(error, match=why):
            seeds(named, as_json=False)


def test_a_registered_paired_test_is_carried_out_in_a_session_and_closes_its_gate(tmp_path: Path) -> None:
    good, bad = run_session(tmp_path, 7, N, PAIRED), run_session(tmp_path / "bad", 7, 3, PAIRED)
    results: dict[str, tuple[str, str]] = {}
    for name, run in (("good", good), ("bad", bad)):
        entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
        checks = next(entry for entry in entries if entry.key == "checks/tuned.1").raw["checks"]
        answer = next(item for item in store.get_value(checks) if item["id"] == "paired.registered")
        decided = next(entry for entry in entries if entry.key == "decision/tuned.1").raw["outcome"]
        results[name] = (answer["status"], decided)
        assert "base" in gather(run, History(entries, store), "tuned", 1).arms, "what the audit would judge by"
    assert results["good"] == ("PASS", "approve") and results["bad"][0] == "FAIL" and results["bad"][1] != "approve"
    history = History.read(good / "trail.sqlite", good / "store")
    resolved, registration = history.resolved, history.registration
    assert resolved.spec.evaluation is not None and resolved.spec.evaluation.paired[0].test == "exact_mcnemar"
    assert (
        registration
        == resolved.registration()
        != resolved_spec(fresh(tmp_path / "plain"), POWERED, ROOMY).registration()
    )
