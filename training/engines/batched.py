"""Batched decoding: prompts sorted by length, each read once, finished rows dropped.

The same inputs, seed and thread count give the same outputs. Another batch size may not, because padding changes the
order of floating-point sums; arms must therefore share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from specs.stages.base.sampling import Finish
from training.engines.stop_strings import StopWatcher
from training.engines.token_sampling import Penalty, TokenSampling, pick

if TYPE_CHECKING:
    import torch

DROP_AT = 0.75
"""The batch shrinks when less than this share of its rows is still being written."""
SPARE = 32
"""Places that a cache grows by at once: each token would otherwise copy the keys and values of all tokens before it."""
LEAST_SHARED = 16
"""Ids: a shorter common beginning is read with every prompt."""


class Completion(NamedTuple):
    """One completion: text, its token ids without the end token, and how it ended."""

    text: str
    """Without the stop string and what came after it."""
    ids: tuple[int, ...]
    """All that was written, the tokens of a stop string included."""
    truncated: bool
    """Whether it hit the limit."""
    finish: Finish
    stop: str | None
    """The stop string that ended it."""

    def as_row(self, text: str = "output", tokens: str = "output_tokens") -> dict[str, Any]:
        """Return text, tokens and ending as fields of a row, by these names of text and number of tokens."""
        ended = {"finish": self.finish, "stop": self.stop}
        return {text: self.text, tokens: len(self.ids), **ended, "answer_ids": self.ids}


class Passes(Protocol):
    """Passes of one batch through a model; a prompt's samples are neighbouring rows."""

    drop_at: float
    """Finished rows are dropped when less than this share of the rows is still being written."""

    def read(self, prompts: list[Sequence[int]], samples: int) -> torch.Tensor:
        """Read each prompt once; return the logits of what follows each row. [rows, vocabulary]."""
        ...

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows but these."""
        ...

    def next(self, token: torch.Tensor) -> torch.Tensor:
        """Read one token of each row; return the logits of what follows. [rows] and [rows, vocabulary]."""
        ...


class CompletionTask(NamedTuple):
    """Prompts to complete, ``samples`` times each."""

    prompts: Sequence[Sequence[int]]
    sampling: TokenSampling
    samples: int
    seed: int
    """What engines draw by that do not take ``streams``."""
    streams: Sequence[Sequence[int]]
    """Of each sample of each prompt, what the noise of its draws follows from."""
    on_batch: Callable[[int], None]
    """Gets the number of prompts that are done."""
    watch: StopWatcher


def in_batches(
    work: CompletionTask, batch_size: int, written: Callable[[list[Sequence[int]], list[int]], list[Completion]]
) -> list[list[Completion]]:
    """Return the outputs of every prompt, written in batches of prompts sorted by length.

    ``batch_size`` counts prompts times samples; ``written`` gets prompts and the streams of their samples.
    """
    prompts, samples = work.prompts, work.samples
    order = sorted(range(len(prompts)), key=lambda index: (len(prompts[index]), index))
    per_batch = max(1, batch_size // samples)
    results: list[list[Completion]] = [[] for _ in prompts]
    for start in range(0, len(order), per_batch):
        chosen = order[start : start + per_batch]
        streams = [stream for index in chosen for stream in work.streams[index]]
        rows = written([prompts[index] for index in chosen], streams)
        for place, index in enumerate(chosen):
            results[index] = rows[place * samples : (place + 1) * samples]
        work.on_batch(start + len(chosen))
    return results


def output_of(ids: Sequence[int], finish: Finish, watch: StopWatcher) -> Completion:
    """Return an answer that has ended: its text without the stop string and what came after it."""
    result = watch.found_in(ids)
    text = watch.text_of(ids)
    if result is not None:
        return Completion(text[: result.at], tuple(ids), False, "stop", result.stop)
    return Completion(text, tuple(ids), finish == "length", finish, None)


def write(
    passes: Passes, prompts: list[Sequence[int]], streams: list[int], work: CompletionTask, ends: frozenset[int]
) -> list[Completion]:
    """Complete the prompts of one batch; return one output per row."""
    import torch

    sampling, samples, watch = work.sampling, work.samples, work.watch
    logits = passes.read(prompts, samples)
    alive_streams = torch.tensor(streams, dtype=torch.int64, device=logits.device)
    penalty = None
    if sampling.repetition_penalty != 1:
        penalty = Penalty(sampling.repetition_penalty, prompts, samples, logits)
    written: list[list[int]] = [[] for _ in range(len(prompts) * samples)]
    ended: list[Finish | None] = [None] * len(written)
    alive = list(range(len(written)))
    for step in range(sampling.max_new_tokens):
        token = pick(penalty.on(logits) if penalty else logits, sampling, alive_streams, step)
        for row, value in zip(alive, token.tolist(), strict=True):
            if ended[row] is not None:
                continue
            if value in ends:
                ended[row] = "eos"
                continue
            written[row].append(value)
            if watch.has_stopped(written[row]):
                ended[row] = "stop"
        going = [place for place, row in enumerate(alive) if ended[row] is None]
        if not going or step == sampling.max_new_tokens - 1:
            break
        if penalty:
            penalty.add(token)
        if len(going) < passes.drop_at * len(alive):
            tensor = torch.tensor(going, device=logits.device)
            passes.keep(tensor)
            alive_streams = alive_streams[tensor]
            token, alive = token[tensor], [alive[place] for place in going]
            if penalty:
                penalty.keep(tensor)
        logits = passes.next(token)
    return [output_of(ids, finish or "length", watch) for ids, finish in zip(written, ended, strict=True)]


def shared_beginning(prompts: Sequence[Sequence[int]], least: int = LEAST_SHARED) -> int:
    """Return how many ids all prompts begin with, if reading them once is worth it; every prompt keeps its last id."""
    if len(prompts) < 2:
        return 0
    count = min(common(*prompts), min(map(len, prompts)) - 1)
    return count if count >= least else 0


def common(*prompts: Sequence[int]) -> int:
    """Return how many ids all prompts begin with."""
    return len(commonprefix([list(prompt) for prompt in prompts]))


def pad_rows(
    rows: Sequence[Sequence[int]], device: torch.device, *, pad_left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and the mask of what is not padding, [rows, longest]: what is read never looks at ids on its right."""
    import torch

    longest = max(map(len, rows))
    ids, mask = torch.zeros((2, len(rows), longest), dtype=torch.long)
    for place, row in enumerate(rows):
        part = slice(longest - len(row), None) if pad_left else slice(len(row))
        ids[place, part] = torch.tensor(row)
        mask[place, part] = 1
    return ids.to(device), mask.to(device)


