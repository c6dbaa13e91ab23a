"""A channel learns something: two alternating batches both improve, and so do pairs that nothing trained on.

A single batch that is seen again and again would improve whatever is learned. The real comparison, on real weights and
over three seeds, is ``bench.composer.learning``.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from specs.stages.finetuning.online_rows import RolloutStep
from testing.fixtures.rollout_jobs import rollout_job, trained
from testing.fixtures.tiny_training import tiny_checkpoint, write_lines
from training.engines.checkpoint import evaluating, load
from training.jobs.finetuning.loss_comparison import sums
from training.jobs.row_files import read_rows
from training.rules.prompt_encoding import prompt_ids

pytestmark = [pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")]
SIDES = ("yes, at once", "never again")
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.more) for seed in (2, 3))]


def pairs(prompts: list[str], turned: bool = False) -> list[dict[str, Any]]:
    """Return a pair for each prompt; ``turned`` swaps every other one's sides."""
    results: list[dict[str, Any]] = []
    for place, prompt in enumerate(prompts):
        chosen, rejected = SIDES[::-1] if turned and place % 2 else SIDES
        row = {"prompt": prompt, "chosen": chosen, "rejected": rejected, "group": f"pair-{place}", "source": "given"}
        results.append(row)
    return results


def margins(folder: Path) -> list[float]:
    """Return how much likelier the right side is, at prompts that nothing trained on."""
    model, tokenizer = load(folder)
    results: list[float] = []
    for n in range(8):
        prompt = list(prompt_ids(tokenizer, f"Shall I open window {n}?", "chat").ids)
        sides = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in SIDES]
        with evaluating(model):
            (right, _), (wrong, _) = sums(model, [(prompt + side, len(prompt)) for side in sides])
        results.append(right - wrong)
    return results


def learned(folder: Path, seed: int, turned: bool) -> tuple[list[float], list[float]]:
    """Train channel dpo on two batches in turns; return its losses, and the margins it gained on the granted model."""
    folder.mkdir()
    tiny_checkpoint(folder / "model", seed=seed)
    arguments = {"channels": {"grpo": 0.0, "dpo": 1.0}, "replayed_pairs": {"batch_size": 2}, "seed": seed, "epochs": 5}
    job = rollout_job(folder, "composer", **arguments, learning_rate=3e-4, max_new_tokens=2, validation_share=0.0)
    # Two batches of two pairs: every other step reads the same ones.
    prompts = ["Shall I shut the door?", "May I sit?", "Do we go?", "Is it time?"]
    write_lines(folder / "pairs.jsonl", pairs(prompts, turned))
    trained(job)
    losses = [row.channels["dpo"].loss for row in read_rows(job.out / "rows.jsonl", RolloutStep)]
    after, before = margins(job.out / "checkpoint"), margins(folder / "model")
    return losses, [number - other for number, other in zip(after, before, strict=True)]


@pytest.mark.parametrize("seed", SEEDS)
def test_both_batches_improve_and_pairs_that_were_never_seen_too(tmp_path: Path, seed: int) -> None:
    losses, gained = learned(tmp_path / "right", seed, turned=False)
    for batch in (losses[::2], losses[1::2]):
        assert len(batch) >= 10 and fmean(batch[-3:]) < fmean(batch[:3]) - 0.1
    assert min(gained) > 0
    # The control: with half of the sides swapped there is nothing that holds for both batches.
    _, other = learned(tmp_path / "turned", seed, turned=True)
    assert fmean(gained) > abs(fmean(other))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_brings_a_model_nearer_to_what_reads_the_feedback(tmp_path: Path, seed: int) -> None:
    tiny_checkpoint(tmp_path / "model", seed=seed)
    arguments = {"self_distillation": {"feedback": "verifier"}, "seed": seed, "epochs": 1, "max_new_tokens": 6}
    job = rollout_job(tmp_path, "sdpo", **arguments, learning_rate=1e-3, validation_share=0.0)
    trained(job)
    # Of the answers of the granted weights, and of those after one step: a gradient with the wrong sign raises it.
    first, second, *_ = (row.channels["sdpo"].loss for row in read_rows(job.out / "rows.jsonl", RolloutStep))
    assert 0 < second < 0.8 * first
