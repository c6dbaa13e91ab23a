"""A reviewer of another distribution: its verdict counts; whatever else it does is not a verdict, with one clear
error."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.measuring_code import measuring_code
from reviews.reviewers.process import messages
from reviews.reviewers.process.confinement import environment
from reviews.reviewers.process.reviewer_proxy import ModelApart, party
from reviews.reviewers.vendors import plugin_reviewer
from reviews.reviewers.vendors.looking import ANSWER_BYTES
from reviews.trail.chain.keys import create_key
from sessions.pods.pod_plan import keys_of
from specs.lint.party_rules import lint_reviewer
from specs.lint.rules import lint
from specs.loading.loading import used_plugins
from specs.loading.reviewer_file import reviewer_of
from specs.session.reviewer_vendor import vendor_of
from specs.session.session_spec import SessionSpec
from specs.system import plugins
from specs.system.digests import digest_bytes
from specs.system.errors import PluginFault, ReviewerUnavailable, UserError
from specs.system.vendors.parties import ReviewerSpec
from specs.trail.verdict import Packet
from testing.factories.evidence_on_disk import evidence_of, resolved_spec
from testing.fixtures.reviewer_here import ReviewerHere
from tests.reviews.gate.test_packet import packet_of
from tests.specs.test_plugins import distribution, forgotten, here  # pyright: ignore[reportUnusedImport]

__all__ = ["forgotten", "here"]

VENDOR = """
from specs.session.reviewer_vendor import ReviewerVendor
import sys, time
from specs.trail.verdict import NoVerdict
from specs.system.digests import digest_bytes
from specs.trail.verdict import Finding, Span, Verdict
VENDOR = ReviewerVendor(name="words", review="words:review", asks_model={asks}, key_variable="{key}")
def review(packet, asked):
    verdict = Verdict(reviewer="someone", findings=(), recommendation="use it", reasoning="fine", risks=(asked.key,),
                      approve=True)
    {body}
