"""Batched decoding: prompts sorted by length, each read once, finished rows replaced by those of the next prompts.

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

    @property
    def can_add(self) -> bool:
        """Whether rows of other prompts can be taken in between."""
        ...

    def read(self, prompts: list[Sequence[int]], samples: int) -> torch.Tensor:
        """Read each prompt once, after the rows there are; return the logits of what follows. [rows, vocabulary]."""
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
    work: CompletionTask, rows: int, complete: Callable[[CompletionTask], list[Completion]]
) -> list[list[Completion]]:
    """Return the outputs of every prompt; ``complete`` gets the prompts sorted by length, at most ``rows`` at a time.

    Rows are prompts times samples.
    """
    order = sorted(range(len(work.prompts)), key=lambda index: (len(work.prompts[index]), index))
    per_batch = max(1, rows // work.samples)
    results: list[list[Completion]] = [[] for _ in order]
    for start in range(0, len(order), per_batch):
        chosen = order[start : start + per_batch]

        def report(done: int, start: int = start) -> None:
            work.on_batch(start + done)

        prompts, streams = [work.prompts[index] for index in chosen], [work.streams[index] for index in chosen]
        outputs = complete(work._replace(prompts=prompts, streams=streams, on_batch=report))
        for place, index in enumerate(chosen):
            results[index] = outputs[place * work.samples : (place + 1) * work.samples]
    return results


def output_of(ids: Sequence[int], finish: Finish, watch: StopWatcher) -> Completion:
    """Return an answer that has ended: its text without the stop string and what came after it."""
    result = watch.found_in(ids)
    text = watch.text_of(ids)
    if result is not None:
        return Completion(text[: result.at], tuple(ids), False, "stop", result.stop)
    return Completion(text, tuple(ids), finish == "length", finish, None)


def write(passes: Passes, work: CompletionTask, ends: frozenset[int], most: int | None = None) -> list[Completion]:
    """Complete prompts, at most ``most`` rows at a time, but at least one prompt; return one output per row.

    Rows that ended make room for the next prompts, where the passes can take them; else all of them end first.
    """
    import torch

    prompts, sampling, samples, watch = work.prompts, work.sampling, work.samples, work.watch
    streams = [stream for prompt_streams in work.streams for stream in prompt_streams]
    written: list[list[int]] = [[] for _ in streams]
    ended: list[Finish | None] = [None] * len(streams)
    room = max(1, (most or len(streams)) // samples) * samples
    penalty = Penalty(sampling.repetition_penalty)
    alive: list[int] = []
    next_prompt, logits, of_row = 0, torch.empty(0), torch.empty((2, 0), dtype=torch.int64)
    """Of each row its stream, and the place in the answer of the token that it writes next."""
    while True:
        free = (room - len(alive)) // samples
        if (
            free
            and next_prompt < len(prompts)
            and (not alive or (passes.can_add and len(alive) <= passes.drop_at * room))
        ):
            batch = list(prompts[next_prompt : next_prompt + free])
            new = range(next_prompt * samples, (next_prompt + len(batch)) * samples)
            next_prompt += len(batch)
            added = passes.read(batch, samples)
            penalty.begin(batch, samples, added)
            more = torch.tensor([[streams[row] for row in new], [0] * len(new)], device=added.device)
            logits = torch.cat([logits, added]) if alive else added
            of_row = torch.cat([of_row, more], 1) if alive else more
            alive += new
        token = pick(penalty.on(logits), sampling, *of_row)
        for row, value in zip(alive, token.tolist(), strict=True):
            if ended[row] is None and value in ends:
                ended[row] = "eos"
            elif ended[row] is None:
                written[row].append(value)
                full = len(written[row]) == sampling.max_new_tokens
                ended[row] = "stop" if watch.has_stopped(written[row]) else "length" if full else None
        going = [place for place, row in enumerate(alive) if ended[row] is None]
        penalty.add(token)
        of_row[1] += 1
        if not going:
            work.on_batch(next_prompt)
            if next_prompt == len(prompts):
                break
            alive, rows = [], torch.tensor([], dtype=torch.int64, device=token.device)
            passes.keep(rows)
            penalty.keep(rows)
            continue
        if len(going) < passes.drop_at * len(alive):
            rows = torch.tensor(going, device=logits.device)
            passes.keep(rows)
            penalty.keep(rows)
            of_row, token, alive = of_row[:, rows], token[rows], [alive[place] for place in going]
            work.on_batch(next_prompt - len({row // samples for row in alive}))
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
    """Let the layers of a filled cache write tokens in place, if they hold all keys and nothing else."""
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
                self._rooms = (_with_room(self.keys, more + SPARE), _with_room(self.values, more + SPARE))
            keys, values = self._rooms
            keys[..., before : before + more, :] = key_states
            values[..., before : before + more, :] = value_states
            self.keys, self.values = keys[..., : before + more, :], values[..., : before + more, :]
            self._handed_out = self.keys
            return self.keys, self.values

        def arrange(self, order: Any, width: int) -> None:
            """Take these places of each row, [rows, places], as the last of so many."""
            from torch.nn.functional import pad

            places = order[:, None, :, None]
            for name in ("keys", "values"):
                states = getattr(self, name)
                chosen = states.gather(2, places.expand(-1, states.shape[1], -1, states.shape[3]))
                setattr(self, name, pad(chosen, (0, 0, width - order.shape[1], 0)))

    return RoomyLayer


def _with_room(states: Any, places: int) -> Any:
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
        self._mask: Any = ()

    @property
    def can_add(self) -> bool:
        """Whether the cache holds keys and values of all tokens and nothing else."""
        return all(isinstance(layer, _roomy_layer()) for layer in getattr(self._cache, "layers", None) or [None])

    def read(self, prompts: list[Sequence[int]], samples: int) -> torch.Tensor:
        """Read each prompt once, and where it is shared their common beginning once for all; append their rows."""
        return self._append(prompts, samples) if len(self._mask) else self._begin(prompts, samples)

    def _begin(self, prompts: list[Sequence[int]], samples: int) -> torch.Tensor:
        import torch

        model = self._model
        self._cache = None
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

    def _append(self, prompts: list[Sequence[int]], samples: int) -> torch.Tensor:
        """Read prompts in a batch of their own and append its rows, all tokens moved to the right end of the cache."""
        import torch
        from torch.nn.functional import pad

        other = Batch(self._model, self._share)
        logits = other.read(prompts, samples)
        both = (self, other)
        width = int(max(batch._mask.sum(-1).max() for batch in both))
        for batch in both:
            # Stable: what is padding comes first, and tokens stay in their order.
            order = batch._mask.argsort(dim=1, stable=True)[:, -width:]
            batch._mask = pad(batch._mask.gather(1, order), (width - order.shape[1], 0))
            for layer in batch._cache.layers:
                layer.arrange(order, width)
        for layer, added in zip(self._cache.layers, other._cache.layers, strict=True):
            layer.keys, layer.values = torch.cat([layer.keys, added.keys]), torch.cat([layer.values, added.values])
        self._mask, self._last = (
            torch.cat(tensors) for tensors in zip(*((b._mask, b._last) for b in both), strict=True)
        )
        return logits

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows but these, with their part of the cache."""
        if not len(rows):
            self._cache, self._mask = None, ()
            return
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
