"""Are revisions and preferences what their raw rows make of them: whole, of known types, balanced, divided by group?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, join_names, unless
from reviews.checks.leakage_checks import SIMILARITY, overlap_of
from reviews.checks.leakage_checks import SOURCE as OVERLAP
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import once, read_rows
from reviews.stages.critique.measure import (
    constitution_of,
    due_preferences,
    due_verdicts,
    preferences_of,
    principle_uses,
    revision_rows,
)
from reviews.stages.critique.pair_answers import (
    LEVEL,
    SOURCE,
    JudgedPair,
    TaskAnswer,
    check_answers,
    check_copies,
    check_direction,
    find_verdicts,
    is_waived,
    judge_pairs,
)
from reviews.statistics.mcnemar import benjamini_hochberg, exact_mcnemar
from specs.stages.base.artifacts import Example
from specs.stages.base.metric import MetricSet
from specs.stages.base.stage import Kind
from specs.stages.critique.parameters import ReviseParameters
from specs.stages.critique.rows import DroppedPair, RevisionRow, VerifiedRow
from specs.stages.registry import outputs_of
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds
from specs.system.text import plural
from training.rules.critique.pair_selection import fault_in, length_bias
from training.rules.critique.preference_pairs import collect_revised_examples
from training.rules.critique.revision_chains import (
    PromptWriter,
    chain_name,
    contradiction_in,
    plan,
)
from training.rules.tasks import spread

CHECKS = CheckRegistry(("revise",))
_PAIRS: tuple[Kind, ...] = ("revise", "best_of_n", "best_of_n_verified")
_MADE: tuple[Kind, ...] = ("revise", "best_of_n")


def _chains(evidence: Evidence) -> tuple[RevisionRow, ...]:
    return read_rows(evidence.outputs.get("rows"), RevisionRow, "revision rows")


@CHECKS.add("revise.follows", "Faults and final texts follow from the raw texts", source="invented provenance")
def _check_follows(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compute what is wrong with each revision, and what each chain comes to, again from its texts."""
    revise_parameters, rows = evidence.parse_parameters(ReviseParameters), _chains(evidence)
    wrong = [
        {"line": number, "item": row.item, "wrong": fault}
        for number, row in enumerate(rows, 1)
        if (fault := contradiction_in(row, revise_parameters))
    ]
    fault = f"{len(wrong)} of {len(rows)} chains state what does not follow from their texts"
    return unless(wrong, fault, f"all {len(rows)} chains follow from their texts")


