"""Every number of the paper in docs/examples/cai_demo is followed to the evidence that lies next to it."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from reviews.history.history import History
from sessions.exports.paper.claims import value_at
from sessions.pages.trail_place import TrailPlace
from specs.system import markdown
from testing.fixtures.command_sessions import called, verify
from tests.sessions.exports.test_paper import claims_without_source, unclaimed

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "examples" / "cai_demo"
PAPER = (FOLDER / "paper.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the session, as the first of a reader's two commands unpacks it."""
    folder = tmp_path_factory.mktemp("evidence")
    with tarfile.open(FOLDER / "evidence.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def history(evidence: Path) -> History:
    return TrailPlace(evidence / "cai_demo", evidence / "cai_demo").history()


@pytest.fixture(scope="module")
def claims(evidence: Path) -> dict[str, Any]:
    return json.loads((evidence / "claims.json").read_bytes())["claims"]


def test_every_number_of_the_paper_is_what_the_evidence_says(history: History, claims: dict[str, Any]) -> None:
    assert claims_without_source(claims, history) == [] and unclaimed(PAPER, claims) == []
    stated = re.findall(r"\[\^(c\d+)\]", PAPER.partition("\n[^c1]: ")[0])
    assert set(stated) == set(claims)
    assert [id for id in claims if f"{markdown.line(claims[id]['text'])}[^{id}]" not in PAPER] == []


def test_a_number_that_the_evidence_does_not_hold_is_found(history: History, claims: dict[str, Any]) -> None:
    forged = {id: claim | {"value": 0.99} if claim["text"] == "0.7917" else claim for id, claim in claims.items()}
    assert claims_without_source(forged, history) == [id for id in claims if forged[id] != claims[id]] != []
    (unknown,) = unclaimed(PAPER.replace("0.7917[", "0.9917[", 1), claims)
    assert unknown.startswith("0.9917[^c")


def test_the_second_command_leads_to_the_lines_of_a_number(evidence: Path) -> None:
    done = called("audit", "show", evidence / "cai_demo", "claim", "evaluate.1.accuracy_gain")
    assert done.returncode == 0, done.stderr
    assert re.search(r"rows: \d+ of 120 gained: wrong before, right after: lines \d", done.stdout)
    code, message = verify(evidence / "cai_demo")
    assert code == 0, message


def test_the_pages_quote_the_evidence(history: History) -> None:
    report = next(entry for entry in reversed(list(history)) if entry.kind == "report")
    data = history.store.get_value(report.raw["files"]["report/report.json"])
    right = {row["name"]: row["right"] for row in data["comparison"]["arms"]}
    page = (DOCS / "explanation" / "constitutional-pipeline.md").read_text(encoding="utf-8")
    for name, what in (
        ("baseline", "nothing"),
        ("own drafts", "its own drafts"),
        ("another principle", "revisions by another principle"),
        ("treatment", "revisions by both principles"),
        ("examples alone", "revisions by the worked examples without the sentences"),
    ):
        assert re.search(rf"\| {what} \| {right[name]}\b", page), (what, right[name])
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert f"| 0 -> {right['treatment']} of 120; " in readme
    assert value_at(data, "/comparison/primary_metric") == "accuracy"
