"""Are curated examples rows of what they were chosen from, and do they hold nothing of the held-out split?

What is wrong with a selection another selection can fix, so the builder is asked for one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from reviews.checks.definition import CheckOutcome, CheckRegistry
from reviews.checks.leakage_checks import REPEATS, SIMILARITY, duplicates_of, groups_of, overlap_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.stages.base.artifacts import Example, earlier_turn_texts
from specs.stages.base.metric import MetricSet
from specs.stages.recipes.parameters import RecipeParameters
from specs.system.errors import EvidenceMissing
from specs.system.regular_files import read_regular
from specs.system.text import plural
from specs.trail.verdict import RequiredChange

CHECKS = CheckRegistry(("recipe",))
_NONE = CheckOutcome("NOT_APPLICABLE", "the stage registers no curation: its script leaves no examples")
_CHANGE = RequiredChange(text="curate again without the rows that this check shows", by_builder=True)


def curated_role(evidence: Evidence) -> str | None:
    """Return the input whose examples the script curates; None where it curates nothing."""
    parameters = evidence.stage.parameters
    return parameters.curates if isinstance(parameters, RecipeParameters) else None


def _read_curated_examples(evidence: Evidence) -> tuple[Example, ...]:
    return read_rows(evidence.outputs.get("examples"), Example, "curated examples")


@CHECKS.add("recipe.curated", "Curated examples are rows of their source", source="training data of unknown origin")
def _check_curated(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the rows byte for byte: a changed row does not count as a row of its source."""
    if (role := curated_role(evidence)) is None:
        return _NONE
    source, examples = evidence.inputs.get(role), evidence.outputs.get("examples")
    if source is None or examples is None or not source.is_file() or not examples.is_file():
        raise EvidenceMissing("the curated examples or their source are missing")
    counts, chosen = (Counter(read_regular(path).splitlines()) for path in (source, examples))
    if strange := chosen - counts:
        detail = f"{strange.total()} of {plural(chosen.total(), 'curated example')} not among the rows of '{role}'"
        return CheckOutcome("FAIL", detail, float(strange.total()), repairable=False)
    return CheckOutcome(
        "PASS", f"{chosen.total()} of the {counts.total()} rows of '{role}' were kept", float(chosen.total())
    )


@CHECKS.add(
    "recipe.overlap",
    "No held-out prompt is among the curated examples",
    source="training on the test set",
    limits=SIMILARITY,
)
def _check_overlap(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    if curated_role(evidence) is None:
        return _NONE
    texts = dict.fromkeys(
        (example.item, text)
        for example in _read_curated_examples(evidence)
        for text in (example.prompt, example.completion, *earlier_turn_texts(example))
    )
    return _for_the_builder(overlap_of(texts, evidence.reserved_items, evidence.resolved.spec.thresholds))


@CHECKS.add("recipe.groups", "Curated examples share no group with the held-out split", source="leakage through topics")
def _check_groups(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    if curated_role(evidence) is None:
        return _NONE
    return _for_the_builder(groups_of(_read_curated_examples(evidence), evidence.reserved_items))


@CHECKS.add(
    "recipe.repeats",
    "Curated examples do not repeat",
    source="Lee et al. 2022, arXiv:2107.06499",
    blocking=False,
    limits=REPEATS,
)
def _check_repeats(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    if curated_role(evidence) is None:
        return _NONE
    rows = (
        (*earlier_turn_texts(example), example.prompt, example.completion)
        for example in _read_curated_examples(evidence)
    )
    return duplicates_of(rows, evidence.resolved.spec.thresholds)


def _for_the_builder(query_result: CheckOutcome) -> CheckOutcome:
    """Return a finding with the change that another selection is: nothing was trained on this one yet."""
    return replace(query_result, repairable=True, change=_CHANGE) if query_result.status == "FAIL" else query_result
