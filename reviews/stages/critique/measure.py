"""The measurer of stages that criticise and make preference pairs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import MeasuredValue, share
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import Row, read_rows
from reviews.stages.sampled_rows import why_broken_off
from reviews.statistics.agreement import CalibrationAgreement, measure_calibration
from specs.session.constitution import Constitution
from specs.stages.base.artifacts import Item, Preference
from specs.stages.critique.metrics import CRITIC_PREFIX
from specs.stages.critique.parameters import (
    BestOfNParameters,
    BestOfNVerifiedParameters,
    CriticParameters,
    ReviseParameters,
)
from specs.stages.critique.rows import (
    CalibrationRow,
    CandidateRow,
    ComparisonRow,
    CritiqueRow,
    DroppedPair,
    JudgeCalibrationRow,
    RevisionRound,
    RevisionRow,
    VerifiedRow,
    contradiction,
)
from specs.stages.generation.rows import GenerationRow
from specs.stages.registry import STAGE_KINDS
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from specs.system.regular_files import read_regular
from specs.system.text import plain
from specs.system.yaml.yaml_positions import MAX_BYTES, UnreadableError, read_yaml
from training.rules.critique.pair_selection import WRONG_BY_LENGTH, PairSelection, length_bias, log_length_ratio
from training.rules.critique.preference_pairs import (
    NotTheirs,
    all_pairs,
    all_revisions,
    mixed_prompts,
    revisions_to_compare,
    verdicts,
    verified_pairs,
)
from training.rules.critique.revision_chains import contradiction_in
from training.rules.critique.subjects import LabelFault, labelled_pairs, read_labelled_subjects


def critic_parameters(evidence: Evidence) -> CriticParameters:
    """Return the granted parameters of a critic; errors as :meth:`Evidence.granted`, and of a stage without a judge."""
    parameters = evidence.parse_parameters(STAGE_KINDS[evidence.stage.kind].parameters)
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
    parameters, what = critic_parameters(evidence), f"{output} of the critic"
    rows = read_rows(evidence.outputs.get(output), model, what, may_be_empty=output == "comparisons")
    for number, row in enumerate(rows, 1):
        assert isinstance(row, CritiqueRow | ComparisonRow)
        if wrong := contradiction(row, parameters.agreement, parameters.margin):
            raise EvidenceMissing(f"line {number} contradicts itself: {wrong}", where=what)
    return rows


def labelled_input(evidence: Evidence) -> tuple[Item, ...]:
    """Return the registered labelled sample; errors as :func:`read_rows`."""
    return read_rows(evidence.inputs.get("calibration"), Item, "the labelled sample")


def calibration_of(evidence: Evidence) -> CalibrationAgreement:
    """Return the critic's agreement with the registered labels, each item judged once and in order.

    Raises:
        EvidenceMissing: sample or rows are absent or unreadable, or the rows are not those of the sample.
    """
    sample = labelled_input(evidence)
    try:
        if evidence.stage.kind in ("best_of_n", "revise"):
            return _judged_pairs(evidence, sample)
        pairs = read_labelled_subjects(sample, responses=evidence.stage.kind == "critique_responses")
    except LabelFault as error:
        raise EvidenceMissing(str(error), where="the labelled sample") from error
    rows = sound_rows(evidence, "calibration", CalibrationRow)
    requests = [(subject.item, subject.instruction, subject.response, label) for subject, label in pairs]
    if [(row.item, row.instruction, row.response, row.label) for row in rows] != requests:
        raise EvidenceMissing("the rows do not match the labelled sample", where="calibration of the critic")
    return measure_calibration([row.accepted for row in rows], [label == "good" for _, label in pairs])


def _judged_pairs(evidence: Evidence, sample: Sequence[Item]) -> CalibrationAgreement:
    rows = sound_rows(evidence, "calibration", JudgeCalibrationRow)
    pairs = labelled_pairs(sample)
    requests = [(pair.item, pair.instruction, pair.first, pair.second, label) for pair, label in pairs]
    if [(row.item, row.instruction, row.first, row.second, row.label) for row in rows] != requests:
        raise EvidenceMissing("the rows do not match the labelled sample", where="calibration of the critic")
    return measure_calibration([row.preferred or "neither" for row in rows], [label for _, label in pairs])


def read_critiques(evidence: Evidence, output: str) -> Subjects:
    """Return what a critic judged, or the labelled sample; errors as :func:`sound_rows`."""
    rows = sound_rows(evidence, output, CritiqueRow if output == "rows" else CalibrationRow)
    return as_written(rows, output)


def measure_kappa(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return the critic's kappa; errors as :func:`calibration_of`."""
    result = calibration_of(evidence)
    return {f"{CRITIC_PREFIX[evidence.stage.kind]}_kappa": MeasuredValue(result.exact, result.n, result.interval)}


