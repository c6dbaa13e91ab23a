"""Do the accepted completions differ from each other, and are their lengths of one kind?"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from statistics import median

from reviews.checks.definition import Checks, Found
from reviews.checks.limit import Limit
from reviews.evidence.evidence import Evidence
from reviews.stages.generation.measure import judged_rows
from reviews.stages.generation.residue_checks import kept_of
from specs.exact import holds
from specs.stages.metric import MetricSet
from training.rules.similarity import near_repeats, words_of

CHECKS = Checks(("generate",))

_SOURCE = "two thirds of a data set were duplicates, one question 273 times; what was left still held one 13 times"


@CHECKS.add(
    "variety.copies",
    "No completion was kept again and again",
    source=_SOURCE,
    limits=(Limit("<=", "thresholds.copies"),),
)
def _copies(evidence: Evidence, _: MetricSet | None) -> Found:
    """Count how often the most frequent completion was kept, whatever its prompt, case and marks."""
    most = evidence.resolved.spec.thresholds.copies
    kept = kept_of(evidence)
    if not kept:
        return Found("NOT_APPLICABLE", "no completion was accepted")
    times = Counter(words_of(one.text) for one in kept)
    words, highest = times.most_common(1)[0]
    repeated = [one for one in kept if highest > 1 and words_of(one.text) == words]
    shown = tuple({"item": one.item.id, "completion": one.text, "times": highest} for one in repeated)
    detail = f"the most frequent completion was kept {highest} times of {len(kept)}"
    return Found("FAIL" if highest > most else "PASS", detail, float(highest), shown)


@CHECKS.add(
    "variety.near",
    "Completions differ",
    source=f"{_SOURCE}; Lee et al. 2022, arXiv:2107.06499",
    limits=(Limit("<=", "thresholds.near_duplicates"), Limit("<", "thresholds.prompt_similarity")),
)
def _near(evidence: Evidence, _: MetricSet | None) -> Found:
    """Look for completions that nearly repeat an earlier one (MinHash, confirmed by their true similarity)."""
    thresholds = evidence.resolved.spec.thresholds
    kept = kept_of(evidence)
    if not kept:
        return Found("NOT_APPLICABLE", "no completion was accepted")
    repeats = near_repeats((one.text for one in kept), threshold=thresholds.prompt_similarity)
    shown = tuple(
        {
            "item": kept[one.place].item.id,
            "completion": kept[one.place].text,
            "repeats": kept[one.of].text,
            "similarity": round(one.similarity, 3),
        }
        for one in repeats
    )
    share = Fraction(len(repeats), len(kept))
    detail = f"{len(repeats)} of {len(kept)} accepted completions nearly repeat an earlier one"
    status = "PASS" if holds(share, "<=", thresholds.near_duplicates) else "FAIL"
    return Found(status, detail, float(share), shown)


@CHECKS.add(
    "variety.lengths",
    "Lengths are of one kind",
    source="runaway generations that a heuristic of length counted wrongly",
    blocking=False,
    limits=(Limit("<=", "thresholds.length_spread"),),
)
def _lengths(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare the long end of the accepted completions with their median; a tail of runaways stretches it."""
    most = evidence.resolved.spec.thresholds.length_spread
    rows = [one.row for one in judged_rows(evidence) if one.accepted]
    if not rows:
        return Found("NOT_APPLICABLE", "no completion was accepted")
    lengths = sorted(row.completion_tokens for row in rows)
    middle, long = max(1.0, median(lengths)), lengths[-(-19 * len(lengths) // 20) - 1]
    spread = long / Fraction(middle)
    detail = f"{lengths[0]} to {lengths[-1]} model tokens, median {middle:g}, 95th percentile {long}"
    if holds(spread, "<=", most):
        return Found("PASS", detail, float(spread))
    longest = sorted(rows, key=lambda row: -row.completion_tokens)
    shown = tuple(
        {"item": row.item, "tokens": row.completion_tokens, "completion": row.completion}
        for row in longest
        if holds(row.completion_tokens / Fraction(middle), ">", most)
    )
    return Found("WARN", f"{detail}: a tail of runaways", float(spread), shown)
