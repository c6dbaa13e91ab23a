"""The measurer of stages that criticise and make preference pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured, ratio, share
from reviews.evidence.row_reader import Row, read_rows
from reviews.stages.critique.calibration import Calibrated, calibrated
from reviews.stages.critique.recomputed_pairs import due_verdicts, verified_preferences
from reviews.stages.sampled_rows import why_broken_off
from specs.errors import EvidenceMissing, UserError
from specs.session.constitution import Constitution
from specs.session.loading import load_constitution
from specs.stages.artifacts import Item, Preference
from specs.stages.critique.parameters import BestOfNParameters, CriticParameters, ReviseParameters
from specs.stages.critique.rows import (
    CalibrationRow,
    CandidateRow,
    ComparisonRow,
    CritiqueRow,
    JudgeCalibrationRow,
    RevisionRow,
    contradiction,
)
from specs.stages.label_scores import decide
from specs.stages.registry import STAGE_KINDS
from training.rules.critique.pair_selection import Sifted, length_bias, log_length_ratio
from training.rules.critique.preference_pairs import all_pairs, all_revisions, revisions_to_compare
from training.rules.critique.revision_chains import contradiction_in
from training.rules.critique.subjects import Unlabelled, labelled, labelled_pairs
from training.rules.critique.verified_pairs import mixed_prompts

_BY_JUDGE = ("original_preferred", "no_preference")


def critic_parameters(evidence: Evidence) -> CriticParameters:
    """Return the granted parameters of a stage with a critic.

    Raises:
        EvidenceMissing: the order of the attempt is not on record.
    """
    if not evidence.parameters:
        raise EvidenceMissing("the order of the attempt is not on record")
    parameters = STAGE_KINDS[evidence.stage.kind].parameters.model_validate(evidence.parameters)
    if isinstance(parameters, ReviseParameters):
        if parameters.judge is None:
            raise EvidenceMissing("the stage has no judge")
        return parameters.judge.as_critic()
    assert isinstance(parameters, CriticParameters)
    return parameters


def sound_rows(evidence: Evidence, output: str, model: type[Row]) -> tuple[Row, ...]:
    """Return the rows of an output, each with a verdict that follows from its log-probabilities.

    Raises:
        EvidenceMissing: there are none, they cannot be read, or a verdict does not follow.
    """
    given = critic_parameters(evidence)
    rows = read_rows(
        evidence.outputs.get(output), model, f"{output} of the critic", may_be_empty=output == "comparisons"
    )
    for number, row in enumerate(rows, 1):
        assert isinstance(row, CritiqueRow | ComparisonRow)
        if wrong := contradiction(row, given.agreement, given.margin):
            raise EvidenceMissing(f"line {number} contradicts itself: {wrong}", where=f"{output} of the critic")
    return rows


def labelled_input(evidence: Evidence) -> tuple[Item, ...]:
    """Return the registered labelled sample.

    Raises:
        EvidenceMissing: there is none, or it cannot be read.
    """
    return read_rows(evidence.inputs.get("calibration"), Item, "the labelled sample")


def calibration_of(evidence: Evidence) -> Calibrated:
    """Return the critic's agreement with the registered labels, each item judged once and in order.

    Raises:
        EvidenceMissing: sample or rows are absent or unreadable, or the rows are not those of the sample.
    """
    sample = labelled_input(evidence)
    try:
        if evidence.stage.kind in ("best_of_n", "revise"):
            return _judged_pairs(evidence, sample)
        due = labelled(sample, responses=evidence.stage.kind == "critique_responses")
    except Unlabelled as error:
        raise EvidenceMissing(str(error), where="the labelled sample") from error
    rows = sound_rows(evidence, "calibration", CalibrationRow)
    asked = [(one.item, one.instruction, one.response, label) for one, label in due]
    if [(row.item, row.instruction, row.response, row.label) for row in rows] != asked:
        raise EvidenceMissing("the rows are not those of the labelled sample", where="calibration of the critic")
    return calibrated([row.accepted for row in rows], [label == "good" for _, label in due])


def _judged_pairs(evidence: Evidence, sample: Sequence[Item]) -> Calibrated:
    rows = sound_rows(evidence, "calibration", JudgeCalibrationRow)
    due = labelled_pairs(sample)
    asked = [(one.item, one.instruction, one.first, one.second, label) for one, label in due]
    if [(row.item, row.instruction, row.first, row.second, row.label) for row in rows] != asked:
        raise EvidenceMissing("the rows are not those of the labelled sample", where="calibration of the critic")
    return calibrated([row.preferred or "neither" for row in rows], [label for _, label in due])


def measure_critiques(evidence: Evidence, prefix: str) -> dict[str, Measured]:
    """Return the metrics of a critic that accepts or not; ``prefix`` begins their ids.

    Raises:
        EvidenceMissing: rows are absent, unreadable, contradict themselves or are not those of the labelled sample.
    """
    rows = sound_rows(evidence, "rows", CritiqueRow)
    given = critic_parameters(evidence)
    n = len(rows)
    accepted = sum(decide(row.plain, row.swapped, given.agreement, given.margin) is True for row in rows)
    return {
        f"{prefix}_judged": Measured(n, n),
        f"{prefix}_accepted": Measured(accepted, n),
        f"{prefix}_acceptance_rate": share(accepted, n),
        f"{prefix}_confident_rate": share(sum(row.plain.confident and row.swapped.confident for row in rows), n),
        **_swapping(prefix, rows),
        **_agreement(prefix, calibration_of(evidence)),
    }


def _swapping(prefix: str, rows: Sequence[CritiqueRow | ComparisonRow]) -> dict[str, Measured]:
    n = len(rows)
    margins = [min(row.plain.margin, row.swapped.margin) for row in rows]
    masses = [min(row.plain.scores.mass(), row.swapped.scores.mass()) for row in rows]
    return {
        f"{prefix}_swap_inconsistency": share(sum(row.plain.good != row.swapped.good for row in rows), n),
        f"{prefix}_median_margin": Measured(median(margins), n),
        f"{prefix}_label_mass": Measured(median(masses), n),
    }


def _agreement(prefix: str, found: Calibrated) -> dict[str, Measured]:
    return {
        f"{prefix}_labelled": Measured(found.n, found.n),
        f"{prefix}_agreement": share(found.agreed, found.n),
        f"{prefix}_kappa": Measured(found.exact, found.n, found.interval),
    }


def measure_revise(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics of chains of critique and revision.

    Raises:
        EvidenceMissing: rows, pairs or constitution are absent or unreadable, or a row states what does not follow from
            its texts.
    """
    rows = revision_rows(evidence)
    pairs = preferences_of(evidence)
    n = len(rows)
    uses = principle_uses(evidence, rows)

    def with_fault(*faults: str) -> Measured:
        return share(sum(any(set(faults) & set(one.faults) for one in row.rounds) for row in rows), n)

    cut = sum(any("length" in (one.critique_finish, one.revision_finish) for one in row.rounds) for row in rows)
    return {
        "chains": Measured(n, n),
        "revised_rate": share(sum(row.usable for row in rows), n),
        "revision_unchanged_rate": share(sum(row.final.split() == row.original.split() for row in rows), n),
        "revision_refusal_rate": with_fault("refusal"),
        "revision_short_rate": with_fault("empty", "short"),
        "revision_truncation_rate": share(cut, n),
        "principle_imbalance": Measured(max(uses.values()) - min(uses.values()), uses.total()),
        "revision_pairs": Measured(len(pairs), n),
        "revision_length_bias": Measured(length_bias(pairs)[1], len(pairs)),
        **dropped_metrics("revision_pairs", due_preferences(evidence), pairs),
        **(_judge_of_revisions(evidence) if ReviseParameters.model_validate(evidence.parameters).judge else {}),
    }


