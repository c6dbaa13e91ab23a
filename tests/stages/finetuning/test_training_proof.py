"""The proof of losses and references at its smallest: its cost, and faults planted in what the trainer computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testing.fixtures.needed import need
from testing.fixtures.tiny_training import opposites, preferred, tiny_checkpoint, train, training_job, write_lines
from training.jobs.job import Job

pytestmark = pytest.mark.integration

need("torch", "trl", "peft")

QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 4, "learning_rate": 1e-3, "max_length": 128, "seed": 3}
ADAPTER: dict[str, Any] = {
    "method": "lora",
    "lora_rank": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.5,
    "target_modules": ("q_proj", "down_proj"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a random model that prefers some tokens to others and looks at places, as fresh weights hardly do."""
    import torch

    from training.engines.checkpoint import load, save

    folder = tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model")
    network, tokenizer = load(folder)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if "norm" not in name:
                weights.mul_(15.0)
    save(network, tokenizer, folder)
    return folder


@pytest.fixture(autouse=True)
def quiet_and_on_one_thread() -> Any:
    import warnings

    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    yield
    torch.set_num_threads(before)


def sft_job(folder: Path, model: Path, **parameters: Any) -> Job:
    data = write_lines(folder / "examples.jsonl", opposites())
    return training_job(folder / "job", "sft", model, data, **QUICK | parameters)


def dpo_job(folder: Path, model: Path, pairs: int = 12, **parameters: Any) -> Job:
    data = write_lines(folder / "pairs.jsonl", preferred(pairs))
    arguments: dict[str, Any] = QUICK | {"validation_share": 0.0} | parameters
    return training_job(folder / "job", "dpo", model, data, **arguments)


def test_the_proof_computes_two_sequences_of_a_job_again(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    real = LlamaDecoderLayer.forward
    passes: list[tuple[int, bool]] = []

    def counted(self: Any, hidden: Any, *values: Any, **named: Any) -> Any:
        if self.self_attn.layer_idx == 0:
            passes.append((len(hidden), self.training))
        return real(self, hidden, *values, **named)

    monkeypatch.setattr(LlamaDecoderLayer, "forward", counted)
    done = train(sft_job(tmp_path, model, epochs=4))
    assert [rows for rows, trained in passes if trained] == [4] * 12
    assert [rows for rows, trained in passes if not trained] == [1, 1], "one sequence of the first and of the last step"
    assert done.facts["batches_computed_again"] == 0 and done.facts["loss_difference"] < 1e-5


@pytest.mark.parametrize(("pairs", "epochs", "count"), [(1, 1, 1), (3, 1, 2), (40, 1, 2), (40, 3, 4), (10**6, 1, 16)])
def test_references_that_are_computed_again_are_a_share_of_the_job(pairs: int, epochs: int, count: int) -> None:
    from training.jobs.finetuning.dpo import choose_probe_pairs

    places = choose_probe_pairs(pairs, epochs, resumed=False)
    assert len(places) == count and places[0] == 0 and places[-1] == pairs - 1
    assert len(choose_probe_pairs(pairs, epochs, resumed=True)) == min(16, pairs)


def swapped(chosen: Any, rejected: Any) -> Any:
    return rejected, chosen


def of_the_next(chosen: Any, rejected: Any) -> Any:
    return chosen.roll(1), rejected.roll(1)


def a_little_off(chosen: Any, rejected: Any) -> Any:
    return chosen * 1.001, rejected * 1.001


def constant(chosen: Any, rejected: Any) -> Any:
    return chosen * 0, rejected * 0


@pytest.mark.parametrize(
    ("wrong", "pairs"),
    [
        *((swapped, 4), (a_little_off, 4)),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((of_the_next, 4), (of_the_next, 12), (constant, 4))),
    ],
)
def test_wrong_references_are_found_at_the_fewest_pairs(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any, Any], Any], pairs: int
) -> None:
    from trl.trainer.dpo_trainer import DPOTrainer

    real: Any = DPOTrainer.compute_ref_log_probs

    def planted(self: Any, *values: Any) -> Any:
        return wrong(*real(self, *values))

    monkeypatch.setattr(DPOTrainer, "compute_ref_log_probs", planted)
    done = train(dpo_job(tmp_path, model, pairs, learning_rate=0.0))
    assert done.facts["reference_responses"] == 12 and done.facts["reference_difference"] > 5e-4