def leave_room(past: Any) -> None:
    """Let the layers of a filled cache write tokens in place, those that hold all keys and nothing else."""
    layers = getattr(past, "layers", None) or []
    for place, layer in enumerate(layers):
        if type(layer).__name__ == "DynamicLayer" and layer.is_initialized:
            layers[place] = _roomy_layer()(layer)


@cache
def _roomy_layer() -> Any:
    """Return the class of a cache layer with spare places; transformers is imported by jobs only."""
    from transformers.cache_utils import DynamicLayer

    class RoomyLayer(DynamicLayer):
        """A layer that adds a token by writing it, and copies all tokens only when the spare places are used."""

        def __init__(self, filled: DynamicLayer) -> None:
            super().__init__()
            self.dtype, self.device, self.is_initialized = filled.dtype, filled.device, True
            self.keys: Any = filled.keys
            self.values: Any = filled.values
            self._rooms: tuple[Any, Any] = (None, None)
            self._handed_out: Any = None

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            """Write the tokens; return views of all keys and values, [rows, heads, tokens, width]."""
            before, more = self.keys.shape[-2], key_states.shape[-2]
            # Whoever repeats or drops rows replaces the tensors: no room belongs to the new ones.
            if self._handed_out is not self.keys or before + more > self._rooms[0].shape[-2]:
                self._rooms = (_extended(self.keys, more + SPARE), _extended(self.values, more + SPARE))
            keys, values = self._rooms
            keys[..., before : before + more, :] = key_states
            values[..., before : before + more, :] = value_states
            self.keys, self.values = keys[..., : before + more, :], values[..., : before + more, :]
            self._handed_out = self.keys
            return self.keys, self.values

    return RoomyLayer


def _extended(states: Any, places: int) -> Any:
    """Return a tensor that begins with these states and has as many unset places after them, [.., tokens, width]."""
    *outer, tokens, width = states.shape
    room = states.new_empty((*outer, tokens + places, width))
    room[..., :tokens, :] = states
    return room


class Batch:
    """Passes of one batch through a model of transformers."""

    drop_at = DROP_AT

    def __init__(self, model: Any, share: bool) -> None:
        self._model, self._share = model, share
        self._cache: Any = None

    def read(self, prompts: list[Sequence[int]], samples: int) -> torch.Tensor:
        """Read each prompt once, and where it is shared their common beginning once for all."""
        import torch

        model = self._model
        common = shared_beginning(prompts) if self._share else 0
        if common:
            beginning = torch.tensor([prompts[0][:common]], device=model.device)
            self._cache = model(input_ids=beginning, use_cache=True, logits_to_keep=1).past_key_values
            self._cache.batch_repeat_interleave(len(prompts))
            prompts = [prompt[common:] for prompt in prompts]
        # The last position of every row predicts.
        ids, mask = pad_rows(prompts, model.device, pad_left=True)
        positions = common + (mask.cumsum(-1) - 1).clamp(min=0)
        self._mask = torch.cat([mask.new_ones((len(prompts), common)), mask], dim=1)
        self._last = positions[:, -1:]
        logits = self._pass(ids, positions, logits_to_keep=1)
        leave_room(self._cache)
        if samples > 1:
            # The prompt was read once; only its cache is repeated.
            self._cache.batch_repeat_interleave(samples)
            self._mask, self._last = (tensor.repeat_interleave(samples, 0) for tensor in (self._mask, self._last))
            logits = logits.repeat_interleave(samples, 0)
        return logits

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows but these, with their part of the cache."""
        self._cache.batch_select_indices(rows)
        self._mask, self._last = self._mask[rows], self._last[rows]

    def next(self, token: torch.Tensor) -> torch.Tensor:
        """Read one token of each row."""
        import torch

        self._mask = torch.cat([self._mask, self._mask.new_ones((len(token), 1))], dim=1)
        self._last = self._last + 1
        return self._pass(token[:, None], self._last)

    def _pass(self, ids: torch.Tensor, positions: torch.Tensor, **more: int) -> torch.Tensor:
        out = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            **more,
        )
        self._cache = out.past_key_values
        return out.logits[:, -1]


def ends_in(config: Any, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end an answer: those of a generation config and the tokenizer's."""
    named = config.eos_token_id
    ids = {*(named if isinstance(named, list) else [named]), tokenizer.eos_token_id}
    return frozenset(id for id in ids if id is not None)
