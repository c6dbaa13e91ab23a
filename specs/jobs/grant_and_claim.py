"""Grants and claims: what opens a stage, and what a builder says about it."""

from __future__ import annotations

from typing import Any, Literal

from specs.stages.base.stage import Kind
from specs.system.digests import Contract, Digest
from specs.system.resources import Resources


class Grant(Contract):
    """The one-use right to run one attempt of one stage on exactly these inputs and parameters."""

    schema_version: Literal[1] = 1
    session: str
    stage: str
    attempt: int
    kind: Kind
    task: str
    registration: Digest
    parameters: Digest
    inputs: dict[str, Digest]
    model: Digest
    price_cap_usd: float
    max_seconds: float
    """What the price cap was computed from; the job is ended after it."""
    decision: Digest
    """The trail entry of the approving (or revising) decision this grant was minted from."""
    issued: float
    expires: float
    resources: Resources | None = None
    """What the job asks for, and what its machine may cost."""
    plugins: dict[str, str] = {}
    """What the spec uses of other distributions, as it was registered: the job runs nothing else."""

    def key(self) -> str:
        """Return the job key ``session.stage.attempt``."""
        return f"{self.session}.{self.stage}.{self.attempt}"


class Claim(Contract):
    """A number someone states. It is looked up among the measured metrics, never copied."""

    stage: str
    metric: str
    value: float
    tolerance: float = 0.0


class ClaimResult(Contract):
    """What the look-up said."""

    claim: Claim
    status: Literal["supported", "contradicted", "unsupported"]
    measured: float | None = None


class StageView(Contract):
    """What a builder is shown of the stage it is to prepare: no held-out rows, no reviewer prompt, no ledger."""

    stage: str
    kind: str
    attempt: int
    opened_by: Literal["approval", "revision", "retry"]
    """What came before: the stage before was approved, a gate asked for changes, or a person for another attempt."""
    objective: str
    parameters: dict[str, Any]
    """The parameters of the spec with the changes of the attempt before, if there was one."""
    changes: dict[str, Any]
    """What the attempt before had changed."""
    ranges: dict[str, tuple[float, float]]
    choices: dict[str, tuple[str | bool, ...]] = {}
    required: dict[str, float | int]
    """Changes the last decision asked for, by parameter."""
    tasks: tuple[str, ...] = ()
    """Changes that the last decision asked for in words."""
