"""Pairs by the task's verifier, made again from the samples and prompts that came in."""

from __future__ import annotations

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.errors import EvidenceMissing
from specs.stages.artifacts import Item
from specs.stages.critique.parameters import BestOfNVerifiedParameters
from specs.stages.critique.rows import VerifiedRow
from specs.stages.generation.rows import GenerationRow
from training.rules.critique.pair_selection import Sifted
from training.rules.critique.verified_pairs import NotTheirs, verdicts, verified_pairs


def due_verdicts(evidence: Evidence) -> list[VerifiedRow]:
    """Return what the verifier says of the samples that came in.

    Raises:
        EvidenceMissing: samples or prompts are absent or unreadable, or do not belong together.
    """
    items = read_rows(evidence.inputs.get("prompts"), Item, "the prompts")
    try:
        return verdicts(evidence.resolved.spec.task, items, _samples(evidence))
    except NotTheirs as error:
        raise EvidenceMissing(str(error), where="samples") from error


def verified_preferences(evidence: Evidence) -> Sifted:
    """Return the pairs that follow from the samples that came in, and those that are not kept.

    Raises:
        EvidenceMissing: as :func:`due_verdicts`, or the order of the attempt is not on record.
    """
    return verified_pairs(_samples(evidence), due_verdicts(evidence), evidence.granted(BestOfNVerifiedParameters))


def _samples(evidence: Evidence) -> tuple[GenerationRow, ...]:
    return read_rows(evidence.inputs.get("samples"), GenerationRow, "the samples")
