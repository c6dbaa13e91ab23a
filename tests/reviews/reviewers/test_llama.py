"""A real model server answers over the wire, bound to the form of an answer by its grammar.

The model has 135 million parameters and no judgement: what is tested is the way there and back, not what it says.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.gate.reviewer import ModelOutcome, ReviewExchange
from reviews.reviewers.vendors.model_exchange import read_part
from reviews.reviewers.vendors.review_model import ReviewModel, make_model
from reviews.reviewers.vendors.verdict_answer import VerdictAnswer, answer_form, to_verdict
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from specs.system.text import enclose
from specs.system.vendors import http_exchange
from specs.system.vendors.api_keys import ENDPOINT_KEYS
from specs.system.vendors.parties import ReviewerSpec as ReviewerSpec
from specs.system.vendors.parties import ReviewLimits, TokenPrice
from specs.trail.verdict import Verdict
from testing.fixtures.command_sessions import environment
from testing.fixtures.llama_server import KEY, MISSING, MODEL, llama_server

pytestmark = [
    pytest.mark.integration,
    pytest.mark.llama,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (make -f more.mk test-llama)"),
]
DIGEST = f"sha256:{'0' * 64}"
INSTRUCTIONS = "You review stages."
PACKET = {"stage": "sample", "metrics": {"acceptance_rate": 0.41}, "criteria": ["acceptance_rate >= 0.1"]}
LIKE_THIS: dict[str, Any] = {
    "analysis": "The rows were read next to the figures.",
    "findings": [],
    "conditions": [],
    "risks": ["few rows"],
    "not_judged": [],
    "reasoning": "The rate is above the threshold.",
    "recommendation": "Go on.",
    "approve": True,
}
EFFORT = ReviewLimits(timeout_s=300, max_cost_usd=0.1, max_output_tokens=400)
MOST_TRIES = 12
"""So small a model rambles unless it has something to copy, and even so one answer in five is not whole."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_server(tmp_path_factory.mktemp("llama") / "server.log") as running:
        yield running


def text_of(exchange: ReviewExchange) -> str | None:
    """Return the text of an answer that came to its own end."""
    choice = json.loads(exchange.response or b"")["choices"][0]
    return None if choice["finish_reason"] == "length" else choice["message"]["content"]


def model_at(address: str, **changes: Any) -> ReviewModel:
    values: dict[str, Any] = {"vendor": "openai", "model": MODEL, "base_url": address, "api": "chat_json_object"}
    values |= {"usd_per_million_tokens": TokenPrice(input=0, output=0)} | changes
    return make_model(ReviewerSpec(**values), {ENDPOINT_KEYS["reviewer"]: KEY})


def ask(model: ReviewModel, effort: ReviewLimits = EFFORT) -> ModelOutcome[Verdict]:
    shots = "\n\n".join([f"Packet: {json.dumps(PACKET)}\nAnswer: {json.dumps(LIKE_THIS)}"] * 4)
    text = enclose("packet", shots) + "Repeat the last answer exactly."

    def read(answer: str) -> Verdict:
        return to_verdict(answer, model.name, DIGEST)

    return model.ask(INSTRUCTIONS, text, answer_form(), effort, read)


def test_a_model_server_gives_a_verdict_in_the_form_of_an_answer(address: str) -> None:
    model = model_at(address)
    for _ in range(MOST_TRIES):
        review = ask(model)
        exchange = review.exchange
        assert exchange.statuses == (200,) and exchange.model == MODEL and exchange.usd == 0
        assert exchange.usage is not None and exchange.usage["output_tokens"] <= 400
        text = text_of(exchange)
        if text is None:
            assert review.error is not None and "incomplete (length)" in review.error.message
            continue
        # This server's grammar lets line breaks into strings, which JSON forbids; apart from them the form holds.
        read_part(text.replace("\n", " "), VerdictAnswer, model.name)
        if review.value is not None:
            assert review.value.reviewer == f"openai:{MODEL}" and review.value.reasoning
            return
    pytest.fail(f"none of {MOST_TRIES} answers was whole")


REVIEWER = """\
vendor: openai
model: {model}
base_url: {address}
api: chat_json_object
usd_per_million_tokens: {{input: 0, output: 0}}
effort:
  low: {{timeout_s: 300, max_cost_usd: 0.1, max_output_tokens: 400}}
  medium: {{timeout_s: 300, max_cost_usd: 0.1, max_output_tokens: 400}}
  high: {{timeout_s: 300, max_cost_usd: 0.1, max_output_tokens: 400}}
"""


def test_a_question_on_the_command_line_is_answered_and_recorded(address: str, tmp_path: Path) -> None:
    (tmp_path / "reviewer.yaml").write_text(REVIEWER.format(model=MODEL, address=address), encoding="utf-8")
    like_this = {"reasoning": "The rate is far above the threshold.", "risks": ["few rows"]}
    like_this |= {"recommendation": "Go on.", "option": None, "approval": True}
    notes = f"Question: Are 100 samples enough?\nAnswer: {json.dumps(like_this)}\n" * 4
    (tmp_path / "notes.md").write_text(notes, encoding="utf-8")
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "sessions.commands.cli", "review", "ask", "--json", "--runs", str(runs)]
    command += ["--topic", "size of the pilot", "--question", "Are 100 samples enough?"]
    command += ["--context", str(tmp_path / "notes.md"), "--reviewer", str(tmp_path / "reviewer.yaml")]
    for tried in range(1, MOST_TRIES + 1):
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment() | {ENDPOINT_KEYS["reviewer"]: KEY}
        )
        report = json.loads(done.stdout)
        assert done.returncode == (0 if report["answer"] else 4), done.stderr
        if report["answer"] is None:
            continue
        assert report["answered_by"] == "model" and report["model"] == MODEL and report["usd"] == 0
        assert report["recorded"]["key"] == f"answer/{tried}" and report["usage"]["output_tokens"] <= 400
        entries = read_entries(runs / "reviews" / "reviews.sqlite")
        (recorded,) = [entry for entry in entries if entry.key == f"answer/{tried}"]
        store = Store(runs / "reviews" / "store")
        answer = json.loads(json.loads(store.get(recorded.raw["response"]))["choices"][0]["message"]["content"])
        assert report["answer"]["recommendation"] == answer["recommendation"].strip()
        assert "Are 100 samples enough?" in store.get(recorded.raw["request"]).decode()
        return
    pytest.fail(f"none of {MOST_TRIES} answers was whole")


def test_a_server_that_is_sent_the_other_form_refuses_it(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange, "BACKOFF_S", 0.01)
    review = ask(model_at(address, api="chat"))
    assert review.error is not None and "json_object" in review.error.message
    assert review.exchange.statuses[-1] in (422, 500) and review.exchange.usd == 0


def test_a_server_without_the_responses_api_is_no_verdict(address: str) -> None:
    review = ask(model_at(address, api="responses"))
    assert review.error is not None and "status 404 after 1 call" in review.error.message


def test_a_wrong_key_is_no_verdict(address: str) -> None:
    values = {"vendor": "openai", "model": MODEL, "base_url": address, "api": "chat_json_object"}
    spec = ReviewerSpec.model_validate(values | {"usd_per_million_tokens": {"input": 0, "output": 0}})
    review = ask(make_model(spec, {ENDPOINT_KEYS["reviewer"]: "another-key"}))
    assert review.error is not None and "answered 401" in review.error.message


def test_a_model_that_is_too_slow_is_left_at_the_deadline(address: str) -> None:
    review = ask(model_at(address), EFFORT.model_copy(update={"timeout_s": 0.3}))
    assert review.error is not None and "did not answer in time" in review.error.message
