"""What the model was given and what came out of its layers while a trainer computed a loss, and what follows from it.

A loss that is computed again from a forward pass of its own costs as much as a third of a step. So the pass that the
trainer makes anyway is listened to: what its layers gave for each token is kept until the loss is there, and only the
last layer, from there to log-probabilities, is computed again, for tokens of responses alone. It is the model's own
last layer and not the trainer's: TRL projects, takes logarithms and sums in code of its own (``add_fused_lm_head``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from training.optimise.losses import Response
from training.optimise.masks import View, key

_PIECE = 128
"""Tokens whose log-probabilities are computed at a time."""


class NotGiven(Exception):
    """The model was not given a sequence that the trainer has in its batch."""


class Witness:
    """Listens to every forward pass of a trainer's model."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        whole = trainer.model
        self._model: Any = whole.get_base_model() if hasattr(whole, "get_base_model") else whole
        self._passes: list[dict[bytes, Any]] = []
        self._answer: Any = None

    @contextmanager
    def listening(self) -> Generator[None]:
        """Keep what the layers give while this lasts: as many numbers for each token as the model is wide."""
        handle = self._model.base_model.register_forward_hook(self._heard, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def _heard(self, _: Any, given: tuple[Any, ...], named: dict[str, Any], answer: Any) -> None:
        ids = named["input_ids"] if "input_ids" in named else given[0]
        hidden = answer.last_hidden_state.detach()
        found: dict[bytes, Any] = {}
        for row, places in _sequences(ids, named):
            found[key(ids[row, places].cpu().numpy())] = hidden[row, places]
        self._passes.append(found)
        self._answer = type(answer)

    def responses(self, view: View) -> list[Response]:
        """Return what the listened pass gave the responses of sequences, in their order.

        Raises:
            NotGiven: no pass had all of these sequences.
        """
        import torch

        sequences = [(view.ids[place][view.real[place]], view.carried[place]) for place in range(len(view.ids))]
        keys = [key(ids) for ids, _ in sequences]
        heard = next((one for one in self._passes if all(name in one for name in keys)), None)
        if heard is None:
            raise NotGiven(f"the model was not given the {len(keys)} sequences of the batch as they are in it")
        hidden: list[Any] = []
        wanted: list[Any] = []
        for place, (ids, carried) in enumerate(sequences):
            begin = int(carried[view.real[place]].argmax())
            hidden.append(heard[keys[place]][begin - 1 : -1])
            wanted.append(torch.as_tensor(ids[begin:], device=hidden[-1].device))
        picked = self._picked(torch.cat(hidden), torch.cat(wanted))
        parts = picked.double().split([len(one) for one in wanted])
        return [Response(float(part.sum()), len(part)) for part in parts]

    def _picked(self, hidden: Any, wanted: Any) -> Any:
        """Return the log-probability of each wanted token [tokens] after what the layers gave [tokens, width]."""
        import torch

        found: list[Any] = []
        with torch.no_grad(), self._trainer.accelerator.autocast():
            for begin in range(0, len(wanted), _PIECE):
                part = slice(begin, begin + _PIECE)
                logits = self._logits(hidden[part]).float()
                found.append(logits.gather(-1, wanted[part, None]).squeeze(-1) - logits.logsumexp(-1))
        return torch.cat(found)

    def _logits(self, hidden: Any) -> Any:
        """Have the model go on from what its layers gave: scales and caps of logits are the model's own."""
        layers, answer = self._model.base_model, self._answer(last_hidden_state=hidden[None])
        before = vars(layers).get("forward")

        def given(*_: Any, **__: Any) -> Any:
            return answer

        layers.forward = given
        try:
            return self._model(input_ids=hidden.new_zeros((1, len(hidden)), dtype=int), use_cache=False).logits[0]
        finally:
            if before is None:
                del layers.forward
            else:
                layers.forward = before


def _sequences(ids: Any, named: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield (row, places) of each sequence in a pass: what is no padding, or of a packed row what begins anew."""
    mask, positions = named.get("attention_mask"), named.get("position_ids")
    if mask is None and positions is not None and len(ids) == 1:
        starts = [*(positions[0] == 0).nonzero().flatten().tolist(), ids.shape[1]]
        for begin, end in zip(starts, starts[1:], strict=False):
            yield 0, slice(begin, end)
        return
    for row in range(len(ids)):
        yield row, slice(None) if mask is None else mask[row] == 1