class Chain(NamedTuple):
    """A chain of critique and revision."""

    row: RevisionRow
    most_used: bool
    """Whether it uses the category of principles that is used most."""
    least_used: bool


class KeptPair(NamedTuple):
    """A pair that is kept."""

    pair: Preference
    by_length: bool
    """Whether its rejected response is wrong by its length on purpose."""


def read_pairs(evidence: Evidence, output: str) -> Subjects | None:
    """Return the pairs kept, or those left out, None where these are not written; errors as :func:`read_rows`."""
    if output == "preferences":
        pairs = preferences_of(evidence)
        return as_written([KeptPair(pair, pair.negative_type in WRONG_BY_LENGTH) for pair in pairs], output)
    if output not in evidence.outputs:
        return None
    return as_written(read_rows(evidence.outputs[output], DroppedPair, "dropped pairs", may_be_empty=True), output)


def read_revise(evidence: Evidence, output: str) -> Subjects | None:
    """Return chains, pairs or what the judge said; None where the stage has no judge.

    Raises:
        EvidenceMissing: as :func:`due_preferences` and :func:`principle_uses`, or no revision could be compared.
    """
    if output == "rows":
        rows = revision_rows(evidence)
        uses = principle_uses(evidence, rows)
        most, least = max(uses, key=lambda text: uses[text]), min(uses, key=lambda text: uses[text])
        parameters = evidence.parse_parameters(ReviseParameters)
        used = [{_turn_of(revision_round, parameters) for revision_round in row.rounds} for row in rows]
        return as_written([Chain(row, most in of, least in of) for row, of in zip(rows, used, strict=True)], output)
    if output in ("preferences", "dropped"):
        return read_pairs(evidence, output)
    if not ReviseParameters.model_validate(evidence.parameters).judge:
        return None
    subjects = _read_comparisons(evidence, output)
    if not subjects.rows:
        raise EvidenceMissing("no revision could be compared", where="comparisons of the judge")
    return subjects


