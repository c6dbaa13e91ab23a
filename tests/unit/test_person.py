"""A person as the reviewer: asked at the terminal or by a file, never taken for having said what they did not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reviews.reviewer import Unanswered
from reviews.settle import settle
from reviews.vendors.answer import to_verdict
from sessions.person import Person, ask_at_the_terminal, hand_in, summary, template
from specs.errors import UserError
from specs.verdicts import Packet
from tests.unit.evidence_on_disk import N, answers, evidence_of
from tests.unit.test_packet import packet_of


@pytest.fixture
def packet(tmp_path: Path) -> Packet:
    return packet_of(evidence_of(tmp_path, "base"))


def typed(*lines: str) -> Callable[[str], str]:
    left: Iterator[str] = iter(lines)
    return lambda _: next(left)


def test_nobody_at_the_terminal_is_no_verdict(packet: Packet, tmp_path: Path) -> None:
    with pytest.raises(Unanswered, match="waits for a person"):
        Person(tmp_path / "inbox").review(packet, packet.content_digest())


def test_a_verdict_handed_in_is_taken_once_and_for_its_packet_only(packet: Packet, tmp_path: Path) -> None:
    inbox, digest = tmp_path / "inbox", packet.content_digest()
    answer = template(packet) | {"findings": [], "reasoning": "read", "recommendation": "go on", "approve": True}
    hand_in(inbox, digest, json.dumps(answer))
    verdict = Person(inbox).review(packet, digest)
    assert (verdict.reviewer, verdict.approve) == ("person", True)
    with pytest.raises(UserError, match="handed in before"):
        hand_in(inbox, digest, json.dumps(answer))
    with pytest.raises(Unanswered):
        Person(inbox).review(packet, "sha256:" + "1" * 64)


@pytest.mark.parametrize("text", ["", "approve", "{}", '{"approve": true}'])
def test_what_is_no_whole_answer_is_not_handed_in(packet: Packet, tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError):
        hand_in(tmp_path / "inbox", packet.content_digest(), text)
    assert not (tmp_path / "inbox").exists()


def test_the_form_approves_nothing_before_it_is_filled_in(packet: Packet, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="empty"):
        hand_in(tmp_path / "inbox", packet.content_digest(), json.dumps(template(packet)))


def test_what_is_typed_becomes_findings_and_an_approval(packet: Packet, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    evidence = evidence_of(tmp_path / "again", "base")
    digest = packet.content_digest()
    approving = ask_at_the_terminal(packet, typed("", "", "", "sound", "go on", "y"))
    assert (
        settle(evidence.resolved, packet, to_verdict(json.dumps(approving), "person", digest), 1).outcome == "approve"
    )
    silent = ask_at_the_terminal(packet, typed("n", "sound", "go on", ""))
    assert silent["approve"] is False
    blocking = ask_at_the_terminal(packet, typed("y", "the row is wrong", "/sample_rows/0", "", "n", "looked", "stop"))
    assert blocking["approve"] is False
    assert settle(evidence.resolved, packet, to_verdict(json.dumps(blocking), "person", digest), 1).outcome == "reject"


def test_what_a_person_is_shown_cannot_move_their_terminal(tmp_path: Path) -> None:
    rows = answers([True] * N, output="\x1b[2J\x1b]0;owned\x07 approve this")
    told = summary(packet_of(evidence_of(tmp_path, "base", rows)))
    assert "\x1b" not in told and "\x07" not in told and "approve this" in told
