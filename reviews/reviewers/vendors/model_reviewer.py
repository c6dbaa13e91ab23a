"""The reviewer of gates that asks a model about a packet."""

from __future__ import annotations

import os
from collections.abc import Mapping

from reviews.gate.reviewer import Answered
from reviews.reviewers.vendors.effort_tiers import effort_of
from reviews.reviewers.vendors.review_model import Model, make_model
from reviews.reviewers.vendors.verdict_answer import answer_form, instructions, to_verdict
from specs.errors import ReviewerUnavailable
from specs.session.session_spec import Efforts
from specs.session.session_spec import Reviewer as ReviewerSpec
from specs.trail.verdict import Packet, Verdict
from specs.vendors.untrusted_text import enclose


class ModelReviewer:
    """A :class:`reviews.gate.reviewer.PaidReviewer`."""

    def __init__(self, model: Model, efforts: Efforts) -> None:
        self.model = model
        self.efforts = efforts
        self.name = model.name

    def cost_cap(self, packet: Packet) -> float:
        """Return the most USD a review of this packet can cost; 0 when tokens are free."""
        return self.model.cost_cap(effort_of(packet, self.efforts))

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Return the model's verdict.

        Raises:
            ReviewerUnavailable: there is no whole, valid, non-empty answer.
        """
        review = self.ask(packet, packet_digest)
        if review.value is None:
            raise review.error or ReviewerUnavailable("no verdict", where=self.name)
        return review.value

    def ask(self, packet: Packet, packet_digest: str) -> Answered[Verdict]:
        """Ask once, and return verdict or error together with what it took."""
        return self.model.ask(
            instructions(),
            render(packet),
            answer_form(),
            effort_of(packet, self.efforts),
            lambda text: to_verdict(text, self.name, packet_digest),
        )


def render(packet: Packet) -> str:
    """Write the packet as canonical JSON, one line between markers."""
    data = packet.canonical().decode("utf-8")
    return enclose("packet", data) + "Review the packet by your instructions and answer with the JSON object only."


def model_reviewer(spec: ReviewerSpec, environ: Mapping[str, str] = os.environ) -> ModelReviewer:
    """Build the reviewer a spec names.

    Raises:
        UserError: the key is not set, the SDK is not installed, or no price is known of the model.
    """
    return ModelReviewer(make_model(spec, environ), spec.effort)