def measure_revise(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return the metrics of chains, of their pairs and of the judge; errors as :func:`read_revise`."""
    rows, pairs, pending = revision_rows(evidence), preferences_of(evidence), due_preferences(evidence)
    uses = principle_uses(evidence, rows)
    results = {
        "principle_imbalance": MeasuredValue(max(uses.values()) - min(uses.values()), uses.total()),
        "revision_pairs": MeasuredValue(len(pairs), len(rows)),
        "revision_length_bias": MeasuredValue(length_bias(pairs)[1], len(pairs)),
        **dropped_metrics("revision_pairs", pending, pairs),
    }
    if not ReviseParameters.model_validate(evidence.parameters).judge:
        return results
    n, made = len(sound_rows(evidence, "comparisons", ComparisonRow)), pending.reasons()
    dropped = made.get("original_preferred", 0) + made.get("no_preference", 0)
    return results | {"revision_pairs_dropped_judge": MeasuredValue(dropped, n), **measure_kappa(evidence)}


def _read_comparisons(evidence: Evidence, output: str) -> Subjects:
    rows = sound_rows(evidence, output, ComparisonRow if output == "comparisons" else JudgeCalibrationRow)
    return as_written(rows, output)


def revision_rows(evidence: Evidence) -> tuple[RevisionRow, ...]:
    """Return the chains, each with the faults and the final text that follow from what was written.

    Raises:
        EvidenceMissing: there are none, they cannot be read, or one states what does not follow.
    """
    revise_parameters = evidence.parse_parameters(ReviseParameters)
    rows = read_rows(evidence.outputs.get("rows"), RevisionRow, "revision rows")
    for number, row in enumerate(rows, 1):
        if wrong := contradiction_in(row, revise_parameters):
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
        raw = read_regular(path, MAX_BYTES)
        return Constitution.model_validate_json(json.dumps(read_yaml(raw).data), strict=True), digest_bytes(raw)
    except (OSError, ValueError, UnreadableError) as error:
        why = error.message if isinstance(error, UnreadableError) else plain(str(error), 200)
        raise EvidenceMissing(f"the constitution cannot be read: {why}") from error


def principle_uses(evidence: Evidence, rows: Sequence[RevisionRow]) -> Counter[str]:
    """Return the uses of whatever takes turns: every category, or every principle that the stage names, 0 included.

    Errors are those of :func:`constitution_of`.
    """
    parameters, (constitution, _) = evidence.parse_parameters(ReviseParameters), constitution_of(evidence)
    uses = Counter(dict.fromkeys(parameters.principles or [rule.category for rule in constitution.principles], 0))
    uses.update(_turn_of(revision_round, parameters) for row in rows for revision_round in row.rounds)
    return uses


def _turn_of(revision_round: RevisionRound, parameters: ReviseParameters) -> str:
    return revision_round.principle if parameters.principles else revision_round.category


def preferences_of(evidence: Evidence) -> tuple[Preference, ...]:
    """Return the pairs that were kept, none included; errors as :func:`read_rows`."""
    return read_rows(evidence.outputs.get("preferences"), Preference, "preferences", may_be_empty=True)


def due_preferences(evidence: Evidence) -> PairSelection:
    """Return the pairs that follow from the raw rows, and the dropped pairs.

    Raises:
        EvidenceMissing: the rows are absent, unreadable or contradict themselves.
    """
    if evidence.stage.kind == "revise":
        revise_parameters = ReviseParameters.model_validate(evidence.parameters)
        rows = revision_rows(evidence)
        if revise_parameters.judge is None:
            return all_revisions(rows, revise_parameters)
        compared = sound_rows(evidence, "comparisons", ComparisonRow)
        if len(compared) != len(revisions_to_compare(rows, revise_parameters)):
            raise EvidenceMissing("not every revision has one comparison", where="comparisons of the judge")
        return all_revisions(rows, revise_parameters, compared)
    if evidence.stage.kind == "best_of_n_verified":
        return verified_preferences(evidence)
    parameters = critic_parameters(evidence)
    assert isinstance(parameters, BestOfNParameters)
    return all_pairs(sound_rows(evidence, "comparisons", ComparisonRow), parameters)


def read_sampled_comparisons(evidence: Evidence) -> tuple[ComparisonRow, ...]:
    """Return the comparisons of sampled responses; none of a stage that was broken off for its responses.

    Raises:
        EvidenceMissing: as :func:`sound_rows`, or nothing was compared.
    """
    comparison_rows = sound_rows(evidence, "comparisons", ComparisonRow)
    if not comparison_rows and not why_broken_off(evidence):
        raise EvidenceMissing("no two responses could be compared", where="comparisons of the judge")
    return comparison_rows


def read_prefer(evidence: Evidence, output: str) -> Subjects | None:
    """Return sampled responses, the judge's comparisons, or the pairs.

    Errors are those of :func:`read_sampled_comparisons`.
    """
    if output == "rows":
        return as_written(read_rows(evidence.outputs.get("rows"), CandidateRow, "sampled responses"), output)
    if not read_sampled_comparisons(evidence):
        return None
    is_judged = output in ("comparisons", "calibration")
    return _read_comparisons(evidence, output) if is_judged else read_pairs(evidence, output)


def measure_prefer(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return the metrics of the judge and of the pairs; errors as :func:`read_sampled_comparisons`."""
    rows = read_sampled_comparisons(evidence)
    if not rows:
        return {}
    pairs, both = preferences_of(evidence), 2 * len(rows)
    # The first response of an order is A: preferred there, where "good" is A and good, or B and not.
    first = sum(
        (arrangement.good_label == "A") == arrangement.good for row in rows for arrangement in (row.plain, row.swapped)
    )
    difference, bias = length_bias(pairs)
    return {
        "pair_judge_first_rate": share(first, both),
        **measure_kappa(evidence),
        "pairs_length_difference": MeasuredValue(difference, len(pairs)),
        "pairs_length_bias": MeasuredValue(bias, len(pairs)),
        **dropped_metrics("pairs", due_preferences(evidence), pairs),
    }


def dropped_metrics(prefix: str, pending: PairSelection, pairs: Sequence[Preference]) -> dict[str, MeasuredValue]:
    """Return how many pairs each rule of length dropped, and the lengths of the remaining pairs."""
    reasons, offered = pending.reasons(), len(pending.pairs) + len(pending.dropped)
    return {
        f"{prefix}_dropped_ratio": MeasuredValue(reasons.get("length_ratio", 0), offered),
        f"{prefix}_dropped_balance": MeasuredValue(reasons.get("length_balance", 0), offered),
        f"{prefix}_log_length_ratio": MeasuredValue(log_length_ratio(pairs), len(pairs)),
    }


def _samples(evidence: Evidence) -> tuple[GenerationRow, ...]:
    return read_rows(evidence.inputs.get("samples"), GenerationRow, "the samples")


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


def verified_preferences(evidence: Evidence) -> PairSelection:
    """Return the pairs that follow from the samples, and those not kept; errors as :func:`due_verdicts`."""
    parameters = evidence.parse_parameters(BestOfNVerifiedParameters)
    return verified_pairs(_samples(evidence), due_verdicts(evidence), parameters)


class VerifiedSample(NamedTuple):
    """A sample as the task's verifier judges it again."""

    row: VerifiedRow
    mixed: bool
    """Whether samples of its prompt are accepted and others refused."""


def read_verified(evidence: Evidence, output: str) -> Subjects | None:
    """Return the samples, in the order that came in, or the pairs; errors as :func:`due_verdicts`."""
    if output != "rows":
        return read_pairs(evidence, output)
    verified_rows = due_verdicts(evidence)
    seen_pairs = {(row.item, row.verdict) for row in verified_rows}
    mixed = {item for item, verdict in seen_pairs if verdict == "accepted" and (item, "refused") in seen_pairs}
    return as_written([VerifiedSample(row, row.item in mixed) for row in verified_rows], output)


def measure_verified(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return what is measured of prompts and of the lengths of pairs; errors as :func:`due_verdicts`."""
    verified_rows, pairs = due_verdicts(evidence), preferences_of(evidence)
    return {
        "verified_mixed_prompts": MeasuredValue(mixed_prompts(verified_rows), len({row.item for row in verified_rows})),
        "verified_length_bias": MeasuredValue(length_bias(pairs)[1], len(pairs)),
        **dropped_metrics("verified_pairs", verified_preferences(evidence), pairs),
    }


_READERS: dict[str, Callable[[Evidence, str], Subjects | None]] = {
    "revise": read_revise,
    "best_of_n": read_prefer,
    "best_of_n_verified": read_verified,
}
_MEASURES: dict[str, Callable[[Evidence], dict[str, MeasuredValue]]] = {
    "revise": measure_revise,
    "best_of_n": measure_prefer,
    "best_of_n_verified": measure_verified,
}


def read(evidence: Evidence, output: str) -> Subjects | None:
    """Return what the metrics over an output of a critic, a revision or a selection are computed from."""
    return _READERS.get(evidence.stage.kind, read_critiques)(evidence, output)


def measure(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return the metrics that are judged; errors as those of reading rows."""
    return _MEASURES.get(evidence.stage.kind, measure_kappa)(evidence)
