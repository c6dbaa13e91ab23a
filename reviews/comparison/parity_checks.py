"""Do the two arms differ in the checkpoint and in nothing else?"""

from __future__ import annotations

from typing import Any

from reviews.checks.definition import Check, Found, need_exact
from reviews.checks.job_checks import manifest_of
from reviews.evidence.evidence import Evidence
from reviews.stages.evaluation.judged_answers import Answered, answered
from reviews.statistics import mcnemar
from specs.errors import EvidenceMissing
from specs.exact import holds
from specs.job_records import Manifest
from specs.stages.metric import MetricSet


def _baseline(evidence: Evidence) -> Manifest:
    if evidence.baseline_manifest is None:
        raise EvidenceMissing("the baseline has no accepted attempt with a manifest")
    return evidence.baseline_manifest


def _items(evidence: Evidence, _: MetricSet | None) -> Found:
    ours, theirs = manifest_of(evidence).inputs.get("items"), _baseline(evidence).inputs.get("items")
    if ours is None or ours != theirs:
        return Found("FAIL", f"the treatment read {ours}, the baseline {theirs}", repairable=False)
    return Found("PASS", f"both arms read {ours}", float(len(evidence.heldout)))


def _settings(evidence: Evidence, _: MetricSet | None) -> Found:
    treatment, baseline = manifest_of(evidence), _baseline(evidence)
    compared: list[tuple[str, Any, Any]] = [
        ("granted parameters", evidence.parameters, evidence.baseline_parameters),
        ("effective settings", treatment.effective, baseline.effective),
        ("code", treatment.code, baseline.code),
        ("packages", treatment.packages, baseline.packages),
        ("threads", treatment.threads, baseline.threads),
        ("chat template", treatment.facts.get("chat_template"), baseline.facts.get("chat_template")),
        ("encoded prompt", treatment.facts.get("first_prompt_ids"), baseline.facts.get("first_prompt_ids")),
    ]
    differing = [(what, ours, theirs) for what, ours, theirs in compared if ours != theirs]
    if differing:
        shown = tuple(
            {"what": what, "treatment": str(ours), "baseline": str(theirs)} for what, ours, theirs in differing
        )
        return Found(
            "FAIL", f"the arms differ in {', '.join(what for what, _, _ in differing)}", float(len(shown)), shown
        )
    return Found("PASS", "same decoding, limits, prompt format, tokenizer, code, packages and threads", 0.0)


def _models(evidence: Evidence, _: MetricSet | None) -> Found:
    ours, theirs = manifest_of(evidence).inputs.get("model"), _baseline(evidence).inputs.get("model")
    if ours == theirs:
        return Found("FAIL", f"both arms evaluated the same weights {ours}", repairable=False)
    return Found("PASS", f"treatment {ours}, baseline {theirs}")


def _truncation(evidence: Evidence, metrics: MetricSet | None) -> Found:
    """Repeat the registered test on the items that neither arm truncated: a gain made by the cap vanishes there."""
    before = answered(evidence, evidence.baseline_rows, "baseline rows")
    after = answered(evidence, evidence.outputs.get("rows"), "treatment rows")
    whole = [
        (then.passed, now.passed)
        for then, now in zip(before, after, strict=True)
        if not then.truncated and not now.truncated
    ]
    gained = sum(now and not then for then, now in whole)
    lost = sum(then and not now for then, now in whole)
    p, alpha = mcnemar.exact_mcnemar(gained, lost), evidence.resolved.spec.analysis.alpha
    rates = f"{_rate(before):.3f} of the baseline's answers were cut off, {_rate(after):.3f} of the treatment's"
    detail = f"{rates}; on the {len(whole)} whole pairs {gained} gained, {lost} lost, p = {p:.3g}"
    significant = holds(need_exact(metrics, "mcnemar_p"), "<", alpha)
    if significant and (not holds(p, "<", alpha) or gained <= lost):
        return Found("FAIL", f"{detail}: the gain does not hold without the cut-off answers", p)
    return Found("PASS", detail, p)


def _rate(judged: tuple[Answered, ...]) -> float:
    return sum(one.truncated for one in judged) / len(judged)


CHECKS = (
    Check(
        "parity.items",
        "Both arms answered the same items",
        lambda kind: kind.arm,
        _items,
        "arms on different items",
        only_treatment=True,
    ),
    Check(
        "parity.settings",
        "Both arms were evaluated the same way",
        lambda kind: kind.arm,
        _settings,
        "prompt format or decoding changed between arms",
        only_treatment=True,
    ),
    Check(
        "parity.models",
        "The arms are different weights",
        lambda kind: kind.arm,
        _models,
        "a model compared with itself",
        only_treatment=True,
    ),
    Check(
        "parity.truncation",
        "The gain does not come from the length limit",
        lambda kind: kind.arm,
        _truncation,
        "an evaluation length cap produced an '18 % lift'",
        only_treatment=True,
    ),
)
