"""Force answers through a model: one pass without decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from specs.stages.base.witness import NUCLEUS, TILTS, Token, WitnessRow
from training.engines.batched import ends_in, output_of
from training.engines.checkpoint import device_of
from training.engines.sampling_noise import RANKED, draw, noise, noise_keys, within_nucleus
from training.engines.stop_strings import StopWatcher
from training.jobs.witness.passes import Context, read_through
from training.jobs.witness.prompted_answers import PromptedAnswer, UnusableRow

if TYPE_CHECKING:
    import torch


def read(model: Any, tokenizer: Any, requests: Sequence[PromptedAnswer]) -> Iterator[WitnessRow]:
    """Yield how the model reads each answer, in any order; raise NotAsked for a token that it does not have."""
    ends = ends_in(model.generation_config, tokenizer)
    known = model.get_output_embeddings().weight.shape[0]
    spare = NUCLEUS.get(device_of(model)[1], 0.0)
    if wrong := next((value for value in requests if max(value.ids, default=0) >= known), None):
        raise UnusableRow(f"row {wrong.row} has a token id that the model does not know")
    by_context: dict[Context, list[PromptedAnswer]] = {}
    for value in requests:
        by_context.setdefault(Context((*value.prompt, *value.ids), len(value.prompt) - 1), []).append(value)
    for context, logits in read_through(model, list(by_context)):
        for value in by_context[context]:
            yield _row(tokenizer, value, logits, ends, spare)


def _row(tokenizer: Any, value: PromptedAnswer, logits: torch.Tensor, ends: frozenset[int], spare: float) -> WitnessRow:
    import torch

    sampling, ids = value.sampling, list(value.ids)
    logits = logits.float()
    if sampling.repetition_penalty != 1:
        logits = _penalise_repetition(logits, value)
    places = torch.arange(len(ids) + (value.finish == "eos"), device=logits.device)
    temperature = sampling.temperature or 0.0
    keys = (
        noise_keys(torch.full_like(places, value.stream), places) if temperature and value.stream is not None else None
    )
    chosen = list(ids)
    if value.finish == "eos":
        known = torch.tensor(sorted(end for end in ends if end < logits.shape[-1]), device=logits.device)
        likeliest = logits[len(ids), known].double()
        if keys is not None:
            likeliest += temperature * noise(keys[-1:].expand_as(known), known)
        chosen.append(int(known[likeliest.argmax()]))
    logits, tokens = logits[: len(chosen)], torch.tensor(chosen, dtype=torch.long, device=logits.device)
    picked = logits[places, tokens]
    text, ending = _as_written(tokenizer, value, ends)
    row = WitnessRow(
        row=value.row, part=value.part, tokens=len(chosen), text=text, ending=ending, again=value.again, gap=None,
        prompt=value.states_prompt,
    )  # fmt: skip
    if sampling.temperature is None:
        gap = (logits.amax(-1) - picked).amax() if chosen else torch.zeros(())
        return row.model_copy(update={"gap": round(float(gap), 6)})
    if keys is None:
        beyond, drawn = _locate_draws(logits, chosen, temperature, sampling.top_p)
        return row.model_copy(update={"beyond": beyond, "drawn": drawn})
    # What the engine may have counted to the nucleus or not, by another order of sums, is not due to be drawn.
    allowed = logits if sampling.top_p >= 1 else within_nucleus(logits, temperature, max(sampling.top_p - spare, 1e-9))
    _, most = draw(allowed, temperature, keys)
    apart = (most - picked.double() - temperature * noise(keys, tokens)).amax() if chosen else torch.zeros(())
    beyond = _past_nucleus(logits, tokens, temperature, sampling.top_p) if chosen else None
    return row.model_copy(update={"gap": round(max(float(apart), 0.0), 6), "beyond": beyond, "noise": True})


def _past_nucleus(logits: torch.Tensor, chosen: torch.Tensor, temperature: float, top_p: float) -> float | None:
    """Return how far the worst token lies past the nucleus; None where everything is in it."""
    import torch

    if top_p >= 1:
        return None
    probabilities = torch.softmax(logits.double() / temperature, -1)
    own = probabilities.gather(-1, chosen[:, None])
    likelier = torch.where(probabilities > own, probabilities, 0.0).sum(-1)
    return round(float((likelier - top_p).max()), 9)


def _as_written(tokenizer: Any, value: PromptedAnswer, ends: frozenset[int]) -> tuple[bool, bool]:
    """Return whether the text is that of the ids, and whether an answer of these ids ends here and so."""
    watch = StopWatcher(tokenizer, value.sampling.stops, keep_special=value.sampling.keep_special)
    text = output_of(value.ids, value.finish, watch).text
    limit, stopped = value.sampling.max_new_tokens, watch.found_in(value.ids) is not None
    went_on = any(id in ends for id in value.ids) or watch.found_in(value.ids[:-1]) is not None
    ended = {"eos": len(value.ids) < limit, "stop": len(value.ids) <= limit, "length": len(value.ids) == limit}[
        value.finish
    ]
    return value.text in (text, text.strip()), ended and not went_on and stopped == (value.finish == "stop")


def _penalise_repetition(logits: torch.Tensor, value: PromptedAnswer) -> torch.Tensor:
    """Return logits with the repetition penalty of the prompt and of what each place had before it."""
    import torch

    seen_tensor = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    seen_tensor[:, list(value.prompt)] = True
    for place, id in enumerate(value.ids):
        seen_tensor[place + 1 :, id] = True
    strength = value.sampling.repetition_penalty
    return torch.where(seen_tensor, torch.where(logits < 0, logits * strength, logits / strength), logits)


def _locate_draws(
    logits: torch.Tensor, chosen: list[int], temperature: float, top_p: float
) -> tuple[float | None, tuple[Token, ...]]:
    """Return how far the worst token lies past the nucleus, and where each lies in the distribution cut to it."""
    import torch

    if not chosen:
        return None, ()
    probabilities = torch.softmax(logits.double() / temperature, -1)
    own = probabilities.gather(-1, torch.tensor(chosen, device=logits.device)[:, None])
    likelier = torch.where(probabilities > own, probabilities, 0.0).sum(-1, keepdim=True)
    cut = probabilities
    if top_p < 1:
        ranked = probabilities.topk(min(RANKED, probabilities.shape[-1])).values
        if float(ranked.sum(-1).min()) < top_p:
            ranked = probabilities.sort(-1, descending=True).values
        cut = torch.where(ranked.cumsum(-1) - ranked < top_p, ranked, 0.0)
    whole = cut.sum(-1, keepdim=True)
    cut = cut / whole
    tilted = [(cut**tilt).sum(-1, keepdim=True).log() for tilt in TILTS]
    beyond = float((likelier - top_p).max())
    # A token just past the border belongs to the nucleus of the engine that drew it.
    total = torch.maximum(whole, likelier + own)
    uniform_draws = torch.cat([likelier / total, own / total, *tilted], -1).tolist()
    tokens = [[round(value, 9) for value in uniform_draw] for uniform_draw in uniform_draws]
    return round(beyond, 9), tuple(Token(before=before, own=own, tilted=tuple(tilts)) for before, own, *tilts in tokens)
