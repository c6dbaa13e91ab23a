"""A training prompt that asks a held-out question in other words: who reads the packet sees it and can stop it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.reviewers.checklist import Checklist
from reviews.trail.tables.open_table import read_entries
from specs.digests import Digest
from specs.trail.verdict import Finding, Packet, RequiredChange, Span, Verdict
from tests.factories import evidence_on_disk
from tests.factories.evidence_on_disk import prompt_items
from tests.fixtures.quick_session import drive, open_quick, quick_session

pytestmark = pytest.mark.integration
HELD_OUT = "Write one line on elm."
PARAPHRASE = "An elm: give a sentence."


class Reader(Checklist):
    """Reads the pairs, as a model does, and knows one paraphrase when it sees it."""

    def review(self, packet: Packet, packet_digest: Digest) -> Verdict:
        verdict = super().review(packet, packet_digest)
        for place, check in enumerate(packet.checks):
            for row, pair in enumerate(check.shown):
                if check.id == "design.nearest" and (pair["train_text"], pair["heldout_text"]) == (
                    PARAPHRASE,
                    HELD_OUT,
                ):
                    where = Span(artifact=packet_digest, pointer=f"/checks/{place}/shown/{row}", quote=PARAPHRASE)
                    found = Finding(
                        id="paraphrase",
                        severity="blocking",
                        statement="a training prompt asks what a held-out prompt asks",
                        evidence=(where,),
                        required_change=RequiredChange(text="leave this prompt out of the training data"),
                    )
                    return verdict.model_copy(update={"findings": (*verdict.findings, found), "approve": False})
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
        one.entry.key: one.body["outcome"] for one in read_entries(run / "trail.sqlite") if one.entry.kind == "decision"
    }
    assert decisions["decision/design.1"] == outcome
