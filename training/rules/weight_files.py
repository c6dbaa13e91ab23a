"""Reads weight files without torch: which tensors they hold, and what differs between two checkpoints.

The gate calls it too, without the libraries of jobs. The format: https://huggingface.co/docs/safetensors (8 bytes with
the length of a JSON header, the header, the tensors).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from specs.system.regular_files import open_regular, read_regular
from specs.system.text import plain

WEIGHTS = "model.safetensors"

INDEX = "model.safetensors.index.json"

_DESCRIBING = ("*.json", "*.jinja", "*.model", "*.txt")


def describing(folder: Path) -> dict[str, Path]:
    """Return the files that describe the weights of a checkpoint, by name; adopting copies them from the base."""
    return {path.name: path for pattern in _DESCRIBING for path in sorted(folder.glob(pattern)) if path.name != INDEX}


def read_description(path: Path, left_out: Collection[str]) -> Any:
    """Return what a describing file says, JSON without the keys that are left out; None without a file."""
    if not path.is_file():
        return None
    data = read_regular(path)
    try:
        result: Any = json.loads(data) if path.suffix == ".json" else data
    except ValueError:
        return data
    return (
        {name: value for name, value in result.items() if name not in left_out} if isinstance(result, dict) else result
    )


MOST_HEADER_BYTES = 100_000_000
"""The format's own limit."""

FLOATS = {"F32": 4, "BF16": 2, "F16": 2}
"""Bytes of a number, by type of what training changes; of one of these, weights may be left as another."""

_ROUNDING = {"F32": 2.0**-24, "BF16": 2.0**-8, "F16": 2.0**-11}
"""Largest relative error of rounding to a type."""

_HEADS = ("lm_head.weight", "embed_out.weight", "output.weight")
"""Names of output embeddings. Only these may be tied: of two norms that are all ones, each is still needed."""

REPLACED = 1.0
"""From this relative change on, weights are further from the base's than zeros would be."""

_CHUNK = 1 << 22

_MOST_LISTED = 3


class WrongWeights(Exception):
    """Weight files cannot be read, or are not those of the stated model; with one sentence."""


class Tensor(NamedTuple):
    """Where a tensor is, and its type and shape."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    """First byte in the file."""
    end: int

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return self.end - self.start


class Shift(NamedTuple):
    """How far a floating-point tensor moved."""

    moved: float
    """Root mean square of the differences."""
    finest: float
    """Half the distance of neighbouring numbers of its type at the tensor's root mean square: less is rounded away."""
    farthest: float
    """The largest difference of a single weight."""
    highest: float
    """The largest absolute value of a weight that was left."""
    rounding: float
    """The largest relative error of rounding to the type it is left in."""


class CheckpointChange(NamedTuple):
    """What differs between a checkpoint and its base."""

    tensors: int
    """How many both hold."""
    changed: int
    """Tensors that are not those of the base, rounded to the type they are left in."""
    largest: float
    """The largest ``|new - old| / max(|old|, |new|)`` of a tensor, in Euclidean norms: from 0 to 2."""
    largest_in: str
    """Its name; empty when nothing changed."""
    whole: float
    """The same of all floating-point tensors as one."""
    dtypes: tuple[str, ...]
    bytes: int
    repeated: tuple[str, ...]
    """Output embeddings of one side only that repeat another tensor of it: tied weights, written out or left out."""
    replaced: tuple[str, ...]
    """Matrices that are further from those of the base than zeros would be."""
    shifts: tuple[Shift, ...]
    """The shift of each floating-point tensor that both hold, by name."""

    def as_facts(self) -> dict[str, Any]:
        """Return the facts for a manifest, with figures of nine digits, which do not depend on the order of a sum."""
        return {
            "tensors": self.tensors,
            "changed": self.changed,
            "largest_change": float(f"{self.largest:.9g}"),
            "largest_change_in": self.largest_in,
            "whole_change": float(f"{self.whole:.9g}"),
            "dtypes": list(self.dtypes),
            "bytes": self.bytes,
        }


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of all ``*.safetensors`` of a folder, by name; raises WrongWeights or OSError."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WrongWeights("no weights (*.safetensors)")
    tensors: dict[str, Tensor] = {}
    for file in files:
        for name, tensor in _tensors(file):
            if name in tensors:
                raise WrongWeights(
                    f"tensor {quote_name(name)} is in {tensors[name].file.name} and again in {file.name}"
                )
            tensors[name] = tensor
    return tensors


