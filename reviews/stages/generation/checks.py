"""Is the model what it is declared to be, and does what was written come from the rows: whole, clean and repeatable?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from reviews.checks.complete_rows import as_ordered
from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, manifest_of, unless
from reviews.checks.leakage_checks import SIMILARITY, SOURCE, overlap_of, shown_overlap, spread
from reviews.evidence.evidence import Evidence
from reviews.evidence.heldout_screen import iterate_texts
from reviews.evidence.row_reader import read_rows
from reviews.stages.generation.base_model_check import count_followed_commands, encoding_fault, guard_rows, rows_of_form
from reviews.stages.generation.residue import DELIMITERS, REFUSALS, marks_in
from reviews.stages.generation.sample_responses import as_kept, recompute_responses
from reviews.stages.generation.self_instruct import RecomputedInstructions, probes, recompute_instructions, taken_out
from reviews.stages.sampled_rows import why_broken_off as why_low
from specs.stages.base.artifacts import Example, Item
from specs.stages.base.metric import MetricSet
from specs.stages.base.sampling import ENGINES
from specs.stages.base.stage import Kind
from specs.stages.generation.parameters import SelfInstructParameters
from specs.stages.generation.rows import SampleResponsesRow, SelfInstructRow
from specs.system.exact import holds
from specs.system.text import plural
from specs.trail.verdict import Status
from training.rules.generation.instruction_harvest import Shard, rounds_of
from training.rules.generation.sentinels import BY_ID
from training.rules.prompt_encoding import form_of
from training.rules.prompt_text import InstructionPrompt, answer_prompt, calls_of_round, seed_of
from training.rules.sampling_quality import why_broken_off

_WRITING: tuple[Kind, ...] = ("self_instruct", "sample_responses")
_SAMPLING: tuple[Kind, ...] = (*_WRITING, "generate", "revise", "best_of_n")
CHECKS = CheckRegistry(("base_model_check",))

_INSTRUCT_NAME = re.compile(r"(?:^|[-_/.\s])(?:instruct|chat|it|assistant|sft|dpo|rlhf)(?:$|[-_/.\s\d])", re.IGNORECASE)
_BASE_NAME = re.compile(r"(?:^|[-_/.\s])base(?:$|[-_/.\s])", re.IGNORECASE)


@CHECKS.add(
    "base_model_check.encoding",
    "Bare prompts are encoded as they are",
    source="a guard that compared counts, on a path that could not add tokens: it could not fail",
)
def _check_encoding(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the ids of every bare prompt, token by token, with and without special tokens, and with its text."""
    bare = rows_of_form(guard_rows(evidence), "declared", "completion")
    faults = [(row, wrong) for row in bare if (wrong := encoding_fault(row))]
    if not faults:
        return CheckOutcome("PASS", "every bare prompt is encoded as its text and nothing else", 0.0)
    visible = tuple({"sentinel": row.sentinel, "fault": wrong, "decoded": row.decoded} for row, wrong in faults)
    # Bare text is what base models are given; an instruct model is given its template.
    status: Status = "FAIL" if evidence.resolved.spec.model.kind == "base" else "WARN"
    return CheckOutcome(status, f"{len(faults)} bare prompts: {faults[0][1]}", float(len(faults)), visible)


