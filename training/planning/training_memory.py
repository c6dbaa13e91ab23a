"""Memory, hours and money of a training stage before it runs, from the shape of the model. No torch.

What is counted, in bytes (b sequences at a time, s tokens each, d bytes a number):

- weights: 4 or 2 a parameter; for ``qlora`` 4.127 bits a parameter inside the blocks (NF4 with doubly quantised
  constants, Dettmers et al. 2023, arXiv:2305.14314, section 3) and 2 bytes elsewhere; adapters in float32, for
  ``qlora`` in bfloat16, as TRL has them;
- gradients: one number a trained parameter; optimizer: two for AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101), of
  the parameter's precision, or of one byte each for ``paged_adamw_8bit`` (Dettmers et al. 2022, arXiv:2110.02861);
- activations of a block: b s d (6 h + 2 k + 4 m), with h the hidden size, k the width of keys, m that of the MLP, when
  attention keeps no s by s matrix (after Korthikanti et al. 2022, arXiv:2205.05198, section 4); with
  ``gradient_checkpointing`` b s d h a block and all of one;
- logits: in pieces of 1,024 positions, float32, three copies (TRL's fused head for ``sft``, ``dpo``, ``ipo``, ``kto``);
  all positions for ``orpo`` and ``simpo``;
- for ``qlora`` one layer of 16 bits at a time; 1.5 GB for the CUDA context and 5 % for what an allocator cannot fill.

Merging adapters takes the product of one layer's, in float32 and as the weights are stored, next to the weights; for
``qlora`` a second copy of all weights in 16 bits on the CPU. Saving from a GPU takes the host 50 GB at most.

Time: 6 operations a parameter and token for full training, 4 with adapters, 2 more with gradient checkpointing (Kaplan
et al. 2020, arXiv:2001.08361, section 2.1), and 2 for each pass of a reference.

Measured: docs/explanation/pipeline-training.md.
"""

from __future__ import annotations

from typing import NamedTuple

from specs.stages.finetuning.online_parameters import GrpoParameters
from specs.stages.finetuning.parameters import REFERENCE_FREE, DpoParameters, SftParameters
from training.planning.model_shapes import Shape

GB = 10**9
NF4_BITS = 4.127
CONTEXT = 1.5 * GB
SLACK = 0.05
_PIECE = 1024
_FILE = 50.0 * GB
"""The largest file of weights that transformers writes."""


class TrainingMemory(NamedTuple):
    """Bytes, by what holds them."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float

    def total(self) -> float:
        """Return all of it."""
        return sum(self)


class MergeMemory(NamedTuple):
    """Bytes while adapters are merged and the checkpoint is saved."""

    device: float
    """On the device that trained."""
    host: float
    """Bytes of the machine's memory if the device is a GPU; 0 if training itself used it."""


def as_texts(grpo_parameters: GrpoParameters, prompt: int) -> SftParameters:
    """Return the supervised training whose steps hold what those of rollouts after so long a prompt do."""
    shared = {name: value for name, value in grpo_parameters.model_dump().items() if name in SftParameters.model_fields}
    longest = max(16, prompt + grpo_parameters.max_new_tokens)
    return SftParameters.model_validate(shared | {"max_length": min(longest, 131072), "epochs": grpo_parameters.epochs})


def trained_parameters(shape: Shape, parameters: SftParameters | DpoParameters) -> int:
    """Return how many weights get a gradient."""
    if parameters.method == "full":
        return shape.parameters()
    return shape.adapters(parameters.lora_rank or 0, parameters.target_modules or ())


def memory(shape: Shape, parameters: SftParameters | DpoParameters, *, gpu: bool) -> TrainingMemory:
    """Return the peak memory of a training step at full length; ``gpu`` decides what ``auto`` means."""
    precision = parameters.precision
    if precision == "auto":
        precision = "bfloat16" if gpu else "float32"
    stored, computed = (2 if precision == "bfloat16" else 4), (4 if precision == "float32" else 2)
    trained, every = trained_parameters(shape, parameters), shape.parameters()
    of_trained = stored if parameters.method == "full" else 2 if parameters.method == "qlora" else 4
    weights: float = every * stored
    buffers = 0.0
    if parameters.method == "qlora":
        weights = shape.in_blocks() * NF4_BITS / 8 + (every - shape.in_blocks()) * 2
        buffers = 2.0 * max(inputs * outputs for inputs, outputs in shape.linear().values())
    if parameters.method != "full":
        weights += trained * of_trained
    if precision == "mixed":
        # Autocast keeps copies of 16 bits of the matrices it has used.
        buffers += 2.0 * shape.in_blocks()
    of_state = 1 if parameters.optimizer_kind == "paged_adamw_8bit" else of_trained
    sides = 1 if isinstance(parameters, SftParameters) or parameters.loss == "kto" else 2
    tokens = parameters.batch_size * sides * parameters.max_length
    block = tokens * computed * (6 * shape.hidden + 2 * shape.keys + 4 * shape.intermediate)
    count = block * shape.layers
    if parameters.gradient_checkpointing:
        count = tokens * computed * shape.hidden * shape.layers + block
    whole = isinstance(parameters, DpoParameters) and parameters.loss in REFERENCE_FREE
    positions = tokens if whole else min(tokens, _PIECE)
    logits = 3.0 * positions * shape.vocabulary * 4
    results = (weights, trained * of_trained, 2.0 * trained * of_state, float(count), logits)
    if gpu:
        buffers += CONTEXT + SLACK * (sum(results) + buffers)
    return TrainingMemory(*results, buffers)


