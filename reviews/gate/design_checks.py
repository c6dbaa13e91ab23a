"""Checks of the design, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reviews.checks import leakage_checks, text_checks
from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, join_names, result, run_guarded, unless
from reviews.comparison import paired_checks, parity_checks, power_checks, principle_checks, subgroup_checks, transfer
from reviews.evidence.evidence import DesignEvidence
from reviews.evidence.gather import CONSTITUTION
from reviews.evidence.heldout_screen import list_prompted_texts
from reviews.stages.critique import critic_checks, pair_answers
from reviews.stages.evaluation import item_checks, label_checks, scorer_checks
from reviews.stages.finetuning import scaling_checks
from specs.session.design import Design, ResolvedDesign
from specs.session.evaluation_plan import LEAST_POWER, MOST_ALPHA
from specs.stages.base.artifacts import Example, Item, Preference, earlier_turn_texts
from specs.stages.registry import kind_of
from specs.system.exact import exact, holds
from specs.system.text import plural
from specs.system.vendors.parties import makers
from specs.trail.verdict import CheckResult
from training.rules.tasks import CONVERSATION
from training.rules.tasks.conversation import user_turns_of

DESIGN_GATE = ("design",)
"""In the place of stage kinds: these checks get a design, and no evidence."""
DESIGN_CHECKS = CheckRegistry(DESIGN_GATE)
MOST_NEAR = 0.1
"""Fraction of the held-out items that may nearly repeat another which is judged alike; none did in any measured set
(decision 55)."""
MOST_REPEATED = 0.5
"""Fraction of the training prompts: repeats above which fewer different prompts remain than repeats of them."""


def design_checks(
    resolved: ResolvedDesign,
    heldout: tuple[Item, ...],
    data: Mapping[str, tuple[Item, ...]],
    costs: Mapping[str, float],
    brought: Mapping[str, Sequence[Example | Preference]] | None = None,
    constitution: str = "",
) -> tuple[CheckResult, ...]:
    """Judge power, overlap of the splits, independence and cost of a registered design."""
    design = DesignEvidence(resolved, heldout, data, costs, brought or {}, constitution)
    digests = resolved.data_digests.values()
    return tuple(result(check, run_guarded(check.run, design), resolved.spec, digests) for check in DESIGN_CHECKS)


@DESIGN_CHECKS.add(
    "design.power",
    "The registered test can find the registered effect",
    source="underpowered comparisons; exact McNemar test, McNemar 1947",
    limits=(CheckLimit(">=", "analysis.power"),),
)
def _check_power(design: DesignEvidence) -> CheckOutcome:
    """Compute the power of the registered test at the registered minimum effect and compare it with the asked one.

    A test that mostly finds something where nothing is has power for free, so its level has a limit.
    """
    analysis = design.resolved.spec.analysis
    if holds(analysis.alpha, ">", MOST_ALPHA):
        message = f"alpha is {analysis.alpha:g}: so large a share of sessions without any effect would be accepted"
        return CheckOutcome("FAIL", f"{message}; at most {MOST_ALPHA:g} is customary", analysis.alpha, repairable=False)
    if holds(analysis.power, "<", LEAST_POWER):
        message = f"power is {analysis.power:g}: the registered effect may mostly be missed, so a null says nothing"
        return CheckOutcome("FAIL", f"{message}; at least {LEAST_POWER:g}", analysis.power, repairable=False)
    whole, kinds = power_checks.design_power(analysis), power_checks.design_kinds(analysis, design.heldout)
    if analysis.kinds is None or whole.status != "PASS":
        return whole
    return replace(kinds, detail=f"{whole.detail}; by kind: {kinds.detail}", figure=whole.figure)


@DESIGN_CHECKS.add(
    "design.paired", "The registered paired tests can find their effects", source="underpowered comparisons"
)
def _check_paired_tests(design: DesignEvidence) -> CheckOutcome:
    """Compute the power of the paired tests registered next to the analysis."""
    return paired_checks.design_of(design.resolved.spec, len(design.heldout), dict(design.data))


@DESIGN_CHECKS.add(
    "design.transfer",
    "The transfer split is another one than the held-out split, and large enough",
    source=transfer.SOURCE,
    limits=leakage_checks.SIMILARITY,
)
def _check_transfer(design: DesignEvidence) -> CheckOutcome:
    """Compare its prompts with each other and with the held-out ones, and compute the power of its test."""
    return transfer.design_of(design.resolved.spec, design.heldout, design.data)


@DESIGN_CHECKS.add(
    "design.overlap",
    "No held-out prompt or right answer is in what a model learns from or is prompted with",
    source=leakage_checks.SOURCE,
    limits=leakage_checks.SIMILARITY,
)
def _check_overlap(design: DesignEvidence) -> CheckOutcome:
    """Compare every text that a model learns from or is prompted with with the held-out prompts and right answers.

    They are training prompts, what is taught, the objective, parameters that are texts, scripts and the constitution.
    """
    taught = _taught(design)
    pairs = [*_prompts(design), *taught, *list_prompted_texts(design.resolved)]
    pairs += [(CONSTITUTION, design.constitution)] if design.constitution else []
    answers = [text for _, text in taught]
    result = leakage_checks.overlap_of(pairs, design.reserved_items, design.resolved.spec.thresholds, answers)
    if result.status == "FAIL":
        return result
    chance = leakage_checks.answers_by_chance(answers, design.reserved_items)
    return chance if chance.status == "FAIL" or result.status == "PASS" else result


def _taught(design: DesignEvidence) -> list[tuple[str, str]]:
    curated = design.list_curated_files()
    return [text for text in design.texts() if text[0].rpartition(":")[0] not in curated]


def _prompts(design: DesignEvidence) -> list[tuple[str, str]]:
    return [
        (f"{name}:{item.id}", text)
        for name, items in design.select_training_data().items()
        for item in items
        for text in dict.fromkeys((item.prompt, leakage_checks.question_text_of(item)))
    ]


@DESIGN_CHECKS.add(
    "design.nearest",
    "No training prompt stands out as near to a held-out prompt",
    source=leakage_checks.NEAREST_SOURCE,
    blocking=False,
)
def _check_nearest(design: DesignEvidence) -> CheckOutcome:
    """Look for training prompts that may be paraphrases: they share rare words with a held-out prompt.

    The reviewer is shown the pairs and judges whether they ask the same.
    """
    return leakage_checks.nearest_pairs(_prompts(design), design.reserved_items)


@DESIGN_CHECKS.add(
    "design.unique",
    "No held-out prompt appears twice",
    source="a test set of 350 items, only 180 of them distinct",
    limits=leakage_checks.SIMILARITY,
)
def _check_unique(design: DesignEvidence) -> CheckOutcome:
    """Look for held-out prompts that ask the same thing twice: n counts questions, not rows.

    Prompts that nearly repeat another may ask something else ("3 + 4", "3 + 5"): the reviewer sees them. Where more
    than a tenth of the items do so, and are judged alike, the split is smaller than it says.
    """
    prompts = [
        (item.id, "\n".join([leakage_checks.question_text_of(item), *user_turns_of(item)[1:]]))
        for item in design.heldout
    ]
    visible = [
        {"heldout": overlap.train, "repeats": overlap.heldout, "text": overlap.train_text}
        for overlap in leakage_checks.repeats_of(prompts)
    ]
    message, right = f"{len(visible)} held-out prompts repeat another", f"all {len(prompts)} held-out prompts differ"
    alone = [
        (item.id, leakage_checks.question_text_of(item)) for item in design.heldout if len(user_turns_of(item)) == 1
    ]
    near = leakage_checks.near_repeats_of(alone, design.resolved.spec.thresholds)
    if visible or not near:
        return unless(visible, message, right, repairable=False)
    count = len({overlap.train for overlap in near})
    judged = {item.id: (item.kind, item.constraint) for item in design.heldout}
    same = len({overlap.train for overlap in near if judged[overlap.train] == judged[overlap.heldout]})
    effective = f"{count} of {len(prompts)} held-out prompts nearly repeat an earlier one: they are not {len(prompts)} "
    rows = tuple(map(leakage_checks.shown_overlap, near))
    if same > MOST_NEAR * len(prompts):
        return CheckOutcome("FAIL", f"{effective}questions, and are judged alike", float(count), rows, repairable=False)
    return CheckOutcome("WARN", f"{effective}questions for sure", float(count), rows)


@DESIGN_CHECKS.add(
    "design.strata",
    "Every constraint kind has enough held-out items",
    source=subgroup_checks.SOURCE,
    limits=item_checks.ITEMS_PER_KIND,
)
def _check_strata(design: DesignEvidence) -> CheckOutcome:
    """Count the held-out items of each constraint kind: a kind with a handful of items proves nothing alone."""
    return item_checks.sizes_of(design.heldout, design.resolved.spec.thresholds.items_per_kind)


@DESIGN_CHECKS.add(
    "design.principles",
    "Every instruction that a principle names is in a held-out item",
    source=principle_checks.SOURCE,
)
def _check_principles(design: DesignEvidence) -> CheckOutcome:
    """Look each instruction that a principle names up in the held-out items: no answer could be counted by another."""
    principles = principle_checks.counted_principles(design.constitution)
    if not principles:
        return CheckOutcome("NOT_APPLICABLE", "no principle names instructions")
    if design.resolved.spec.task != "instruction_following":
        message = f"the items of task '{design.resolved.spec.task}' hold no instructions, and principles name some"
        return CheckOutcome("FAIL", message, repairable=False)
    wrong = principle_checks.unknown_instructions(principles, design.heldout)
    fault = (
        f"{plural(len(wrong), 'instruction of a principle is', 'instructions of principles are')} in no held-out item"
    )
    return unless(wrong, fault, "held-out items hold every instruction that a principle names", repairable=False)


@DESIGN_CHECKS.add("design.drawn", "The held-out split is what its pool and rule draw", source=item_checks.DRAWN_SOURCE)
def _check_drawn(design: DesignEvidence) -> CheckOutcome:
    """Draw the split again from its registered pool: picked items, or easy ones, are other items."""
    pool = design.resolved.spec.heldout.pool
    return item_checks.drawn_again(pool, design.data.get(pool.data, ()) if pool else (), design.heldout)


@DESIGN_CHECKS.add("design.items", "Every held-out item can be passed and failed", source=item_checks.SOURCE)
def _check_items(design: DesignEvidence) -> CheckOutcome:
    """Run each held-out item's verifier on known answers: an item that nothing or everything meets shows nothing."""
    return item_checks.soundness(design.resolved.spec, design.reserved_items)


