"""What a judgement between two labels scored: the labels after its two prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from specs.stages.base.sampling import Form
from specs.stages.critique.rows import ComparisonRow, CritiqueRow
from specs.stages.evaluation.rows import DuelRow
from specs.system.digests import digest_bytes
from training.engines.label_scoring import encode_prompt, labels_of
from training.jobs.witness.scoring import ScoredSpan, Scoring, StatedLogprob, differing
from training.rules.rubric_prompts import JudgementPrompts


class LabelJudge(NamedTuple):
    """How prompts are encoded, and whose weights scored them."""

    tokenizer: Any
    form: Form
    weights: str = "model"


def judgement(
    judge: LabelJudge,
    place: int,
    row: CritiqueRow | ComparisonRow | DuelRow,
    prompts: JudgementPrompts,
    pending: Mapping[str, Any],
    *,
    follows: bool,
) -> Scoring:
    """Return what a row of both orders scored; ``pending`` are its other fields, ``follows`` is said of its verdict.

    Raises as :func:`labels_of` and :func:`encode_prompt`.
    """
    values: dict[str, StatedLogprob] = {}
    wrong = list(differing(row, pending))
    for order, prompt in prompts._asdict().items():
        stated, ids = getattr(row, order).scores, tuple(encode_prompt(judge.tokenizer, prompt, judge.form))
        if (stated.prompt, stated.prompt_tokens) != (digest_bytes(prompt.encode()), len(ids)):
            wrong.append(f"{order} prompt")
        for name, id in labels_of(judge.tokenizer)._asdict().items():
            arguments = getattr(stated, name)
            if (arguments is None) != (id is None):
                wrong.append(f"{order} {name}")
            elif id is not None:
                values[f"{order} {name}"] = StatedLogprob(arguments, (ScoredSpan((*ids, id), len(ids)),))
    if not follows:
        wrong.append("verdict")
    return Scoring(place, values, tuple(wrong), judge.weights)