def _judge_of_revisions(evidence: Evidence) -> dict[str, Measured]:
    compared = sound_rows(evidence, "comparisons", ComparisonRow)
    n, made = len(compared), due_preferences(evidence).reasons()
    if not n:
        raise EvidenceMissing("no revision could be compared", where="comparisons of the judge")
    return {
        "revision_pairs_dropped_judge": Measured(sum(made.get(name, 0) for name in _BY_JUDGE), n),
        "revision_preferred_rate": share(sum(row.preferred == "first" for row in compared), n),
        **_swapping("revision_judge", compared),
        **_agreement("revision_judge", calibration_of(evidence)),
    }


def revision_rows(evidence: Evidence) -> tuple[RevisionRow, ...]:
    """Return the chains, each with the faults and the final text that follow from what was written.

    Raises:
        EvidenceMissing: there are none, they cannot be read, or one states what does not follow.
    """
    if not evidence.parameters:
        raise EvidenceMissing("the order of the attempt is not on record")
    given = ReviseParameters.model_validate(evidence.parameters)
    rows = read_rows(evidence.outputs.get("rows"), RevisionRow, "revision rows")
    for number, row in enumerate(rows, 1):
        if wrong := contradiction_in(row, given):
            raise EvidenceMissing(f"line {number} contradicts itself: {wrong}", where="revision rows")
    return rows