@DESIGN_CHECKS.add("design.answers", "No held-out prompt contains its answer", source=label_checks.LEAKED_ANSWER_SOURCE)
def _check_answers(design: DesignEvidence) -> CheckOutcome:
    """Look for prompts that announce the answer which they are judged by, or hold it."""
    return label_checks.judge_design_labels(design.resolved.spec, design.reserved_items, design.data)


@DESIGN_CHECKS.add(
    "design.common_answer",
    "No single answer is right for most held-out items",
    source=label_checks.COMMON_SOURCE,
    limits=label_checks.COMMON_LIMITS,
)
def _check_common_answer(design: DesignEvidence) -> CheckOutcome:
    """Count the items of which the most common right answer is right: accuracy shows little where one word passes."""
    return label_checks.common_answer(design.resolved.spec, design.heldout, design.data, design.texts())


@DESIGN_CHECKS.add(
    "design.distinct", "Right answers that differ are not compared as one", source=label_checks.DISTINCT_SOURCE
)
def _check_distinct(design: DesignEvidence) -> CheckOutcome:
    """Look for right answers of `exact_answer` that differ in what it ignores, and for rationales in their place."""
    return label_checks.distinct_answers(design.resolved.spec, design.heldout, design.data)


@DESIGN_CHECKS.add(
    "design.scorer", "The scorers are admitted", source=scorer_checks.SOURCE, limits=scorer_checks.LIMITS
)
def _check_scorer(design: DesignEvidence) -> CheckOutcome:
    """Compare each verifier of answers with known answers, and the task's own with labels of people too."""
    spec = design.resolved.spec
    results = [scorer_checks.check_admission(spec, task, design.data, design.heldout) for task in _tasks(spec)]
    return next((value for value in results if value.status != "PASS"), results[0])


