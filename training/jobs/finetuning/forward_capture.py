"""Captures what a model read and what its layers gave while a trainer computed a loss.

Another forward pass would cost a third of a step, so the hidden states of response tokens are kept, and only the
last layer is computed again (TRL projects, takes logarithms and sums in its own code, ``add_fused_lm_head``).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from training.jobs.finetuning.loss_masks import View, build_drift_view, key, views
from training.rules.finetuning.losses import Response

_PIECE = 128
"""Tokens whose log-probabilities are computed at a time."""


class CaptureMissing(Exception):
    """The model was not given a sequence that the trainer has in its batch."""


class ForwardCapture:
    """Captures the forward passes of a trainer's model for the sequences of one batch."""

    def __init__(self, trainer: Any, inputs: dict[str, Any]) -> None:
        self.loss = math.nan
        self._trainer = trainer
        whole = trainer.model
        self._model: Any = whole.get_base_model() if hasattr(whole, "get_base_model") else whole
        drift = [build_drift_view(inputs)] if "KL_input_ids" in inputs else []
        self._begins = {
            response.key: response.begin for view in (*views(inputs), *drift) for response in _responses(view)
        }
        self._passes: list[dict[bytes, Any]] = []
        self._answer: Any = None

    @contextmanager
    def listening(self) -> Generator[None]:
        """Keep the hidden states of response tokens while this lasts."""
        handle = self._model.base_model.register_forward_hook(self._heard, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def _heard(self, _: Any, arguments: tuple[Any, ...], named: dict[str, Any], answer: Any) -> None:
        ids = named["input_ids"] if "input_ids" in named else arguments[0]
        hidden = answer.last_hidden_state.detach()
        results: dict[bytes, Any] = {}
        for row, places in _sequences(ids, named):
            name = key(ids[row, places].cpu().numpy())
            if name in self._begins:
                # The tokens before those of the response are what these are predicted from.
                results[name] = hidden[row, places][self._begins[name] - 1 : -1].clone()
        self._passes.append(results)
        self._answer = type(answer)

    def responses(self, view: View) -> list[Response]:
        """Return the captured responses of sequences, in order; raises CaptureMissing if no pass had all of them."""
        import torch

        wanted = list(_responses(view))
        heard = next((pass_ for pass_ in self._passes if all(sequence.key in pass_ for sequence in wanted)), None)
        if heard is None:
            raise CaptureMissing(f"the model was not given the {len(wanted)} sequences of the batch unchanged")
        new = [response for response in wanted if not isinstance(heard[response.key], Response)]
        if new:
            hidden = torch.cat([heard[response.key] for response in new])
            ids = torch.cat([torch.as_tensor(response.ids, device=hidden.device) for response in new])
            parts = self._gather_logprobs(hidden, ids).double().split([len(response.ids) for response in new])
            # In place of what they were computed from, which is not needed again.
            heard |= {
                response.key: Response(float(part.sum()), len(part)) for response, part in zip(new, parts, strict=True)
            }
        return [heard[response.key] for response in wanted]

    def _gather_logprobs(self, hidden: Any, wanted: Any) -> Any:
        """Return the log-probability of each wanted token [tokens] after hidden states [tokens, width]."""
        import torch

        results: list[Any] = []
        with torch.no_grad(), self._trainer.accelerator.autocast():
            for states, ids in zip(hidden.split(_PIECE), wanted.split(_PIECE), strict=True):
                logits = self._logits(states).float()
                results.append(logits.gather(-1, ids[:, None]).squeeze(-1) - logits.logsumexp(-1))
        return torch.cat(results)

    def _logits(self, hidden: Any) -> Any:
        """Return the model's logits after hidden states; scales and caps of logits are the model's."""
        layers, answer = self._model.base_model, self._answer(last_hidden_state=hidden[None])
        before = vars(layers).get("forward")

        def return_answer(*_: Any, **__: Any) -> Any:
            return answer

        layers.forward = return_answer
        try:
            return self._model(input_ids=hidden.new_zeros((1, len(hidden)), dtype=int), use_cache=False).logits[0]
        finally:
            if before is None:
                del layers.forward
            else:
                layers.forward = before


class _Response(NamedTuple):
    """A sequence by its ids, where its response begins, and the ids of the response."""

    key: bytes
    begin: int
    ids: Any


def _responses(view: View) -> Iterator[_Response]:
    for place in range(len(view.ids)):
        real = view.real[place]
        ids, begin = view.ids[place][real], int(view.carried[place][real].argmax())
        yield _Response(key(ids), begin, ids[begin:])


def _sequences(ids: Any, named: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield (row, places) of each sequence in a pass: without padding, or each sequence of a packed row."""
    mask, positions = named.get("attention_mask"), named.get("position_ids")
    if mask is None and positions is not None and len(ids) == 1:
        starts = [*(positions[0] == 0).nonzero().flatten().tolist(), ids.shape[1]]
        for begin, end in zip(starts, starts[1:], strict=False):
            yield 0, slice(begin, end)
        return
    for row in range(len(ids)):
        yield row, slice(None) if mask is None else mask[row] == 1
