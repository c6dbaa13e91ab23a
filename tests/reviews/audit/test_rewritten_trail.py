"""A trail that someone with every key wrote anew: the audit finds what does not follow from the evidence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.chain.envelope import entry_of
from reviews.trail.chain.keys import KeyFolder
from reviews.trail.chain.store import Store
from specs.jobs.job_records import JobOrder
from specs.system.digests import canonical_bytes, digest_bytes
from testing.factories.forgery import Rows, chained, keys_of, put, rows_of
from testing.fixtures.command_sessions import verify


def _rewrite(run: Path, keys: KeyFolder, change: Callable[[str, dict[str, object]], None]) -> None:
    """Write every entry anew and make every digest and signature agree: what someone with all keys can do."""
    trail = run / "trail.sqlite"
    rows: Rows = []
    renamed: dict[bytes, bytes] = {}
    for row in rows_of(trail):
        before = digest_bytes(row.envelope)
        entry = entry_of(row.payload)
        body = canonical_bytes(entry.body)
        for old, new in renamed.items():
            body = body.replace(old, new)
        lied = json.loads(body)
        change(entry.key, lied)
        if entry.kind == "launch":
            _reorder(run, lied, renamed)
        rows = chained([entry.model_copy(update={"body": lied})], keys, stored_entries=rows)
        renamed[before.encode()] = digest_bytes(rows[-1].envelope).encode()
    put(trail, rows, keys)


def _reorder(run: Path, launch: dict[str, Any], renamed: dict[bytes, bytes]) -> None:
    """Give the order of a launch the grant with its new digests."""
    data = Store(run / "store").get(launch["order"])
    for old, new in renamed.items():
        data = data.replace(old, new)
    order = JobOrder.model_validate_json(data)
    launch["order"] = Store(run / "store").put(data)
    launch["grant"] = order.grant.content_digest()
    (run / "jobs" / launch["key"] / "order.json").write_bytes(data)


LAST = "decision/ship.1"
"""No job ends after it: what a witness is asked follows from the entry of an end, and would have to be drawn again."""


def _nothing(key: str, body: dict[str, object]) -> None:
    """Lie about nothing: the control."""


def _outcome(key: str, body: dict[str, object]) -> None:
    if key == LAST:
        body["outcome"] = "null"


def _opening(key: str, body: dict[str, object]) -> None:
    if key == "decision/base.1":
        body["opens"] = None


def _reason(key: str, body: dict[str, object]) -> None:
    if key == LAST:
        body["reasons"] = ["looks good to me"]


def _rate(key: str, body: dict[str, object]) -> None:
    if key == "plan/train.1":
        body["changes"] = {"learning_rate": 0.5}


def _other_metrics(key: str, body: dict[str, object]) -> None:
    if key == "metrics/ship.1":
        body["metrics"] = None


@pytest.mark.parametrize(
    ("lie", "output"),
    [
        (_outcome, "the entry disagrees with the stored decision"),
        (_reason, "the entry disagrees with the stored decision"),
        (_opening, "no decision before it opens sample.1"),
        (_rate, "the plan is not allowed"),
        (_other_metrics, "the metrics computed from the raw rows differ from the recorded metrics"),
    ],
)
def test_a_lie_is_found_though_every_digest_agrees(
    closed_quick: Path, tmp_path: Path, lie: Callable[[str, dict[str, object]], None], output: str
) -> None:
    run = shutil.copytree(closed_quick, tmp_path / closed_quick.name)
    _rewrite(run, keys_of(closed_quick / "trail.sqlite"), lie)
    code, answer = verify(run)
    assert code == 1 and any(output in str(line) for line in answer["damage"]), answer  # pyright: ignore[reportGeneralTypeIssues]


def test_a_rewrite_without_a_lie_is_what_the_audit_says_it_cannot_see(closed_quick: Path, tmp_path: Path) -> None:
    """The control, and the limit of a trail without an anchor: a consistent rewrite with all keys goes unnoticed."""
    run = shutil.copytree(closed_quick, tmp_path / closed_quick.name)
    _rewrite(run, keys_of(closed_quick / "trail.sqlite"), _nothing)
    code, answer = verify(run)
    assert (code, answer["damage"]) == (0, [])
    assert any("anchor" in str(line) for line in answer["not_proven"])  # pyright: ignore[reportGeneralTypeIssues]
