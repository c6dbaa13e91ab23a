"""Packets with a planted flaw: what is planted, that their looks do not show it, and what approving one costs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reviews.audit.canary_check import canary_damage
from reviews.gate.canaries import EDITS, is_plain, plant, suspension_of
from reviews.gate.packet import build_design_packet
from reviews.history.history import History
from reviews.reviewers.vendors.packet_text import render
from reviews.trail.chain.envelope import RecordedEntry
from sessions.run.run_history import read_history
from specs.system.digests import digest_bytes
from specs.trail.gate_bodies import CanaryEntry, DecisionEntry, PacketEntry, VerdictEntry
from specs.trail.verdict import Packet
from testing.factories.evidence_on_disk import N, answers, evidence_of, resolved_spec, samples, steps
from testing.fixtures.command_sessions import verify
from testing.fixtures.loopback_api import OPENAI, Api, ReceivedRequest, Step, answered
from testing.fixtures.model_answers import ANSWER
from testing.fixtures.quick_session import drive, open_quick
from tests.reviews.gate.test_packet import packet_of
from tests.reviews.reviewers.test_no_verdict import api as api
from tests.reviews.reviewers.test_no_verdict import at_a_terminal
from tests.reviews.reviewers.test_no_verdict import reviewer as reviewer_text
from tests.reviews.reviewers.test_vendors import REJECTED


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> list[Packet]:
    """Packets of every kind of gate of a small session."""
    resolved = resolved_spec(tmp_path_factory.mktemp("design"))
    fresh = tmp_path_factory.mktemp
    return [
        packet_of(evidence_of(fresh("tuned"), "tuned", answers([number % 3 > 0 for number in range(N)]))),
        packet_of(evidence_of(fresh("sample"), "sample", samples())),
        packet_of(evidence_of(fresh("train"), "train", steps())),
        build_design_packet(resolved, (), checks_digest=digest_bytes(b"checks")),
    ]


WORDS = ("elm", "oak", "ash", "fir", "yew", "box", "bay", "fig", "nut", "pea")


def varied(packets: Sequence[Packet], number: int) -> Packet:
    """Return a packet with other texts and numbers, so that no two of a collection repeat each other."""
    draw = Random(number)
    data = packets[number % len(packets)].model_dump(mode="json")
    for row in data["sample_rows"]:
        others = {name: " ".join(draw.choices(WORDS, k=6)) for name in ("output", "completion") if name in row}
        row |= others | {name: draw.uniform(0.2, 3.0) for name in ("loss", "grad_norm") if name in row}
    granted = data["granted_parameters"]
    for name in sorted(granted.keys() & data["effective"].keys()):
        if isinstance(granted[name], int | float) and not isinstance(granted[name], bool):
            more = draw.randint(0, 90) if isinstance(granted[name], int) else draw.random()
            granted[name] = data["effective"][name] = granted[name] + more
    for metric in data["metrics"].values():
        if metric.get("ratio"):
            top, below = draw.randint(1, 40), draw.randint(41, 80)
            metric |= {"ratio": [top, below], "value": top / below}
    for stage in data["registered"].get("stages", []):
        stage["parameters"] |= {"max_new_tokens": draw.randint(20, 400)}
    return Packet.model_validate(data)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_each_edit_changes_one_place_of_some_packet(edit: Any, packets: list[Packet]) -> None:
    planted = [(packet, other) for packet in packets if (other := plant(packet, edit, Random(1))) is not None]
    assert planted, "it fits one kind of gate at least"
    for packet, other in planted:
        data, changed = packet.model_dump(mode="json"), other.model_dump(mode="json")
        assert [name for name in data if data[name] != changed[name]] == [edit.place]


def test_a_packet_without_the_place_is_left_alone(packets: list[Packet]) -> None:
    bare = packets[3].model_copy(update={"registered": {}})
    assert [plant(bare, edit, Random(1)) for edit in EDITS] == [None] * len(EDITS)


def test_only_packets_that_would_be_approved_carry_canaries(packets: list[Packet]) -> None:
    packet = packets[3]
    assert is_plain(packet) and not is_plain(packet.model_copy(update={"withdrawn": "it had no use"}))


def words_of(packet: Packet) -> Counter[str]:
    return Counter(render(packet).replace(",", " ").replace(":", " ").replace('"', " ").split())


def test_a_classifier_of_words_cannot_distinguish_a_canary_from_a_true_packet(packets: list[Packet]) -> None:
    """Train a naive Bayes classifier on half of 400 packets, of which every second one has a planted flaw."""
    texts: list[tuple[Counter[str], bool]] = []
    for number in range(400):
        packet, draw = varied(packets, number), Random(number)
        is_planted = number // 4 % 2 == 1
        if is_planted:
            edits = (plant(packet, edit, draw) for edit in draw.sample(EDITS, len(EDITS)))
            packet = next(other for other in edits if other is not None)
        texts.append((words_of(packet), is_planted))
    right = classify(texts[:200], texts[200:])
    # 0.5 plus three and a half standard deviations of 200 tosses.
    assert right / 200 < 0.5 + 3.5 * math.sqrt(0.25 / 200), right
    marked = [(words + Counter({"canary": 1}) if planted else words, planted) for words, planted in texts]
    assert classify(marked[:200], marked[200:]) > 190, "the control: it finds a word that only canaries have"


def classify(learned: Sequence[tuple[Counter[str], bool]], judged: Sequence[tuple[Counter[str], bool]]) -> int:
    """Return how many of the texts a naive Bayes classifier (Bernoulli, add-one smoothing) tells right."""
    classes = {flag: [set(words) for words, planted in learned if planted is flag] for flag in (True, False)}
    vocabulary = {word for words, _ in learned for word in words}
    share = {
        flag: {word: (sum(word in words for words in texts) + 1) / (len(texts) + 2) for word in vocabulary}
        for flag, texts in classes.items()
    }

    def score(words: Counter[str], flag: bool) -> float:
        return sum(math.log(value if word in words else 1 - value) for word, value in share[flag].items())

    return sum((score(words, True) > score(words, False)) is planted for words, planted in judged)


# ---- in a session


def open_with_canaries(folder: Path, rate: float = 1.0) -> Path:
    who = "reviewer: " + reviewer_text(OPENAI)[:-1] + f", looks: 0, canary_rate: {rate}}}"
    return open_quick(folder, ("reviewer: {vendor: checklist}", who))


def is_true_packet(run: Path, request: ReceivedRequest) -> bool:
    """Return whether a request holds the packet that the trail recorded last."""
    history = read_history(run)
    newest = history.newest(PacketEntry)
    assert newest is not None
    return render(Packet.model_validate(history.store.get_value(newest.body.packet))) in request.packet_text()


def judge(api: Api, run: Path, approves: Callable[[bool, int], bool]) -> list[Step | Callable[[ReceivedRequest], Step]]:
    """Return the step of a model that answers by whether a packet is a true one, and by how many it has seen."""

    def step(request: ReceivedRequest) -> Step:
        api.next_review()
        answer = ANSWER if approves(is_true_packet(run, request), len(api.requests)) else REJECTED
        return answered(OPENAI, json.dumps(answer))

    return [step]


def entries(run: Path, form: Any) -> list[RecordedEntry[Any]]:
    return list(read_history(run).of(form))


def test_a_reviewer_that_distinguishes_canaries_goes_through_the_session(tmp_path: Path, api: Api) -> None:
    run = open_with_canaries(tmp_path)
    api.steps = judge(api, run, lambda is_true, _: is_true)
    drive(at_a_terminal(run)[0])
    canaries = entries(run, CanaryEntry)
    assert len(canaries) >= 3 and {canary.body.outcome for canary in canaries} == {"rejected"}
    assert {decision.body.outcome for decision in entries(run, DecisionEntry)} <= {"approve", "null"}
    orders = {canary.seq < verdict.seq for canary in canaries for verdict in entries(run, VerdictEntry)}
    assert orders == {True, False}
    assert verify(run)[0] == 0


def test_a_reviewer_that_approves_everything_is_suspended_at_once_and_a_person_is_asked(
    tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_with_canaries(tmp_path)
    api.steps = judge(api, run, lambda is_true, count: True)
    session, screen = at_a_terminal(run)
    drive(session)
    (verdict,), (decision,), (canary,) = (entries(run, form) for form in (VerdictEntry, DecisionEntry, CanaryEntry))
    assert (verdict.body.cause, decision.body.outcome, canary.body.outcome) == ("suspended", "escalate", "approved")
    assert "approved a canary" in screen.getvalue() and len(api.requests) == 2
    # A person approves; at the next gate the reviewer is not even asked.
    drive(at_a_terminal(run)[0], {"answer": "approve", "reason": "read it myself", "by": "Ada", "expires": None})
    assert len(api.requests) == 2 and entries(run, VerdictEntry)[-1].body.cause == "suspended"
    assert verify(run)[0] == 2
    # A later version may not have the edit any more.
    monkeypatch.setattr("reviews.gate.canaries.EDITS", ())
    suspension = suspension_of(read_history(run), canary.body.reviewer)
    assert suspension is not None and canary.body.edit in suspension.what


def test_what_it_approved_since_its_last_rejected_canary_is_named(tmp_path: Path, api: Api) -> None:
    run = open_with_canaries(tmp_path)
    # It rejects the canary of the design (one of the first two packets), and approves everything after.
    api.steps = judge(api, run, lambda is_true, count: is_true or count > 2)
    drive(at_a_terminal(run)[0])
    *_, verdict = entries(run, VerdictEntry)
    approved = [canary.body.stage for canary in entries(run, CanaryEntry) if canary.body.outcome == "approved"]
    assert verdict.body.cause == "suspended" and len(approved) == 1
    first = entries(run, CanaryEntry)[0]
    assert first.body.outcome == "rejected"
    before = [value for value in entries(run, VerdictEntry) if value.seq > first.seq and not value.body.error]
    names = ", ".join(f"{value.body.stage}.{value.body.attempt}" for value in before) or "none"
    assert names in verdict.body.error


def test_without_a_rate_no_canary_is_drawn(tmp_path: Path, api: Api) -> None:
    run = open_with_canaries(tmp_path, 0.0)
    api.steps = judge(api, run, lambda is_true, count: True)
    drive(at_a_terminal(run)[0])
    assert not entries(run, CanaryEntry) and len(api.requests) == len(entries(run, VerdictEntry))


def test_the_audit_finds_canaries_that_were_left_out_or_rewritten(tmp_path: Path, api: Api) -> None:
    run = open_with_canaries(tmp_path)
    api.steps = judge(api, run, lambda is_true, _: is_true)
    drive(at_a_terminal(run)[0])
    history = read_history(run)
    assert list(canary_damage(history)) == []
    first = entries(run, CanaryEntry)[0]

    def damage(change: Callable[[RecordedEntry], RecordedEntry | None]) -> list[str]:
        changed = [change(entry) if entry.key == first.key else entry for entry in history]
        return list(canary_damage(History([entry for entry in changed if entry is not None], history.store)))

    def rewrite(**changes: Any) -> Callable[[RecordedEntry], RecordedEntry]:
        return lambda entry: replace(entry, entry=entry.entry.model_copy(update={"body": entry.raw | changes}))

    assert any("a canary was drawn for this packet" in text for text in damage(lambda _: None))
    assert any("says 'approved'" in text for text in damage(rewrite(outcome="approved")))
    assert any("is not the canary" in text for text in damage(rewrite(edit="no_such")))
