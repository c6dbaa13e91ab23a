"""What the reviewer's process signs and what it refuses. The process itself is in ``test_reviewer_process.py``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.gate.reviewer import no_verdict
from reviews.reviewers.checklist import Checklist
from reviews.reviewers.process import messages, reviewer_proxy
from reviews.reviewers.process.messages import Spoken
from reviews.reviewers.process.reviewer_proxy import party
from reviews.trail.chain.envelope import RecordedEntry, pae, payload_of
from reviews.trail.chain.keys import is_signed, load_key
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from specs.system.digests import digest_bytes
from specs.system.errors import ReviewerUnavailable
from specs.system.vendors.parties import ReviewerSpec
from specs.trail.entry import GENESIS, Entry
from specs.trail.verdict import NoVerdict, Packet, Verdict
from testing.factories.bodies import append_json, body_of
from testing.factories.evidence_on_disk import evidence_of
from testing.factories.forgery import signed
from testing.fixtures.reviewer_here import ReviewerHere
from tests.reviews.gate.test_packet import packet_of

CHECKLIST = (ReviewerSpec(),)
OTHER = "sha256:" + "a" * 64
DOWN = NoVerdict(cause="server_error", what="down", detail="503", help="wait")


class Bench:
    """A trail, its store, and a reviewer's process that reviews for it."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "runs" / "small" / "store")
        self.trail = Trail(folder / "runs" / "small" / "trail.sqlite", "small")
        append_json(self.trail, "open", "open", body_of("open"))
        keys = self.trail.keys
        self.process = self.trail.reviewer = ReviewerHere("small", CHECKLIST, keys.path("reviewer"))
        self.process.humans = (load_key(keys.path("human")).public.hex(),)

    def begin_anew(self) -> None:
        """Lose the process: nothing is left of what it came to."""
        self.process.close()

    def body(self, packet: Packet, verdict: Verdict, **changes: Any) -> dict[str, Any]:
        saved = {"packet": self.store.put_value(packet), "verdict": self.store.put_value(verdict)}
        return {"stage": "base", "attempt": 1, "error": "", "reviewer": verdict.reviewer} | saved | changes

    def record(self, key: str, body: dict[str, Any]) -> RecordedEntry:
        return append_json(self.trail, "verdict", key, body)

    def spoken(self, key: str) -> Spoken:
        payload, signatures = self.trail.envelope(key)
        recorded_entry = self.trail.find(key)
        assert recorded_entry is not None
        verdict = self.store.get(recorded_entry.raw["verdict"])
        return Spoken(payload=payload, signatures=signatures, verdict=verdict.decode())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def packet(tmp_path: Path) -> Packet:
    return packet_of(evidence_of(tmp_path, "base"))


def reviewed(bench: Bench, packet: Packet) -> Verdict:
    return party(bench.process, 0).review(packet, packet.content_digest())


