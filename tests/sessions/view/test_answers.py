"""Answers on the page: the terminal's, by a real process, under a name; and everything that must not reach one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.trail_place import TrailPlace
from sessions.pages.view.places import Scope
from sessions.run.lease import is_running
from specs.loading.loading import load_spec
from testing.fixtures.command_sessions import called, wait_for
from testing.fixtures.quick_session import CostlyPlaybook, QuickLauncher, drive, open_quick, quick_session
from testing.fixtures.view_client import Client
from tests.sessions.view.test_view_pages import Critical, damaged

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session whose gate of the evaluation asks a person: only to be copied."""
    run = open_quick(tmp_path_factory.mktemp("asking"))
    drive(quick_session(run, reviewer=Critical()))
    return run


@pytest.fixture
def run(asking: Path, tmp_path: Path) -> Path:
    # The keys are next to the runs.
    return shutil.copytree(asking.parents[1], tmp_path / "work") / "runs" / "small"


def kinds(run: Path, kind: str) -> list[RecordedEntry]:
    return [entry for entry in read_entries(run / "trail.sqlite") if entry.kind == kind]


def form_of(client: Client, **other: str) -> dict[str, str]:
    """Return the form of the page as a browser would send it, with fields changed."""
    page = client.get("/s/small/").text
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
    return hidden | other


def test_a_page_that_only_reads_has_no_form_and_takes_none(run: Path) -> None:
    client = Client(Scope(run.parent))
    assert "<form" not in client.get("/s/small/").text
    assert client.post("/s/small/answer", {"answer": "stop"}).status == 405


def test_an_answer_is_recorded_under_the_name_with_the_reason_by_the_terminals_command(run: Path) -> None:
    client = Client(Scope(run.parent), "ada")
    page = client.get("/s/small/").text
    assert "Answer as ada" in page and 'value="stop"' in page and 'value="approve"' in page
    # A reason is text alone, whatever it begins with.
    done = client.post("/s/small/answer", form_of(client, answer="stop", reason="--answer=approve\nenough"))
    assert done.status == 303 and done.headers["location"] == "/s/small/", done.text
    (answered,) = kinds(run, "human")
    assert answered.raw["answer"] == "stop" and answered.raw["by"] == "ada"
    assert answered.raw["reason"] == "--answer=approve\nenough"
    wait_for(lambda: kinds(run, "close") != [] and not is_running(run))
    assert kinds(run, "close")[0].raw["decision"] == "stop"
    assert "<form" not in client.get("/s/small/").text
    assert (run / "answered.log").stat().st_mode & 0o077 == 0


REFUSED = {
    "no key": ({"key": ""}, {}, 404, "is not from this page"),
    "another key": ({"key": "x" * 32}, {}, 404, "is not from this page"),
    "no cookie": ({}, {"cookie": ""}, 403, "has no key yet"),
    "another site": ({}, {"sec_fetch_site": "cross-site"}, 403, "comes from another page"),
    "another port": ({}, {"sec_fetch_site": "same-site"}, 403, "comes from another page"),
    "another host": ({}, {"host": "evil.example"}, 421, "only for this machine"),
    "no reason": ({"reason": " "}, {}, 404, "needs a reason"),
    "no answer": ({"answer": ""}, {}, 404, "no longer waits for this answer"),
    "another answer": ({"answer": "cancel"}, {}, 404, "no longer waits for this answer"),
    "not asked": ({"answer": "resume"}, {}, 404, "no longer waits for this answer"),
    "an earlier question": ({"since": "3"}, {}, 404, "no longer waits for this answer"),
    "too long": ({"reason": "x" * 300_000}, {}, 404, "too long"),
}


def test_what_is_refused_records_and_starts_nothing(run: Path) -> None:
    client = Client(Scope(run.parent), "ada")
    before = (run / "trail.sqlite").read_bytes()
    form = form_of(client, answer="stop", reason="enough")
    for why, (fields, headers, status, item) in REFUSED.items():
        refused = client.post("/s/small/answer", form | fields, **headers)
        assert refused.status == status and item in refused.text, why
        assert (run / "trail.sqlite").read_bytes() == before and not (run / "answered.log").exists(), why


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_page_that_answers_takes_forms_at_two_addresses_alone(run: Path, method: str) -> None:
    client = Client(Scope(run.parent), "ada")
    assert client.stranger("/s/small/answer", method, cookie=client.cookie).status == 405
    for path in ("/", "/s/small/", "/s/small/trail", "/s/a/b/answer", "/enter/x/answer"):
        assert client.stranger(path, "POST", cookie=client.cookie).status == 405