"""
SEEN = "words:small"


def bring(folder: Path, body: str = "return verdict", *, asks: bool = False, key: str = "") -> None:
    code = VENDOR.format(body=body, asks=asks, key=key)
    distribution(folder, "acme-words", "words", code, "peergate.reviewers", ":VENDOR")
    # Whatever made the evidence of a test has looked before.
    plugins._looked_up.cache_clear()  # pyright: ignore[reportPrivateUsage]


def spec_of(**changes: Any) -> ReviewerSpec:
    return ReviewerSpec.model_validate({"vendor": "words"} | changes)


def process_of(folder: Path, reviewer: ReviewerSpec, **environ: str) -> ReviewerHere:
    (folder / "keys").mkdir(parents=True)
    create_key(folder / "keys" / "reviewer.key")
    return ReviewerHere("small", (reviewer,), folder / "keys" / "reviewer.key", environ)


@pytest.fixture
def packet(tmp_path: Path) -> Packet:
    return packet_of(evidence_of(tmp_path, "base"))


def test_its_verdict_counts_under_its_registered_name(here: Path, packet: Packet) -> None:
    bring(here, key="WORDS_KEY")
    process = process_of(here, spec_of(), WORDS_KEY="k")
    verdict = party(process, 0).review(packet, packet.content_digest())
    assert (verdict.approve, verdict.reviewer, verdict.risks) == (True, "words", ("k",))
    with pytest.raises(UserError, match="WORDS_KEY is not set"):
        party(process_of(here / "other", spec_of()), 0)


def test_the_process_gets_the_key_of_its_own_vendor_and_no_other(here: Path) -> None:
    bring(here, key="WORDS_KEY")
    arguments = environment((spec_of(),), {"WORDS_KEY": "k", "OTHER_KEY": "o", "OPENAI_API_KEY": "p"})
    assert arguments["WORDS_KEY"] == "k" and not {"OTHER_KEY", "OPENAI_API_KEY"} & set(arguments)


BROKEN = {
    "raises": ("raise RuntimeError('no licence')", "cannot review: RuntimeError: no licence", "unusable"),
    "ends": ("sys.exit(0)", "cannot review: SystemExit: 0", "unusable"),
    "hangs": ("time.sleep(5)", r"cannot review: it takes more than 0\.3 s", "timed_out"),
    "no_verdict": ("return {'approve': True}", "returns a dict, which is not a verdict", "out_of_schema"),
    "nothing": ("return None", "returns a NoneType, which is not a verdict", "out_of_schema"),
    "not_whole": ("return Verdict.model_construct(approve='yes')", "returns an invalid verdict", "out_of_schema"),
    "votes": ("return verdict.model_copy(update={'quorum': 3})", "returns a verdict for others", "out_of_schema"),
    "torch": ("import torch", "it imports torch", "unusable"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_whatever_else_it_does_is_no_verdict(
    how: str, here: Path, packet: Packet, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, output, cause = BROKEN[how]
    monkeypatch.setattr(plugin_reviewer, "RULES_SECONDS", 0.3)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    bring(here, body)
    with pytest.raises(ReviewerUnavailable, match=output) as caught:
        party(process_of(here, spec_of()), 0).review(packet, packet.content_digest())
    assert caught.value.cause == cause


def test_it_cannot_state_that_there_is_no_verdict(here: Path, packet: Packet) -> None:
    why = "NoVerdict(cause='budget', what='x', help='y')"
    bring(here, f"return verdict.model_copy(update={{'no_verdict': {why}}})")
    with pytest.raises(ReviewerUnavailable, match="returns a verdict for others"):
        party(process_of(here, spec_of()), 0).review(packet, packet.content_digest())


def test_one_that_asks_a_model_costs_its_cap_whether_it_answers_or_not(here: Path, packet: Packet) -> None:
    bring(here, asks=True)
    spec = spec_of(model="small")
    apart = party(process_of(here, spec), 0)
    assert isinstance(apart, ModelApart) and apart.name == SEEN
    cap = spec.effort.medium.max_cost_usd
    answered = apart.ask(packet, packet.content_digest())
    assert answered.value is not None and answered.value.reviewer == SEEN
    assert (answered.exchange.usd, answered.exchange.usd_is_measured, apart.cost_cap(packet)) == (cap, False, cap)
    free = spec_of(model="small", usd_per_million_tokens={"input": 0, "output": 0})
    assert party(process_of(here / "free", free), 0).cost_cap(packet) == 0  # pyright: ignore[reportAttributeAccessIssue]


def test_one_that_asks_a_model_has_the_time_of_its_effort(here: Path, packet: Packet) -> None:
    bring(here, "time.sleep(5)", asks=True)
    effort = {"timeout_s": 0.3, "max_cost_usd": 0.1}
    spec = spec_of(model="small", effort=dict.fromkeys(("low", "medium", "high"), effort))
    answered = party(process_of(here, spec), 0).ask(packet, packet.content_digest())  # pyright: ignore[reportAttributeAccessIssue]
    assert answered.value is None and answered.error.cause == "timed_out" and answered.exchange.usd == 0.1


def test_a_declaration_that_lies_is_refused(here: Path) -> None:
    distribution(here, "acme-words", "words", "VENDOR = 'words'", "peergate.reviewers", ":VENDOR")
    with pytest.raises(PluginFault, match="is a str, not a ReviewerVendor"):
        vendor_of("words")


@pytest.mark.parametrize("name", ["HOME", "words_key", "LD_PRELOAD"])
def test_a_key_whose_value_nothing_would_mask_is_refused(name: str, here: Path) -> None:
    bring(here, key=name)
    with pytest.raises(PluginFault, match="its value would not be masked"):
        vendor_of("words")


def told_of(spec: SessionSpec, reviewer: ReviewerSpec) -> list[str]:
    return [problem.message for problem in lint(spec.model_copy(update={"reviewer": reviewer}))]


def test_a_spec_names_a_model_exactly_when_the_vendor_asks_one(here: Path, tmp_path: Path) -> None:
    bring(here, asks=True)
    spec = resolved_spec(tmp_path).spec
    assert not [text for text in told_of(spec, spec_of(model="m")) if "vendor" in text or "model" in text]
    assert "vendor 'words' needs a model" in told_of(spec, spec_of())
    lines = told_of(spec, spec_of(model="m", base_url="http://x", usd_per_million_tokens={"input": 1, "output": 1}))
    assert "vendor 'words' asks its model in its own way" in lines
    assert "tokens of vendor 'words' are not counted: a review costs its max_cost_usd" in lines
    used = used_plugins(spec.model_copy(update={"reviewer": spec_of(model="m")}))
    assert used["peergate.reviewers words"].startswith("acme-words 1.0 sha256:")


def test_the_identity_of_it_is_part_of_the_measuring_code_of_a_spec_that_uses_it(here: Path, tmp_path: Path) -> None:
    bring(here)
    unrelated = resolved_spec(tmp_path)
    spec = unrelated.spec.model_copy(update={"reviewer": spec_of(model="m")})
    using = unrelated.model_copy(update={"spec": spec, "plugins": used_plugins(spec)})
    before = measuring_code(using), measuring_code(unrelated)
    (here / "words.py").write_text("# changed\n", encoding="utf-8")
    assert measuring_code(using) != before[0] and measuring_code(unrelated) == before[1]


def test_a_pod_gets_its_key_and_no_question_is_put_to_it(here: Path, tmp_path: Path) -> None:
    bring(here, key="WORDS_KEY")
    spec = resolved_spec(tmp_path).spec.model_copy(update={"reviewer": spec_of()})
    assert keys_of(spec) == (["WORDS_KEY"], [])
    with pytest.raises(UserError, match="'words' judges gates only"):
        reviewer_of({"vendor": "words"}, {})


@pytest.mark.parametrize("name", ["wordz", "panel", "playbook"])
def test_a_vendor_that_no_one_brings_is_an_error_of_the_spec(name: str, here: Path, tmp_path: Path) -> None:
    bring(here)
    spec = resolved_spec(tmp_path).spec.model_copy(update={"reviewer": ReviewerSpec(vendor=name)})
    problems = [problem for problem in lint_reviewer(spec) if problem.loc == ("reviewer", "vendor")]
    assert len(problems) == 1 and ("unknown reviewer vendor" in problems[0].message or name == "playbook")


LOOKS = """found = asked.looking.look("grep", '{"text": "owl"}', 10**9)
    span = Span(artifact=digest_bytes(found.text.encode()), quote="owl")
    finding = Finding(id="owl", severity="blocking", statement="it names owls", evidence=(span,), ruled_out="")
    return verdict.model_copy(update={"findings": (finding,), "approve": False})"""
ALL = """told = [asked.looking.look("grep", "{}", 10).text for _ in range(9)]
    return verdict.model_copy(update={"risks": tuple(told[-2:])})"""


def looking_at(process: ReviewerHere, looks: list[messages.Look], takes_s: float = 0.0) -> None:
    """Stands for the session."""

    def look(result: messages.Look) -> messages.LookupAnswerMessage:
        looks.append(result)
        time.sleep(takes_s)
        return messages.LookupAnswerMessage(text="rows:3: an owl", is_error=False, entry=f"look/base.1/{len(looks)}")

    process.readable, process.look = ("rows: what the attempt left",), look


def test_one_that_asks_a_model_looks_into_the_evidence(here: Path, packet: Packet) -> None:
    bring(here, LOOKS, asks=True)
    spec, looks = spec_of(model="small", looks=1), list[messages.Look]()
    process = process_of(here, spec)
    looking_at(process, looks)
    who = party(process, 0)
    assert isinstance(who, ModelApart) and who.looks == 1
    outcome = who.ask(packet, packet.content_digest())
    assert outcome.value is not None, outcome.error
    answer = digest_bytes(b"rows:3: an owl")
    assert [(look.tool, look.arguments, look.most) for look in looks] == [("grep", '{"text": "owl"}', ANSWER_BYTES)]
    assert [vars(record) for record in outcome.exchange.looked] == [{"entry": "look/base.1/1", "answer": answer}]
    assert outcome.value.findings[0].evidence[0].artifact == answer
    # Without `looks` in the spec it has nothing to look with.
    bare = process_of(here / "bare", spec_of(model="small"))
    looking_at(bare, looks)
    refused = party(bare, 0).ask(packet, packet.content_digest())  # pyright: ignore[reportAttributeAccessIssue]
    assert "'NoneType' object has no attribute 'look'" in refused.error.message and len(looks) == 1


def test_it_looks_as_often_as_its_spec_says(here: Path, packet: Packet) -> None:
    bring(here, ALL, asks=True)
    looks = list[messages.Look]()
    process = process_of(here, spec_of(model="small", looks=1))
    looking_at(process, looks)
    answer = party(process, 0).ask(packet, packet.content_digest())  # pyright: ignore[reportAttributeAccessIssue]
    assert len(looks) == len(answer.exchange.looked) == 8
    assert answer.value.risks == ("rows:3: an owl", "not carried out: nothing more may be looked up")


def test_nothing_is_looked_up_after_a_review_that_took_too_long(here: Path, packet: Packet) -> None:
    bring(here, ALL, asks=True)
    looks = list[messages.Look]()
    effort = {"timeout_s": 0.3, "max_cost_usd": 0.1}
    spec = spec_of(model="small", looks=1, effort=dict.fromkeys(("low", "medium", "high"), effort))
    process = process_of(here, spec)
    looking_at(process, looks, takes_s=0.2)
    answer = party(process, 0).ask(packet, packet.content_digest())  # pyright: ignore[reportAttributeAccessIssue]
    count = len(looks)
    assert answer.error.cause == "timed_out" and len(answer.exchange.looked) == count < 8
    time.sleep(0.5)
    assert len(looks) == count