def _tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    size = file.stat().st_size
    with open_regular(file) as handle:
        length = int.from_bytes(handle.read(8), "little")
        if not 2 <= length <= min(MOST_HEADER_BYTES, size - 8):
            raise WrongWeights(f"{file.name} has no header of a weight file")
        text = handle.read(length)
    try:
        header: Any = json.loads(text, object_pairs_hook=_once)
        entries = [(str(name), entry) for name, entry in header.items() if name != "__metadata__"]
        for name, entry in entries:
            shape, (start, end) = tuple(map(int, entry["shape"])), map(int, entry["data_offsets"])
            tensor = Tensor(file, str(entry["dtype"]), shape, 8 + length + start, 8 + length + end)
            whole = 0 <= start <= end and tensor.end <= size and min(shape, default=0) >= 0
            width = FLOATS.get(tensor.dtype)
            if not whole or (width is not None and tensor.size != width * math.prod(shape)):
                raise WrongWeights(f"tensor {quote_name(name)} of {file.name} does not have the size its header says")
            yield name, tensor
        _whole(file, entries, size - 8 - length)
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError, RecursionError) as error:
        raise WrongWeights(f"{file.name} has no header of a weight file") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    results = dict(pairs)
    if len(results) != len(pairs):
        raise ValueError("a name occurs twice")
    return results


def _whole(file: Path, entries: list[tuple[str, Any]], size: int) -> None:
    """Raise WrongWeights unless tensors cover the file once: without gaps, overlaps, and bytes behind them."""
    reached = 0
    for start, end in sorted((int(value["data_offsets"][0]), int(value["data_offsets"][1])) for _, value in entries):
        if start != reached or end < start:
            raise WrongWeights(f"{file.name} has tensors that overlap, or bytes between them")
        reached = end
    if reached != size:
        raise WrongWeights(f"{file.name} has {size} bytes of tensors, its header names {reached}")


def compare(base: Path, new: Path) -> CheckpointChange:
    """Read every tensor of a checkpoint and of its base; return what differs.

    Raises WrongWeights for other names, shapes or types, changed integers or values that are not finite, and OSError.
    """
    ours, theirs = tensors_of(new), tensors_of(base)
    extra = _require_tied_heads(ours, ours.keys() - theirs.keys(), "holds", "which the base does not have")
    # Weights that the base writes out twice, and a library writes once where the configuration ties them.
    missing = _require_tied_heads(theirs, theirs.keys() - ours.keys(), "lacks", "of the base", may=ties(base))
    names = sorted(ours.keys() & theirs.keys())
    apart = {name: _apart(name, theirs[name], ours[name]) for name in names}
    largest_in = max(apart, key=lambda name: apart[name].share, default="")
    tensors = [ours[name] for name in names]
    every = _Apart(*(math.fsum(part) for part in zip(*apart.values(), strict=True))) if apart else _Apart()
    return CheckpointChange(
        tensors=len(names),
        changed=sum(current_apart.squares > 0 for current_apart in apart.values()),
        largest=apart[largest_in].share if apart else 0.0,
        largest_in=largest_in if every.squares else "",
        whole=every.share,
        dtypes=tuple(sorted({tensor.dtype for tensor in tensors})),
        bytes=sum(tensor.size for tensor in tensors),
        repeated=(*extra, *missing),
        replaced=tuple(name for name in names if len(ours[name].shape) > 1 and apart[name].share >= REPLACED),
        shifts=tuple(_shift(apart[name], ours[name]) for name in names if ours[name].dtype in FLOATS),
    )


def _shift(apart: _Apart, tensor: Tensor) -> Shift:
    count = math.prod(tensor.shape) or 1
    rounding = _ROUNDING[tensor.dtype]
    moved, finest = math.sqrt(apart.squares / count), math.sqrt(apart.before / count) * rounding
    return Shift(moved, finest, apart.farthest, apart.highest, rounding)


def adapter_shifts(folder: Path) -> tuple[Shift, ...]:
    """Return how far low-rank adapters moved: their second factors, which begin at zero (arXiv:2106.09685, 4.1).

    Raises WrongWeights or OSError if there are none, or a value is not finite.
    """
    import numpy

    shifts: list[Shift] = []
    for name, tensor in tensors_of(folder).items():
        if ".lora_B." not in name or tensor.dtype not in FLOATS:
            continue
        squares = math.fsum(float(numpy.square(part, dtype="f8").sum()) for part in values_of(tensor))
        if not math.isfinite(squares):
            raise WrongWeights(f"tensor {quote_name(name)} holds values that are not finite")
        highest = max((_highest(part) for part in values_of(tensor)), default=0.0)
        shifts.append(_shift(_Apart(squares, farthest=highest, highest=highest), tensor))
    if not shifts:
        raise WrongWeights("no adapters")
    return tuple(shifts)


