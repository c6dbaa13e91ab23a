"""Which tokens carry loss, proved on the batches that were trained on and not on the settings that should see to it.

The expected prompts are encoded here, apart from the trainer. A sequence of a batch is right if what stands before
its first token with loss is one of them, whole, and every token after that carries loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from training.jobs.finetuning.training_texts import Sides


def mismatched(inputs: dict[str, Any]) -> View:
    """Return the sequences of other prompts and responses that a batch of KTO has for its drift."""
    names = ("KL_input_ids", "KL_attention_mask", "KL_completion_mask")
    ids, real, carried = (inputs[name].cpu().numpy() for name in names)
    return View(ids, real == 1, carried == 1)


SAMPLE = 3

SHOWN = 5

_SAMPLE_TOKENS = 512


class View(NamedTuple):
    """Sequences of a batch: token ids, which of them are no padding, which carry loss (arrays of one shape)."""

    ids: Any
    real: Any
    carried: Any


class Counted(NamedTuple):
    """What one batch held: sequences, tokens with loss, and tokens of prompts."""

    rows: int
    carried: int
    masked: int


class Prompts(NamedTuple):
    """The encoded prompts, and in how many examples their end melts into the first token of the response."""

    known: frozenset[bytes]
    merged: int


class Unmasked(Exception):
    """A prompt token carried loss, or a response token did not."""


def expected(tokenizer: Any, examples: Iterable[Sides]) -> Prompts:
    """Encode every prompt up to where its responses begin."""
    known: set[bytes] = set()
    merged = 0
    for one in examples:
        prompt = one.prompt_ids(tokenizer)
        shared = [_common(prompt, one.whole_ids(tokenizer, response)) for response in one.responses]
        merged += min(shared) < len(prompt)
        # TRL cuts a pair where the first of its two responses parts from the prompt.
        known |= {key(prompt[:length]) for length in shared}
    return Prompts(frozenset(known), merged)


class MaskProof:
    """Looks at every batch before it is trained on."""

    def __init__(self, prompts: Prompts) -> None:
        self.prompts = prompts
        self.rows = 0
        self.wrong: list[dict[str, int]] = []
        self.violations = 0
        self.sample: list[dict[str, Any]] = []

    def see(self, inputs: dict[str, Any], step: int) -> Counted:
        """Check one batch and count what it holds.

        Raises:
            Unmasked: a sequence is not masked as it must be; what was found stays in :meth:`facts`.
        """
        rows = carried = masked = 0
        for view in views(inputs):
            for place in range(len(view.ids)):
                real = view.real[place]
                count = self._one(view.ids[place][real], view.carried[place][real], step)
                rows, carried, masked = rows + 1, carried + count, masked + int(real.sum()) - count
        self.rows += rows
        if self.wrong:
            first = self.wrong[0]
            raise Unmasked(
                f"step {first['step']}: the tokens before the first with loss ({first['prompt_tokens']} of "
                f"{first['tokens']}) are not a prompt, or a later one has no loss"
            )
        return Counted(rows, carried, masked)

    def _one(self, ids: Any, carried: Any, step: int) -> int:
        count = int(carried.sum())
        first = int(carried.argmax()) if count else len(ids)
        if key(ids[:first]) not in self.prompts.known or not bool(carried[first:].all()) or not count:
            self.violations += 1
            if len(self.wrong) < SHOWN:
                self.wrong.append({"step": step, "prompt_tokens": first, "tokens": len(ids)})
        if len(self.sample) < SAMPLE:
            short = slice(None, _SAMPLE_TOKENS)
            labels = [int(id) if on else -100 for id, on in zip(ids[short], carried[short], strict=True)]
            self.sample.append({"ids": [int(id) for id in ids[short]], "labels": labels, "prompt_tokens": first})
        return count

    def facts(self) -> dict[str, Any]:
        """Return what the manifest says of the masks."""
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
    if "chosen_labels" in inputs:
        for side in ("chosen", "rejected"):
            labels = _array(inputs[f"{side}_labels"])
            yield View(
                _array(inputs[f"{side}_input_ids"]), _array(inputs[f"{side}_attention_mask"]) == 1, labels != -100
            )
    elif "completion_mask" in inputs:
        real = _array(inputs["attention_mask"]) == 1
        yield View(_array(inputs["input_ids"]), real, (_array(inputs["completion_mask"]) == 1) & real)
    elif "attention_mask" in inputs:
        yield View(_array(inputs["input_ids"]), _array(inputs["attention_mask"]) == 1, _array(inputs["labels"]) != -100)
    else:
        yield from _packed(inputs)


def _packed(inputs: dict[str, Any]) -> Iterator[View]:
    ids, labels, places = (_array(inputs[name])[0] for name in ("input_ids", "labels", "position_ids"))
    starts = [at for at, place in enumerate(places) if place == 0] + [len(ids)]
    for begin, end in zip(starts, starts[1:], strict=False):
        part = ids[begin:end][None]
        yield View(part, part == part, (labels[begin:end] != -100)[None])


def _array(tensor: Any) -> Any:
    return tensor.cpu().numpy()


def _common(first: list[int], second: list[int]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def key(ids: Any) -> bytes:
    """Return ids as something that can be looked up."""
    import numpy

    return numpy.asarray(ids, dtype=numpy.int64).tobytes()
