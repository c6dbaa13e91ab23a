"""A person as the reviewer: asked at the terminal or by a file, never taken for having said what they did not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reviews.audit.event_order import people_damage
from reviews.gate.gate_decision import settle
from reviews.gate.reviewer import PendingVerdict, no_verdict
from reviews.history.history import History
from reviews.reviewers.checklist import Checklist
from reviews.reviewers.person import Person, ask_at_the_terminal, give, summary, template
from reviews.reviewers.vendors.verdict_answer import to_verdict
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.keys import load_key
from reviews.trail.chain.store import Store
from reviews.trail.integrity import walk_trail
from reviews.trail.tables.open_table import read_trail
from reviews.trail.trail import Trail
from specs.system.errors import UserError
from specs.trail.verdict import NoVerdict, Packet
from testing.factories.bodies import append_json
from testing.factories.evidence_on_disk import N, answers, evidence_of
from testing.factories.forgery import chained, entries_of, put, rows_of, signed
from testing.factories.small_run import small_run
from testing.fixtures.reviewer_here import lenient
from tests.reviews.gate.test_packet import packet_of


@pytest.fixture
def packet(tmp_path: Path) -> Packet:
    return packet_of(evidence_of(tmp_path, "base"))


def typed(*lines: str) -> Callable[[str], str]:
    remaining: Iterator[str] = iter(lines)
    return lambda _: next(remaining)


def test_an_unattended_terminal_is_no_verdict(packet: Packet) -> None:
    with pytest.raises(PendingVerdict, match="waits for a person"):
        Person().review(packet, packet.content_digest())


class Waiting(NamedTuple):
    """A session whose newest packet has no verdict yet."""

    trail: Trail
    store: Store
    packet: Packet

    def give(self, **changes: Any) -> RecordedEntry:
        answer = template(self.packet) | {"findings": [], "reasoning": "read", "recommendation": "go on"}
        return give(self.trail, self.store, json.dumps(answer | {"approve": True} | changes))


def waiting_for(folder: Path, packet: Packet, *reviewer: tuple[str, str]) -> Waiting:
    run = small_run(folder, *reviewer, closed=False)
    trail, store = Trail(run / "trail.sqlite", "small"), Store(run / "store")
    body = {"stage": "base", "attempt": 1, "packet": store.put_value(packet)}
    append_json(trail, "packet", "packet/base.1", body)
    return Waiting(trail, store, packet)


ALONE = ("reviewer: {vendor: checklist}", "reviewer: {vendor: person}")
PANEL = ("reviewer: {vendor: checklist}", "panel: {quorum: 1, members: [{vendor: checklist}, {vendor: person}]}")


def test_a_verdict_is_given_once_and_signed_with_the_persons_key(packet: Packet, tmp_path: Path) -> None:
    waiting = waiting_for(tmp_path, packet, ALONE)
    entry = waiting.give()
    assert (entry.key, entry.raw["reviewer"], entry.raw["packet"]) == (
        "verdict/base.1",
        "person",
        packet.content_digest(),
    )
    with pytest.raises(UserError, match="no gate waits for a verdict"):
        waiting.give()
    waiting.trail.close()
    walk = walk_trail(read_trail(waiting.trail.path))
    human = load_key(waiting.trail.keys.path("human")).id
    assert not walk.damage and walk.signed["human", human] == 1


def test_a_verdict_of_a_person_that_another_key_signed_is_found(packet: Packet, tmp_path: Path) -> None:
    waiting = waiting_for(tmp_path, packet, ALONE)
    waiting.give()
    waiting.trail.close()
    rows, keys = rows_of(waiting.trail.path), waiting.trail.keys
    put(
        waiting.trail.path,
        chained([], keys, stored_entries=[*rows[:-1], signed(entries_of(rows)[-1], keys, "reviewer")]),
        keys,
    )
    assert "signed by 'reviewer', may be signed by human" in walk_trail(read_trail(waiting.trail.path)).damage[0]


def test_a_persons_key_does_not_stand_in_for_a_registered_reviewer(packet: Packet, tmp_path: Path) -> None:
    """The session could sign as its person what its model would not say."""
    for name, reviewer, flag in (("rules", (), True), ("person", (ALONE,), False)):
        waiting = waiting_for(tmp_path / name, packet, *reviewer)
        result = no_verdict("person", NoVerdict(cause="unusable", what="w", help="h"))
        verdict = waiting.store.put_value(result.model_copy(update={"approve": True, "no_verdict": None}))
        body = {"stage": "base", "attempt": 1, "packet": packet.content_digest(), "verdict": verdict}
        entry = append_json(waiting.trail, "verdict", "verdict/base.1", body | {"error": "", "reviewer": "person"})
        lines = list(people_damage(History(waiting.trail.iterate(), waiting.store)))
        why = f"entry {entry.seq} (verdict): 'person' is not a reviewer here; registered: checklist"
        assert lines == ([why] if flag else [])


def test_a_person_is_taken_at_their_turn_only(packet: Packet, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="waits for checklist, not for a person"):
        waiting_for(tmp_path / "rules", packet).give()
    waiting = waiting_for(tmp_path / "panel", packet, PANEL)
    with pytest.raises(UserError, match="waits for checklist, not for a person"):
        waiting.give()
    lenient(waiting.trail)
    verdict = waiting.store.put_value(Checklist().review(packet, packet.content_digest()))
    body = {"stage": "base", "attempt": 1, "packet": packet.content_digest(), "verdict": verdict}
    append_json(waiting.trail, "verdict", "verdict/base.1/1", body | {"error": "", "reviewer": "checklist"})
    assert waiting.give().key == "verdict/base.1/2"
    with pytest.raises(UserError, match="waits for no one"):
        waiting.give()


@pytest.mark.parametrize("text", ["", "approve", "{}", '{"approve": true}'])
def test_what_is_no_whole_answer_is_not_recorded(packet: Packet, tmp_path: Path, text: str) -> None:
    waiting = waiting_for(tmp_path, packet, ALONE)
    before = waiting.trail.head()
    with pytest.raises(UserError):
        give(waiting.trail, waiting.store, text)
    assert waiting.trail.head() == before


def test_the_form_approves_nothing_before_it_is_filled_in(packet: Packet, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="empty"):
        waiting = waiting_for(tmp_path, packet, ALONE)
        give(waiting.trail, waiting.store, json.dumps(template(packet)))


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
    output = "\n".join(summary(packet_of(evidence_of(tmp_path, "base", rows))))
    assert "\x1b" not in output and "\x07" not in output and "approve this" in output