@CHECKS.add(
    "base_model_check.control",
    "The sentinels can fire",
    source="sentinels without a positive control: right answers passed",
    limits=(CheckLimit(">=", "thresholds.control_follows"),),
)
def _check_control(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Require that the control trips the sentinels with its chat template."""
    least = evidence.resolved.spec.thresholds.control_follows
    inputs = manifest_of(evidence).inputs
    rows = guard_rows(evidence)
    templated = rows_of_form(rows, "control", "chat")
    if evidence.resolved.spec.model.kind == "base" and inputs.get("control") == inputs.get("model"):
        return CheckOutcome("FAIL", "the control is the model itself: it shows nothing", repairable=False)
    if not templated:
        return CheckOutcome("FAIL", "the control has no chat template: it is not a model that follows instructions")
    met, of = count_followed_commands(templated)
    bare, _all = count_followed_commands(rows_of_form(rows, "control", "completion"))
    detail = f"the control follows {met} of {of} commands with its template and {bare} of them as bare text"
    visible = tuple({"sentinel": row.sentinel, "output": row.output} for row in templated)
    share = Fraction(met, of)
    if not holds(share, ">=", least):
        return CheckOutcome("FAIL", f"{detail}: sentinels that never fire show nothing", float(share), visible)
    return CheckOutcome("PASS", detail, float(share))


@CHECKS.add(
    "base_model_check.kind",
    "The model behaves as its declared kind",
    source="a base model that already did what was to be taught",
    limits=(CheckLimit("<=", "thresholds.base_follows"), CheckLimit(">=", "thresholds.control_follows")),
)
def _check_kind(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the declared kind with what the model does."""
    thresholds, declared = evidence.resolved.spec.thresholds, evidence.resolved.spec.model.kind
    check_rows = rows_of_form(guard_rows(evidence), "declared", "completion" if declared == "base" else "chat")
    visible = tuple(
        {"sentinel": row.sentinel, "followed": BY_ID[row.sentinel].meets(row.output), "output": row.output}
        for row in check_rows
    )
    if not check_rows:
        return CheckOutcome("FAIL", "the model is declared instruct and has no chat template", 0.0, repairable=False)
    met, of = count_followed_commands(check_rows)
    share = Fraction(met, of)
    if declared == "base":
        detail = f"the model is declared base and follows {met} of {of} commands given as bare text"
        status: Status = "PASS" if holds(share, "<=", thresholds.base_follows) else "FAIL"
    else:
        detail = f"the model is declared instruct and follows {met} of {of} commands given with its template"
        status = "PASS" if holds(share, ">=", thresholds.control_follows) else "FAIL"
    return CheckOutcome(status, detail, float(share), visible if status == "FAIL" else ())


@CHECKS.add("base_model_check.name", "The model's name fits its declared kind", source="swapped checkpoints")
def _check_name(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Read the kind of model off its source, where that says one."""
    model = evidence.resolved.spec.model
    says = "base" if _BASE_NAME.search(model.source) else "instruct" if _INSTRUCT_NAME.search(model.source) else ""
    if says and says != model.kind:
        return CheckOutcome(
            "FAIL", f"'{model.source}' is declared {model.kind}, its name says {says}", repairable=False
        )
    return CheckOutcome(
        "PASS", f"'{model.source}' is declared {model.kind}, its name says {says or 'nothing about it'}"
    )


@CHECKS.add(
    "text.derived",
    "The kept rows follow from the raw rows",
    kinds=_WRITING,
    source="invented provenance; repaired rows with copied marks",
)
def _check_derivation(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare what was kept, and what rows say of themselves, with what the raw texts give when asked again."""
    if evidence.stage.kind == "self_instruct":
        ours: list[Any] = list(recompute_instructions(evidence).harvest.items)
        theirs: list[Any] = list(
            read_rows(evidence.outputs.get("instructions"), Item, "instructions", may_be_empty=True)
        )
    else:
        result = recompute_responses(evidence)
        stored = read_rows(evidence.outputs.get("rows"), SampleResponsesRow, "sample_responses rows")
        differing = [row for row, again in zip(stored, result.rows, strict=True) if row != again]
        if differing:
            visible = tuple({"item": row.item, "marks": ", ".join(row.marks), "raw": row.raw} for row in differing)
            detail = f"{plural(len(differing), 'row says', 'rows say')} of their raw text what it does not give"
            return CheckOutcome("FAIL", detail, float(len(differing)), visible, repairable=False)
        ours = list(result.examples)
        theirs = list(read_rows(evidence.outputs.get("examples"), Example, "examples", may_be_empty=True))
    if ours != theirs:
        wrong = [its for its in theirs if its not in ours]
        visible = tuple({"kept": value.model_dump_json()} for value in wrong)
        detail = f"{len(theirs)} were kept, {len(ours)} follow from the rows; {len(wrong)} of the kept do not"
        return CheckOutcome("FAIL", detail, float(len(wrong)), visible, repairable=False)
    return CheckOutcome("PASS", f"all {len(ours)} kept follow from the raw rows, and no others", float(len(ours)))


@CHECKS.add(
    "text.prompts",
    "The prompts are the registered ones",
    kinds=_WRITING,
    source="the stored prompt differed from the prompt used",
)
def _check_prompts(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Build every prompt again: form by the declared kind, instructions shown as drawn, examples as registered."""
    form = form_of(evidence.resolved.spec.model.kind)
    expected: list[tuple[str, str, str, str]] = []
    if evidence.stage.kind == "self_instruct":
        result = recompute_instructions(evidence)
        for number in range(result.parameters.shards):
            shard = Shard(result.seeds, result.parameters.similarity)
            for round_rows in rounds_of(result.rows, number):
                calls = calls_of_round(result.parameters, form, number, round_rows[0].round, result.seeds, shard.grown)
                shard.take(round_rows)
                expected += [
                    (
                        f"{row.shard}/{row.round}/{row.call}",
                        row.form,
                        row.prompt,
                        _text_of(row, calls, result.parameters),
                    )
                    for row in round_rows
                ]
    else:
        request = recompute_responses(evidence)
        for row in request.rows:
            text = answer_prompt(row.instruction, request.parameters.shots, form)
            expected.append((f"{row.item}/{row.sample}", row.form, row.prompt, text))
    wrong = [
        {"row": id, "form": used, "prompt": prompt}
        for id, used, prompt, text in expected
        # A chat template is not known here: it has to hold the text.
        if used != form or not text or (prompt != text if form == "completion" else text.strip() not in prompt)
    ]
    message = f"{len(wrong)} of {len(expected)} prompts are not the registered ones in the form '{form}'"
    right = f"all {len(expected)} prompts are the registered ones in the form '{form}'"
    return unless(wrong, message, right, repairable=False)


def _text_of(row: SelfInstructRow, calls: Sequence[InstructionPrompt], parameters: SelfInstructParameters) -> str:
    """Return the text a call was to be made with; nothing where the row names another seed, topic or examples."""
    if row.call >= len(calls):
        return ""
    call = calls[row.call]
    requests = (call.topic, tuple(value.id for value in call.examples), call.first)
    seed = seed_of(parameters.seed, row.shard, row.round, "")
    return call.text if (row.topic, row.examples, row.first) == requests and row.seed == seed else ""


@CHECKS.add(
    "text.finished",
    "The stage was not stopped early",
    kinds=_SAMPLING,
    source="rates over data that had been filtered; scaling that went on after failed shards",
)
def _check_completion(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Return whether the stage was broken off, and whether every answer that was ordered has one row."""
    if evidence.stage.kind == "self_instruct":
        why = recompute_instructions(evidence).harvest.broken_off
        return (
            CheckOutcome("FAIL", f"stopped early: {why}") if why else CheckOutcome("PASS", "no shard was stopped early")
        )
    if evidence.stage.kind != "sample_responses":
        # A check of the kind itself looks for missing rows.
        why = why_low(evidence)
        return (
            CheckOutcome("FAIL", f"stopped early: {why}") if why else CheckOutcome("PASS", "it was not stopped early")
        )
    rows, _kept, items, parameters = recompute_responses(evidence)
    why = why_broken_off(rows, parameters)
    if why:
        return CheckOutcome("FAIL", f"stopped early: {why}")
    ordered = Counter((item.id, sample) for item in items for sample in range(parameters.samples_per_instruction))
    counts = Counter((row.item, row.sample) for row in rows)
    return as_ordered(ordered, counts, "answers")


@CHECKS.add(
    "text.repeatable",
    "The seed decides what is written",
    kinds=("self_instruct",),
    source="sampling that was never seeded",
)
def _check_repeatable(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare repeated calls: the same seed has to give the same text, another seed another."""
    same, other = probes(recompute_instructions(evidence).rows)
    if not same:
        return CheckOutcome("FAIL", "no call was repeated: nothing shows that the seed has an effect")
    if all(other):
        return CheckOutcome("FAIL", "another seed changed nothing: the registered seed is not used")
    if not all(same):
        message = f"{same.count(False)} of {plural(len(same), 'call')} gave another text with the same seed"
        engine = recompute_instructions(evidence).parameters.engine
        if ENGINES[engine].repeatable:
            return CheckOutcome("FAIL", message)
        return CheckOutcome("WARN", f"{message}; engine '{engine}' does not promise to repeat itself")
    return CheckOutcome(
        "PASS", f"{plural(len(same), 'call repeats itself', 'calls repeat themselves')} with the same seed and no other"
    )


@CHECKS.add(
    "text.overlap",
    "No held-out prompt is among instructions or examples",
    kinds=_WRITING,
    source=SOURCE,
    limits=(*SIMILARITY, CheckLimit("<=", "thresholds.written_heldout")),
)
def _check_overlap(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare instructions, and the seeds or worked pairs shown before them, with the held-out prompts.

    Residue that a model wrote is removed before a later stage reads it, and a little of it is a warning.
    """
    thresholds = evidence.resolved.spec.thresholds
    if evidence.stage.kind == "self_instruct":
        result = recompute_instructions(evidence)
        seeds = overlap_of(((seed.id, seed.text) for seed in result.seeds), evidence.reserved_items, thresholds)
        return (
            seeds
            if seeds.status == "FAIL"
            else _check_written_instructions(evidence, result, thresholds.written_heldout)
        )
    answered = recompute_responses(evidence)
    pairs = list(iterate_texts(answered.parameters.shots, "shots"))
    pairs += [(item.id, item.prompt) for item in answered.items]
    return overlap_of(pairs, evidence.reserved_items, thresholds)


def _check_written_instructions(evidence: Evidence, result: RecomputedInstructions, most: float) -> CheckOutcome:
    """Return how many of the kept instructions are held-out prompts, and which."""
    items, overlaps = result.harvest.items, taken_out(evidence, result)
    if not overlaps:
        return CheckOutcome("PASS", f"none of {len(items)} kept instructions is a held-out prompt, nor near one", 0.0)
    named = tuple(replace(overlap, train=items[place].id) for place, overlap in overlaps.items())
    ways = ", ".join(f"{count} {how}" for how, count in sorted(Counter(overlap.how for overlap in named).items()))
    exact_share = Fraction(len(overlaps), len(items))
    share = float(exact_share)
    visible = tuple(shown_overlap(overlap) for overlap in spread(named))
    detail = f"{len(overlaps)} of {len(items)} kept instructions are held-out prompts ({ways})"
    if not holds(exact_share, "<=", most):
        message = f"{detail}: more than a few by chance, model or seeds may know the split"
        return CheckOutcome("FAIL", message, share, visible, repairable=False)
    return CheckOutcome("WARN", f"{detail}; they are taken out, no later stage reads them", share, visible)


@CHECKS.add(
    "text.residue",
    "Kept answers carry no delimiter and no refusal",
    kinds=("sample_responses",),
    source="38 % of the answers ended in '###', and quality control looked for '###END###' only",
    limits=(CheckLimit("<=", "thresholds.delimiters"), CheckLimit("<=", "thresholds.refusals")),
)
def _check_residue(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look at the kept answers for delimiters of any kind, refusals and the words of an evaluator."""
    thresholds = evidence.resolved.spec.thresholds
    remaining = [as_kept(example) for example in recompute_responses(evidence).examples]
    visible: list[dict[str, Any]] = []
    too_many = False
    for patterns, most in ((DELIMITERS, thresholds.delimiters), (REFUSALS, thresholds.refusals)):
        marked = [(value, marks) for value in remaining if (marks := marks_in(value, patterns))]
        visible += [{"item": value.item.id, "marks": ", ".join(marks), "answer": value.text} for value, marks in marked]
        too_many |= len(marked) > 1 and not holds(Fraction(len(marked), len(remaining)), "<=", most)
    detail = f"{len(visible)} of {len(remaining)} kept answers carry a delimiter, refuse or speak as an evaluator"
    return CheckOutcome(
        "FAIL" if too_many else "WARN" if visible else "PASS", detail, float(len(visible)), tuple(visible)
    )
