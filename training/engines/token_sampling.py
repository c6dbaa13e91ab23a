"""How the next token is chosen: repetition penalty, temperature, nucleus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from specs.system.digests import Contract
from training.engines.sampling_noise import draw, noise_keys, within_nucleus

if TYPE_CHECKING:
    import torch


class TokenSampling(NamedTuple):
    """How one completion is drawn."""

    max_new_tokens: int
    temperature: float | None = None
    """Softmax temperature; None for greedy."""
    top_p: float = 1.0
    """Nucleus of the distribution that is sampled from (Holtzman et al. 2020, arXiv:1904.09751)."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens that the prompt or the completion holds (Keskar et
    al. 2019, arXiv:1909.05858)."""
    stops: tuple[str, ...] = ()
    keep_special: bool = False
    """Whether special tokens other than the end token stay visible in the text."""

    @classmethod
    def of(cls, arguments: Any, stops: tuple[str, ...]) -> TokenSampling:
        """Return the sampling that parameters of a stage grant, which shows special tokens."""
        penalty = arguments.repetition_penalty
        return cls(arguments.max_new_tokens, arguments.temperature, arguments.top_p, penalty, stops, keep_special=True)

    def read_back(self, parameters: Contract) -> dict[str, Any]:
        """Return the settings of the decoding, by the name of the granted parameter."""
        used = self._asdict() | {"stops": list(self.stops)}
        return {name: value for name, value in used.items() if name in type(parameters).model_fields}


def pick(logits: torch.Tensor, sampling: TokenSampling, streams: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Choose the next token of every answer.

    ``logits``: [rows, vocabulary]; ``streams``: what the noise of each answer follows from; ``places``: of the token in
    its answer; both and the result are [rows].
    """
    if sampling.temperature is None:
        return logits.argmax(-1)
    keys = noise_keys(streams, places)
    allowed = within_nucleus(logits, sampling.temperature, sampling.top_p)
    return draw(allowed, sampling.temperature, keys)[0]


class Penalty:
    """The repetition penalty of the tokens that each row holds already; a strength of 1 changes nothing."""

    def __init__(self, strength: float) -> None:
        self._strength = strength
        self._seen: torch.Tensor | None = None
        """[rows, vocabulary]"""

    def begin(self, prompts: Sequence[Sequence[int]], samples: int, logits: torch.Tensor) -> None:
        """Add rows that continue these prompts. ``logits``: theirs, [rows, vocabulary]."""
        import torch

        if self._strength == 1:
            return
        in_prompt = torch.zeros((len(prompts), logits.shape[-1]), dtype=torch.bool, device=logits.device)
        for row, prompt in enumerate(prompts):
            in_prompt[row, torch.tensor(list(prompt), dtype=torch.long, device=logits.device)] = True
        in_prompt = in_prompt.repeat_interleave(samples, 0)
        self._seen = in_prompt if self._seen is None else torch.cat([self._seen, in_prompt])

    def on(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits with the penalty applied. [rows, vocabulary] in and out."""
        import torch

        if self._seen is None:
            return logits
        lowered = torch.where(logits < 0, logits * self._strength, logits / self._strength)
        return torch.where(self._seen, lowered, logits)

    def add(self, token: torch.Tensor) -> None:
        """Remember the tokens that were just written. ``token``: [rows]."""
        if self._seen is not None:
            self._seen.scatter_(1, token[:, None], True)

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows but these."""
        if self._seen is not None:
            self._seen = self._seen[rows]