def _tasks(spec: Design) -> tuple[str, ...]:
    """Return the tasks whose verifiers judge answers of the session."""
    judged = [(stage, arm) for stage in spec.stages if (arm := kind_of(stage).arm)]
    own = [task for stage, _ in judged if (task := getattr(stage.parameters, "scorer", None))]
    talks = [CONVERSATION] if any(arm.conversations for _, arm in judged) else []
    return tuple(dict.fromkeys((spec.task, *own, *talks)))


@DESIGN_CHECKS.add(
    "design.brought",
    "Pairs and examples of a person meet what pairs of stages have to meet",
    source=pair_answers.SOURCE,
    limits=(CheckLimit("<=", "thresholds.length_bias"),),
)
def _check_brought_rows(design: DesignEvidence) -> CheckOutcome:
    """Judge them by the task's verifier; look for copies, lengths, and one answer to many prompts."""
    curated = design.list_curated_files()
    brought = {name: rows for name, rows in design.brought.items() if name not in curated}
    outcome = pair_answers.check_brought(design.resolved.spec, design.data, design.heldout, brought)
    return replace(outcome, repairable=False)


@DESIGN_CHECKS.add("design.verdicts", "Verifiers agree with themselves", source=label_checks.TWICE_SOURCE)
def _check_verdicts(design: DesignEvidence) -> CheckOutcome:
    """Judge the same answers twice in two orders: a verdict must not depend on chance or on order."""
    return label_checks.agrees_with_itself(_tasks(design.resolved.spec), design.heldout)


