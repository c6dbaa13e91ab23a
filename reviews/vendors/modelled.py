"""The reviewer of gates that asks a model about a packet."""

from __future__ import annotations

import os
from collections.abc import Mapping

from reviews.packet import DESIGN
from reviews.reviewer import Answered
from reviews.vendors.answer import answer_form, instructions, to_verdict
from reviews.vendors.model import Model, make_model
from specs.errors import ReviewerUnavailable
from specs.lint_reviewer import DESIGN_STAKES
from specs.session import Effort, Efforts
from specs.session import Reviewer as ReviewerSpec
from specs.vendors.markers import enclose
from specs.verdicts import Packet, Verdict


class ModelReviewer:
    """A :class:`reviews.reviewer.PaidReviewer`."""

    def __init__(self, model: Model, efforts: Efforts) -> None:
        self.model = model
        self.efforts = efforts
        self.name = model.name

    def cost_cap(self, packet: Packet) -> float:
        """Return the most USD a review of this packet can cost; 0 when tokens are free."""
        return self.model.cost_cap(self._effort(packet))

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
            self._effort(packet),
            lambda text: to_verdict(text, self.name, packet_digest),
        )

    def _effort(self, packet: Packet) -> Effort:
        gate = packet.registered.get("gate", {})
        stakes = DESIGN_STAKES if packet.stage == DESIGN else gate.get("stakes", DESIGN_STAKES)
        return getattr(self.efforts, stakes)


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
