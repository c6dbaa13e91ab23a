"""Recompute the rows that a challenge names, of a job that has ended, with the weights it was granted.

Always transformers in this process, whichever engine wrote the answers: another engine is the stronger witness.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from importlib import import_module
from typing import Any

from specs.stages.base.witness import ROWS, Copies, WitnessRow
from specs.stages.registry import STAGE_KINDS
from specs.system.digests import Contract
from training.engines.checkpoint import device_of, free, load_for_inference, tokenizer_in
from training.jobs.job import Job, StageResult
from training.jobs.witness.prompted_answers import Asking, PromptedAnswer, copies_of
from training.jobs.witness.reading import read
from training.jobs.witness.scoring import Scoring, ScoringOf, score


def bear_witness(job: Job) -> StageResult:
    """Write one row for each answer and each row of scores; raises NotAsked, and EncodingFault as the stage does."""
    requests, scored = _collect_witness_prompts(job), _collect_scorings(job)
    copies = _copies(job, requests)
    answers: list[WitnessRow] = []
    scores: list[Contract] = []
    total = len(requests) + sum(map(len, scored.values()))
    used = {value.weights for value in requests} | {
        scoring.weights for scorings in scored.values() for scoring in scorings
    }
    device = ("cpu", "float32")
    for roles in _same_weights(job, used or {"model"}):
        model, tokenizer = load_for_inference(job.inputs[roles[0]])
        device = device_of(model)
        for row in read(model, tokenizer, [value for value in requests if value.weights in roles]):
            answers.append(row.model_copy(update={"copies": copies.get((row.row, row.part))}))
            job.progress(len(answers) + len(scores), total, "rows")
        for output, scorings in scored.items():
            for scored_row in score(model, output, [scoring for scoring in scorings if scoring.weights in roles]):
                scores.append(scored_row)
                job.progress(len(answers) + len(scores), total, "rows")
        del model
        free()
    job.write_rows(ROWS, [*sorted(answers, key=lambda row: (row.row, row.part)), *scores])
    read_tokens = sum(row.tokens for row in answers) + sum(
        len(scoring.values) for scorings in scored.values() for scoring in scorings
    )
    return StageResult(*device, read_tokens, {})


def _same_weights(job: Job, used: Set[str]) -> list[list[str]]:
    """Return the inputs whose weights are read, those of one digest together: they are loaded once."""
    texts: dict[str, list[str]] = {}
    for role in sorted(used):
        texts.setdefault(job.order.inputs[role].digest, []).append(role)
    return list(texts.values())


def _collect_witness_prompts(job: Job, places: Sequence[int] | None = None) -> list[PromptedAnswer]:
    """Return what the model was asked for the answers of the challenge, or of other rows."""
    kind = STAGE_KINDS[job.order.kind]
    if not kind.answers_count(job.parameters):
        return []
    asking: Asking = _function(kind.witness_prompts)
    assert job.order.challenge is not None
    tokenizer = tokenizer_in(job.inputs["model"])
    return asking(job, tokenizer, job.order.challenge.rows if places is None else places)


def _copies(job: Job, requests: Sequence[PromptedAnswer]) -> dict[tuple[int, str], Copies]:
    """Return for each sampled answer how many others to its prompt are its copies, among all rows of the job."""
    assert job.order.challenge is not None
    if all(value.sampling.temperature is None or value.stream is not None for value in requests):
        return {}
    return copies_of(requests, _collect_witness_prompts(job, range(job.order.challenge.of)))


def _collect_scorings(job: Job) -> dict[str, list[Scoring]]:
    """Return what was scored for the rows of the challenge, by the output that holds them."""
    kind, challenge = STAGE_KINDS[job.order.kind], job.order.challenge
    assert challenge is not None
    if kind.logprob_outputs is None:
        return {}
    scoring: ScoringOf = _function(kind.logprob_outputs.by)
    return {name: scoring(job, name, challenge.select_rows(name).rows) for name in kind.scores_of(job.parameters)}


def _function(where: str) -> Any:
    module, _, function = where.partition(":")
    return getattr(import_module(module), function)
