"""How often is a stage of samples found out that were made otherwise than granted, and an honest one accused?

    .venv/bin/python -m bench.witness_samples                  # some minutes on one core
    .venv/bin/python -m bench.witness_samples --each 4 --read 57 192

The model of two layers of ``bench.flaws`` answers 48 prompts: it draws one or two tokens of an answer by chance, less
than any language model. A stage is drawn from many samples of each prompt, and what the witness says of it is judged.
Printed is the share of stages found out, and of which share of the rows: by single answers, and by all together as in
``witness.answers``. Exit code 1 if an honest stage is accused.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.flaws.lying import shake
from bench.flaws.small_specs import KINDS, tiny_model
from reviews.checks.witness_checks import wrong_rows
from reviews.statistics.sampling_evidence import average_ratios, evidence
from specs.stages.base.witness import FALSE_ALARM, WitnessRow
from specs.stages.generation.parameters import GenerateParameters
from training.engines.checkpoint import load
from training.engines.engine import BatchedEngine
from training.engines.token_sampling import TokenSampling
from training.items.format_items import TRAIN_TOPICS, build_items
from training.jobs.witness.prompted_answers import PromptedAnswer, answer, copies_of
from training.jobs.witness.reading import read
from training.rules.prompt_encoding import sample_ids
from training.rules.tasks import worked_example

GRANTED = TokenSampling(48, 0.7)
_PROMPTS = 48


class Sample(NamedTuple):
    """One answer, and how the granted weights read it."""

    answer: PromptedAnswer
    row: WitnessRow


Drawn = list[list[Sample]]
"""By prompt."""
Stage = Callable[[random.Random, int], list[Sample]]
"""Given the samples to each prompt: the rows of a stage."""


def main() -> int:
    """Draw stages, judge them, and print the shares; 1 if an honest one is accused."""
    parser = argparse.ArgumentParser(description="Samples made otherwise than granted: how often they are found out.")
    parser.add_argument("--each", type=int, default=2, help="samples of a prompt in a stage")
    parser.add_argument("--read", type=int, nargs="+", default=[50, 96], help="rows that the witness reads")
    parser.add_argument("--stages", type=int, default=200)
    parser.add_argument("--honest", type=int, default=1000, help="honest stages")
    parser.add_argument("--pool", type=int, default=40, help="samples of a prompt that stages are drawn from")
    namespace = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peergate-samples-") as name:
        stages = _stages(Path(name), namespace.pool)
    accused = False
    print("| samples | rows read | of all | single answers | together |")
    print("|---|---|---|---|---|")
    for what, stage in stages.items():
        for size in namespace.read:
            generator, many = (
                random.Random(f"{what} {size}"),
                namespace.honest if what == "honest" else namespace.stages,
            )
            flags = [
                _count_detections(_make_challenge(stage(generator, namespace.each), size, generator))
                for _ in range(many)
            ]
            shares = [sum(column) / many for column in zip(*flags, strict=True)]
            cost = min(1.0, size / namespace.each / _PROMPTS)
            print(
                f"| {what} | {size} | {cost:.0%} | " + " | ".join(f"{share:.1%}" for share in shares) + " |", flush=True
            )
            accused |= what == "honest" and any(shares)
    return int(accused)


def _stages(folder: Path, pool: int) -> dict[str, Stage]:
    """Return by name how the rows of a stage come about."""
    source = tiny_model(folder)
    model, tokenizer = load(source)
    (other := folder / "other").mkdir()
    for path in source.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    shake(other / "model.safetensors", 0.2)
    items = [item for item in build_items("prompts", TRAIN_TOPICS[:28]) if item.kind in KINDS]
    generate_parameters = GenerateParameters(seed=3)
    prompts = [
        sample_ids(tokenizer, item.prompt, worked_example("format_instructions", item), generate_parameters, "chat")
        for item in items
    ]

    def draw_samples(sampling: TokenSampling, many: int, weights: Any = model, shifted: int = 0) -> Drawn:
        outputs = BatchedEngine(weights, tokenizer, 64, share=False).complete(prompts, sampling, samples=many, seed=3)
        outputs = [*outputs[shifted:], *outputs[:shifted]]
        review_requests = [
            answer(
                place * many + number,
                prompt,
                GRANTED,
                ids=completion.ids,
                text=completion.text,
                finish=completion.finish,
            )
            for place, (prompt, completions) in enumerate(zip(prompts, outputs, strict=True))
            for number, completion in enumerate(completions)
        ]
        rows = {row.row: row for row in read(model, tokenizer, review_requests)}
        samples = [Sample(review_request, rows[review_request.row]) for review_request in review_requests]
        return [samples[many * place : many * (place + 1)] for place in range(len(prompts))]

    honest, greedy = draw_samples(GRANTED, pool), draw_samples(TokenSampling(48), 1)
    strange = draw_samples(GRANTED, pool, shifted=1)

    def of(drawn: Drawn) -> Stage:
        return lambda generator, samples_per_prompt: [
            sample_faults for them in drawn for sample_faults in generator.sample(them, samples_per_prompt)
        ]

    def partly(share: float, others: Drawn) -> Stage:
        def rows(generator: random.Random, samples_per_prompt: int) -> list[Sample]:
            return [
                generator.choice(others[place // samples_per_prompt]) if generator.random() < share else sample_faults
                for place, sample_faults in enumerate(of(honest)(generator, samples_per_prompt))
            ]

        return rows

    def copy_samples(share: float) -> Stage:
        def rows(generator: random.Random, samples_per_prompt: int) -> list[Sample]:
            samples = of(honest)(generator, samples_per_prompt)
            for place in range(len(samples)):
                if place % samples_per_prompt and generator.random() < share:
                    samples[place] = samples[place - 1]
            return samples

        return rows

    return {
        "honest": of(honest),
        "drawn at 0.45": of(draw_samples(GRANTED._replace(temperature=0.45), pool)),
        "drawn at 0.6": of(draw_samples(GRANTED._replace(temperature=0.6), pool)),
        "drawn at 0.85": of(draw_samples(GRANTED._replace(temperature=0.85), pool)),
        "drawn at 1.2": of(draw_samples(GRANTED._replace(temperature=1.2), pool)),
        "two thirds greedy": partly(2 / 3, greedy),
        "one third greedy": partly(1 / 3, greedy),
        "each second a copy": copy_samples(1.0),
        "each fourth a copy": copy_samples(0.5),
        "of other weights": of(draw_samples(GRANTED, pool, load(other)[0])),
        "one in twenty to another prompt": partly(0.05, strange),
    }


def _make_challenge(stage: Sequence[Sample], size: int, generator: random.Random) -> list[WitnessRow]:
    """Return what a witness says of some rows of a stage."""
    every = [sample_faults.answer._replace(row=place) for place, sample_faults in enumerate(stage)]
    places = sorted(generator.sample(range(len(stage)), min(size, len(stage))))
    copies = copies_of([every[place] for place in places], every)
    return [stage[place].row.model_copy(update={"row": place, "copies": copies.get((place, ""))}) for place in places]


def _count_detections(rows: Sequence[WitnessRow]) -> tuple[bool, ...]:
    """Return whether single answers, and all together, expose a stage."""
    seed = str(len(rows))
    single = any("all sampled" not in wrong_row["why"] for wrong_row in wrong_rows(seed, rows, "float32"))
    together = average_ratios(evidence(rows)) >= -math.log(FALSE_ALARM / 2)
    return single, together


if __name__ == "__main__":
    raise SystemExit(main())