@DESIGN_CHECKS.add(
    "design.labelled",
    "Critics have labelled samples that are large enough",
    source="a scorer whose label was never validated",
    limits=critic_checks.LABEL_LIMITS,
)
def _check_labelled_samples(design: DesignEvidence) -> CheckOutcome:
    """Look at the labelled samples of the critics: without one, what a critic accepts is not evidence."""
    return critic_checks.samples_of(design.resolved.spec, design.data)


def _every(design: DesignEvidence) -> list[Item]:
    return [item for items in design.select_training_data().values() for item in items]


@DESIGN_CHECKS.add(
    "design.groups",
    "Training and held-out share no group, and held-out items have enough of them",
    source="leakage through topics; items that are not independent",
)
def _check_groups(design: DesignEvidence) -> CheckOutcome:
    """Compare the groups (topics) of the training data with those of the held-out split, and count the latter."""
    count = subgroup_checks.independent_groups(design.heldout, design.resolved.spec.analysis.alpha)
    result = leakage_checks.groups_of(_every(design), design.reserved_items)
    if result.status == "PASS" and count.status != "FAIL":
        result = leakage_checks.common_subject([row.prompt for row in _every(design)], design.heldout) or result
    return count if count.status == "FAIL" or result.status == "PASS" else result


@DESIGN_CHECKS.add(
    "design.duplicates",
    "Training prompts do not repeat",
    source="Lee et al. 2022, arXiv:2107.06499",
    limits=leakage_checks.REPEATS,
)
def _check_duplicates(design: DesignEvidence) -> CheckOutcome:
    """Count training prompts that the data repeat: above the registered share is a warning.

    More than half is a failure, unless the spec registers that share: most of the data are then not what they count as.
    """
    thresholds = design.resolved.spec.thresholds
    result = leakage_checks.duplicates_of(
        ((*earlier_turn_texts(item), item.prompt) for item in _every(design)), thresholds
    )
    if result.status == "WARN" and result.figure is not None and result.figure > MOST_REPEATED:
        return replace(result, status="FAIL", detail=f"{result.detail}, more than half", repairable=False)
    return result


@DESIGN_CHECKS.add(
    "design.texts",
    "Prompts and answers are whole texts",
    source=text_checks.SOURCE,
    limits=text_checks.DAMAGED,
)
def _check_texts(design: DesignEvidence) -> CheckOutcome:
    """Look for characters of a wrong encoding, hidden characters and marks of a chat template, and for HTML."""
    heldout = [(item.id, text) for item in design.reserved_items for text in user_turns_of(item)]
    return text_checks.whole_texts([*_prompts(design), *_taught(design)], heldout, design.resolved.spec.thresholds)


@DESIGN_CHECKS.add(
    "design.alike",
    "Training and held-out prompts are written alike",
    source=text_checks.ALIKE_SOURCE,
    blocking=False,
)
def _check_alike(design: DesignEvidence) -> CheckOutcome:
    """Compare their kinds, and how they begin, end and are capitalised: habits of one split are learned too."""
    return text_checks.written_alike(_every(design), design.heldout)


