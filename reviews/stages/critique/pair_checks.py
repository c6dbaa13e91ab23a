"""Are revisions and preferences what their raw rows make of them: whole, of known types, balanced, divided by group?"""

from __future__ import annotations

from collections import Counter
from typing import Any

from reviews.checks.definition import Checks, Found, Limit, listed, unless
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from reviews.stages.critique.measure import (
    constitution_of,
    due_preferences,
    due_verdicts,
    preferences_of,
    principle_uses,
    revision_rows,
)
from specs.errors import EvidenceMissing
from specs.exact import holds
from specs.stages.answer_end import Form
from specs.stages.artifacts import Example
from specs.stages.critique.parameters import ReviseParameters
from specs.stages.critique.rows import DroppedPair, RevisionRow, VerifiedRow
from specs.stages.metric import MetricSet
from specs.stages.registry import outputs_of
from specs.stages.stage import Kind
from training.rules.critique.pair_selection import fault_in, length_bias
from training.rules.critique.preference_pairs import revised
from training.rules.critique.revision_chains import (
    chain_name,
    contradiction_in,
    critique_prompt,
    plan,
    revision_prompt,
)
from training.rules.prompt_encoding import form_of
from training.rules.tasks import spread

CHECKS = Checks(("revise",))
_PAIRS: tuple[Kind, ...] = ("revise", "best_of_n", "best_of_n_verified")


def _chains(evidence: Evidence) -> tuple[RevisionRow, ...]:
    return read_rows(evidence.outputs.get("rows"), RevisionRow, "revision rows")