def test_a_command_that_refuses_says_why_on_the_page(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(Scope(run.parent), "ada")
    form = form_of(client, answer="stop", reason="enough")
    (run / "lease.lock").unlink(missing_ok=True)
    (run / "lease.lock").mkdir()
    refused = client.post("/s/small/answer", form)
    assert refused.status == 404 and "lease.lock" in refused.text and kinds(run, "human") == []


def test_copies_and_damaged_trails_are_not_answered(asking: Path, tmp_path: Path) -> None:
    assert called("audit", "export", asking, tmp_path / "small").returncode == 0
    broken = damaged(asking, tmp_path)
    for scope in (Scope(tmp_path, TrailPlace(tmp_path / "small", tmp_path / "small")), Scope(broken.parent)):
        client = Client(scope, "ada")
        assert client.answers is not None
        assert "<form" not in client.get("/s/small/").text
        refused = client.post("/s/small/answer", {"key": client.answers.key, "answer": "stop", "reason": "x"})
        assert refused.status == 404 and "copy or a damaged trail" in refused.text


@pytest.mark.more
def test_a_budget_is_raised_by_a_reviewed_amendment_and_the_session_can_be_resumed(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, builder=CostlyPlaybook()))
    client = Client(Scope(run.parent), "ada")
    assert "Raise the budget as ada" in client.get("/s/small/").text
    form = form_of(client, answer="budget", reason="the first stage was slow")
    for usd, why in (
        ("lots", "not a number of USD"),
        ("10", "must be more than 10 USD, got 10"),
        ("nan", "must be more than"),
    ):
        refused = client.post("/s/small/answer", form | {"usd": usd})
        assert refused.status == 404 and why in refused.text, refused.text
    assert kinds(run, "amendment") == []
    done = client.post("/s/small/answer", form | {"usd": "14"})
    assert done.status == 303, done.text
    (amendment,) = kinds(run, "amendment")
    assert (amendment.raw["outcome"], amendment.raw["by"]) == ("approve", "ada")
    assert [change["pointer"] for change in amendment.raw["changes"]] == ["/budget/max_cost_usd"]
    assert 'value="resume"' in client.get("/s/small/").text
    # What is kept as the spec's text is the spec, and changes nothing else.
    place = tmp_path / "again.yaml"
    place.write_bytes(Store(run / "store").get(amendment.raw["source"]))
    assert load_spec(place).registration() == amendment.raw["registration"]


@pytest.fixture
def judging(tmp_path: Path) -> Path:
    """A session whose first gate waits for a person's verdict."""
    run = open_quick(tmp_path, ("reviewer: {vendor: checklist}", "reviewer: {vendor: person}"))
    from reviews.reviewers.person import Person

    drive(quick_session(run, reviewer=Person(), launcher=QuickLauncher()))
    return run


def test_a_verdict_is_signed_with_the_persons_key_and_the_session_can_be_resumed(judging: Path) -> None:
    client = Client(Scope(judging.parent), "ada")
    page = client.get("/s/small/").text
    assert "Your verdict" in page and "Answer as" not in page
    arguments = form_of(client, approve="no", reasoning="too few items", recommendation="take more")
    wrong = client.post("/s/small/verdict", arguments | {"findings": "the sample is too small"})
    assert wrong.status == 404 and "must begin with its place" in wrong.text
    other = client.post("/s/small/verdict", arguments | {"packet": "sha256:" + "0" * 64})
    assert other.status == 404 and "does not wait for this verdict" in other.text
    assert kinds(judging, "verdict") == []
    done = client.post("/s/small/verdict", arguments | {"findings": "/checks/0 the sample is too small"})
    assert done.status == 303, done.text
    (verdict,) = kinds(judging, "verdict")
    assert verdict.raw["reviewer"] == "person"
    text = client.get(f"/s/small/value/{verdict.raw['verdict']}").text
    assert "the sample is too small" in text and "/checks/0" in text and "too few items" in text
    assert 'value="resume"' in client.get("/s/small/").text
    again = client.post("/s/small/verdict", arguments)
    assert again.status == 404 and len(kinds(judging, "verdict")) == 1
