"""Are the labelled samples of critics labelled, of both labels, and large enough? Asked before anything is spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from reviews.checks.definition import Found
from reviews.checks.limit import Limit
from specs.session.session_spec import SessionSpec
from specs.stages.artifacts import Item
from training.rules.critique.subjects import Unlabelled, labelled, labelled_pairs

LIMITS = (Limit(">=", "thresholds.labelled_items"), Limit(">=", "thresholds.labelled_minority"))


def samples_of(spec: SessionSpec, data: Mapping[str, tuple[Item, ...]]) -> Found:
    """Check the labelled sample of every critic; ``data`` are the data files by name."""
    least, of_each = spec.thresholds.labelled_items, spec.thresholds.labelled_minority
    sizes: list[int] = []
    for stage in spec.stages:
        judged = stage.kind == "best_of_n" or (stage.kind == "revise" and stage.parameters.judge is not None)
        if not judged and stage.kind not in ("critique_instructions", "critique_responses"):
            continue
        owner, _, name = stage.inputs["calibration"].partition(".")
        if owner != "data":
            detail = f"stage '{stage.name}' takes its labels from '{owner}', not from a data file of a person"
            return Found("FAIL", detail, repairable=False)
        items = data.get(name, ())
        where = f"the labelled sample '{name}' of stage '{stage.name}'"
        try:
            if judged:
                labels: list[str] = [label for _, label in labelled_pairs(items)]
            else:
                labels = [label for _, label in labelled(items, responses=stage.kind == "critique_responses")]
        except Unlabelled as error:
            return Found("FAIL", f"{where}: {error}")
        counts = Counter(labels)
        if len(labels) < least:
            return Found("FAIL", f"{where} holds {len(labels)} items, {least} are needed", float(len(labels)))
        if len(counts) < 2 or min(counts.values()) < of_each:
            told = ", ".join(f"{count} {label}" for label, count in sorted(counts.items()))
            return Found("FAIL", f"{where} holds {told}; {of_each} of each are needed", float(len(labels)))
        sizes.append(len(labels))
    if not sizes:
        return Found("PASS", "no stage has a critic")
    detail = f"the labelled samples of {len(sizes)} critics hold {min(sizes)} items or more"
    return Found("PASS", detail, float(min(sizes)))