def constitution_of(evidence: Evidence) -> tuple[Constitution, str]:
    """Return the constitution the job read, and its digest.

    Raises:
        EvidenceMissing: it is not there, or wrong.
    """
    path = evidence.inputs.get("constitution")
    if path is None:
        raise EvidenceMissing("the constitution is not among the inputs")
    try:
        return load_constitution(path)
    except UserError as error:
        raise EvidenceMissing(f"the constitution cannot be read: {error.message}") from error


def principle_uses(evidence: Evidence, rows: Sequence[RevisionRow]) -> Counter[str]:
    """Return how often each category of the constitution was used, those that never were included.

    Raises:
        EvidenceMissing: the constitution cannot be read.
    """
    uses = Counter({one.category: 0 for one in constitution_of(evidence)[0].principles})
    uses.update(one.category for row in rows for one in row.rounds)
    return uses


def preferences_of(evidence: Evidence) -> tuple[Preference, ...]:
    """Return the pairs that were kept; there may be none.

    Raises:
        EvidenceMissing: they are absent or unreadable.
    """
    return read_rows(evidence.outputs.get("preferences"), Preference, "preferences", may_be_empty=True)


def due_preferences(evidence: Evidence) -> Sifted:
    """Return the pairs that follow from the raw rows, and those that are not kept.

    Raises:
        EvidenceMissing: the rows are absent, unreadable or contradict themselves.
    """
    if evidence.stage.kind == "revise":
        given = ReviseParameters.model_validate(evidence.parameters)
        rows = revision_rows(evidence)
        if given.judge is None:
            return all_revisions(rows, given)
        compared = sound_rows(evidence, "comparisons", ComparisonRow)
        if len(compared) != len(revisions_to_compare(rows, given)):
            raise EvidenceMissing("not every revision has one comparison", where="comparisons of the judge")
        return all_revisions(rows, given, compared)
    if evidence.stage.kind == "best_of_n_verified":
        return verified_preferences(evidence)
    parameters = critic_parameters(evidence)
    assert isinstance(parameters, BestOfNParameters)
    return all_pairs(sound_rows(evidence, "comparisons", ComparisonRow), parameters)


def measure_prefer(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics of best-of-k, its judge and the pairs.

    Raises:
        EvidenceMissing: rows are absent, unreadable or contradict themselves, or nothing was compared.
    """
    rows = read_rows(evidence.outputs.get("rows"), CandidateRow, "sampled responses")
    compared = sound_rows(evidence, "comparisons", ComparisonRow)
    of_rows = {
        "candidates": Measured(len(rows), len(rows)),
        "candidate_truncation_rate": share(sum(row.finish == "length" for row in rows), len(rows)),
    }
    if not compared and why_broken_off(evidence):
        # Nothing to compare is then what it was broken off for.
        return of_rows
    if not compared:
        raise EvidenceMissing("no two responses could be compared", where="comparisons of the judge")
    pairs = preferences_of(evidence)
    n, m = len(compared), len(pairs)
    # The first response of an order is A: preferred there, where "good" is A and good, or B and not.
    first = sum((one.good_label == "A") == one.good for row in compared for one in (row.plain, row.swapped))
    found = calibration_of(evidence)
    labelled_rows = sound_rows(evidence, "calibration", JudgeCalibrationRow)
    difference, bias = length_bias(pairs)
    return {
        **of_rows,
        "pair_comparisons": Measured(n, n),
        "pair_judge_abstention_rate": share(sum(row.preferred is None for row in compared), n),
        "pair_judge_first_rate": share(first, 2 * n),
        **_swapping("pair_judge", compared),
        "pair_judge_decided_rate": share(sum(row.preferred is not None for row in labelled_rows), len(labelled_rows)),
        **_agreement("pair_judge", found),
        "pairs": Measured(m, m),
        "pairs_for_validation": Measured(sum(one.split == "validation" for one in pairs), m),
        "hard_negative_share": Measured(ratio(sum(one.source == "hard_negative" for one in pairs), m), m),
        "pairs_length_difference": Measured(difference, m),
        "pairs_length_bias": Measured(bias, m),
        **dropped_metrics("pairs", due_preferences(evidence), pairs),
    }


def dropped_metrics(prefix: str, due: Sifted, pairs: Sequence[Preference]) -> dict[str, Measured]:
    """Return how many pairs were left out by each rule of length, and what the lengths of those that are kept are."""
    reasons, offered = due.reasons(), len(due.kept) + len(due.dropped)
    return {
        f"{prefix}_dropped_ratio": Measured(reasons.get("length_ratio", 0), offered),
        f"{prefix}_dropped_balance": Measured(reasons.get("length_balance", 0), offered),
        f"{prefix}_log_length_ratio": Measured(log_length_ratio(pairs), len(pairs)),
    }


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
