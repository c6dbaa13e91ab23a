"""The lines that metrics of critics, revisions and preferences are computed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import ROWS, Part, every, part
from reviews.evidence.row_reader import read_rows
from reviews.stages.critique.measure import preferences_of, principle_uses, revision_rows, sound_rows
from reviews.stages.critique.recomputed_pairs import due_verdicts
from specs.stages.artifacts import Preference
from specs.stages.critique.rows import (
    CalibrationRow,
    CandidateRow,
    ComparisonRow,
    CritiqueRow,
    DroppedPair,
    JudgeCalibrationRow,
    RevisionRow,
)
from training.rules.critique.pair_selection import WRONG_BY_LENGTH

CALIBRATION, COMPARISONS, PREFERENCES = "calibration", "comparisons", "preferences"
_TURNS = "the verdict is another one when the labels change places"


def critiques(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return what a critic judged, or the labelled sample; ``metric`` without the beginning of its name.

    Raises:
        EvidenceMissing: rows are absent, unreadable or contradict themselves.
    """
    if metric in ("labelled", "agreement", "kappa"):
        sample = sound_rows(evidence, "calibration", CalibrationRow)
        return _agreement(metric, sample)
    rows = sound_rows(evidence, "rows", CritiqueRow)
    of_metric: dict[str, tuple[str, Callable[[CritiqueRow], bool]]] = {
        "accepted": ("are accepted", lambda row: row.accepted),
        "acceptance_rate": ("are accepted", lambda row: row.accepted),
        "confident_rate": (
            "have the margin in both label orders",
            lambda row: row.plain.confident and row.swapped.confident,
        ),
        "swap_inconsistency": (_TURNS, lambda row: row.plain.good != row.swapped.good),
    }
    if metric in of_metric:
        return (part(of_metric[metric][0], rows, of_metric[metric][1]),)
    return (every("everything that was judged", rows),)


def _agreement(metric: str, sample: Sequence[CalibrationRow]) -> tuple[Part, ...]:
    if metric == "labelled":
        return (every("every labelled item", sample, CALIBRATION),)
    if metric == "agreement":
        agree = "critic and person agree"
        return (part(agree, sample, lambda row: row.accepted == (row.label == "good"), CALIBRATION),)
    return tuple(
        part(
            f"the person says {label}, the critic {'accepts' if accepted else 'does not accept'}",
            sample,
            lambda row, label=label, accepted=accepted: (row.label, row.accepted) == (label, accepted),
            CALIBRATION,
        )
        for label, accepted in (("good", True), ("good", False), ("bad", True), ("bad", False))
    )


