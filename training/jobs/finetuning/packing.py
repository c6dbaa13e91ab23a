"""Does this model keep packed examples apart? Asked of the model itself, since its name does not say."""

from __future__ import annotations

from typing import Any

from training.engines.logit_tolerance import most_difference
from training.jobs.job import refuse


def require_packing(model: Any, device: str) -> float:
    """Return by how much logits of packed examples differ from those alone; leave with exit code 4 if they mix.

    Two short sequences are laid out as TRL lays out a packed batch: end to end, positions begun again, no mask. A model
    that ignores the positions lets the second see the first, and its logits change.
    """
    import torch

    vocabulary = model.config.get_text_config().vocab_size
    first, second = [(7 * n) % vocabulary for n in range(1, 9)], [(11 * n) % vocabulary for n in range(1, 7)]
    was_training = model.training
    model.eval()
    with torch.no_grad():
        alone = model(torch.tensor([second], device=device)).logits[0].float()
        places = torch.tensor([[*range(len(first)), *range(len(second))]], device=device)
        packed = model(torch.tensor([first + second], device=device), position_ids=places, use_cache=False)
        together = packed.logits[0, len(first) :].float()
    model.train(was_training)
    difference = float((alone - together).abs().max() / alone.abs().max())
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    if not difference <= most_difference(dtype):
        attention = getattr(model.config, "_attn_implementation", "unknown")
        refuse(
            f"packing: true, but {type(model).__name__} with attention '{attention}' lets a packed example see the one "
            f"before it: logits differ by {difference:.3g} of the largest"
        )
    return difference