def ties(folder: Path) -> bool:
    """Return whether a checkpoint's configuration states that input and output embeddings are the same."""
    try:
        return json.loads(read_regular(folder / "config.json")).get("tie_word_embeddings") is True
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def _require_tied_heads(
    side: dict[str, Tensor], names: set[str], does: str, whose: str, *, may: bool = True
) -> tuple[str, ...]:
    """Return the names, if each is an output embedding that repeats a tensor of its side; else raise WrongWeights."""
    others = [tensor for name, tensor in side.items() if name not in names]
    tied = [name for name in names & set(_HEADS) if may and any(_same_bits(side[name], tensor) for tensor in others)]
    alone = sorted(names - set(tied))
    if alone:
        more = f" and {len(alone) - _MOST_LISTED} more" if len(alone) > _MOST_LISTED else ""
        raise WrongWeights(f"it {does} {', '.join(map(quote_name, alone[:_MOST_LISTED]))}{more}, {whose}")
    return tuple(sorted(names))


def _same_bits(tensor: Tensor, other: Tensor) -> bool:
    import numpy

    if (tensor.dtype, tensor.shape, tensor.size) != (other.dtype, other.shape, other.size):
        return False
    ours, theirs = raw(tensor), raw(other)
    parts = (slice(start, start + _CHUNK) for start in range(0, tensor.size, _CHUNK))
    return all(numpy.array_equal(ours[part], theirs[part]) for part in parts)


def _highest(values: Any) -> float:
    """Return the largest absolute value of some numbers; 0 of none."""
    return max(float(values.max()), -float(values.min())) if values.size else 0.0


class _Apart(NamedTuple):
    """Sums of squares of a tensor, of the difference, before and after; and the largest numbers."""

    squares: float = 0.0
    before: float = 0.0
    after: float = 0.0
    farthest: float = 0.0
    """Of the difference."""
    highest: float = 0.0
    """Of the new tensor."""

    @property
    def share(self) -> float:
        return math.sqrt(self.squares / (max(self.before, self.after) or 1.0))


def _apart(name: str, old: Tensor, new: Tensor) -> _Apart:
    """Return how much a tensor differs; raises WrongWeights for another shape or type, or values not finite."""
    import numpy

    if new.shape != old.shape:
        raise WrongWeights(f"tensor {quote_name(name)} has the shape {list(new.shape)}, in the base {list(old.shape)}")
    if new.dtype != old.dtype and not (old.dtype in FLOATS and new.dtype in FLOATS):
        raise WrongWeights(
            f"tensor {quote_name(name)} is of type {quote_name(new.dtype)}, in the base of type {old.dtype}"
        )
    if new.dtype not in FLOATS:
        if not _same_bits(new, old):
            raise WrongWeights(
                f"tensor {quote_name(name)} of type {quote_name(new.dtype)} differs from that of the base"
            )
        return _Apart()
    squares, before, after, farthest, highest = 0.0, 0.0, 0.0, 0.0, 0.0
    for was, now in zip(values_of(old), values_of(new), strict=True):
        if not numpy.isfinite(now).all():
            raise WrongWeights(f"tensor {quote_name(name)} holds values that are not finite")
        began = _round_to_dtype(was, new.dtype)
        if not numpy.isfinite(began).all():
            raise WrongWeights(f"tensor {quote_name(name)} of the base is not finite as {new.dtype}")
        difference = now.astype("f8") - began
        farthest, highest = max(farthest, _highest(difference)), max(highest, _highest(now))
        squares += float(numpy.square(difference, out=difference).sum())
        before += float(numpy.square(began, dtype="f8").sum())
        after += float(numpy.square(now, dtype="f8").sum())
    return _Apart(squares, before, after, farthest, highest)


def raw(tensor: Tensor) -> Any:
    """Return a tensor's bytes, mapped from its file."""
    import numpy

    if not tensor.size:
        return numpy.zeros(0, "u1")
    return numpy.memmap(tensor.file, "u1", "r", tensor.start, (tensor.size,))


def values_of(tensor: Tensor) -> Iterator[Any]:
    """Yield the numbers of a floating-point tensor, a part at a time, exactly."""
    import numpy

    every, width = raw(tensor), FLOATS[tensor.dtype]
    for start in range(0, len(every), _CHUNK * width):
        part = numpy.asarray(every[start : start + _CHUNK * width])
        if tensor.dtype == "BF16":
            yield (part.view("<u2").astype("<u4") << 16).view("<f4")
        else:
            yield part.view(f"<f{width}")


def _round_to_dtype(values: Any, dtype: str) -> Any:
    """Return numbers as another type holds them, to the nearest and to even between two."""
    import numpy

    with numpy.errstate(over="ignore", invalid="ignore"):
        if dtype == "F16":
            return values.astype("<f2").astype("<f4")
        single = values.astype("<f4")
        if dtype == "F32":
            return single
        bits = single.view("<u4")
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype("<u4").view("<f4")


def quote_name(name: str) -> str:
    """Return an untrusted name as it can be shown."""
    return f"'{plain(name, 80)}'"
