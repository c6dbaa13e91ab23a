"""The kinds that train, with every setting that changes the result, including those with a default in the libraries."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from specs.stages.base.stage import NotReadBack
from specs.stages.finetuning.distributed import DistributedTraining
from specs.system.digests import Contract, omit_default

Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,79}$")]
Loss = Literal["dpo", "ipo", "kto", "orpo", "simpo"]
REFERENCE_FREE: tuple[Loss, ...] = ("orpo", "simpo")
"""Losses that compare with no reference model."""


_EVERY_LAYER = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_PARTS = 32
"""Into which snapshots of adapters divide a training: a replay of two parts and the opening is a tenth of it."""


def _of_adapters(default: Any) -> Any:
    """Return a field that has its default with a method of adapters alone, and is left out where it is not set."""

    def by_method(arguments: dict[str, Any]) -> Any:
        return None if arguments.get("method", "full") == "full" else default

    return Field(default_factory=by_method, exclude_if=lambda arguments: arguments is None)


class TrainingParameters(Contract):
    """What both kinds of training share."""

    epochs: Annotated[int, Field(ge=1, le=100)] = 1
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 8
    gradient_accumulation: Annotated[int, Field(ge=1, le=1024)] = 1
    warmup_ratio: Annotated[float, Field(ge=0, le=1), NotReadBack()] = 0.1
    warmup_steps: Annotated[int, Field(ge=0)] | None = omit_default()
    """Warm up for this many optimizer steps instead of a share of them."""
    scheduler: Literal["constant", "linear", "cosine"] = "linear"
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    optimizer_kind: Literal["adamw", "paged_adamw_8bit"] = omit_default("adamw")
    """``paged_adamw_8bit`` is that of bitsandbytes and needs an NVIDIA GPU."""
    method: Literal["full", "lora", "qlora"] = omit_default("full")
    """All weights; low-rank adapters (Hu et al. 2021, arXiv:2106.09685); adapters over weights of 4 bits (Dettmers et
    al. 2023, arXiv:2305.14314), meant for an NVIDIA GPU."""
    lora_rank: Annotated[int, Field(ge=1, le=1024)] | None = _of_adapters(16)
    """With adapters, 16 if no one says otherwise."""
    lora_alpha: Annotated[int, Field(ge=1, le=4096)] | None = _of_adapters(32)
    """With adapters, 32 if no one says otherwise."""
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] | None = _of_adapters(0.0)
    """With adapters, 0 if no one says otherwise."""
    target_modules: tuple[Module, ...] | None = _of_adapters(_EVERY_LAYER)
    """The linear layers that get an adapter, by the last part of their name. With adapters, if no one says otherwise,
    every one of a block as Llama and Qwen call them: fewer did not match full training (Dettmers et al. 2023)."""
    gradient_checkpointing: bool = omit_default(False)
    """Compute activations again in the backward pass: less memory, more time."""
    precision: Literal["auto", "float32", "bfloat16", "mixed"] = omit_default("auto")
    """For weights and computation; ``mixed`` keeps float32 weights; ``auto``: float32 on a CPU, bfloat16 on a GPU."""
    device: Literal["auto", "cpu", "cuda"] = omit_default("auto")
    """Where it has to run. ``auto`` takes a GPU where there is one, and the manifest says which it was."""
    prompt_format: str | None = omit_default(min_length=8, max_length=2000)
    """Train in completion mode on this text, with ``{prompt}`` in it, instead of the tokenizer's chat template."""
    response_end: str | None = omit_default(min_length=1, max_length=100)
    """Written after every response, before the end token; only with ``prompt_format``."""
    response_start: str | None = omit_default(min_length=1, max_length=10)
    """Written before every response, with loss; only with ``prompt_format``. A format that ends in ":" needs the space,
    because ``:"`` is one token."""
    checkpoint_steps: Annotated[int, Field(ge=1)] | None = omit_default()
    """Optimizer steps between saved ones; a job that is started again resumes from the newest whole one."""
    snapshot_steps: Annotated[Annotated[int, Field(ge=1)] | None, NotReadBack()] = omit_default()
    """Optimizer steps between snapshots, from which a witness trains again. Each is as large as what is trained and its
    optimizer together. Left out, adapters leave up to 31 and full weights none."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @property
    def leaves_snapshots(self) -> bool:
        """Return whether ``snapshots`` is an output."""
        return self.snapshot_steps is not None or self.method != "full"

    def snapshots_of(self, steps: int) -> tuple[int, ...]:
        """Return after which of so many optimizer steps a snapshot is saved."""
        if not self.leaves_snapshots:
            return ()
        between = self.snapshot_steps or -(-steps // _PARTS)
        return tuple(range(between, steps, between))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        adapter = {
            "lora_rank": self.lora_rank,
            "lora_alpha": self.lora_alpha,
            "lora_dropout": self.lora_dropout,
            "target_modules": self.target_modules,
        }
        if self.method == "full":
            texts = [name for name, value in adapter.items() if value is not None]
            if texts:
                raise ValueError(f"{', '.join(texts)} given, but method is 'full': write method: lora or qlora")
        else:
            missing = [name for name, value in adapter.items() if value in (None, ())]
            if missing:
                raise ValueError(f"method '{self.method}' needs {', '.join(missing)}")
            if len(set(self.target_modules or ())) != len(self.target_modules or ()):
                raise ValueError("target_modules has a duplicate")
        if self.warmup_steps is not None and self.scheduler == "constant":
            raise ValueError("warmup_steps has no effect with scheduler 'constant'")
        if self.prompt_format is not None and self.prompt_format.count("{prompt}") != 1:
            raise ValueError("prompt_format must hold {prompt} once")
        if self.response_end is not None and self.prompt_format is None:
            raise ValueError("response_end needs prompt_format: a chat template has its own end")
        if self.response_start is not None and self.prompt_format is None:
            raise ValueError("response_start needs prompt_format: a chat template has its own beginning")
        return self

    @model_validator(mode="after")
    def _machine_fits(self) -> Self:
        if self.optimizer_kind != "adamw" and self.device != "cuda":
            kind = self.optimizer_kind
            raise ValueError(f"optimizer_kind '{kind}' runs on an NVIDIA GPU only, device is '{self.device}'")
        if self.method == "qlora" and self.device == "auto":
            raise ValueError("method 'qlora' needs a device, got 'auto': write cuda, or cpu for a small trial")
        if self.method == "qlora" and self.precision != "bfloat16":
            raise ValueError(f"method 'qlora' computes in bfloat16, precision is '{self.precision}'")
        if self.method == "lora" and self.precision == "mixed" and self.device == "cpu":
            raise ValueError("precision 'mixed' saves nothing on a CPU, device is 'cpu'")
        return self


class ReplicatedParameters(TrainingParameters):
    """What kinds share whose data several replicas can divide."""

    distributed: DistributedTraining | None = omit_default()
    """Train by several processes that synchronise rarely (torchft's DiLoCo). Of full weights each replica saves all at
    every synchronisation, with the optimizer, for the witness."""

    @property
    def synchronises(self) -> bool:
        """Return whether ``replicas`` is an output."""
        return self.distributed is not None

    @property
    def leaves_snapshots(self) -> bool:
        """Return whether ``snapshots`` is an output."""
        return self.synchronises or super().leaves_snapshots

    def snapshots_of(self, steps: int) -> tuple[int, ...]:
        """Return after which steps a snapshot is saved: replicas save one at each synchronisation."""
        if self.distributed is None:
            return super().snapshots_of(steps)
        return tuple(range(self.distributed.sync_every, steps, self.distributed.sync_every))

    @model_validator(mode="after")
    def _replicas_fit(self) -> Self:
        if self.distributed is None:
            return self
        if self.method == "qlora":
            raise ValueError("distributed needs weights that are not of 4 bits, method is 'qlora': write lora or full")
        counts = {"snapshot_steps": self.snapshot_steps, "checkpoint_steps": self.checkpoint_steps}
        if unfit := [name for name, value in counts.items() if value is not None]:
            raise ValueError(f"{unfit[0]} has no effect with distributed: replicas save after every synchronisation")
        return self


class EarlyStopping(Contract):
    """When a training ends before its last planned step, and which of its weights are saved.

    What ``validation_share`` keeps out of training is read before the first step, after every ``every_steps`` and after
    the last. Saved are the weights of the best reading, also where no step is left out.
    """

    every_steps: Annotated[int, Field(ge=1)]
    """Optimizer steps between readings. A step is saved at each, from which an interrupted job resumes."""
    patience: Annotated[int, Field(ge=1, le=1000)] = 2
    """Readings in a row without an improvement after which the training ends."""
    min_improvement: Annotated[float, Field(ge=0)] = 0.0
    """A reading is an improvement if it is better than every earlier one by more than this, in units of the metric."""


class ExampleStopping(EarlyStopping):
    """A rule on examples."""

    metric: Literal["validation_loss", "validation_token_accuracy"] = "validation_loss"
    """The loss in nats per token of the responses, or the fraction of their tokens that the model ranks first."""


class PairStopping(EarlyStopping):
    """A rule on pairs."""

    metric: Literal["validation_margin", "validation_accuracy"] = "validation_margin"
    """By how much more log-probability the chosen response gained than the rejected one, on average, or the fraction of
    pairs in which it gained more."""


StopRule = ExampleStopping | PairStopping


class ScalingRule(Contract):
    """How many tokens a training from scratch, or a continued pre-training, needs for the size of its model."""

    parameters: Annotated[int, Field(ge=1, lt=2**53)]
    """The number of the model's parameters; the gate compares it with the trained checkpoint."""
    tokens_per_parameter: Annotated[float, Field(gt=0, le=10_000)] = 20.0
    """Distinct tokens for each, repeats counted for less (Hoffmann et al. 2022, arXiv:2203.15556: about 20)."""


class SftParameters(ReplicatedParameters):
    """Supervised fine-tuning with loss on the completion only (TRL ``SFTTrainer``)."""

    learning_rate: Annotated[float, Field(ge=0, le=1)] = 2e-5
    """0 is allowed: it is the control that must end as "no significant difference"."""
    max_examples_per_kind: Annotated[Annotated[int, Field(ge=1)] | None, NotReadBack()] = None
    """Balance the constraint kinds by keeping at most this many examples of each."""
    max_length: Annotated[int, Field(ge=16, le=131072)] = 256
    scaling: Annotated[ScalingRule | None, NotReadBack()] = omit_default()
    """For a training that has to teach a model everything: less than half of the tokens of this rule is refused, before
    anything is paid for where the data are registered. A fine-tuning needs no such rule."""
    packing: bool = omit_default(False)
    """Put several examples into one sequence of ``max_length`` tokens; needs FlashAttention, which keeps them apart."""
    validation_share: Annotated[Annotated[float, Field(ge=0, le=0.5)], NotReadBack()] = omit_default(0.0)
    """The share of groups kept out of training; the model reads their examples before it and after each fifth of the
    steps. Left out, every example is trained on."""
    early_stopping: Annotated[ExampleStopping | None, NotReadBack()] = omit_default()
    """End the training by a registered rule on the examples that are kept out."""

    @model_validator(mode="after")
    def _shards_fit(self) -> Self:
        if self.distributed is not None and self.packing:
            raise ValueError("packing makes shards of different lengths: omit it with distributed")
        if self.distributed is not None and self.validation_share:
            raise ValueError("validation_share is for one process: omit it with distributed")
        if self.early_stopping is not None and not self.validation_share:
            raise ValueError("early_stopping reads examples that are kept out: give validation_share")
        return self


class DpoParameters(ReplicatedParameters):
    """Training on pairs of a chosen and a rejected response, by the loss that is named.

    ``dpo``, ``ipo``: Rafailov et al. 2023 (arXiv:2305.18290), Azar et al. 2023 (arXiv:2310.12036). ``kto``: Ethayarajh
    et al. 2024 (arXiv:2402.01306), each pair as a good and a bad response. ``orpo``, ``simpo``: Hong et al. 2024
    (arXiv:2403.07691), Meng et al. 2024 (arXiv:2405.14734), of ``trl.experimental``.
    """

    loss: Loss = "dpo"
    learning_rate: Annotated[float, Field(ge=0, le=1)] = 5e-6
    beta: Annotated[float, Field(gt=0, le=100)] = 0.1
    simpo_gamma: Annotated[float, Field(ge=0, le=100)] | None = None
    """The margin that SimPO asks for; only with that loss, and then required."""
    max_length: Annotated[int, Field(ge=16, le=131072)] = 512
    """The limit of prompt and response together; longer rows are cut at the end, and the manifest counts them."""
    validation_share: Annotated[float, Field(ge=0, le=0.5), NotReadBack()] = 0.1
    """The share of groups kept out of training; their pairs are scored before and after it."""
    early_stopping: Annotated[PairStopping | None, NotReadBack()] = omit_default()
    """End the training by a registered rule on the pairs that are kept out."""

    @model_validator(mode="after")
    def _loss_fits(self) -> Self:
        if (self.simpo_gamma is None) == (self.loss == "simpo"):
            raise ValueError(f"simpo_gamma belongs to loss 'simpo' and to no other, loss is '{self.loss}'")
        if self.loss == "kto" and self.batch_size % 2:
            raise ValueError(f"loss 'kto' compares the responses of a batch: batch_size {self.batch_size} is not even")
        if self.early_stopping is not None and self.distributed is not None:
            raise ValueError("early_stopping is for one process: omit it with distributed")
        return self
