"""`peergate audit list | search | show | log | diff` on a small trail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from reviews.trail.tables.query import TrailQuery, select
from reviews.trail.trail import Trail
from testing.factories.bodies import append_json, body_of
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.reviewer_here import lenient


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("listed") / "small"
    trail, store = Trail(run / "trail.sqlite", "small"), Store(run / "store")
    lenient(trail)
    append_json(trail, "open", "open", body_of("open", by="100% of A_B"))
    for attempt, (outcome, usd) in enumerate([("revise", 0.1), ("approve", 2.5)], 1):
        at = {"stage": "sft", "attempt": attempt}
        append_json(trail, "grant", f"grant/small.sft.{attempt}", body_of("grant", **at))
        rows = {"rows": {"path": "rows", "digest": store.put(b"%d" % attempt), "bytes": 1, "stored": True}}
        key = f"small.sft.{attempt}"
        append_json(trail, "exit", f"exit/{key}", body_of("exit", **at, key=key, outputs=rows))
        checks = store.put_value([{"id": "x", "status": "PASS" if attempt == 2 else "FAIL"}])
        append_json(trail, "checks", f"checks/sft.{attempt}", body_of("checks", **at, checks=checks))
        verdict = store.put_value({"attempt": attempt})
        judged = body_of("verdict", **at, reviewer="ada", usd=usd, verdict=verdict)
        append_json(trail, "verdict", f"verdict/sft.{attempt}", judged)
        carried = {"id": "c1", "stage": "ship", "text": "do it", "criterion": None}
        append_json(
            trail,
            "decision",
            f"decision/sft.{attempt}",
            body_of("decision", **at, outcome=outcome, reasons=["so"], conditions=[carried] if attempt == 2 else []),
        )
    append_json(
        trail, "override", "override/1", {"by": "bob", "reason": "\u001b[31mred", "check": "x", "condition": None}
    )
    trail.close()
    return run


def seqs(*arguments: str | Path) -> list[int]:
    done = peergate("audit", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [entry["seq"] for entry in json.loads(done.stdout)["entries"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], list(range(12))),
        (["--kind", "verdict", "--kind", "checks"], [3, 4, 8, 9]),
        (["--stage", "sft", "--attempt", "2"], [6, 7, 8, 9, 10]),
        (["--decision", "approve"], [10]),
        (["--reviewer", "ada"], [4, 9]),
        (["--overrides"], [11]),
        (["--open-conditions"], [10]),
        (["--min-cost", "1"], [9]),
        (["--kind", "verdict", "--limit", "1"], [9]),
        (["--stage", "none"], []),
    ],
)
def test_list_filters(run: Path, options: list[str], expected: list[int]) -> None:
    assert seqs("list", run, *options) == expected


@pytest.mark.parametrize(
    ("options", "expected"), [(["--reviewer", "ada"], [4, 9]), (["--decision", "revise"], [5]), (["--overrides"], [])]
)
def test_search_filters_too(run: Path, options: list[str], expected: list[int]) -> None:
    assert seqs("search", run, "sft.", *options) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("DECISION/sft", [5, 10]), ("100%", [0]), ("a_b", [0]), ("a%b", []), ("aXb", []), ("\u001b[31m", [11]), ("!", [])],
)
def test_search_takes_text_as_it_is_and_not_letter_case(run: Path, text: str, expected: list[int]) -> None:
    assert [entry.seq for entry in select(run / "trail.sqlite", TrailQuery(text=text)).entries] == expected


def fits(entry: RecordedEntry, wanted: TrailQuery) -> bool:
    """Return whether an entry is among those wanted."""
    body = entry.raw
    usd = body.get("usd")
    return (
        (not wanted.kinds or entry.kind in wanted.kinds)
        and (wanted.seqs is None or entry.seq in wanted.seqs)
        and all(getattr(wanted, name) in (None, body.get(name)) for name in ("stage", "attempt", "outcome", "reviewer"))
        and (wanted.min_usd is None or (isinstance(usd, int | float) and usd >= wanted.min_usd))
        and (wanted.text is None or wanted.text.lower() in entry.entry.model_dump_json().lower())
    )


@pytest.mark.parametrize(
    "wanted",
    [
        TrailQuery(),
        TrailQuery(kinds=("grant", "exit")),
        TrailQuery(stage="sft"),
        TrailQuery(outcome="revise"),
        TrailQuery(min_usd=0.1),
    ],
)
def test_what_the_database_finds_is_what_fits(run: Path, wanted: TrailQuery) -> None:
    entries = read_entries(run / "trail.sqlite")
    assert select(run / "trail.sqlite", wanted).entries == [entry for entry in entries if fits(entry, wanted)]


def test_an_unknown_kind_is_reported_with_those_there_are(run: Path) -> None:
    done = peergate("audit", "list", run, "--kind", "nothing")
    assert done.returncode == 2 and "kinds in this trail: checks, decision, exit" in done.stderr


def test_show_follows_a_verdict_to_its_grant_and_raw_rows(run: Path) -> None:
    data: dict[str, Any] = json.loads(peergate("audit", "show", run, "verdict/sft.2", "--json").stdout)
    assert [(item["kind"], item["entry"]) for item in data["way"]] == [
        ("grant", 6), ("exit", 7), ("checks", 8), ("verdict", 9), ("decision", 10)
    ]  # fmt: skip
    assert data["way"][1]["names"]["rows"] == Store(run / "store").put(b"2")
    assert data["points_to"]["verdict"] == {"attempt": 2}


def test_log_states_gates_and_people_without_escape_sequences(run: Path) -> None:
    done = peergate("audit", "log", run)
    assert "sft.1 revise" in done.stdout and "sft.2 approve" in done.stdout and "condition c1 for ship" in done.stdout
    assert "reviewed by ada (entry 9, 2.5 USD)" in done.stdout
    assert "override by bob: red" in done.stdout and "\u001b" not in done.stdout


def test_diff_compares_what_entries_point_to(run: Path) -> None:
    done = peergate("audit", "diff", run, "checks/sft.1", "checks/sft.2", "--json")
    assert json.loads(done.stdout)["differences"] == [
        {"where": "attempt", "first": "1", "second": "2"},
        {"where": "checks[0].status", "first": '"FAIL"', "second": '"PASS"'},
    ]
    assert peergate("audit", "diff", run, "open", "open").stdout == "no difference\n"
    assert peergate("audit", "diff", run, "open", "nothing").returncode == 2
