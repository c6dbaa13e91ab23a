"""The kinds that measure a model: ``evaluate``, ``perplexity``, ``choose``, ``compare``, ``converse``."""

from __future__ import annotations

from specs.stages.evaluation.metrics import EVALUATION_METRICS
from specs.stages.evaluation.parameters import (
    ChooseParameters,
    CompareParameters,
    ConverseParameters,
    EvaluateParameters,
    PerplexityParameters,
)
from specs.stages.evaluation.rows import ChoiceRow, ConversationRow, DuelRow, EvaluationRow, PerplexityRow
from specs.stages.kind import Arm, StageKind
from specs.stages.metric import of_scope
from specs.stages.stage import ArtifactKind

_ITEMS: dict[str, ArtifactKind] = {"model": "checkpoint", "items": "items"}

EVALUATE = StageKind(
    name="evaluate",
    parameters=EvaluateParameters,
    inputs=_ITEMS,
    outputs={"rows": "rows"},
    rows={"rows": EvaluationRow},
    metrics=of_scope("evaluate", *EVALUATION_METRICS),
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
    parameters=PerplexityParameters,
    inputs=_ITEMS,
    outputs={"rows": "rows"},
    rows={"rows": PerplexityRow},
    metrics=of_scope("perplexity", *EVALUATION_METRICS),
    job="training.jobs.evaluation.perplexity:perplexity",
    judge="reviews.stages.evaluation.perplexity",
    reads_heldout=True,
    only_measures=True,
    outcomes=("continuous",),
)

CHOOSE = StageKind(
    name="choose",
    parameters=ChooseParameters,
    inputs=_ITEMS,
    outputs={"rows": "rows"},
    rows={"rows": ChoiceRow},
    metrics=of_scope("choose", *EVALUATION_METRICS),
    job="training.jobs.evaluation.multiple_choice:choose",
    judge="reviews.stages.evaluation.choose",
    reads_heldout=True,
    only_measures=True,
    outcomes=("binary", "continuous"),
)

COMPARE = StageKind(
    name="compare",
    parameters=CompareParameters,
    inputs={**_ITEMS, "reference": "rows", "candidate": "rows", "labelled": "items"},
    outputs={"rows": "rows", "calibration": "rows"},
    rows={"rows": DuelRow, "calibration": DuelRow},
    metrics=of_scope("compare", *EVALUATION_METRICS),
    job="training.jobs.evaluation.pairwise_judge:compare",
    judge="reviews.stages.evaluation.compare",
    reads_heldout=True,
    only_measures=True,
    chat_form=True,
)

CONVERSE = StageKind(
    name="converse",
    parameters=ConverseParameters,
    inputs=_ITEMS,
    outputs={"rows": "rows"},
    rows={"rows": ConversationRow},
    metrics=of_scope("converse", *EVALUATION_METRICS),
    job="training.jobs.evaluation.multi_turn:converse",
    judge="reviews.stages.evaluation.converse",
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

KINDS = (EVALUATE, PERPLEXITY, CHOOSE, COMPARE, CONVERSE)
