"""Memory of stages that generate, judge or evaluate, from the shape of the model. No torch.

What is counted, in bytes, for r rows decoded together, P tokens of the longest prompt, N new tokens and d bytes a
number (2 on a GPU, where weights are bfloat16; 4 on a CPU):

- weights: d a parameter; reading them takes as much of the host's memory, whatever they go to afterwards;
- cache: 2 d k r (P + N) for each layer, with k the width of keys (Pope et al. 2022, arXiv:2211.05102, section 2), and
  one layer a second time, because each step writes a layer's keys and values anew, one token longer; on a GPU half as
  much again, for places of torch's allocator that have become too short;
- activations of one block while the prompts are read: d r P (2 h + 3 m), with h the hidden size and m that of the MLP,
  and keys and values of one layer for every head, 2 d r (P + N) a, with a the width of all heads;
- logits: r v (d + 16), with v the vocabulary: one position, and four copies in float32 for temperature, nucleus and
  repetition penalty; all P positions for kinds that score given text;
- 1.5 GB for the CUDA context and 5 % for what an allocator cannot fill.

Prompts of samples are read once for all of them; that they are not is assumed here, so the plan is on the safe side.
Measured on a GPU: 1.04 to 1.21 times what was taken (docs/reference/figures.md).
"""

from __future__ import annotations

from typing import NamedTuple

from specs.stages.critique.parameters import ReviseParameters
from specs.stages.evaluation.parameters import MultipleChoiceParameters, PerplexityParameters
from specs.stages.generation.parameters import SelfInstructParameters
from specs.stages.packaging.parameters import ExportParameters, PackageParameters
from specs.system.digests import Contract
from training.planning.model_shapes import Shape
from training.planning.training_memory import CONTEXT, SLACK


class Decoding(NamedTuple):
    """What is in memory at a time."""

    rows: int
    prompt: int
    new: int
    """Tokens."""
    all_logits: bool
    """Whether logits of every position are asked for."""


class GenerationMemory(NamedTuple):
    """Bytes on the device that computes, by what holds them."""

    weights: float
    cache: float
    activations: float
    logits: float
    buffers: float

    def total(self) -> float:
        """Return all of it."""
        return sum(self)


def decoding_of(parameters: Contract, prompt: int) -> Decoding:
    """Return what a stage without training has in memory; ``prompt`` is the tokens of its longest prompt."""
    contract = parameters
    rows = int(getattr(contract, "batch_size", 0)) or 1
    match contract:
        case PackageParameters() | ExportParameters():
            return Decoding(contract.probe_items, prompt, contract.max_new_tokens, all_logits=False)
        case ReviseParameters():
            return Decoding(rows, prompt, max(contract.critique_tokens, contract.revision_tokens), all_logits=False)
        case PerplexityParameters() | MultipleChoiceParameters():
            return Decoding(rows, prompt, 0, all_logits=True)
        case SelfInstructParameters():
            return Decoding(min(rows, contract.calls_per_round), prompt, contract.max_new_tokens, all_logits=False)
        case _:
            # Critics and judges write nothing.
            return Decoding(rows, prompt, int(getattr(contract, "max_new_tokens", 0)), all_logits=False)


def memory(shape: Shape, decoding: Decoding, *, gpu: bool) -> GenerationMemory:
    """Return the peak memory of a pass with the longest prompts, all rows written to their last token."""
    d = 2 if gpu else 4
    tokens = decoding.rows * (decoding.prompt + decoding.new)
    layer = 2.0 * d * shape.keys * tokens
    block = d * decoding.rows * decoding.prompt * (2 * shape.hidden + 3 * shape.intermediate)
    heads = 2.0 * d * tokens * shape.attention
    positions = decoding.rows * (decoding.prompt if decoding.all_logits else 1)
    logits = float(positions * shape.vocabulary * (d + 16))
    cache = layer * (shape.layers + 1) * (1.5 if gpu else 1)
    results = (float(d * shape.parameters()), cache, block + heads, logits)
    return GenerationMemory(*results, CONTEXT + SLACK * sum(results) if gpu else 0.0)


def host(shape: Shape, *, gpu: bool) -> float:
    """Return the bytes of the host's memory that reading the weights takes before they go to a GPU; 0 on a CPU."""
    return 2.0 * shape.parameters() if gpu else 0.0
