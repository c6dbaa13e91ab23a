"""The judge of ``perplexity`` stages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import in_order, items_of
from reviews.evidence.measured_value import MeasuredValue
from reviews.evidence.row_lines import Subjects, by_item
from reviews.evidence.row_reader import read_rows
from reviews.stages.judge import EffectEstimate
from reviews.statistics.mcnemar import resampled_ratio
from reviews.statistics.paired_binary import LIFT_RESAMPLES
from specs.session.evaluation_plan import Outcome
from specs.stages.evaluation.rows import PerplexityRow
from specs.system.errors import EvidenceMissing


def surprises(evidence: Evidence, path: Path | None) -> tuple[PerplexityRow, ...]:
    """Return the surprise of every text, in the order of the items.

    Raises:
        EvidenceMissing: as :func:`in_order`, or a row states other bytes than its text has.
    """
    pairs = in_order(items_of(evidence), read_rows(path, PerplexityRow, "perplexity rows"), "perplexity rows")
    for item, row in pairs:
        if row.bytes != (size := len(item.prompt.encode())):
            message = f"text '{item.id}' has {size} bytes, the row says {row.bytes}"
            raise EvidenceMissing(message, where="perplexity rows")
    return tuple(row for _, row in pairs)


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the rows for its metrics; errors as :func:`surprises`."""
    path = evidence.outputs.get(output)
    return by_item(surprises(evidence, path), read_rows(path, PerplexityRow, "perplexity rows"))


def measure(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return the metrics over tokens; errors as :func:`surprises`."""
    rows = surprises(evidence, evidence.outputs.get("rows"))
    nats, tokens, size = ([getattr(row, name) for row in rows] for name in ("nats", "tokens", "bytes"))
    n = sum(tokens)
    return {
        "scored_tokens": MeasuredValue(n, n),
        "nats_per_token": MeasuredValue(sum(nats) / n, n, ratio_interval(nats, tokens)),
        "nats_per_byte": MeasuredValue(sum(nats) / sum(size), sum(size), ratio_interval(nats, size)),
    }


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of ``sum(above) / sum(below)`` from drawing texts; None with one text."""
    return resampled_ratio(above, below, resamples=LIFT_RESAMPLES, seed=42)


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return minus the nats per byte of each text; errors as :func:`surprises`."""
    return [-row.nats / row.bytes for row in surprises(evidence, path)]


def change(evidence: Evidence, before: str) -> EffectEstimate:
    """Return the change in nats per byte since an earlier stage; errors as :func:`surprises`, and with one text."""
    ours = surprises(evidence, evidence.outputs.get("rows"))
    theirs = surprises(evidence, evidence.arms[before].rows)
    saved = [was.nats - now.nats for now, was in zip(ours, theirs, strict=True)]
    size = [float(row.bytes) for row in ours]
    value = sum(saved) / sum(size)
    interval = ratio_interval(saved, size)
    if interval is None:
        raise EvidenceMissing("one text alone gives no interval")
    return EffectEstimate(value, interval, f"{value:+.4f} nats per byte saved on {len(size)} texts")
