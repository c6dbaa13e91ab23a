"""Training on rollouts with real weights: each kind to its end, and a teacher that reads what its student does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specs.stages.base.stage import Kind
from specs.stages.finetuning.online_rows import Rollout, RolloutStep
from testing.fixtures.rollout_jobs import prompt_rows, trained
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.tiny_training import preferred, write_lines
from training.jobs.job import Job
from training.jobs.row_files import read_rows

pytestmark = [
    *(pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(1800)),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
SETTINGS: dict[str, Any] = {
    "generations": 2,
    "batch_size": 4,
    "max_new_tokens": 12,
    "learning_rate": 1e-5,
    "warmup_steps": 0,
    "validation_share": 0.0,
    "device": "cpu",
    "rewards": {"verified": 1.0, "length": -0.1},
}


@pytest.fixture(scope="module")
def model() -> Path:
    from testing.fixtures.real_model import smollm2_checkpoint

    return smollm2_checkpoint()


def job_of(folder: Path, model: Path, kind: Kind, **changes: Any) -> Job[Any]:
    inputs = {"model": model, "prompts": write_lines(folder / "prompts.jsonl", prompt_rows(4))}
    if changes.get("channels", {}).get("dpo"):
        inputs["pairs"] = write_lines(folder / "pairs.jsonl", preferred()[:4])
    return stage_job(folder / "job", kind, inputs, "instruct", **SETTINGS | changes)


@pytest.mark.parametrize(
    ("kind", "channels"), [("grpo", ("grpo",)), ("sdpo", ("sdpo",)), ("composer", ("dpo", "grpo", "sdpo"))]
)
def test_each_kind_trains_real_weights_to_its_end(
    tmp_path: Path, model: Path, kind: Kind, channels: tuple[str, ...]
) -> None:
    from transformers import AutoTokenizer

    spans = {"feedback": "verifier", "target": "span"}
    more = {"channels": dict.fromkeys(channels, 1.0), "self_distillation": spans} if kind == "composer" else {}
    job = job_of(tmp_path, model, kind, **more)
    done = trained(job)
    rows = read_rows(job.out / "rows.jsonl", RolloutStep)
    rollouts = read_rows(job.out / "rollouts.jsonl", Rollout)
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    for rollout in rollouts:
        if rollout.span and rollout.span_tokens:
            answer = tokenizer.decode(rollout.answer_ids[slice(*rollout.span_tokens)])
            assert rollout.text[slice(*rollout.span)] in answer and answer in rollout.text
    parts = [item.span_tokens for item in rollouts if item.span_tokens and item.span_tokens[1] < len(item.answer_ids)]
    assert bool(parts) == bool(more)
    assert [row.step for row in rows] == [1, 2] and tuple(rows[0].channels) == channels
    assert len(rollouts) == 8 and done.tokens > 0
    for name in channels:
        fired = [row.channels[name] for row in rows if row.channels[name].rows]
        assert fired and all(step.grad_norm > 0 and step.tokens > 0 for step in fired), name
    assert rows[0].sketch != rows[1].sketch
    assert (job.out / "checkpoint" / "model.safetensors").is_file()
    if "dpo" in channels:
        assert rows[0].channels["dpo"].loss == pytest.approx(0.6931472, abs=1e-4)


def test_a_right_answer_in_the_prompt_makes_it_likelier_than_another_does(model: Path) -> None:
    """What self-distillation lives on, before any training; without a hint the teacher is the student."""
    import torch

    from training.engines.checkpoint import load
    from training.jobs.finetuning.loss_comparison import sums
    from training.jobs.finetuning.online import losses
    from training.jobs.finetuning.online.hidden_states import TokenSequence, head, states
    from training.rules.prompt_encoding import prompt_ids

    network, tokenizer = load(model)
    network.eval()
    right, other = "A quiet harbour sleeps under heavy snow.", "Seven bakers argued about the price of flour."
    answer = list(tokenizer(right, add_special_tokens=False)["input_ids"])

    def ids(hint: str) -> list[int]:
        question = "Write one sentence about winter." + (f"\n\nA right answer is:\n{hint}" if hint else "")
        return list(prompt_ids(tokenizer, question, "chat").ids)

    with torch.no_grad():
        sequences = [[*ids(hint), *answer] for hint in (right, other, "")]
        results = [sums(network, [(row, len(row) - len(answer))])[0][0] for row in sequences]
        assert results[0] > results[1] + 10 and results[0] > results[2] + 10, results
        bare = states(network, [TokenSequence(sequences[2], len(sequences[2]) - len(answer))])
        report = states(network, [TokenSequence(sequences[0], len(sequences[0]) - len(answer))])
        layer, mask = head(network), torch.ones(len(bare))
        same = losses.divergence_in_pieces(bare, layer, bare, layer, mask, beta=0.5)
        apart = losses.divergence_in_pieces(bare, layer, report, layer, mask, beta=0.5)
    assert float(same) < 1e-6 and float(apart) > 0.01
