"""Private operations of torch: products with weights that oneDNN packed once for this processor."""

from __future__ import annotations

from typing import Any

VERSION = "2.13"
"""The minor version whose internals these are."""
MOST_BYTES = 4 << 30
"""Of weights that are packed: packing copies them."""


def pack_linear_layers(model: Any) -> int:
    """Have the linear layers of a float32 model on a CPU multiply with packed weights; return how many do.

    For passes without gradients, by weights that do not change. Otherwise every product arranges the weights anew: all
    of a decoding step of SmolLM2-135M took 118 ms for 8 rows, 192 ms for 32, and take 67 and 111 ms (two x86 cores).
    Sums are taken in another order.
    """
    import torch

    layers = [module for module in model.modules() if type(module) is torch.nn.Linear and _can_pack(module.weight)]
    if not torch.backends.mkldnn.is_available() or sum(layer.weight.nbytes for layer in layers) > MOST_BYTES:
        return 0
    for layer in layers:
        layer.forward = _make_product(layer)
    return len(layers)


def _can_pack(weight: Any) -> bool:
    import torch

    return weight.device.type == "cpu" and weight.dtype is torch.float32


def _make_product(layer: Any) -> Any:
    """Return the forward pass of a linear layer."""
    import torch

    operations: Any = torch.ops.mkldnn
    with torch.no_grad():
        weight = operations._reorder_linear_weight(layer.weight.detach(), None)

    def forward(states: Any) -> Any:
        return operations._linear_pointwise(states, weight, layer.bias, "none", [], "")

    return forward
