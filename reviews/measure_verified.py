"""Metrics of pairs by the task's verifier. Definitions stand in ``specs/metrics_critics.py``."""

from __future__ import annotations

from reviews.evidence import Evidence
from reviews.measure_critics import dropped_metrics, preferences_of
from reviews.measured import Measured, share
from reviews.verified import due_verdicts, verified_preferences
from training.critics.pairing import length_bias
from training.critics.verified import mixed_prompts


def measure_verified(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics of the samples, judged again, and of the pairs that were kept.

    Raises:
        EvidenceMissing: samples, prompts or pairs are absent or unreadable.
    """
    said, pairs = due_verdicts(evidence), preferences_of(evidence)
    n, m = len(said), len(pairs)
    return {
        "verified_samples": Measured(n, n),
        "verified_accepted_rate": share(sum(row.verdict == "accepted" for row in said), n),
        "verified_mixed_prompts": Measured(mixed_prompts(said), len({row.item for row in said})),
        "verified_pairs": Measured(m, m),
        "verified_pairs_for_validation": Measured(sum(one.split == "validation" for one in pairs), m),
        "verified_length_bias": Measured(length_bias(pairs)[1], m),
        **dropped_metrics("verified_pairs", verified_preferences(evidence), pairs),
    }