@CHECKS.add("revise.complete", "Every example has its chain", source="rates over rows that had been filtered before")
def _check_complete(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the chains with the examples they were to be made of."""
    revise_parameters, rows = evidence.parse_parameters(ReviseParameters), _chains(evidence)
    examples = spread(
        read_rows(evidence.inputs.get("examples"), Example, "the examples"), revise_parameters.max_examples
    )
    pending = [
        (example.item, example.group, example.sample, example.prompt, example.completion) for example in examples
    ]
    results = [(row.item, row.group, row.sample, row.instruction, row.original) for row in rows]
    short = [row.item for row in rows if len(row.rounds) != revise_parameters.revisions]
    if pending != results:
        detail = f"{len(pending)} examples came in, {len(results)} chains are not theirs in order"
        return CheckOutcome("FAIL", detail, float(len(results)))
    if short:
        return CheckOutcome(
            "FAIL",
            f"{plural(len(short), 'chain does', 'chains do')} not have {revise_parameters.revisions} rounds",
            float(len(short)),
        )
    return CheckOutcome(
        "PASS",
        f"all {len(pending)} examples have one chain of {revise_parameters.revisions} rounds",
        float(len(pending)),
    )


@CHECKS.add(
    "revise.principles",
    "Principles are those of the registered constitution, and balanced",
    source="principles drawn by chance, so that one category dominates (Bai et al. 2022, arXiv:2212.08073)",
)
def _check_principles(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compute the plan of principles again; count how often each category was used."""
    revise_parameters, rows = evidence.parse_parameters(ReviseParameters), _chains(evidence)
    constitution, digest = constitution_of(evidence)
    registered = evidence.resolved.constitution_digest
    if digest != registered or any(row.constitution != registered for row in rows):
        return CheckOutcome(
            "FAIL", f"the registered constitution is {registered}, another one was used", repairable=False
        )
    plans = plan(constitution, [chain_name(row.item, row.sample) for row in rows], revise_parameters)
    for row, rounds in zip(rows, plans, strict=True):
        pairs = [(rule.id, rule.category) for rule in rounds.principles]
        used = [(round.principle, round.category) for round in row.rounds]
        if used != pairs:
            names = [join_names(name for name, _ in principles) for principles in (used, pairs)]
            detail = f"the chain of '{row.item}' used {names[0]}, not {names[1]}"
            return CheckOutcome("FAIL", detail, rows=({"item": row.item, "used": str(used), "due": str(pairs)},))
    uses = principle_uses(evidence, rows)
    apart = max(uses.values()) - min(uses.values())
    what = "principles" if revise_parameters.principles else "categories"
    message = f"{what} were used: {', '.join(f'{name} {count}' for name, count in sorted(uses.items()))}"
    return CheckOutcome("PASS" if apart <= 1 else "FAIL", message, float(apart))


@CHECKS.add(
    "revise.prompts", "Each prompt follows from its texts", source="the stored prompt differed from the prompt used"
)
def _check_prompts(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Write every prompt again from the texts of its row."""
    rules = {principle.id: principle for principle in constitution_of(evidence)[0].principles}
    writer = PromptWriter.of(evidence.parse_parameters(ReviseParameters), evidence.resolved.spec.model.kind)
    rows = _chains(evidence)
    wrong: list[dict[str, Any]] = []
    for row in rows:
        text = row.original
        for number, revision_round in enumerate(row.rounds, 1):
            rule = rules.get(revision_round.principle)
            if rule is None:
                raise EvidenceMissing(
                    f"'{revision_round.principle}' is not a principle of the constitution", where="revision rows"
                )
            critique = writer.critique_prompt(row.instruction, text, rule)
            revision = writer.revision_prompt(row.instruction, text, rule, revision_round.critique)
            if (revision_round.critique_prompt, revision_round.revision_prompt) != (critique, revision):
                wrong.append({"item": row.item, "round": number, "prompt": revision_round.critique_prompt[-200:]})
            text = text if revision_round.faults else revision_round.revision
    message = f"{len(wrong)} prompts are not those of their texts"
    return unless(wrong, message, f"the prompts of all {len(rows)} chains follow from their texts")


@CHECKS.add(
    "revise.overlap",
    "No held-out prompt is among the worked examples of the constitution",
    source=OVERLAP,
    limits=SIMILARITY,
)
def _check_overlap(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the texts of the principles' worked examples with the held-out prompts."""
    used = {revision_round.principle for row in _chains(evidence) for revision_round in row.rounds}
    pairs = [
        (f"{principle.id}.{place}", text)
        for principle in constitution_of(evidence)[0].principles
        if principle.id in used
        for place, example in enumerate(principle.examples)
        for text in (example.instruction, example.draft, example.revision)
    ]
    if not pairs:
        return CheckOutcome("NOT_APPLICABLE", "the principles have no worked examples of their own")
    return overlap_of(pairs, evidence.reserved_items, evidence.resolved.spec.thresholds)


@CHECKS.add("revise.examples", "The kept examples are the final revisions", source="edited training data")
def _check_examples(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the examples that were kept with the final texts of usable chains."""
    examples = collect_revised_examples(revision_rows(evidence))
    rows = read_rows(evidence.outputs.get("examples"), Example, "revised examples", may_be_empty=True)
    if list(rows) != examples:
        return CheckOutcome(
            "FAIL", f"{len(rows)} examples were kept, {len(examples)} follow from the chains", float(len(rows))
        )
    return CheckOutcome("PASS", f"all {len(examples)} usable chains gave their example", float(len(examples)))


@CHECKS.add(
    "pairs.verdicts",
    "Every sample was judged by the task's verifier, none was left out",
    kinds=("best_of_n_verified",),
    source="labels that come from nowhere; rates over samples that had been filtered before",
)
def _check_verdicts(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Judge every sample again and compare the verdicts."""
    verified_rows = due_verdicts(evidence)
    rows = read_rows(evidence.outputs.get("rows"), VerifiedRow, "verdicts of the verifier")
    if list(rows) == verified_rows:
        return CheckOutcome(
            "PASS", f"the verifier says the same of all {len(verified_rows)} samples", float(len(verified_rows))
        )
    other = [row for row in rows if row not in verified_rows]
    visible = tuple(
        {"item": verified_row.item, "sample": verified_row.sample, "stated": verified_row.verdict}
        for verified_row in other
    )
    detail = (
        f"{len(verified_rows)} samples came in, {len(rows)} verdicts are there; {len(other)} are not the verifier's"
    )
    return CheckOutcome("FAIL", detail, float(len(other)), visible)


@CHECKS.add(
    "pairs.derived",
    "The pairs follow from the raw rows",
    kinds=_PAIRS,
    source="pairs whose margin was a default: confident, 1.0, without a model",
)
def _check_derivation(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Rebuild the pairs from the raw rows, and the dropped pairs if they are recorded."""
    preferences, made = list(preferences_of(evidence)), due_preferences(evidence)
    pending, reasons = made.pairs, ", ".join(f"{name} {count}" for name, count in made.reasons().items())
    if "dropped" in outputs_of(evidence.stage.kind, evidence.stage.parameters):
        out = read_rows(evidence.outputs.get("dropped"), DroppedPair, "dropped pairs", may_be_empty=True)
        if list(out) != made.dropped:
            visible = tuple(
                {"item": dropped_pair.pair.item, "reason": dropped_pair.reason}
                for dropped_pair in out
                if dropped_pair not in made.dropped
            )
            written = plural(len(out), "pair is", "pairs are")
            detail = f"{written} written down as left out, {len(made.dropped)} follow from the raw rows"
            return CheckOutcome("FAIL", detail, float(len(out)), visible)
    if preferences == pending:
        message = f"; left out: {reasons}" if reasons else ""
        return CheckOutcome("PASS", f"all {len(pending)} pairs follow from the raw rows{message}", float(len(pending)))
    extra = [preference for preference in preferences if preference not in pending]
    visible = tuple(
        {"item": preference.item, "chosen": preference.chosen, "rejected": preference.rejected} for preference in extra
    )
    detail = (
        f"{len(preferences)} pairs were kept, {len(pending)} follow from the raw rows; {len(extra)} kept ones do not"
    )
    return CheckOutcome("FAIL", detail, float(len(extra)), visible)


@CHECKS.add(
    "pairs.whole",
    "Every pair is whole and of a known type",
    kinds=_PAIRS,
    source="literal line-end escapes in the prompts of pairs; pairs of equal texts",
)
def _check_whole(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Check each pair separately, and look for pairs that occur twice."""
    pairs = preferences_of(evidence)
    if not pairs:
        return CheckOutcome("FAIL", "no pair was kept")
    wrong = [
        {"item": preference.item, "wrong": fault, "chosen": preference.chosen}
        for preference in pairs
        if (fault := fault_in(preference))
    ]
    if wrong:
        return unless(wrong, f"{len(wrong)} of {len(pairs)} pairs: {wrong[0]['wrong']}", "")
    times = Counter((preference.prompt, preference.chosen, preference.rejected) for preference in pairs)
    twice = sum(count - 1 for count in times.values())
    if twice:
        return CheckOutcome("FAIL", f"{twice} pairs repeat another one", float(twice))
    types = Counter(preference.negative_type or preference.source for preference in pairs)
    fault = ", ".join(f"{name} {count}" for name, count in sorted(types.items()))
    return CheckOutcome("PASS", f"{len(pairs)} whole pairs: {fault}", float(len(pairs)))


@CHECKS.add(
    "pairs.split",
    "No group is on both sides of the split",
    kinds=_PAIRS,
    source="pairs of one prompt in training and validation",
)
def _check_split(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for groups and prompts on both sides of the split."""
    pairs = preferences_of(evidence)
    sides: dict[str, tuple[set[str], set[str]]] = {}
    for side in ("train", "validation"):
        preferences = [preference for preference in pairs if preference.split == side]
        sides[side] = (
            {preference.group for preference in preferences},
            {" ".join(preference.prompt.lower().split()) for preference in preferences},
        )
    bare = sum(preference.split is None for preference in pairs)
    if bare:
        return CheckOutcome("FAIL", f"{bare} pairs are on neither side", float(bare))
    for what, texts, other in zip(("groups", "prompts"), sides["train"], sides["validation"], strict=True):
        if shared := sorted(texts & other):
            return CheckOutcome(
                "FAIL", f"{len(shared)} {what} are on both sides: {join_names(shared)}", float(len(shared))
            )
    counts = Counter(preference.split for preference in pairs)
    return CheckOutcome(
        "PASS", f"{counts['train']} pairs for training, {counts['validation']} for validation, no group on both"
    )


@CHECKS.add(
    "pairs.length",
    "Chosen and rejected are of like length",
    kinds=_PAIRS,
    source="preferences that teach length (Singhal et al. 2023, arXiv:2310.03716)",
    limits=(CheckLimit("<=", "thresholds.length_bias"),),
)
def _check_length(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the lengths of chosen and rejected: training on pairs would teach the difference before all else."""
    most = evidence.resolved.spec.thresholds.length_bias
    pairs = preferences_of(evidence)
    difference, bias = length_bias(pairs)
    detail = f"chosen responses have {float(difference):+.1f} words on average, {float(bias):+.2f} of the mean length"
    if holds(abs(bias), "<=", most):
        return CheckOutcome("PASS", detail, float(bias))
    ordered = sorted(
        pairs, key=lambda preference: -abs(len(preference.chosen.split()) - len(preference.rejected.split()))
    )
    visible = tuple(
        {"item": preference.item, "chosen": preference.chosen, "rejected": preference.rejected}
        for preference in ordered
    )
    return CheckOutcome("FAIL", detail, float(bias), visible)


def _judge_kept_pairs(evidence: Evidence) -> tuple[list[JudgedPair], bool]:
    """Return the kept pairs as the task's verifier judges them, and whether a judge compared them."""
    spec, known = evidence.resolved.spec, (evidence.data, evidence.heldout)
    judged = once(_judge_kept_pairs, evidence, lambda: judge_pairs(spec, *known, preferences_of(evidence)))
    has_judge = evidence.stage.kind == "best_of_n" or evidence.parse_parameters(ReviseParameters).judge is not None
    return judged, has_judge


@CHECKS.add("pairs.direction", "Chosen answers are right more often than rejected ones", kinds=_MADE, source=SOURCE)
def _check_direction(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Judge both sides by the task's verifier; where it cannot, a judge has to, or a person has to say so."""
    (judged, has_judge), name = _judge_kept_pairs(evidence), evidence.stage.name
    return check_direction(judged, name, has_judge=has_judge, waived=is_waived(evidence.resolved.spec, name))


@CHECKS.add("pairs.copies", "The two sides of a pair say something different", kinds=_MADE, source=SOURCE)
def _check_copies(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count pairs whose sides are the same but for case, marks or a word in ten, where nothing tells them apart."""
    judged, has_judge = _judge_kept_pairs(evidence)
    return check_copies(judged, has_judge=has_judge)


@CHECKS.add("pairs.answers", "Chosen answers answer their prompt", kinds=_MADE, source=SOURCE)
def _check_answers(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for chosen answers that speak of the request, answer several prompts, or share nothing with theirs."""
    return check_answers(_judge_kept_pairs(evidence)[0])


@CHECKS.add("revise.gain", "Revisions make answers better, by each principle", source=SOURCE)
def _check_gain(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Judge each used revision before and after; the p-values of principles are adjusted for their number."""
    steps = [step for row in revision_rows(evidence) for step in _list_steps(row)]
    answers = [TaskAnswer(step.prompt, text) for step in steps for text in (step.before, step.after)]
    verdicts = find_verdicts(evidence.resolved.spec, evidence.data, evidence.heldout, answers)
    judged = [
        (step, bool(before), bool(after))
        for step, before, after in zip(steps, verdicts[::2], verdicts[1::2], strict=True)
        if before is not None
    ]
    if not judged:
        return CheckOutcome("NOT_APPLICABLE", "the task's verifier cannot judge the revised instructions")
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for step, before, after in judged:
        counts[step.principle][0] += after > before
        counts[step.principle][1] += before > after
    gained, lost = (sum(pair[place] for pair in counts.values()) for place in (0, 1))
    adjusted = benjamini_hochberg([exact_mcnemar(*pair) for pair in counts.values()])
    worse = [name for (name, pair), p in zip(counts.items(), adjusted, strict=True) if p < LEVEL and pair[1] > pair[0]]
    p = exact_mcnemar(gained, lost)
    parts = join_names(f"{name} {pair[0]} and {pair[1]}" for name, pair in sorted(counts.items()))
    detail = f"of {len(judged)} revisions {gained} made an answer right and {lost} made one wrong "
    detail += f"(exact McNemar p = {p:.2g}); by principle: {parts}"
    visible = tuple(step._asdict() for step, before, after in judged if before > after)
    if worse or p < LEVEL and lost > gained:
        message = f"{detail}. Revisions make answers worse{f' by {join_names(worse)}' if worse else ''}"
        return CheckOutcome("FAIL", message, float(lost), visible)
    if lost >= gained:
        return CheckOutcome("WARN", f"{detail}. They do not make answers better", float(lost), visible)
    return CheckOutcome("PASS", detail, float(gained), visible)


class RevisionStep(NamedTuple):
    """A revision that was used, and the text it replaced."""

    principle: str
    prompt: str
    before: str
    after: str


def _list_steps(row: RevisionRow) -> Iterable[RevisionStep]:
    text = row.original
    for revision_round in row.rounds:
        if not revision_round.faults:
            yield RevisionStep(revision_round.principle, row.instruction, text, revision_round.revision)
            text = revision_round.revision