@CHECKS.add(
    "revise.follows", "Faults and final texts follow from what was written", source="provenance that was made up"
)
def _follows(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compute what is wrong with each revision, and what each chain comes to, again from its texts."""
    given, rows = evidence.granted(ReviseParameters), _chains(evidence)
    wrong = [
        {"line": number, "item": row.item, "wrong": fault}
        for number, row in enumerate(rows, 1)
        if (fault := contradiction_in(row, given))
    ]
    fault = f"{len(wrong)} of {len(rows)} chains state what does not follow from their texts"
    return unless(wrong, fault, f"all {len(rows)} chains follow from their texts")


@CHECKS.add("revise.complete", "Every example has its chain", source="rates over rows that had been filtered before")
def _complete(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare the chains with the examples they were to be made of."""
    given, rows = evidence.granted(ReviseParameters), _chains(evidence)
    examples = spread(read_rows(evidence.inputs.get("examples"), Example, "the examples"), given.max_examples)
    due = [(one.item, one.group, one.sample, one.prompt, one.completion) for one in examples]
    found = [(row.item, row.group, row.sample, row.instruction, row.original) for row in rows]
    short = [row.item for row in rows if len(row.rounds) != given.revisions]
    if due != found:
        detail = f"{len(due)} examples came in, {len(found)} chains are not theirs in order"
        return Found("FAIL", detail, float(len(found)))
    if short:
        return Found("FAIL", f"{len(short)} chains do not have {given.revisions} rounds", float(len(short)))
    return Found("PASS", f"all {len(due)} examples have one chain of {given.revisions} rounds", float(len(due)))


@CHECKS.add(
    "revise.principles",
    "Principles are those of the registered constitution, and balanced",
    source="principles drawn by chance, so that one category dominates (Bai et al. 2022, arXiv:2212.08073)",
)
def _principles(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compute the plan of principles again; count how often each category was used."""
    given, rows = evidence.granted(ReviseParameters), _chains(evidence)
    constitution, digest = constitution_of(evidence)
    registered = evidence.resolved.constitution_digest
    if digest != registered or any(row.constitution != registered for row in rows):
        return Found("FAIL", f"the registered constitution is {registered}, another one was used", repairable=False)
    plans = plan(constitution, [chain_name(row.item, row.sample) for row in rows], given.revisions, given.seed)
    for row, one in zip(rows, plans, strict=True):
        due = [(rule.id, rule.category) for rule in one.principles]
        used = [(round.principle, round.category) for round in row.rounds]
        if used != due:
            names = [listed(name for name, _ in some) for some in (used, due)]
            detail = f"the chain of '{row.item}' used {names[0]}, not {names[1]}"
            return Found("FAIL", detail, shown=({"item": row.item, "used": str(used), "due": str(due)},))
    uses = principle_uses(evidence, rows)
    apart = max(uses.values()) - min(uses.values())
    message = ", ".join(f"{name} {count}" for name, count in sorted(uses.items()))
    return Found("PASS" if apart <= 1 else "FAIL", f"categories were used: {message}", float(apart))


@CHECKS.add(
    "revise.prompts", "Each prompt is that of its texts", source="the stored prompt was not the one that was used"
)
def _prompts(evidence: Evidence, _: MetricSet | None) -> Found:
    """Write every prompt again from the texts of its row."""
    rules = {one.id: one for one in constitution_of(evidence)[0].principles}
    form: Form = form_of(evidence.resolved.spec.model.kind)
    rows = _chains(evidence)
    wrong: list[dict[str, Any]] = []
    for row in rows:
        text = row.original
        for number, one in enumerate(row.rounds, 1):
            rule = rules.get(one.principle)
            if rule is None:
                raise EvidenceMissing(f"'{one.principle}' is no principle of the constitution", where="revision rows")
            critique = critique_prompt(row.instruction, text, rule, form)
            revision = revision_prompt(row.instruction, text, rule, one.critique, form)
            if (one.critique_prompt, one.revision_prompt) != (critique, revision):
                wrong.append({"item": row.item, "round": number, "prompt": one.critique_prompt[-200:]})
            text = text if one.faults else one.revision
    message = f"{len(wrong)} prompts are not those of their texts"
    return unless(wrong, message, f"the prompts of all {len(rows)} chains are those of their texts")


@CHECKS.add("revise.examples", "What was kept are the final revisions", source="edited training data")
def _examples(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare the examples that were kept with the final texts of usable chains."""
    due = revised(revision_rows(evidence))
    kept = read_rows(evidence.outputs.get("examples"), Example, "revised examples", may_be_empty=True)
    if list(kept) != due:
        return Found("FAIL", f"{len(kept)} examples were kept, {len(due)} follow from the chains", float(len(kept)))
    return Found("PASS", f"all {len(due)} usable chains gave their example", float(len(due)))


@CHECKS.add(
    "pairs.verdicts",
    "Every sample was judged by the task's verifier, none was left out",
    kinds=("best_of_n_verified",),
    source="labels that come from nowhere; rates over samples that had been filtered before",
)
def _verdicts(evidence: Evidence, _: MetricSet | None) -> Found:
    """Judge every sample again and compare the verdicts."""
    due = due_verdicts(evidence)
    rows = read_rows(evidence.outputs.get("rows"), VerifiedRow, "verdicts of the verifier")
    if list(rows) == due:
        return Found("PASS", f"the verifier says the same of all {len(due)} samples", float(len(due)))
    other = [one for one in rows if one not in due]
    shown = tuple({"item": one.item, "sample": one.sample, "stated": one.verdict} for one in other)
    detail = f"{len(due)} samples came in, {len(rows)} verdicts are there; {len(other)} are not the verifier's"
    return Found("FAIL", detail, float(len(other)), shown)


@CHECKS.add(
    "pairs.derived",
    "The pairs follow from the raw rows",
    kinds=_PAIRS,
    source="pairs whose margin was a default: confident, 1.0, without a model",
)
def _derived(evidence: Evidence, _: MetricSet | None) -> Found:
    """Make the pairs again from the raw rows, and those that were left out where they are written down."""
    kept, made = list(preferences_of(evidence)), due_preferences(evidence)
    due, reasons = made.kept, ", ".join(f"{name} {count}" for name, count in made.reasons().items())
    if "dropped" in outputs_of(evidence.stage.kind, evidence.stage.parameters):
        out = read_rows(evidence.outputs.get("dropped"), DroppedPair, "dropped pairs", may_be_empty=True)
        if list(out) != made.dropped:
            shown = tuple({"item": one.pair.item, "reason": one.reason} for one in out if one not in made.dropped)
            detail = f"{len(out)} pairs are written down as left out, {len(made.dropped)} follow from the raw rows"
            return Found("FAIL", detail, float(len(out)), shown)
    if kept == due:
        message = f"; left out: {reasons}" if reasons else ""
        return Found("PASS", f"all {len(due)} pairs follow from the raw rows{message}", float(len(due)))
    extra = [one for one in kept if one not in due]
    shown = tuple({"item": one.item, "chosen": one.chosen, "rejected": one.rejected} for one in extra)
    detail = f"{len(kept)} pairs were kept, {len(due)} follow from the raw rows; {len(extra)} kept ones do not"
    return Found("FAIL", detail, float(len(extra)), shown)


@CHECKS.add(
    "pairs.whole",
    "Every pair is whole and of a known type",
    kinds=_PAIRS,
    source="literal line-end escapes in the prompts of pairs; pairs of equal texts",
)
def _whole(evidence: Evidence, _: MetricSet | None) -> Found:
    """Look at each pair by itself, and for pairs that occur twice."""
    pairs = preferences_of(evidence)
    if not pairs:
        return Found("FAIL", "not one pair was kept")
    wrong = [{"item": one.item, "wrong": fault, "chosen": one.chosen} for one in pairs if (fault := fault_in(one))]
    if wrong:
        return unless(wrong, f"{len(wrong)} of {len(pairs)} pairs: {wrong[0]['wrong']}", "")
    times = Counter((one.prompt, one.chosen, one.rejected) for one in pairs)
    twice = sum(count - 1 for count in times.values())
    if twice:
        return Found("FAIL", f"{twice} pairs repeat another one", float(twice))
    types = Counter(one.negative_type or one.source for one in pairs)
    fault = ", ".join(f"{name} {count}" for name, count in sorted(types.items()))
    return Found("PASS", f"{len(pairs)} whole pairs: {fault}", float(len(pairs)))


@CHECKS.add(
    "pairs.split",
    "No group is on both sides of the split",
    kinds=_PAIRS,
    source="pairs of one prompt in training and validation",
)
def _split(evidence: Evidence, _: MetricSet | None) -> Found:
    """Look for groups and prompts on both sides of the split."""
    pairs = preferences_of(evidence)
    sides: dict[str, tuple[set[str], set[str]]] = {}
    for side in ("train", "validation"):
        some = [one for one in pairs if one.split == side]
        sides[side] = {one.group for one in some}, {" ".join(one.prompt.lower().split()) for one in some}
    bare = sum(one.split is None for one in pairs)
    if bare:
        return Found("FAIL", f"{bare} pairs are on no side", float(bare))
    for what, one, other in zip(("groups", "prompts"), sides["train"], sides["validation"], strict=True):
        if shared := sorted(one & other):
            return Found("FAIL", f"{len(shared)} {what} are on both sides: {listed(shared)}", float(len(shared)))
    counts = Counter(one.split for one in pairs)
    return Found(
        "PASS", f"{counts['train']} pairs for training, {counts['validation']} for validation, no group on both"
    )


@CHECKS.add(
    "pairs.length",
    "Chosen and rejected are of like length",
    kinds=_PAIRS,
    source="preferences that teach length (Singhal et al. 2023, arXiv:2310.03716)",
    limits=(Limit("<=", "thresholds.length_bias"),),
)
def _length(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare the lengths of chosen and rejected: training on pairs would teach the difference before all else."""
    most = evidence.resolved.spec.thresholds.length_bias
    pairs = preferences_of(evidence)
    difference, bias = length_bias(pairs)
    detail = f"chosen responses have {float(difference):+.1f} words on average, {float(bias):+.2f} of the mean length"
    if holds(abs(bias), "<=", most):
        return Found("PASS", detail, float(bias))
    ordered = sorted(pairs, key=lambda one: -abs(len(one.chosen.split()) - len(one.rejected.split())))
    shown = tuple({"item": one.item, "chosen": one.chosen, "rejected": one.rejected} for one in ordered)
    return Found("FAIL", detail, float(bias), shown)
