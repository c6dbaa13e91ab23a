"""Proves which tokens carry loss, on the batches that were trained on instead of on the settings.

The expected prompts are encoded here, without the trainer. A sequence is right if the tokens before its first token
with loss are one of these prompts, whole, and every token after that carries loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from training.jobs.finetuning.training_texts import PromptWithResponses


def build_drift_view(inputs: dict[str, Any]) -> View:
    """Return the sequences of mismatched prompts and responses that a batch of KTO has for its drift."""
    names = ("KL_input_ids", "KL_attention_mask", "KL_completion_mask")
    ids, real, carried = (_array(inputs[name]) for name in names)
    return View(ids, real == 1, carried == 1)


SAMPLE, _SAMPLE_TOKENS = 3, 512
MOST_LISTED = 5


class View(NamedTuple):
    """Sequences of a batch: token ids, which of them are not padding, which carry loss (arrays of one shape)."""

    ids: Any
    real: Any
    carried: Any


class BatchCounts(NamedTuple):
    """What one batch held: sequences, tokens with loss, and tokens of prompts."""

    rows: int
    carried: int
    masked: int


class KnownPrompts(NamedTuple):
    """The encoded prompts, and in how many examples their end melts into the first token of the response."""

    known: frozenset[bytes]
    merged: int


class MaskFault(Exception):
    """A prompt token carried loss, or a response token did not."""


def encode_known_prompts(tokenizer: Any, examples: Iterable[PromptWithResponses]) -> KnownPrompts:
    """Encode every prompt up to where its responses begin."""
    known: set[bytes] = set()
    merged = 0
    for sides in examples:
        encoded = sides.encode_sides(tokenizer)
        merged += min(encoded.begins()) < len(encoded.prompt)
        # TRL cuts a pair where the first of its two responses parts from the prompt.
        known |= {key(encoded.prompt[:length]) for length in encoded.begins()}
    return KnownPrompts(frozenset(known), merged)


class MaskProof:
    """Checks every batch before it is trained on."""

    def __init__(self, prompts: KnownPrompts) -> None:
        self.prompts = prompts
        self.rows = 0
        self.wrong: list[dict[str, int]] = []
        self.violations = 0
        self.sample: list[dict[str, Any]] = []

    def see(self, inputs: dict[str, Any], step: int) -> BatchCounts:
        """Check one batch and count what it holds; raises Unmasked, with what :meth:`facts` keeps, if one is wrong."""
        rows = carried = masked = 0
        for view in views(inputs):
            for place in range(len(view.ids)):
                real = view.real[place]
                count = self._one(view.ids[place][real], view.carried[place][real], step)
                rows, carried, masked = rows + 1, carried + count, masked + int(real.sum()) - count
        self.rows += rows
        if self.wrong:
            first = self.wrong[0]
            raise MaskFault(
                f"step {first['step']}: the tokens before the first with loss ({first['prompt_tokens']} of "
                f"{first['tokens']}) are not a prompt, or a later one has no loss"
            )
        return BatchCounts(rows, carried, masked)

    def _one(self, ids: Any, carried: Any, step: int) -> int:
        count = int(carried.sum())
        first = int(carried.argmax()) if count else len(ids)
        if key(ids[:first]) not in self.prompts.known or not bool(carried[first:].all()) or not count:
            self.violations += 1
            if len(self.wrong) < MOST_LISTED:
                self.wrong.append({"step": step, "prompt_tokens": first, "tokens": len(ids)})
        if len(self.sample) < SAMPLE:
            short = slice(None, _SAMPLE_TOKENS)
            labels = [int(id) if on else -100 for id, on in zip(ids[short], carried[short], strict=True)]
            self.sample.append({"ids": [int(id) for id in ids[short]], "labels": labels, "prompt_tokens": first})
        return count

    def facts(self) -> dict[str, Any]:
        """Return the facts of the masks for the manifest."""
        return {
            "rows": self.rows,
            "prompts": len(self.prompts.known),
            "merged": self.prompts.merged,
            "violations": self.violations,
            "wrong": self.wrong,
            "sample": self.sample,
        }


def views(inputs: dict[str, Any]) -> Iterator[View]:
    """Yield the sequences of a batch that carry loss, as each of TRL's trainers lays them out."""
    results = {name: _array(inputs[name]) for name in inputs if name.endswith(("ids", "mask", "labels"))}
    if "chosen_labels" in results:
        for side in ("chosen", "rejected"):
            ids, mask, labels = (results[f"{side}_{name}"] for name in ("input_ids", "attention_mask", "labels"))
            yield View(ids, mask == 1, labels != -100)
    elif "attention_mask" in results:
        real = results["attention_mask"] == 1
        carried = (
            (results["completion_mask"] == 1) & real if "completion_mask" in results else results["labels"] != -100
        )
        yield View(results["input_ids"], real, carried)
    else:
        yield from _split_packed_row(inputs)


def _split_packed_row(inputs: dict[str, Any]) -> Iterator[View]:
    ids, labels, places = (_array(inputs[name])[0] for name in ("input_ids", "labels", "position_ids"))
    starts = [at for at, place in enumerate(places) if place == 0] + [len(ids)]
    for begin, end in zip(starts, starts[1:], strict=False):
        part = ids[begin:end][None]
        yield View(part, part == part, (labels[begin:end] != -100)[None])


def _array(tensor: Any) -> Any:
    return tensor.cpu().numpy()


def key(ids: Any) -> bytes:
    """Return ids as a hashable key."""
    import numpy

    return numpy.asarray(ids, dtype=numpy.int64).tobytes()