def merge(shape: Shape, parameters: SftParameters | DpoParameters, *, gpu: bool) -> MergeMemory:
    """Return the memory of what comes after the last step; see the head of this file."""
    stored_memory = memory(shape, parameters, gpu=gpu)
    trained = trained_parameters(shape, parameters)
    largest = max(inputs * outputs for inputs, outputs in shape.linear().values())
    if parameters.method == "qlora":
        second = 2.0 * shape.parameters() + 4.0 * trained + 6.0 * largest
        return MergeMemory(CONTEXT, second) if gpu else MergeMemory(second, 0.0)
    stored = 2 if parameters.precision == "bfloat16" or (gpu and parameters.precision == "auto") else 4
    product = 0.0 if parameters.method == "full" else (4.0 + stored) * largest
    context = CONTEXT + SLACK * (stored_memory.weights + product) if gpu else 0.0
    return MergeMemory(stored_memory.weights + product + context, min(stored_memory.weights, _FILE) if gpu else 0.0)


def host(shape: Shape, parameters: SftParameters | DpoParameters, *, gpu: bool) -> float:
    """Return the most bytes of the machine's memory that a stage takes next to a GPU; 0 if it trains on the CPU."""
    if not gpu:
        return 0.0
    stored = 2 if parameters.precision in ("bfloat16", "auto") else 4
    reading = 0.0 if parameters.method == "qlora" else float(stored * shape.parameters())
    return max(reading, merge(shape, parameters, gpu=gpu).host)


def operations_a_token(shape: Shape, parameters: SftParameters | DpoParameters) -> float:
    """Return the floating point operations that training takes for each token of one pass over the data."""
    operations_per_parameter = 6.0 if parameters.method == "full" else 4.0
    if parameters.gradient_checkpointing:
        operations_per_parameter += 2.0
    reference = 0.0
    if isinstance(parameters, DpoParameters) and parameters.loss not in REFERENCE_FREE:
        reference = 2.0 / parameters.epochs
    return (operations_per_parameter + reference) * shape.parameters()


def training_hours(
    shape: Shape, parameters: SftParameters | DpoParameters, *, tokens: float, operations_a_second: float
) -> float:
    """Return the hours of all passes over so many tokens (padding and both responses of pairs included).

    ``tokens`` are of one pass; ``operations_a_second`` is what the machine reaches in training: on one GPU usually 0.3
    to 0.4 of its peak.
    """
    return operations_a_token(shape, parameters) * tokens * parameters.epochs / operations_a_second / 3600


def peak(named_tuple: NamedTuple, total: float, *, gpu: bool) -> str:
    """Return a peak in words, with the bytes that each part of ``named_tuple`` holds."""
    parts = ", ".join(
        f"{name} {value / GB:.2f}" for name, value in named_tuple._asdict().items() if value >= 0.005 * GB
    )
    return f"{total / GB:.2f} GB at the peak on {'a GPU' if gpu else 'a CPU, libraries left out'} ({parts})"


def replicas_of(parameters: SftParameters | DpoParameters) -> int:
    """Return how many processes train at a time, each with its own model."""
    distributed = getattr(parameters, "distributed", None)
    return 1 if distributed is None else distributed.replicas


def describe_plan(shape: Shape, parameters: SftParameters | DpoParameters) -> str:
    """Return the plan in one line for `peergate spec check`."""
    gpu = parameters.device == "cuda"
    memory_need = memory(shape, parameters, gpu=gpu)
    trained = trained_parameters(shape, parameters)
    per_token = operations_a_token(shape, parameters)
    line = f"{shape.parameters():,} parameters, {trained:,} trained; {peak(memory_need, memory_need.total(), gpu=gpu)}"
    line += f" with {parameters.batch_size} rows of {parameters.max_length} tokens"
    if replicas_of(parameters) > 1:
        line += f", each of {replicas_of(parameters)} replicas"
    after = merge(shape, parameters, gpu=gpu)
    if parameters.method != "full":
        where = f"on {'the GPU' if gpu else 'the CPU'} while adapters are merged"
        line += f"; {after.device / GB:.2f} GB {where}"
    if gpu:
        line += f"; {host(shape, parameters, gpu=gpu) / GB:.2f} GB of the host's memory"
    return f"{line}; {per_token:.3g} operations a token"