@DESIGN_CHECKS.add(
    "design.independence",
    "Builder and reviewer are of different vendors",
    source="reviews of an agent's work by the same agent",
)
def _check_independence(design: DesignEvidence) -> CheckOutcome:
    """Compare the vendors of builder and reviewer; the same vendor twice would review itself."""
    spec = design.resolved.spec
    reviewers = spec.reviewers()
    if any(makers(spec.builder) & makers(reviewer) for reviewer in reviewers):
        return CheckOutcome("FAIL", "builder and reviewer are of the same vendor", repairable=False)
    if spec.builder.vendor == "external" and any(reviewer.asks_a_model for reviewer in reviewers):
        if spec.builder.model_vendor is None:
            return CheckOutcome("FAIL", "the spec does not state whose model the external builder is", repairable=False)
        return CheckOutcome("WARN", "the builder is external: its user stated whose model it is, which is not verified")
    # Without their names: the packet goes to the reviewer, who must not learn whose work it is.
    return CheckOutcome(
        "PASS", f"{len(reviewers)} of {len(reviewers)} reviewers are of another vendor than the builder"
    )


@DESIGN_CHECKS.add(
    "design.baseline", "The baseline is what the treatment started from", source=parity_checks.BASELINE_SOURCE
)
def _check_baseline(design: DesignEvidence) -> CheckOutcome:
    """Follow the weights of both arms through the stages of the spec."""
    return parity_checks.judge_baseline(design.resolved.spec)


@DESIGN_CHECKS.add(
    "design.cost",
    "The budget covers one attempt of each stage",
    source="sessions that end half-way",
    limits=(CheckLimit("<=", "budget.max_cost_usd"),),
)
def _check_cost(design: DesignEvidence) -> CheckOutcome:
    """Add up what one attempt of each stage costs at its time limit and compare it with the budget."""
    spec = design.resolved.spec
    exactly = sum(exact(cost) for cost in design.costs.values())
    total = float(exactly)
    cost = f"one attempt of each stage costs at most {total:.4f} USD of {spec.budget.max_cost_usd:g} USD"
    if not holds(exactly, "<=", spec.budget.max_cost_usd):
        return CheckOutcome("FAIL", cost, total, repairable=False)
    return CheckOutcome("PASS", cost, total)


@DESIGN_CHECKS.add(
    "design.schedule",
    "The warm-up of each training takes only part of its steps",
    source="a warm-up longer than the run: the rate never reaches its peak",
    limits=scaling_checks.LIMITS,
)
def _check_schedule(design: DesignEvidence) -> CheckOutcome:
    """Compare the warm-up of each training with the most steps that its data can make.

    A warm-up as long as all of them is a failure, unless the builder may change what decides it.
    """
    return scaling_checks.schedules_of(design.resolved.spec, design.data)


@DESIGN_CHECKS.add(
    "design.scaling",
    "A training from scratch can get the tokens that its registered rule asks for",
    source="a run from scratch on 0.04 tokens a parameter, paid for without comparing the two",
)
def _check_scaling(design: DesignEvidence) -> CheckOutcome:
    """Compare the most distinct tokens that each training with a rule can get with it: under half is a failure."""
    return scaling_checks.planned_tokens(design.resolved.spec, design.data)


@DESIGN_CHECKS.add(
    "design.unused",
    "What is trained is measured, or named as not used",
    source="an arm that was trained and not shown",
)
def _check_unused_training(design: DesignEvidence) -> CheckOutcome:
    """Follow each trained checkpoint to a stage that measures it, itself or what is made with it."""
    spec = design.resolved.spec
    led = {stage.name for stage in spec.stages if kind_of(stage).only_measures}
    led |= {stage.pilot for stage in spec.stages if stage.pilot}
    led |= set(spec.evaluation.not_evaluated if spec.evaluation else ())
    for stage in reversed(spec.stages):
        if stage.name in led:
            led |= {reference.partition(".")[0] for reference in stage.inputs.values()}
    silent = [stage.name for stage in spec.stages if kind_of(stage).trains and stage.name not in led]
    message = f"no stage measures what {join_names(silent)} leaves: evaluate it, or register evaluation.not_evaluated"
    visible = [{"stage": name} for name in silent]
    return unless(visible, message, "every trained checkpoint leads to a measurement", repairable=False)


@DESIGN_CHECKS.add(
    "design.seeds", "Variation between seeds is measured", source="results of one lucky seed", blocking=False
)
def _check_seeds(design: DesignEvidence) -> CheckOutcome:
    """Count the registered seeds; with one, the variation between seeds stays unknown."""
    count = len(design.resolved.spec.analysis.seeds)
    if count < 2:
        detail = "one seed: variation between seeds is not in the interval; repeat the session with other seeds"
        return CheckOutcome("WARN", detail, float(count))
    return CheckOutcome("PASS", f"{count} seeds", float(count))
