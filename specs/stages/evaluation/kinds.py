"""The kinds that measure a model: by its answers, by its probabilities, by the tasks of other libraries."""

from __future__ import annotations

from functools import partial

from specs.stages.base.kind import ArmTraits, LogprobOutputs, StageKind
from specs.stages.base.stage import ArtifactKind
from specs.stages.evaluation import parameters, rows
from specs.stages.evaluation.metrics import (
    CHOICE_METRICS,
    CONVERSATION_METRICS,
    DUEL_METRICS,
    EVALUATE_METRICS,
    INSPECT_METRICS,
    LM_EVAL_METRICS,
    PERPLEXITY_METRICS,
)

_ITEMS: dict[str, ArtifactKind] = {"model": "checkpoint", "items": "items"}
_measuring = partial(StageKind, inputs=_ITEMS, outputs={"rows": "rows"}, reads_heldout=True, only_measures=True)

EVALUATE = _measuring(
    name="evaluate",
    parameters=parameters.EvaluateParameters,
    rows={"rows": rows.EvaluationRow},
    metrics=EVALUATE_METRICS,
    job="training.jobs.evaluation.evaluate:evaluate",
    witness_prompts="training.jobs.evaluation.evaluate:build_witness_prompts",
    judge="reviews.stages.evaluation.evaluate",
    open_ended=True,
    reads_turns=True,
    arm=ArmTraits(metric="accuracy", count="items"),
    outcomes=("binary", "continuous"),
    review_focus=(
        "answers that are cut off, empty, alike, or repeat the prompt",
        "extraction: does the verifier read what the answer says, in rows that pass and in rows that fail",
        "the mix of items: kinds and groups, as registered, and whether one of them carries the result",
        "the same prompt form, limits and stops at both arms",
    ),
)

PERPLEXITY = _measuring(
    name="perplexity",
    parameters=parameters.PerplexityParameters,
    rows={"rows": rows.PerplexityRow},
    metrics=PERPLEXITY_METRICS,
    job="training.jobs.evaluation.perplexity:perplexity",
    logprob_outputs=LogprobOutputs("training.jobs.evaluation.perplexity:build_scorings"),
    judge="reviews.stages.evaluation.perplexity",
    outcomes=("continuous",),
    review_focus=(
        "texts: which, how long, and whether the model may have been trained on them",
        "windows: are all tokens scored once, and the same at both arms",
    ),
)

MULTIPLE_CHOICE = _measuring(
    name="multiple_choice",
    parameters=parameters.MultipleChoiceParameters,
    rows={"rows": rows.ChoiceRow},
    metrics=CHOICE_METRICS,
    job="training.jobs.evaluation.multiple_choice:choose",
    logprob_outputs=LogprobOutputs(
        "training.jobs.evaluation.multiple_choice:build_scorings", unless="asked_by_lm_eval"
    ),
    judge="reviews.stages.evaluation.multiple_choice",
    outcomes=("binary", "continuous"),
    review_focus=(
        "the right choice: is it evenly spread over places, lengths and words",
        "scores: do they favour short or frequent choices",
    ),
)

PAIRWISE_JUDGE = _measuring(
    name="pairwise_judge",
    parameters=parameters.PairwiseJudgeParameters,
    inputs={**_ITEMS, "reference": "rows", "candidate": "rows", "labelled": "items"},
    outputs={"rows": "rows", "calibration": "rows"},
    rows={"rows": rows.DuelRow, "calibration": rows.DuelRow},
    metrics=DUEL_METRICS,
    job="training.jobs.evaluation.pairwise_judge:compare",
    logprob_outputs=LogprobOutputs("training.jobs.evaluation.pairwise_judge:build_scorings", ("rows", "calibration")),
    judge="reviews.stages.evaluation.pairwise_judge",
    review_focus=(
        "order: does the preferred answer change when the two are swapped",
        "length: does the judge prefer the longer one",
        "who judges whom: of what family are judge and candidates",
        "ties: how many, and how they are counted",
    ),
)

MULTI_TURN = _measuring(
    name="multi_turn",
    parameters=parameters.MultiTurnParameters,
    rows={"rows": rows.ConversationRow},
    metrics=CONVERSATION_METRICS,
    job="training.jobs.evaluation.multi_turn:converse",
    witness_prompts="training.jobs.evaluation.multi_turn:build_witness_prompts",
    judge="reviews.stages.evaluation.multi_turn",
    open_ended=True,
    arm=ArmTraits("conversation_pass_rate", "conversations", conversations=True, control=("history", "whole")),
    outcomes=("binary", "ordinal"),
    review_focus=(
        "later turns: do they use what was said before, or repeat it",
        "answers that are cut off in the middle of a conversation",
        "controls: is the gain larger than with a history that tells nothing",
    ),
)

INSPECT = _measuring(
    name="inspect",
    parameters=parameters.InspectParameters,
    outputs={"rows": "rows", "log": "files"},
    rows={"rows": rows.BenchmarkRow},
    metrics=INSPECT_METRICS,
    job="sessions.jobs.benchmarks.inspect_job:inspect",
    witness_prompts="training.jobs.evaluation.benchmark_rows:build_witness_prompts",
    judge="reviews.stages.evaluation.benchmark",
    takes_script=True,
    environment="inspect",
    arm=ArmTraits(metric="benchmark_accuracy", count="benchmark_items"),
    outcomes=("binary", "continuous"),
    review_focus=(
        "the task: is it the registered one, with its samples, prompts and limits",
        "extraction: does the scorer read what the answer says, in rows that pass and in rows that fail",
        "answers that are cut off, empty or refused",
    ),
)

LM_EVAL = _measuring(
    name="lm_eval",
    parameters=parameters.LmEvalParameters,
    outputs={"rows": "rows", "log": "files"},
    rows={"rows": rows.BenchmarkRow},
    metrics=LM_EVAL_METRICS,
    job="sessions.jobs.benchmarks.lm_eval_job:lm_eval",
    witness_prompts="training.jobs.evaluation.benchmark_rows:build_witness_prompts",
    judge="reviews.stages.evaluation.benchmark",
    takes_script=True,
    environment="lm_eval",
    arm=ArmTraits(metric="lm_eval_accuracy", count="lm_eval_items"),
    outcomes=("binary",),
    review_focus=(
        "the task: is it the registered one, with its samples, prompts and limits",
        "extraction: does the filter read what the answer says, in rows that pass and in rows that fail",
        "answers that are cut off, empty or refused",
    ),
)

KINDS = (EVALUATE, PERPLEXITY, MULTIPLE_CHOICE, PAIRWISE_JUDGE, MULTI_TURN, INSPECT, LM_EVAL)
