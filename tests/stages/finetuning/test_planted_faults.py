"""Faults planted in real trainings of a random model: each is found by its check. Healthy runs: `test_training.py`."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testing.fixtures.needed import need
from testing.fixtures.tiny_training import tiny_checkpoint, train, training_job, write_lines
from tests.stages.finetuning.test_training import QUICK, judged, quiet_warnings, sft_job

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]
__all__ = ["quiet_warnings"]

need("torch", "trl", "peft")

STEPS = 24
LONG: dict[str, Any] = {"epochs": 8, "batch_size": 4, "learning_rate": 2e-3}
"""Twelve examples, eight times: 24 steps."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model")


def trainer_with(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Callable[..., Any]], Any]) -> None:
    """Replace a method of TRL's trainer by what ``change`` makes of it."""
    from trl.trainer.sft_trainer import SFTTrainer

    monkeypatch.setattr(SFTTrainer, name, change(getattr(SFTTrainer, name)))


def losses_of(folder: Path) -> list[float]:
    lines = (folder / "job" / "out" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_a_schedule_shorter_than_the_run_makes_a_plateau(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate is used up after a fifth of the steps; attention falls back to the slow one."""
    import transformers

    def shorter(healthy: Callable[..., Any]) -> Any:
        def create(self: Any, num_training_steps: int, optimizer: Any = None) -> Any:
            return healthy(self, num_training_steps // 5, optimizer)

        return create

    whole = transformers.AutoModelForCausalLM.from_pretrained

    def slow(*values: Any, **named: Any) -> Any:
        return whole(*values, **named, attn_implementation="eager")

    trainer_with(monkeypatch, "create_scheduler", shorter)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", slow)
    job = sft_job(tmp_path, model, **LONG)
    results = judged(tmp_path, job, train(job))
    assert results["training.schedule"].startswith("FAIL")
    assert (
        results["training.plateau"].startswith("WARN")
        and "the schedule explains the plateau" in results["training.plateau"]
    )
    assert results["training.device"] == "WARN: it trained on cpu with attention 'eager'; the model has a fused one"


def test_a_late_rise_and_another_tokenizer_in_the_checkpoint(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the middle on every step goes uphill, at the granted rate; the template changes when it is saved."""
    from training.engines import checkpoint

    def uphill(healthy: Callable[..., Any]) -> Any:
        def compute(self: Any, *values: Any, **named: Any) -> Any:
            result = healthy(self, *values, **named)
            if self.state.global_step >= STEPS // 2:
                for parameter in self.model.parameters():
                    if parameter.requires_grad and not getattr(parameter, "turned", False):
                        parameter.register_hook(turned)
                        parameter.turned = True
            return result

        return compute

    def turned(gradient: Any) -> Any:
        return -gradient

    saved = checkpoint.save

    def other(network: Any, tokenizer: Any, folder: Path) -> None:
        tokenizer.chat_template = "{{ messages[0]['content'] }}"
        saved(network, tokenizer, folder)

    trainer_with(monkeypatch, "compute_loss", uphill)
    monkeypatch.setattr(checkpoint, "save", other)
    job = sft_job(tmp_path, model, **LONG | {"scheduler": "constant", "learning_rate": 5e-3})
    results = judged(tmp_path, job, train(job))
    losses = losses_of(tmp_path)
    assert losses[-1] > 1.2 * min(losses), "the fault is in the run"
    assert results["training.rise"].startswith("WARN") and "not the best of the run" in results["training.rise"]
    assert results["training.tokenizer"] == (
        "FAIL: not those of the granted model: the chat template differs (chat_template.jinja)"
    )
    assert results["training.decay"].startswith("WARN") and "never decayed" in results["training.decay"]


def test_zero_gradients_a_warm_up_without_end_and_slow_steps(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(healthy: Callable[..., Any]) -> Any:
        def step(self: Any, *values: Any, **named: Any) -> Any:
            time.sleep(1.2)
            loss = healthy(self, *values, **named)
            for parameter in self.model.parameters():
                parameter.grad.zero_()
            return loss

        return step

    trainer_with(monkeypatch, "training_step", dead)
    job = sft_job(tmp_path, model, epochs=1, warmup_steps=100)
    results = judged(tmp_path, job, train(job))
    assert results["training.gradient"].startswith("FAIL: the gradient is zero in 3 of 3 steps")
    assert results["training.decay"].startswith("WARN: the warm-up takes 100 steps of 3")
    assert results["training.speed"].startswith("WARN: a step of ")


def test_a_corpus_repeated_too_often_is_starved(tmp_path: Path, model: Path) -> None:
    job = sft_job(tmp_path, model, epochs=12, batch_size=12)
    results = judged(tmp_path, job, train(job))
    assert results["training.starvation"].startswith("WARN") and "more than 10 passes" in results["training.starvation"]


@pytest.mark.parametrize(("epochs", "status"), [(60, "WARN"), (12, "PASS")])
def test_a_corpus_learned_by_heart_is_overfit(tmp_path: Path, epochs: int, status: str) -> None:
    """Six texts without any rule, and six of the same kind kept out; after a fifth as many passes nothing is known."""
    letters = random.Random(0)
    rows = [
        {
            **{"item": f"i{n}", "group": f"g{n}", "kind": "letters", "sample": 0, "prompt": f"Say number {n}."},
            "completion": "".join(letters.choice("abcdefgh") for _ in range(8)),
        }
        for n in range(12)
    ]
    data = write_lines(tmp_path / "examples.jsonl", rows)
    wide = tiny_checkpoint(tmp_path / "wide", hidden=128)
    arguments: dict[str, Any] = {"epochs": epochs, "batch_size": 6, "learning_rate": 5e-3, "validation_share": 0.5}
    job = training_job(tmp_path / "job", "sft", wide, data, **QUICK | arguments)
    results = judged(tmp_path, job, train(job))
    assert results["training.overfit"].startswith(status), results["training.overfit"]
    assert results["training.validation"].startswith("PASS"), results["training.validation"]


def test_loss_on_padding_stops_the_first_step(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training.jobs.finetuning.loss_comparison import GrantMismatch
    from training.jobs.finetuning.loss_masks import MaskFault

    def padded(healthy: Callable[..., Any]) -> Any:
        def step(self: Any, network: Any, inputs: Any, *rest: Any) -> Any:
            open_ones = inputs["attention_mask"] == 0
            inputs["labels"] = inputs["labels"].masked_fill(open_ones, inputs["input_ids"].min().item())
            return healthy(self, network, inputs, *rest)

        return step

    trainer_with(monkeypatch, "training_step", padded)
    job = sft_job(tmp_path, model)
    with pytest.raises((GrantMismatch, MaskFault)):
        train(job)
    assert not (job.out / "checkpoint").exists()


def test_a_run_that_stops_early_after_a_spike_and_leaves_its_first_weights(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at two fifths; one step has a thousandfold gradient; the saved weights are the first."""
    from training.engines import checkpoint

    def impatient(healthy: Callable[..., Any]) -> Any:
        def step(self: Any, *values: Any, **named: Any) -> Any:
            loss = healthy(self, *values, **named)
            if self.state.global_step == 4:
                for parameter in self.model.parameters():
                    parameter.grad.mul_(1000)
            self.control.should_training_stop |= self.state.global_step >= STEPS * 2 // 5
            return loss

        return step

    saved = checkpoint.save

    def first(network: Any, tokenizer: Any, folder: Path) -> None:
        saved(checkpoint.load(model, "cpu")[0], tokenizer, folder)

    trainer_with(monkeypatch, "training_step", impatient)
    monkeypatch.setattr(checkpoint, "save", first)
    job = sft_job(tmp_path, model, **LONG)
    results = judged(tmp_path, job, train(job))
    assert len(losses_of(tmp_path)) == STEPS * 2 // 5 + 1, "the fault is in the run"
    assert results["training.steps"].startswith("FAIL"), results["training.steps"]
    assert results["training.gradient"].startswith("WARN: a gradient norm is "), results["training.gradient"]
    assert results["training.moved"].startswith("FAIL"), results["training.moved"]


def test_a_training_from_scratch_on_a_fraction_of_its_tokens_is_refused(tmp_path: Path, model: Path) -> None:
    from training.rules.weight_files import tensors_of

    values = {tensor.start: tensor for tensor in tensors_of(model).values()}.values()
    parameters = sum(tensor.size // 4 for tensor in values)
    job = sft_job(tmp_path, model, epochs=1, scaling={"parameters": parameters})
    results = judged(tmp_path, job, train(job))
    assert (
        results["training.scaling"].startswith("FAIL") and "% of what the rule asks for" in results["training.scaling"]
    )
