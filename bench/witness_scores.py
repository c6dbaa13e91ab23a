"""How far apart do a job and a witness read the same scores, and which flaws does a witness find? All in one run.

    .venv/bin/python -m bench.witness_scores                     # float32, some minutes on two quiet cores
    .venv/bin/python -m bench.witness_scores --dtype bfloat16 --device cuda

Critics of instructions and of responses, and a judge of pairs, score the shipped labelled samples; choices and texts
are scored as ``multiple_choice`` and ``perplexity`` do. All is done in batches of several sizes, and the witness scores
it again in its own passes. Printed are the largest difference of honest scores (in nats, divided by the square root of
the number of tokens) with its tolerance (``specs/stages/base/witness.py``), how many honest rows would fail, and how
many do of each of these: one score shifted, two labels or choices swapped, another wording of the question, weights
moved by two in a hundred. The peer of the cost is the scoring of the same rows. Exit code 1 if an honest row fails.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specs.stages.base.witness import SCORE_GAP, ScoredRow
from testing.fixtures.real_model import smollm2_checkpoint

HOME = Path(__file__).parent.parent
DATA = HOME / "specs" / "library" / "data"
SHIFTS = (0.01, 0.1, 1.0)
"""Nats."""


class Sort(NamedTuple):
    """One sort of rows: how a job writes them, and what a witness derives for them."""

    write: Callable[[int], list[Any]]
    """In batches of this size."""
    expected: Callable[[Sequence[Any], bool], list[Any]]
    """What was scored for such rows, or for others: another wording."""


def main() -> int:
    """Score rows, score them again, and print what was found; 1 if an honest row fails."""
    parser = argparse.ArgumentParser(description="Honest scores and others, as a witness reads them.")
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 16], help="batches in which rows are scored")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    namespace = parser.parse_args()
    import torch

    from reviews.checks.score_checks import apart, spread, wrong_scores
    from training.engines.checkpoint import load
    from training.jobs.witness.scoring import score

    folder = smollm2_checkpoint()
    model, tokenizer = load(folder, namespace.device, getattr(torch, namespace.dtype))
    sorts = _critics(model, tokenizer, namespace.rows) | _likelihoods(model, tokenizer, namespace.rows)

    def failing(rows: Sequence[ScoredRow]) -> int:
        """Count rows by their scores alone: another wording shows in other fields too."""
        bare = [row.model_copy(update={"differs": ()}) for row in rows]
        return len(list(wrong_scores(bare, namespace.dtype)))

    honest, remaining = 0, {name: sort.write(namespace.sizes[-1]) for name, sort in sorts.items()}
    for name, sort in sorts.items():
        for size in namespace.sizes:
            began = time.perf_counter()
            rows = sort.write(size)
            written = time.perf_counter() - began
            began = time.perf_counter()
            read = list(score(model, "rows", sort.expected(rows, False)))
            ratio = (time.perf_counter() - began) / written
            wrong = len(list(wrong_scores(read, namespace.dtype)))
            honest += wrong
            most = max(apart(score) for row in read for score in row.scores.values())
            print(
                f"{name}, {size} at once: at most {most:.2g} apart, {SCORE_GAP[namespace.dtype]:g} are allowed, "
                f"{spread(read):.2g} in the root mean square; "
                f"{wrong} of {len(rows)} honest rows fail; scored again in {ratio:.2f} x the time"
            )
    for name, sort in sorts.items():
        read = list(score(model, "rows", sort.expected(remaining[name], False)))
        flaws = {
            f"one score shifted by {shift:g} nats": [_shift_score(scored_row, shift) for scored_row in read]
            for shift in SHIFTS
        }
        flaws |= {"two scores swapped": [_swap_labels(scored_row) for scored_row in read if len(scored_row.scores) > 1]}
        flaws |= {"another wording": list(score(model, "rows", sort.expected(remaining[name], True)))}
        for what, rows in flaws.items():
            print(f"{name}, {what}: {failing(rows)} of {len(rows)} fail, {spread(rows):.2g} in the root mean square")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            moved = torch.randn(weight.shape, generator=generator, dtype=torch.float32) * 0.02
            weight.mul_((1 + moved).to(weight))
    for name, sort in sorts.items():
        rows = list(score(model, "rows", sort.expected(remaining[name], False)))
        message = f"{failing(rows)} of {len(rows)} fail, {spread(rows):.2g} in the root mean square"
        print(f"{name}, weights moved by two in a hundred: {message}")
    return 1 if honest else 0


def _shift_score(row: ScoredRow, nats: float) -> ScoredRow:
    """State the first score a little higher."""
    name, first = next(iter(row.scores.items()))
    moved = first.model_copy(update={"stated": first.stated + nats})
    return row.model_copy(update={"scores": row.scores | {name: moved}})


def _swap_labels(row: ScoredRow) -> ScoredRow:
    """State the first score for the last, and the reverse."""
    (name, first), *_, (other, last) = row.scores.items()
    swapped = {
        name: first.model_copy(update={"stated": last.stated}),
        other: last.model_copy(update={"stated": first.stated}),
    }
    return row.model_copy(update={"scores": row.scores | swapped})


def _critics(model: Any, tokenizer: Any, count: int) -> dict[str, Sort]:
    """Return the judges of instructions, of responses and of pairs, on the labelled samples that Peergate ships."""
    from specs.stages.critique.parameters import (
        CriticParameters,
        CritiqueInstructionsParameters,
        CritiqueResponsesParameters,
    )
    from training.jobs.critique.critic import Critic, pairs_scored, subjects_scored
    from training.jobs.witness.label_scores import LabelJudge
    from training.rules.critique.subjects import labelled_pairs, read_labelled_subjects
    from training.rules.rubric_prompts import load_shipped_rubric
    from training.rules.tasks import load_items

    def items(name: str) -> list[Any]:
        return load_items(DATA / f"cai_{name}_labelled.jsonl")[:count]

    judge = LabelJudge(tokenizer, "chat")

    def other(sort: Any) -> Any:
        return sort.model_copy(update={"good": f"{sort.good}, on the whole"})

    def of_subjects(sort: Any, parameters: CriticParameters, subjects: Sequence[Any]) -> Sort:
        def write(size: int) -> list[Any]:
            critic_parameters = parameters.model_copy(update={"batch_size": size})
            return Critic(model, tokenizer, load_shipped_rubric(sort), critic_parameters, "chat").critiques(subjects)

        def expected_rows(rows: Sequence[Any], wording: bool) -> list[Any]:
            rubric = other(load_shipped_rubric(sort)) if wording else load_shipped_rubric(sort)
            return subjects_scored(
                judge, rubric, parameters, list(enumerate(rows)), [(subject, {}) for subject in subjects]
            )

        return Sort(write, expected_rows)

    pairs, responses_parameters = [pair for pair, _ in labelled_pairs(items("pairs"))], CritiqueResponsesParameters()

    def compare(size: int) -> list[Any]:
        parameters = responses_parameters.model_copy(update={"batch_size": size})
        return Critic(model, tokenizer, load_shipped_rubric("comparison"), parameters, "chat").comparisons(pairs)

    def compare_scores(rows: Sequence[Any], wording: bool) -> list[Any]:
        rubric = other(load_shipped_rubric("comparison")) if wording else load_shipped_rubric("comparison")
        return pairs_scored(judge, rubric, responses_parameters, list(enumerate(rows)), [(pair, {}) for pair in pairs])

    instructions = [subject for subject, _ in read_labelled_subjects(items("instructions"), responses=False)]
    responses = [subject for subject, _ in read_labelled_subjects(items("responses"), responses=True)]
    return {
        "instructions": of_subjects("instruction", CritiqueInstructionsParameters(), instructions),
        "responses": of_subjects("response", CritiqueResponsesParameters(), responses),
        "pairs": Sort(compare, compare_scores),
    }


def _likelihoods(model: Any, tokenizer: Any, count: int) -> dict[str, Sort]:
    """Return choices and texts, on the questions and texts that Peergate ships."""
    from training.jobs.evaluation.likelihood import continuation, nats_of, prefix_of, windows_of
    from training.jobs.witness.scoring import ScoredSpan, Scoring, StatedLogprob
    from training.rules.tasks import load_items
    from training.rules.tasks.choices import choices_of

    questions = load_items(DATA / "cai_facts.jsonl")[:count]
    texts = load_items(DATA / "cai_texts.jsonl")[:count]

    def choices(wording: bool) -> list[list[Any]]:
        start = "Q: {}\nA:" if wording else "Question: {}\nAnswer:"
        return [
            [
                continuation(tokenizer, start.format(backlog_item.prompt), f" {choice}")
                for choice in choices_of(backlog_item)
            ]
            for backlog_item in questions
        ]

    def windows(wording: bool) -> list[list[Any]]:
        input_texts = [
            backlog_item.prompt.rsplit(" ", 1)[0] if wording else backlog_item.prompt for backlog_item in texts
        ]
        encoded = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in input_texts]
        return [list(windows_of(value, prefix_of(tokenizer), 64, 32)) for value in encoded]

    def write_scores(rows: list[list[Any]], size: int) -> list[list[float]]:
        return [nats_of(model, spans, batch_size=size) for spans in rows]

    def due_choices(rows: Sequence[Any], wording: bool) -> list[Any]:
        return [
            Scoring(
                place,
                {
                    str(n): StatedLogprob(-nats, (ScoredSpan(*value),))
                    for n, (nats, value) in enumerate(zip(row, spans, strict=True))
                },
            )
            for place, (row, spans) in enumerate(zip(rows, choices(wording), strict=True))
        ]

    def due_texts(rows: Sequence[Any], wording: bool) -> list[Any]:
        return [
            Scoring(place, {"text": StatedLogprob(-sum(row), tuple(ScoredSpan(*value) for value in spans))})
            for place, (row, spans) in enumerate(zip(rows, windows(wording), strict=True))
        ]

    def write_choices(size: int) -> list[Any]:
        return write_scores(choices(False), size)

    def write_texts(size: int) -> list[Any]:
        return write_scores(windows(False), size)

    return {"choices": Sort(write_choices, due_choices), "texts": Sort(write_texts, due_texts)}


if __name__ == "__main__":
    raise SystemExit(main())
