"""Grants and claims: what opens a stage, and what a builder says about it."""

from __future__ import annotations

from typing import Any, Literal

from specs.digests import Contract, Digest


class Grant(Contract):
    """The one-use right to run one attempt of one stage on exactly these inputs and parameters."""

    schema_version: Literal[1] = 1
    session: str
    stage: str
    attempt: int
    registration: Digest
    parameters: Digest
    inputs: dict[str, Digest]
    model: Digest
    price_cap_usd: float
    decision: Digest
    """The trail entry of the approving (or revising) decision this grant was minted from."""
    issued: float
    expires: float

    def key(self) -> str:
        """Return the job key ``session.stage.attempt``."""
        return f"{self.session}.{self.stage}.{self.attempt}"


class Claim(Contract):
    """A number somebody states. It is looked up among the measured metrics, never copied."""

    stage: str
    metric: str
    value: float
    tolerance: float = 0.0


class ClaimResult(Contract):
    """What the look-up said."""

    claim: Claim
    status: Literal["supported", "contradicted", "unsupported"]
    measured: float | None = None


class Submission(Contract):
    """What a builder hands in for a stage: the parameters it asks for, or the claims it makes."""

    parameters: dict[str, Any]
    changes: dict[str, Any] = {}
    reason: str = ""
    claims: tuple[Claim, ...] = ()