def test_a_verdict_it_came_to_is_the_checklists_and_is_signed(bench: Bench, packet: Packet) -> None:
    verdict = reviewed(bench, packet)
    assert verdict == Checklist().review(packet, packet.content_digest())
    bench.record("verdict/base.1", bench.body(packet, verdict))
    bench.trail.verify_chain()


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "another verdict": ({"verdict": OTHER}, "no reviewer here reached the verdict"),
    "another packet": ({"packet": OTHER}, "no reviewer here reached the verdict"),
    "another reviewer": ({"reviewer": "openai:gpt-5"}, "no reviewer here reached the verdict"),
    "an error where there was none": ({"error": "down"}, "no reviewer here reached the verdict"),
    "an attempt the entry is not of": ({"attempt": 2}, "it says that it is of 'verdict/base.2'"),
    "a cost no one told": ({"usd": 0.0}, "usd is not what the reviewer left"),
    "members that were not asked": ({"members": 2}, "members is not what the reviewer left"),
    "an earlier verdict that it is not": ({"same_as": 1}, "same_as is not what the reviewer left"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_no_reviewer_came_to_is_not_signed(bench: Bench, packet: Packet, name: str) -> None:
    changes, why = CHANGES[name]
    body = bench.body(packet, reviewed(bench, packet)) | changes
    with pytest.raises(ReviewerUnavailable, match=why):
        bench.record("verdict/base.1", body)
    assert bench.trail.find("verdict/base.1") is None, "what no one signed is not recorded"


def test_nothing_is_signed_before_a_review_and_nothing_after_a_restart(bench: Bench, packet: Packet) -> None:
    verdict = Checklist().review(packet, packet.content_digest())
    for _ in range(2):
        with pytest.raises(ReviewerUnavailable, match="no reviewer here reached"):
            bench.record("verdict/base.1", bench.body(packet, verdict))
        reviewed(bench, packet)
        bench.begin_anew()


def test_a_verdict_is_signed_for_one_entry(bench: Bench, packet: Packet) -> None:
    verdict = reviewed(bench, packet)
    bench.record("verdict/base.1", bench.body(packet, verdict))
    with pytest.raises(ReviewerUnavailable, match=r"was signed as 'verdict/base\.1'"):
        bench.record("verdict/base.2", bench.body(packet, verdict, attempt=2))


def entry(kind: str, body: dict[str, Any], **changes: Any) -> Entry:
    values = {"seq": 3, "session": "small", "key": f"{kind}/base.1", "time_ns": "7", "previous": GENESIS}
    return Entry.model_validate(values | {"kind": kind, "body": body} | changes)


FOREIGN: dict[str, tuple[Callable[[dict[str, Any]], Entry], str]] = {
    "a decision": (lambda body: entry("decision", body), "reviewers sign verdicts, this is of kind 'decision'"),
    "an override": (lambda body: entry("override", body), "this is of kind 'override'"),
    "keys": (lambda body: entry("keys", body), "this is of kind 'keys'"),
    "of another session": (lambda body: entry("verdict", body, session="b"), "of session 'b', this is 'small'"),
    "with a policy": (lambda body: entry("verdict", body, policy={"a": 1}), "verdicts change no policy"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_other_entries_are_not_signed(bench: Bench, packet: Packet, name: str) -> None:
    make, why = FOREIGN[name]
    body = bench.body(packet, reviewed(bench, packet))
    good = entry("verdict", body)
    data = pae(payload_of(good))
    assert is_signed(bench.process.public, bench.process.sign(data), data), "the control"
    with pytest.raises(ReviewerUnavailable, match=why):
        bench.process.sign(pae(payload_of(make(body))))
    for other in (data.replace(b"DSSEv1", b"DSSEv2", 1), b"a b c d " + payload_of(good)):
        with pytest.raises(ReviewerUnavailable, match="not the encoding that is signed"):
            bench.process.sign(other)


@pytest.mark.parametrize("data", [b"", b"hello", b"DSSEv1 1 a 2 {}", b"peergate/small\n1\nAAAA\n"])
def test_what_is_no_entry_is_not_signed(bench: Bench, data: bytes) -> None:
    """Not even the text of a signed head, or an envelope of another type."""
    with pytest.raises(ReviewerUnavailable, match="invalid entry"):
        bench.process.sign(data)


def test_that_there_is_no_verdict_is_signed_and_approves_nothing(bench: Bench, packet: Packet) -> None:
    verdict = reviewer_proxy.no_verdict(bench.process, packet.content_digest(), "openai:m", DOWN)
    assert verdict == no_verdict("openai:m", DOWN) and not verdict.approve
    cost = {"usd": 0.5, "reservation": "review/base.1"}
    with pytest.raises(ReviewerUnavailable, match="approve is not what the reviewer left"):
        entry_of = entry("verdict", bench.body(packet, verdict, error="down: 503", cause="server_error", approve=True))
        bench.process.sign(pae(payload_of(entry_of)))
    for row in ({"cause": "refused"}, {}, {"cause": "server_error", "error": "down"}):
        with pytest.raises(ReviewerUnavailable, match="no reviewer here reached"):
            body = bench.body(packet, verdict, **({"error": "down: 503"} | row))
            bench.process.sign(pae(payload_of(entry("verdict", body))))
    bench.record("verdict/base.1", bench.body(packet, verdict, error="down: 503", cause="server_error", **cost))
    with pytest.raises(ReviewerUnavailable, match="no reason is recorded"):
        reviewer_proxy.no_verdict(
            bench.process, packet.content_digest(), "openai:m", DOWN.model_copy(update={"what": ""})
        )


@pytest.mark.parametrize("text", ["{}", '{"stage": "base"}', "[1"])
def test_what_is_no_packet_is_not_reviewed(bench: Bench, text: str) -> None:
    question = messages.ReviewMessage(reviewer=0, packet=text, digest=digest_bytes(text.encode()))
    with pytest.raises(ReviewerUnavailable, match="invalid packet"):
        bench.process.ask(question, messages.VerdictMessage)


def test_a_packet_is_reviewed_under_its_own_digest_and_in_its_own_form_only(bench: Bench, packet: Packet) -> None:
    text = packet.canonical().decode()
    for word, digest, why in (
        (text, OTHER, "the packet has the digest"),
        (loose := json.dumps(json.loads(text), indent=1), digest_bytes(loose.encode()), "not in canonical form"),
    ):
        with pytest.raises(ReviewerUnavailable, match=why):
            bench.process.ask(messages.ReviewMessage(reviewer=0, packet=word, digest=digest), messages.VerdictMessage)
    for number in (-1, 1):
        question = messages.ReviewMessage(reviewer=number, packet=text, digest=packet.content_digest())
        with pytest.raises(ReviewerUnavailable, match="cannot be asked here"):
            bench.process.ask(question, messages.VerdictMessage)


# ---- panels and repeats: what was said before is believed by its signature ----------------------------------------


def members(bench: Bench, packet: Packet) -> list[Spoken]:
    """Have two members recorded: the checklist, and one that gave no verdict."""
    bench.record("verdict/base.1/1", bench.body(packet, reviewed(bench, packet)))
    none = reviewer_proxy.no_verdict(bench.process, packet.content_digest(), "openai:m", DOWN)
    bench.record("verdict/base.1/2", bench.body(packet, none, error="down: 503", cause="server_error"))
    return [bench.spoken("verdict/base.1/1"), bench.spoken("verdict/base.1/2")]


def test_a_panel_is_merged_from_what_its_members_signed(bench: Bench, packet: Packet) -> None:
    statements = members(bench, packet)
    bench.begin_anew()
    digest = packet.content_digest()
    merged = reviewer_proxy.merge(bench.process, digest, 1, statements)
    assert [(vote.reviewer, vote.approve) for vote in merged.votes] == [("checklist", True), ("openai:m", None)]
    assert (merged.approve, merged.no_verdict) == (True, None)
    bench.record("verdict/base.1", bench.body(packet, merged, members=2))
    why = reviewer_proxy.merge(bench.process, digest, 2, statements).no_verdict
    assert why is not None and why.cause == "no_quorum"
    assert why.what == "1 of 2 members of the panel gave a verdict, 2 required; openai:m: down"


def test_a_member_that_no_reviewer_signed_is_no_member(bench: Bench, packet: Packet) -> None:
    """The attack: the session writes a member's approval itself, with a key it has."""
    statements = members(bench, packet)
    approving = no_verdict("openai:m", DOWN).model_copy(update={"approve": True, "no_verdict": None})
    body = bench.body(packet, approving)
    for role in ("log", "builder", "human"):
        row = signed(entry("verdict", body), bench.trail.keys, role)
        forged = Spoken(
            payload=row.payload.decode(), signatures=row.signatures.decode(), verdict=approving.canonical().decode()
        )
        with pytest.raises(ReviewerUnavailable, match="not signed with the reviewer's key"):
            reviewer_proxy.merge(bench.process, packet.content_digest(), 1, [statements[0], forged])
    # What the reviewer did sign, in another session of the workspace.
    row = signed(entry("verdict", body, session="other"), bench.trail.keys, "reviewer")
    foreign = statements[1].model_copy(
        update={
            "payload": row.payload.decode(),
            "signatures": row.signatures.decode(),
            "verdict": approving.canonical().decode(),
        }
    )
    with pytest.raises(ReviewerUnavailable, match="not a verdict of session 'small'"):
        reviewer_proxy.merge(bench.process, packet.content_digest(), 1, [foreign])
    swapped = statements[0].model_copy(update={"verdict": approving.canonical().decode()})
    with pytest.raises(ReviewerUnavailable, match="records another verdict"):
        reviewer_proxy.merge(bench.process, packet.content_digest(), 1, [swapped])
    with pytest.raises(ReviewerUnavailable, match="the panel's on"):
        reviewer_proxy.merge(bench.process, OTHER, 1, statements)


def test_a_person_of_a_panel_is_believed_by_their_own_key(bench: Bench, packet: Packet) -> None:
    verdict = no_verdict("person", DOWN).model_copy(update={"approve": True, "no_verdict": None})
    row = signed(entry("verdict", bench.body(packet, verdict)), bench.trail.keys, "human")
    spoken = Spoken(
        payload=row.payload.decode(), signatures=row.signatures.decode(), verdict=verdict.canonical().decode()
    )
    merged = reviewer_proxy.merge(bench.process, packet.content_digest(), 1, [spoken])
    assert merged.approve
    bench.process.close()
    bench.process.humans = ()
    with pytest.raises(ReviewerUnavailable, match="not signed with"):
        reviewer_proxy.merge(bench.process, packet.content_digest(), 1, [spoken])


def test_the_same_evidence_gets_the_verdict_that_was_signed_before(bench: Bench, packet: Packet) -> None:
    bench.record("verdict/base.1", bench.body(packet, reviewed(bench, packet)))
    spoken = bench.spoken("verdict/base.1")
    bench.begin_anew()
    now = packet.model_copy(update={"unchanged_since": 1, "log_tail": "another run"})
    verdict = reviewer_proxy.repeat(bench.process, now.canonical(), packet.canonical(), spoken)
    bench.record("verdict/base.2", bench.body(now, verdict, attempt=2, same_as=1))
    bench.trail.verify_chain()
    other = now.model_copy(update={"granted_parameters": {"seed": 99}})
    with pytest.raises(ReviewerUnavailable, match="the evidence is not that of the earlier attempt"):
        reviewer_proxy.repeat(bench.process, other.canonical(), packet.canonical(), spoken)
    later = now.model_copy(update={"unchanged_since": 2})
    with pytest.raises(ReviewerUnavailable, match="on another packet"):
        reviewer_proxy.repeat(bench.process, later.canonical(), packet.canonical(), spoken)


def test_what_was_signed_before_a_key_was_replaced_is_still_believed(bench: Bench, packet: Packet) -> None:
    statements = members(bench, packet)
    keys = bench.trail.keys
    keys.path("reviewer").rename(keys.path("reviewer.old-0123456789abcdef"))
    keys.make("reviewer")
    bench.begin_anew()
    merged = reviewer_proxy.merge(bench.process, packet.content_digest(), 1, statements)
    assert merged.approve
    keys.path("reviewer.old-0123456789abcdef").unlink()
    bench.begin_anew()
    with pytest.raises(ReviewerUnavailable, match="not signed with"):
        reviewer_proxy.merge(bench.process, packet.content_digest(), 1, statements)
