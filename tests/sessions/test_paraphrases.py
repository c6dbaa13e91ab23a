"""A training prompt that asks a held-out question in other words: who reads the packet sees it and can stop it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.history.history import History
from reviews.reviewers.checklist import Checklist
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.result import why_it_ended
from specs.system.digests import Digest
from specs.trail.verdict import Finding, Packet, RequiredChange, Span, Verdict
from testing.factories import evidence_on_disk
from testing.factories.evidence_on_disk import heldout_items, prompt_items
from testing.fixtures.quick_session import drive, open_quick, quick_session

pytestmark = pytest.mark.integration
HELD_OUT = "Write one line on elm."
PARAPHRASE = "An elm: give a sentence."


class Reader(Checklist):
    """Reads the pairs, as a model does, and knows one paraphrase when it sees it."""

    def review(self, packet: Packet, packet_digest: Digest) -> Verdict:
        verdict = super().review(packet, packet_digest)
        for place, check in enumerate(packet.checks):
            for row, pair in enumerate(check.rows):
                if check.id == "design.nearest" and (pair["train_text"], pair["heldout_text"]) == (
                    PARAPHRASE,
                    HELD_OUT,
                ):
                    where = Span(artifact=packet_digest, pointer=f"/checks/{place}/shown/{row}", quote=PARAPHRASE)
                    finding = Finding(
                        id="paraphrase",
                        severity="blocking",
                        statement="a training prompt asks what a held-out prompt asks",
                        evidence=(where,),
                        required_change=RequiredChange(text="leave this prompt out of the training data"),
                    )
                    return verdict.model_copy(update={"findings": (*verdict.findings, finding), "approve": False})
        return verdict


@pytest.mark.parametrize(
    ("prompt", "reviewer", "outcome"),
    [
        (PARAPHRASE, Reader, "escalate"),
        (PARAPHRASE, Checklist, "approve"),
        ("Tell a short tale of the fog.", Reader, "approve"),
    ],
)
def test_a_reviewer_who_sees_a_paraphrase_stops_the_design(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: str, reviewer: type[Checklist], outcome: str
) -> None:
    first, *others = prompt_items()
    monkeypatch.setattr(
        evidence_on_disk, "prompt_items", lambda: (first.model_copy(update={"prompt": prompt}), *others)
    )
    run = open_quick(tmp_path)
    drive(quick_session(run, reviewer=reviewer()))
    decisions = {
        entry.key: entry.raw["outcome"] for entry in read_entries(run / "trail.sqlite") if entry.kind == "decision"
    }
    assert decisions["decision/design.1"] == outcome


def test_training_prompts_that_name_held_out_groups_end_the_session_and_it_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [item.model_copy(update={"group": item.prompt.split()[-1].strip(".")}) for item in heldout_items()]
    named = [
        item.model_copy(update={"prompt": f"Say what the {topic.group} is."})
        for item, topic in zip(prompt_items(), items, strict=False)
    ]
    monkeypatch.setattr(evidence_on_disk, "heldout_items", lambda: tuple(items))
    monkeypatch.setattr(evidence_on_disk, "prompt_items", lambda: tuple(named))
    run = open_quick(tmp_path)
    drive(quick_session(run))
    entries = read_entries(run / "trail.sqlite")
    assert entries[-1].raw["decision"] == "reject"
    assert "design.groups: group elm, prompt Say what the elm is." in why_it_ended(
        History(entries, Store(run / "store")), "reject"
    )
