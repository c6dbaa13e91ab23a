"""Stored packets judged again through the command line, by rules and by a model behind a loopback server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.chain.store import Store
from specs.system.digests import digest_path
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.command_sessions import CANARY, called, entries, environment
from testing.fixtures.loopback_api import OPENAI, Api, ReceivedRequest, Step, answered, failed, loopback_api
from testing.fixtures.model_answers import ANSWER
from testing.fixtures.scripted_builder import Call, Reply, turn_step
from tests.reviews.reviewers.test_vendors import FINDING, REJECTED

pytestmark = pytest.mark.integration

PLACE = {"pointer": "/registered/analysis", "first_line": None, "last_line": None, "quote": "exact_mcnemar"}
BLOCKING = REJECTED | {
    "findings": [FINDING | {"evidence": [PLACE], "required_change": None, "statement": "the test does not fit"}]
}
FREE = "usd_per_million_tokens: {input: 0, output: 0}"


@pytest.fixture
def api() -> Iterator[Api]:
    with loopback_api() as running:
        yield running
        assert running.complaints() == []


@pytest.fixture
def run(tmp_path: Path, api: Api) -> Path:
    """A session that a model rejected at its design gate, with evidence."""
    reviewer = f'reviewer: {{vendor: openai, model: tiny, base_url: "{api.address}", outage_s: 0, {FREE}}}'
    resolved_spec(
        tmp_path,
        ("  minimum_effect: 0.1\n", "  minimum_effect: 0.8\n"),
        ("reviewer: {vendor: checklist}", reviewer),
        ("review: 0.05", "review: 0.3"),
    )
    api.steps = [_say(api, BLOCKING)]
    assert _peergate("start", tmp_path / "spec.yaml", "--runs", tmp_path / "runs").returncode == 3
    return tmp_path / "runs" / "small"


def _peergate(*arguments: str | Path) -> Any:
    return called(*arguments, env=environment() | {"PEERGATE_REVIEWER_KEY": CANARY})


def _replay(run: Path, *options: str | Path) -> dict[str, Any]:
    before = digest_path(run)
    done = _peergate("replay", run, "--json", *options)
    assert digest_path(run) == before, "a replay writes nothing"
    return {"code": done.returncode, "err": done.stderr} | (json.loads(done.stdout) if done.stdout else {})


def _say(api: Api, answer: dict[str, Any]) -> Callable[[ReceivedRequest], Step]:
    """Return a step that answers, after which another review begins."""

    def step(_: ReceivedRequest) -> Step:
        api.next_review()
        return answered(OPENAI, json.dumps(answer))

    return step


def _reviewer_file(folder: Path, text: str) -> Path:
    path = folder / "reviewer.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_rules_that_open_what_a_model_closed_are_a_flip(run: Path, tmp_path: Path) -> None:
    replayed = _replay(run, "--reviewer", _reviewer_file(tmp_path, "vendor: checklist\n"))
    (gate,) = replayed["gates"]
    assert gate["recorded"]["outcome"] == "reject" and gate["votes"][0]["outcome"] == "approve"
    assert (replayed["flips"], gate["opened_otherwise"], replayed["code"]) == (1, True, 0)
    plain = _peergate("replay", run, "--reviewer", tmp_path / "reviewer.yaml").stdout
    assert "decided otherwise" in plain and "- design.1: the test does not fit" in plain


def test_the_registered_model_is_asked_with_the_recorded_packet_and_its_votes_are_shown(run: Path, api: Api) -> None:
    api.steps = [_say(api, answer) for answer in (BLOCKING, ANSWER, BLOCKING)]
    replayed = _replay(run, "--votes", "3")
    (gate,) = replayed["gates"]
    assert [vote["outcome"] for vote in gate["votes"]] == ["reject", "approve", "reject"]
    assert (replayed["flips"], replayed["code"]) == (1, 0)
    assert gate["votes"][0]["blocking"] == gate["recorded"]["blocking"] == ["the test does not fit"]
    sent = {request.packet_text() for request in api.requests}
    assert len(api.requests) == 4 and len(sent) == 1, "the recorded packet is sent, each time"


@pytest.mark.more
def test_what_the_reviewer_could_look_into_it_can_look_into_again(run: Path, api: Api, tmp_path: Path) -> None:
    query = Call("query_rows", {"name": "data.prompts", "group_by": "kind"}, "call_1")
    place = {"pointer": "/answers/1", "first_line": None, "last_line": None, "quote": "5 x lowercase"}
    finding = FINDING | {"evidence": [place], "required_change": None}
    api.steps = [
        lambda request: turn_step(OPENAI, Reply(calls=(query,)), request.value()),
        answered(OPENAI, json.dumps(REJECTED | {"findings": [finding]})),
    ]
    text = f'vendor: openai\nmodel: tiny\nbase_url: "{api.address}"\nlooks: 2\n{FREE}\n'
    replayed = _replay(run, "--reviewer", _reviewer_file(tmp_path, text))
    assert replayed["gates"][0]["votes"][0]["outcome"] == "reject", "its evidence resolves"
    assert not entries(run, "look")


def test_a_missing_answer_is_no_flip_and_ends_with_its_own_code(run: Path, api: Api) -> None:
    api.steps = [failed(OPENAI, 500)]
    replayed = _replay(run)
    assert replayed["gates"][0]["votes"][0]["approve"] is None
    assert (replayed["flips"], replayed["code"]) == (0, 4)


def test_money_and_persons_are_refused_before_anything_is_sent(run: Path, api: Api, tmp_path: Path) -> None:
    priced = f'vendor: openai\nmodel: tiny\nbase_url: "{api.address}"\n'
    priced += "usd_per_million_tokens: {input: 1, output: 2}\n"
    sent = len(api.requests)
    poor = _replay(run, "--reviewer", _reviewer_file(tmp_path, priced), "--max-cost", "0.1")
    assert poor["code"] == 6 and "--max-cost" in poor["err"] and len(api.requests) == sent
    person = _replay(run, "--reviewer", _reviewer_file(tmp_path, "vendor: person\n"))
    assert person["code"] == 2 and "cannot be asked again" in person["err"]


@pytest.mark.more
def test_a_damaged_packet_is_refused(run: Path, tmp_path: Path) -> None:
    (packet,) = entries(run, "packet")
    path = Store(run / "store").path(packet.raw["packet"])
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"exact_mcnemar", b"exact_mcnemaR"))
    replayed = _replay(run, "--reviewer", _reviewer_file(tmp_path, "vendor: checklist\n"))
    assert replayed["code"] == 5
