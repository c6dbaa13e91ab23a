"""What replicas synchronise: the trained weights, or masters of float32 where those are of another type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specs.stages.finetuning.distributed import DistributedTraining
from training.jobs.finetuning.replicas.replica_files import MASTERS, OUTER
from training.jobs.finetuning.weight_sketch import collect_trained_weights


def trained_parameters(model: Any) -> dict[str, Any]:
    """Return the trained parameters themselves, by the names under which they are saved, in order."""
    # Both in the order of the model.
    return dict(
        sorted(
            zip(
                collect_trained_weights(model),
                (parameter for parameter in model.parameters() if parameter.requires_grad),
                strict=True,
            )
        )
    )


def masters_of(weights: dict[str, Any], resumes: Path | None) -> dict[str, Any]:
    """Return the weights that are synchronised: the trained ones, or float32 copies of them."""
    import torch

    remaining = {} if resumes is None else read_masters(resumes)

    def master(name: str, value: Any) -> Any:
        return torch.nn.Parameter(remaining.get(name, value.detach()).to(value.device).float())

    return {name: weight if weight.dtype == torch.float32 else master(name, weight) for name, weight in weights.items()}


def save_outer(folder: Path, outer: Any, rounded: Mapping[str, Any]) -> None:
    """Add the outer optimizer's state to a saved step, and the masters of weights that are not of float32."""
    import torch
    from safetensors.torch import save_file

    if rounded:
        save_file({name: value.detach().contiguous() for name, value in rounded.items()}, folder / MASTERS)
    partial = folder / f".{OUTER}"
    torch.save(outer.state_dict(), partial)
    partial.replace(folder / OUTER)


def read_masters(saved: Path) -> dict[str, Any]:
    """Return the masters in a saved step; none where the trained weights are of float32."""
    from safetensors.torch import load_file

    return load_file(saved / MASTERS) if (saved / MASTERS).is_file() else {}


def moved_back(started_at: Any, ended: Any) -> Any:
    """Return the pseudo-gradient of a weight, in float32: what it was minus what it became."""
    return started_at.detach().float() - ended.detach().float()


def outer_of(parameters: list[Any], arguments: DistributedTraining) -> Any:
    """Return the outer optimizer of such parameters."""
    import torch

    momentum = arguments.outer.momentum
    return torch.optim.SGD(parameters, lr=arguments.outer.lr, momentum=momentum, nesterov=momentum > 0)


def norm_of(weights: dict[str, Any]) -> float:
    """Return the L2 norm of all weights."""
    return sum(float(weight.double().square().sum()) for weight in weights.values()) ** 0.5
