"""Hidden states of responses, and the layer that makes logits of them: what losses in pieces are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from training.engines.batched import pad_rows
from training.engines.checkpoint import apart, device_of, evaluating, most_difference
from training.jobs.job import refuse


class TokenSequence(NamedTuple):
    """Token ids of a prompt and a response, and where the response begins."""

    ids: Sequence[int]
    begin: int

    @property
    def response(self) -> Sequence[int]:
        """Return the ids of the response."""
        return self.ids[self.begin :]


def states(model: Any, sequences: Sequence[TokenSequence]) -> Any:
    """Return the hidden states that predict the responses, one sequence after the other. [tokens, width]."""
    import torch

    ids, mask = pad_rows([sequence.ids for sequence in sequences], next(model.parameters()).device)
    # Padded on the right: nothing before the padding reads it, and positions are those of the sequence alone.
    hidden = _bare(model).base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    return torch.cat(
        [hidden[row, sequence.begin - 1 : len(sequence.ids) - 1] for row, sequence in enumerate(sequences)]
    )


def targets(sequences: Sequence[TokenSequence], device: Any) -> Any:
    """Return the ids of the responses, one sequence after the other."""
    import torch

    return torch.tensor([id for sequence in sequences for id in sequence.response], device=device)


class LastLayer:
    """Makes logits of hidden states, in float32 at least: a logarithm in bfloat16 has three digits."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __call__(self, hidden: Any) -> Any:
        """Return the logits [tokens, vocabulary] after hidden states [tokens, width]."""
        result = self.layer(hidden)
        return result.float() if result.element_size() < 4 else result


def head(model: Any) -> LastLayer:
    """Return what makes the logits of a model."""
    return LastLayer(_bare(model).get_output_embeddings())


def require_plain_head(model: Any) -> None:
    """Exit with code 4 where the model's logits are not those of its last layer alone: scaled or capped ones."""
    import torch

    vocabulary = _bare(model).config.get_text_config().vocab_size
    ids = torch.tensor([[(7 * n) % vocabulary for n in range(1, 9)]], device=next(model.parameters()).device)
    with evaluating(model):
        whole = _bare(model)(input_ids=ids, use_cache=False).logits[0].float()
        ours = head(model)(_bare(model).base_model(input_ids=ids, use_cache=False).last_hidden_state[0]).float()
    if not apart(whole, ours) <= most_difference(device_of(model)[1]):
        refuse(
            f"{type(_bare(model)).__name__} changes its logits after the last layer, which only channel grpo can read"
        )


def _bare(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model
