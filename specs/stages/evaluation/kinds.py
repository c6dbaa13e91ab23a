"""The kinds that measure a model: evaluate, perplexity, multiple_choice, pairwise_judge, multi_turn."""

from __future__ import annotations

from specs.stages.evaluation import parameters, rows
from specs.stages.evaluation.metrics import (
    CHOICE_METRICS,
    CONVERSATION_METRICS,
    DUEL_METRICS,
    EVALUATE_METRICS,
    PERPLEXITY_METRICS,
)
from specs.stages.kind import Arm, StageKind
from specs.stages.stage import ArtifactKind

_ITEMS: dict[str, ArtifactKind] = {"model": "checkpoint", "items": "items"}

EVALUATE = StageKind(
    name="evaluate",
    parameters=parameters.EvaluateParameters,
    inputs=_ITEMS,
    outputs={"rows": "rows"},
    rows={"rows": rows.EvaluationRow},
    metrics=EVALUATE_METRICS,
    job="training.jobs.evaluation.evaluate:evaluate",
    judge="reviews.stages.evaluation.evaluate",
    reads_heldout=True,
    only_measures=True,
    instruct_unsaid=True,
    open_ended=True,
    arm=Arm(metric="accuracy", count="items"),
    outcomes=("binary",),
)

PERPLEXITY = StageKind(
    name="perplexity",
    parameters=parameters.PerplexityParameters,
    inputs=_ITEMS,
    outputs={"rows": "rows"},
    rows={"rows": rows.PerplexityRow},
    metrics=PERPLEXITY_METRICS,
    job="training.jobs.evaluation.perplexity:perplexity",
    judge="reviews.stages.evaluation.perplexity",
    reads_heldout=True,
    only_measures=True,
    outcomes=("continuous",),
)

MULTIPLE_CHOICE = StageKind(
    name="multiple_choice",
    parameters=parameters.MultipleChoiceParameters,
    inputs=_ITEMS,
    outputs={"rows": "rows"},
    rows={"rows": rows.ChoiceRow},
    metrics=CHOICE_METRICS,
    job="training.jobs.evaluation.multiple_choice:choose",
    judge="reviews.stages.evaluation.multiple_choice",
    reads_heldout=True,
    only_measures=True,
    outcomes=("binary", "continuous"),
)

PAIRWISE_JUDGE = StageKind(
    name="pairwise_judge",
    parameters=parameters.PairwiseJudgeParameters,
    inputs={**_ITEMS, "reference": "rows", "candidate": "rows", "labelled": "items"},
    outputs={"rows": "rows", "calibration": "rows"},
    rows={"rows": rows.DuelRow, "calibration": rows.DuelRow},
    metrics=DUEL_METRICS,
    job="training.jobs.evaluation.pairwise_judge:compare",
    judge="reviews.stages.evaluation.pairwise_judge",
    reads_heldout=True,
    only_measures=True,
    chat_form=True,
)

MULTI_TURN = StageKind(
    name="multi_turn",
    parameters=parameters.MultiTurnParameters,
    inputs=_ITEMS,
    outputs={"rows": "rows"},
    rows={"rows": rows.ConversationRow},
    metrics=CONVERSATION_METRICS,
    job="training.jobs.evaluation.multi_turn:converse",
    judge="reviews.stages.evaluation.multi_turn",
    reads_heldout=True,
    only_measures=True,
    open_ended=True,
    arm=Arm(
        metric="conversation_pass_rate",
        count="conversations",
        conversations=True,
        control=("history", "whole"),
    ),
    outcomes=("binary", "ordinal"),
)

KINDS = (EVALUATE, PERPLEXITY, MULTIPLE_CHOICE, PAIRWISE_JUDGE, MULTI_TURN)
