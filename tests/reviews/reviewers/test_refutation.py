"""A blocking finding goes to a fresh call with its evidence only; what falls is advice, what cannot be asked stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate.gate_decision import settle
from reviews.reviewers.vendors.review_model import ModelReviewer, model_reviewer
from specs.system.vendors import http_exchange
from specs.system.vendors.api_keys import KEYS
from specs.system.vendors.parties import Efforts, ReviewerSpec, ReviewLimits
from specs.trail.verdict import Packet, Verdict
from testing.fixtures.loopback_api import OPENAI, Api, ReceivedRequest, Step, answered, failed
from tests.reviews.reviewers.test_vendors import FINDING, KEY, PRICE, REJECTED, ask
from tests.reviews.reviewers.test_vendors import api as api
from tests.reviews.reviewers.test_vendors import evidence as evidence
from tests.reviews.reviewers.test_vendors import packet as packet

pytestmark = pytest.mark.integration

OTHER = FINDING | {"statement": "the second flaw", "required_change": None}


def reviewer(usd: float = 1.0, refutation: bool = True) -> ModelReviewer:
    limits = ReviewLimits(timeout_s=20.0, max_cost_usd=usd)
    spec = ReviewerSpec(
        vendor="openai",
        model="gpt-5-mini",
        usd_per_million_tokens=PRICE,
        effort=Efforts(low=limits, medium=limits, high=limits),
        outage_s=0,
        refutation=refutation,
    )
    return model_reviewer(spec, {KEYS[OPENAI]: KEY})


def answers_of(api: Api, *answers: dict[str, Any] | Step) -> list[Step | Callable[[ReceivedRequest], Step]]:
    def step(answer: dict[str, Any] | Step) -> Callable[[ReceivedRequest], Step]:
        def answer_once(_: ReceivedRequest) -> Step:
            api.next_review()
            return answer if isinstance(answer, Step) else answered(OPENAI, json.dumps(answer))

        return answer_once

    return [step(answer) for answer in answers]


@pytest.fixture(autouse=True)
def at_loopback(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(http_exchange.ADDRESSES, OPENAI, api.address)


def refutation(stands: bool) -> dict[str, Any]:
    return {"reasoning": "The place shows the name of the stage.", "stands": stands}


def verdict_of(api: Api, packet: Packet, *answers: dict[str, Any] | Step, **more: Any) -> Verdict:
    api.steps = answers_of(api, *answers)
    review = ask(reviewer(**more), packet)
    assert review.value is not None, review.error
    return review.value


def test_a_finding_that_does_not_survive_is_advice_and_no_longer_closes_the_gate(
    api: Api, packet: Packet, evidence: Evidence
) -> None:
    verdict = verdict_of(api, packet, REJECTED | {"findings": [FINDING]}, refutation(stands=False))
    (finding,) = verdict.findings
    assert (finding.severity, verdict.approve) == ("major", True)
    assert "did not survive" in finding.refuted and "name of the stage" in finding.refuted
    assert settle(evidence.resolved, packet, verdict, evidence.attempt).outcome == "approve"


def test_a_finding_that_survives_closes_the_gate(api: Api, packet: Packet, evidence: Evidence) -> None:
    verdict = verdict_of(api, packet, REJECTED | {"findings": [FINDING]}, refutation(stands=True))
    assert [finding.severity for finding in verdict.findings] == ["blocking"] and not verdict.approve
    assert settle(evidence.resolved, packet, verdict, evidence.attempt).outcome != "approve"


def test_one_finding_that_stands_is_enough(api: Api, packet: Packet) -> None:
    answers = (REJECTED | {"findings": [FINDING, OTHER]}, refutation(stands=False), refutation(stands=True))
    verdict = verdict_of(api, packet, *answers)
    assert [finding.severity for finding in verdict.findings] == ["major", "blocking"] and not verdict.approve


@pytest.mark.parametrize("failure", [failed(OPENAI, 500), answered(OPENAI, "it stands")], ids=["down", "no JSON"])
def test_a_finding_that_could_not_be_put_to_a_call_stands(api: Api, packet: Packet, failure: Step) -> None:
    verdict = verdict_of(api, packet, REJECTED | {"findings": [FINDING]}, failure, failure)
    assert verdict.findings[0].severity == "blocking" and not verdict.approve


def test_without_refutation_nothing_else_is_asked(api: Api, packet: Packet) -> None:
    verdict = verdict_of(api, packet, REJECTED | {"findings": [FINDING]}, refutation=False)
    assert verdict.findings[0].severity == "blocking" and len(api.requests) == 1


def test_the_fresh_call_sees_the_finding_and_its_evidence_and_nothing_else(api: Api, packet: Packet) -> None:
    marked = packet.model_copy(update={"log_tail": "only in the packet"})
    verdict_of(api, marked, REJECTED | {"findings": [FINDING]}, refutation(stands=True))
    first, second = api.requests
    assert "only in the packet" in first.packet_text() and "only in the packet" not in second.packet_text()
    assert FINDING["statement"] in second.packet_text() and '"value":"\\"sample\\""' in second.packet_text()


def test_what_it_takes_is_counted(api: Api, packet: Packet) -> None:
    api.steps = answers_of(api, REJECTED | {"findings": [FINDING]}, refutation(stands=False))
    exchange = ask(reviewer(), packet).exchange
    assert exchange.usd > 0 and len(exchange.earlier) == 1 and len(exchange.statuses) == 2


def test_without_money_for_a_fresh_call_the_finding_stands(api: Api, packet: Packet) -> None:
    usage = json.loads(answered(OPENAI, "").body)["usage"] | {"input_tokens": 17_900, "total_tokens": 17_950}
    dear = answered(OPENAI, json.dumps(REJECTED | {"findings": [FINDING]}), usage=usage)
    verdict = verdict_of(api, packet, dear, refutation(stands=False), usd=0.0205)
    assert len(api.requests) == 1 and verdict.findings[0].severity == "blocking"