def test_references_that_the_first_batch_shows_and_the_fewest_pairs_do_not(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.trainer.kto_trainer import KTOTrainer

    real: Any = KTOTrainer.compute_ref_log_probs

    def planted(self: Any, *values: Any) -> Any:
        own, drift = real(self, *values)
        return own, drift * 0.9

    monkeypatch.setattr(KTOTrainer, "compute_ref_log_probs", planted)
    done = train(dpo_job(tmp_path, model, loss="kto"))
    assert done.facts["reference_difference"] > 5e-4, "of the mismatched responses of the drift"


def test_a_model_that_the_trainer_changed_before_it_took_the_reference_is_found(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from trl.trainer.dpo_trainer import DPOTrainer

    real: Any = DPOTrainer.__init__

    def planted(self: Any, *values: Any, **named: Any) -> None:
        with torch.no_grad():
            named["model"].lm_head.weight.mul_(1.01)
        real(self, *values, **named)

    monkeypatch.setattr(DPOTrainer, "__init__", planted)
    done = train(dpo_job(tmp_path, model))
    # The first batch agrees with itself; the pairs scored before the trainer was there do not.
    assert done.facts["reference_difference"] > 5e-4


def test_a_loss_from_another_temperature_is_not_the_granted_one(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.trainer import sft_trainer

    from training.jobs.finetuning.loss_comparison import GrantMismatch

    real: Any = getattr(sft_trainer, "add_fused_lm_head")  # noqa: B009

    def planted(*values: Any, **named: Any) -> None:
        real(*values, **named | {"temperature": 1.05})

    monkeypatch.setattr(sft_trainer, "add_fused_lm_head", planted)
    with pytest.raises(GrantMismatch, match=r"^step 1: the trainer's loss is [\d.]+; sft over the response tokens of"):
        train(sft_job(tmp_path, model))


def test_a_loss_that_changes_on_the_way_is_found_on_the_last_step(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.trainer.dpo_trainer import DPOTrainer

    from training.jobs.finetuning.loss_comparison import GrantMismatch

    real: Any = DPOTrainer.compute_loss

    def planted(self: Any, *values: Any, **named: Any) -> Any:
        return real(self, *values, **named) + 0.01 * self.state.global_step

    monkeypatch.setattr(DPOTrainer, "compute_loss", planted)
    with pytest.raises(GrantMismatch, match=r"^step 3: the trainer's loss is 0\.\d+; dpo over the response tokens of"):
        train(dpo_job(tmp_path, model))


def test_a_step_that_is_divided_by_other_tokens_than_its_own_is_found(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import Trainer

    from training.jobs.finetuning.loss_comparison import GrantMismatch

    real: Any = Trainer._get_num_items_in_batch  # pyright: ignore[reportPrivateUsage]

    def planted(self: Any, *values: Any) -> Any:
        return real(self, *values) * 2

    done = train(sft_job(tmp_path / "right", model, gradient_accumulation=2))
    assert done.facts["loss_difference"] < 1e-5
    monkeypatch.setattr(Trainer, "_get_num_items_in_batch", planted)
    with pytest.raises(GrantMismatch, match=r"^step 1: the loss was divided by \d+, its batches hold \d+ response tok"):
        train(sft_job(tmp_path / "wrong", model, gradient_accumulation=2))


def test_positions_that_are_not_those_of_the_sequences_are_found(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from trl.trainer.sft_trainer import SFTTrainer

    from training.jobs.finetuning.loss_comparison import GrantMismatch

    real: Any = SFTTrainer.compute_loss

    def planted(self: Any, model: Any, inputs: Any, *values: Any, **named: Any) -> Any:
        ids = inputs["input_ids"]
        inputs["position_ids"] = 2 * torch.arange(ids.shape[1])[None].expand_as(ids)
        return real(self, model, inputs, *values, **named)

    monkeypatch.setattr(SFTTrainer, "compute_loss", planted)
    with pytest.raises(GrantMismatch, match=r"^step 1: the trainer's loss is [\d.]+; sft over the response tokens of"):
        train(sft_job(tmp_path, model))


def test_sequences_that_the_model_was_not_given_are_found(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.trainer.sft_trainer import SFTTrainer

    from training.jobs.finetuning.loss_comparison import GrantMismatch

    real: Any = SFTTrainer.compute_loss

    def planted(self: Any, model: Any, inputs: Any, *values: Any, **named: Any) -> Any:
        mask = inputs["attention_mask"].clone()
        mask[0, :3] = 0
        return real(self, model, inputs | {"attention_mask": mask}, *values, **named)

    monkeypatch.setattr(SFTTrainer, "compute_loss", planted)
    with pytest.raises(GrantMismatch, match=r"^step 1: the model was not given the 4 sequences of the batch unchanged"):
        train(sft_job(tmp_path, model))


@pytest.mark.parametrize(
    ("make", "more"),
    [
        pytest.param(sft_job, {}, marks=pytest.mark.slow),
        (dpo_job, {}),
        pytest.param(dpo_job, {"loss": "kto"}, marks=pytest.mark.slow),
    ],
)
def test_with_dropout_the_last_batch_is_computed_again_without_it(
    tmp_path: Path, model: Path, make: Callable[..., Job], more: dict[str, Any]
) -> None:
    done = train(make(tmp_path, model, **ADAPTER, **more, epochs=2, learning_rate=0.05))
    # New adapters change nothing yet on the first step, and are trained on the last.
    assert done.facts["batches_computed_again"] == 1 and done.facts["loss_difference"] < 1e-5
    assert done.effective["lora_dropout"] == 0.5


def test_packed_sequences_are_compared_in_their_row(tmp_path: Path, model: Path) -> None:
    done = train(sft_job(tmp_path, model, packing=True, max_length=160, batch_size=2))
    assert done.facts["batches_computed_again"] == 0 and done.facts["loss_difference"] < 1e-5


def test_what_is_no_number_is_not_hidden_by_the_largest_of_several() -> None:
    from training.jobs.finetuning.loss_comparison import share

    assert share(-2.0, -3.0) == 0.5 and share(0.1, 0.3) == pytest.approx(0.2)
    assert max([share(-1.0, -1.0), share(-1.0, float("nan")), share(float("nan"), -1.0)]) == float("inf")
