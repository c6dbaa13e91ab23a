"""`peergate cost`: every figure of the ledger, by party and stage, read from a trail that may be in use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.commands.cost import cost
from sessions.run.money import ledger
from specs.session.session_spec import ResolvedSpec
from specs.system.errors import UserError
from testing.factories.bodies import BODIES, append_json
from testing.factories.spec_files import loads, write_spec

LIMITED = ("  max_hours: 2\n", "  max_hours: 2\n  builder_max_usd: 1.5\n  storage_usd_per_gb: 0.5\n")
TIGHT = ("    max_minutes: 30\n", "    max_minutes: 30\n    max_cost_usd: 2.5\n")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A session in the middle: 10 USD, a stage done, a training under way, two turns and a review."""
    run = tmp_path / "small"
    run.mkdir()
    resolved = loads(write_spec(run, LIMITED, TIGHT))
    spec, budget = resolved.spec, resolved.spec.budget
    trail = opened(run, resolved)
    ledger.settle(trail, ledger.reserve_review(trail, budget, "design", 1, 0.4), 0.25)
    ledger.reserve_job(trail, budget, spec.stage("base"), "small.base.1", keeps_bytes=10**9)
    ledger.settle_job(trail, budget, "small.base.1", 300)
    ledger.settle_storage(trail, budget, "small.base.1", 2 * 10**8)
    append_json(
        trail, "decision", "decision/sample.1", BODIES["decision"] | {"opens": {"stage": "train", "attempt": 1}}
    )
    ledger.settle(trail, ledger.reserve_turn(trail, budget, spec.stage("train"), 1, 0.5), 0.2)
    ledger.reserve_turn(trail, budget, spec.stage("train"), 1, 0.3)
    ledger.reserve_turn(trail, budget, spec.stage("train"), 1, 0.1, party="helper", task="look")
    trail.close()
    return run


def opened(run: Path, resolved: ResolvedSpec) -> Trail:
    store = Store(run / "store")
    trail = Trail(run / "trail.sqlite", "small")
    body = {"spec": store.put_value(resolved), "registration": resolved.registration()}
    append_json(trail, "open", "open", BODIES["open"] | body)
    return trail


def read_cost(run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    cost(run, as_json=True)
    return json.loads(capsys.readouterr().out)


def test_every_figure_by_party_and_stage(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = read_cost(run, capsys)
    total = 0.25 + 300 / 1800 + 0.1 + 0.2
    assert answers["spent_usd"] == pytest.approx(total, abs=1e-6)
    assert answers["reserved_usd"] == pytest.approx(0.4)
    assert answers["left_usd"] == pytest.approx(10 - total - 0.4, abs=1e-6)
    parties = {party.pop("party"): party for party in answers["parties"]}
    assert list(parties) == ["builder", "helper", "reviewer", "job", "storage"]
    # 1.5 USD for the builder, 0.6 of them taken; a helper may have half of what is left.
    assert parties["builder"] == {"spent_usd": 0.2, "reserved_usd": 0.3, "may_take_usd": 0.9}
    assert parties["helper"] == {"spent_usd": 0, "reserved_usd": 0.1, "may_take_usd": 0.45}
    assert parties["reviewer"] == {"spent_usd": 0.25, "reserved_usd": 0, "may_take_usd": 0.25}
    assert parties["storage"]["spent_usd"] == 0.1
    stages = {stage.pop("stage"): stage for stage in answers["stages"]}
    assert list(stages) == ["base", "sample", "train", "tuned", "ship", "design"]
    assert stages["train"] == {
        "spent_usd": 0.2, "reserved_usd": 0.4, "reviews_usd": 0, "max_cost_usd": 2.5, "left_usd": 1.9,
    }  # fmt: skip
    assert stages["design"]["reviews_usd"] == 0.25 and stages["base"]["max_cost_usd"] is None
    shares = {item["share"]: (item["usd"], item["left_usd"]) for item in answers["held_back"]}
    assert shares == {"evaluation": (2, 2), "review": (0.5, 0.25), "teardown": (0.5, 0.5)}


def test_what_the_next_stage_may_take(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coming = read_cost(run, capsys)["next"]
    assert (coming["stage"], coming["attempt"], coming["attempt_may_cost_usd"]) == ("train", 1, 1.0)
    assert (coming["may_take_usd"], coming["may_take_hours"], coming["fits"]) == (1.9, 0.5, True)
    trail = Trail(run / "trail.sqlite", "small")
    append_json(trail, "launch", "launch/small.train.1", BODIES["launch"])
    trail.close()
    assert read_cost(run, capsys)["next"] is None


def test_a_share_that_was_overrun_is_shown_as_gone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trail = Trail(run / "trail.sqlite", "small")
    # Ten times its cap: no one can take back what a machine cost.
    ledger.reserve(trail, loads(run / "spec.yaml").spec.budget, "job", "elsewhere", "small.x.1", 1.0)
    ledger.settle(trail, "small.x.1", 10.0)
    trail.close()
    answers = read_cost(run, capsys)
    shares = {item["share"]: item["left_usd"] for item in answers["held_back"]}
    assert shares["evaluation"] == 0 and answers["left_usd"] < 0
    assert answers["next"]["may_take_usd"] == 0 and answers["next"]["fits"] is False


def test_the_table_says_the_same_while_the_session_runs(run: Path) -> None:
    """As a command of its own, while another process writes and holds the lease."""
    trail = Trail(run / "trail.sqlite", "small")
    before = sorted(path.name for path in run.iterdir())
    code = "import sys\nfrom sessions.commands.cli import main\ntry:\n    main()\nfinally:\n"
    code += "    print(sorted({'torch', 'langgraph',"
    code += " 'matplotlib', 'scipy', 'anthropic', 'openai'} & set(sys.modules)), file=sys.stderr)"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, "cost", str(run)], capture_output=True, text=True, check=True
        )
        assert sorted(path.name for path in run.iterdir()) == before
    finally:
        trail.close()
    assert done.stderr.strip() == "[]", "imports more than it needs"
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["builder", "0.2000", "0.3000", "0.9000"] in lines
    assert ["train", "0.2000", "0.4000", "0.0000", "2.5000", "1.9000"] in lines
    assert ["teardown", "0.5000", "0.5000"] in lines
    assert (
        "next: train, attempt 1: may cost 1.0000 USD and take 0.50 h, 1.9000 USD are left for it: fits" in done.stdout
    )
    assert "states no rate" not in done.stdout


def test_where_there_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown session"):
        cost(tmp_path, as_json=True)