def revisions(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return chains of critique and revision, or the pairs that came of them.

    Raises:
        EvidenceMissing: rows, pairs or constitution are absent or unreadable, or contradict themselves.
    """
    if metric in ("revision_pairs", "revision_length_bias"):
        return (every("every pair", preferences_of(evidence), PREFERENCES),)
    name = metric.removeprefix("revision_judge_")
    if name in ("labelled", "agreement", "kappa"):
        return _judged_sample(name, sound_rows(evidence, "calibration", JudgeCalibrationRow))
    if metric == "revision_preferred_rate" or name != metric:
        return _comparisons(name, sound_rows(evidence, "comparisons", ComparisonRow))
    if metric.startswith("revision_pairs_"):
        return _pairs(evidence, metric)
    rows = revision_rows(evidence)
    if metric == "principle_imbalance":
        uses = principle_uses(evidence, rows)
        named = (("most", max(uses, key=lambda one: uses[one])), ("least", min(uses, key=lambda one: uses[one])))
        return tuple(
            part(f"use the {how} used category, '{name}'", rows, lambda row, name=name: _uses(row, name))
            for how, name in named
        )

    def with_fault(*faults: str) -> Callable[[RevisionRow], bool]:
        return lambda row: any(set(faults) & set(one.faults) for one in row.rounds)

    of_metric: dict[str, tuple[str, Callable[[RevisionRow], bool]]] = {
        "revised_rate": ("end in a revision that can be used", lambda row: row.usable),
        "revision_unchanged_rate": (
            "end in the words they began with",
            lambda row: row.final.split() == row.original.split(),
        ),
        "revision_refusal_rate": ("have a revision that refuses", with_fault("refusal")),
        "revision_short_rate": ("have a revision that is empty or too short", with_fault("empty", "short")),
        "revision_truncation_rate": (
            "have a critique or revision that hit the token limit",
            lambda row: any("length" in (one.critique_finish, one.revision_finish) for one in row.rounds),
        ),
    }
    if metric in of_metric:
        return (part(of_metric[metric][0], rows, of_metric[metric][1]),)
    return (every("every chain", rows),)


def _uses(row: RevisionRow, category: str) -> bool:
    return any(one.category == category for one in row.rounds)


def compared_responses(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return sampled responses, comparisons of them, the judge's labelled sample, or the pairs.

    Raises:
        EvidenceMissing: rows are absent, unreadable or contradict themselves.
    """
    if metric.startswith("candidate"):
        rows = read_rows(evidence.outputs.get("rows"), CandidateRow, "sampled responses")
        if metric == "candidate_truncation_rate":
            return (part("hit the token limit", rows, lambda row: row.finish == "length"),)
        return (every("every response", rows),)
    name = metric.removeprefix("pair_judge_")
    if name in ("decided_rate", "labelled", "agreement", "kappa"):
        return _judged_sample(name, sound_rows(evidence, "calibration", JudgeCalibrationRow))
    if metric.startswith("pair_"):
        return _comparisons(name, sound_rows(evidence, "comparisons", ComparisonRow))
    return _pairs(evidence, metric)


def _judged_sample(metric: str, sample: Sequence[JudgeCalibrationRow]) -> tuple[Part, ...]:
    agree = part("the judge prefers what the person does", sample, lambda row: row.preferred == row.label, CALIBRATION)
    decided = part("the judge prefers one", sample, lambda row: row.preferred is not None, CALIBRATION)
    if metric == "labelled":
        return (every("every labelled pair", sample, CALIBRATION),)
    return {"decided_rate": (decided,), "agreement": (agree,), "kappa": (agree, decided)}[metric]


def _comparisons(metric: str, rows: Sequence[ComparisonRow]) -> tuple[Part, ...]:
    if metric == "first_rate":
        # The first response of an order is A: preferred there, where "good" is A and good, or B and not.
        return (
            part(
                "in one order, what stands first is preferred",
                rows,
                lambda row: (row.plain.good_label == "A") == row.plain.good,
                COMPARISONS,
            ),
            part(
                "in the other order, what stands first is preferred",
                rows,
                lambda row: (row.swapped.good_label == "A") == row.swapped.good,
                COMPARISONS,
            ),
        )
    if metric == "revision_preferred_rate":
        return (part("the judge prefers the revision", rows, lambda row: row.preferred == "first", COMPARISONS),)
    if metric == "abstention_rate":
        return (part("the judge prefers neither", rows, lambda row: row.preferred is None, COMPARISONS),)
    if metric == "swap_inconsistency":
        return (part(_TURNS, rows, lambda row: row.plain.good != row.swapped.good, COMPARISONS),)
    return (every("every comparison", rows, COMPARISONS),)


def _pairs(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    pairs = preferences_of(evidence)
    if "_dropped_" in metric and "dropped" in evidence.outputs:
        rule = metric.rpartition("_")[2]
        reasons = {"judge": ("original_preferred", "no_preference")}.get(rule, (f"length_{rule}",))
        out = read_rows(evidence.outputs["dropped"], DroppedPair, "dropped pairs", may_be_empty=True)
        return (part(f"were left out for {' or '.join(reasons)}", out, lambda one: one.reason in reasons, "dropped"),)
    of_metric: dict[str, tuple[str, Callable[[Preference], bool]]] = {
        "for_validation": ("are marked for validation", lambda pair: pair.split == "validation"),
        "hard_negative_share": ("have a response made wrong on purpose", lambda pair: pair.source == "hard_negative"),
        "length_difference": (
            "are not wrong by their length on purpose",
            lambda pair: pair.negative_type not in WRONG_BY_LENGTH,
        ),
    }
    of_metric["length_bias"] = of_metric["log_length_ratio"] = of_metric["length_difference"]
    name = metric.removeprefix("verified_").removeprefix("revision_").removeprefix("pairs_")
    if name in of_metric:
        return (part(of_metric[name][0], pairs, of_metric[name][1], PREFERENCES),)
    return (every("every pair", pairs, PREFERENCES),)


def verified_samples(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return samples by what the task's verifier says of them, or the pairs; samples are in the order that came in.

    Raises:
        EvidenceMissing: samples, prompts or pairs are absent or unreadable.
    """
    if metric.startswith("verified_pairs") or metric == "verified_length_bias":
        return _pairs(evidence, metric)
    said = due_verdicts(evidence)
    if metric == "verified_accepted_rate":
        return (part("are accepted by the verifier", said, lambda row: row.verdict == "accepted", ROWS),)
    if metric == "verified_mixed_prompts":
        seen = Counter({(row.item, row.verdict) for row in said})
        return (
            part(
                "are of a prompt with a sample that is accepted and one that is refused",
                said,
                lambda row: seen[row.item, "accepted"] + seen[row.item, "refused"] == 2,
                ROWS,
            ),
        )
    return (every("every sample", said, ROWS),)
