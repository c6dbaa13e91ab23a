"""Are the tensors those that the configuration declares, and is every number of them one?"""

from __future__ import annotations

from collections.abc import Iterator

from training.rules.packaging.bounded_json import WrongFile
from training.rules.packaging.checkpoint_folder import CONFIG, CheckpointFolder
from training.rules.packaging.flaw import Flaw, NotRun
from training.rules.packaging.model_families import EMBEDDING, HEAD, declared_tensors
from training.rules.weight_files import FLOATS, Tensor, WrongWeights, quote_name, values_of

LARGEST = 1e6
"""No weight of a trained model is near it; a flipped bit of an exponent is far above."""
_SHOWN = 5
_AGAIN = "take the last good checkpoint, and copy it again"


def layout(folder: CheckpointFolder) -> Iterator[Flaw]:
    """Yield where names and shapes are not those of the configuration; raises NotRun where that declares none."""
    try:
        tensors = folder.tensors
    except WrongWeights as error:
        yield Flaw("weights", "unreadable", _names(folder), str(error), _AGAIN)
        return
    try:
        config = folder.config
    except WrongFile as error:
        raise NotRun(f"{error}, so the tensors cannot be compared with it") from error
    if folder.is_adapter or isinstance(config.get("quantization_config"), dict):
        raise NotRun("an adapter's or quantized tensors are not those that config.json declares")
    declared = declared_tensors(config)
    if declared is None:
        raise NotRun("config.json declares no layout that is known here")
    ties = config.get("tie_word_embeddings") is True
    missing = sorted(declared.keys() - tensors.keys() - ({HEAD} if ties else set[str]()))
    for name in missing[:_SHOWN]:
        mend = "write tie_word_embeddings: true, if they were tied" if name == HEAD else _AGAIN
        why = f"tensor {quote_name(name)} is missing: a loader would fill it with random numbers"
        yield Flaw("weights", "missing_tensor", _names(folder), why, mend)
    for name in sorted(tensors.keys() - declared.keys())[:_SHOWN]:
        file = tensors[name].file.name
        why = f"tensor {quote_name(name)} of {file} is not declared by config.json: it would be ignored"
        whole = not missing and not file.startswith("model")
        mend = f"delete {file}: the whole model is next to it" if whole else "correct config.json, or drop the tensor"
        yield Flaw("weights", "unexpected_tensor", CONFIG, why, mend)
    shared = sorted(declared.keys() & tensors.keys())
    wrong = [name for name in shared if tensors[name].shape != declared[name]]
    for name in wrong[:_SHOWN]:
        yield _shape(tensors[name], name, declared[name])
    if (
        ties
        and HEAD in tensors
        and EMBEDDING in tensors
        and not wrong
        and not _equal(tensors[HEAD], tensors[EMBEDDING])
    ):
        why = f"config.json ties the embeddings, and {HEAD} is another than {EMBEDDING}: one of them is ignored"
        yield Flaw("weights", "untied", _names(folder), why, "write tie_word_embeddings: false")


def _shape(tensor: Tensor, name: str, counts: tuple[int, ...]) -> Flaw:
    if name in (EMBEDDING, HEAD) and len(tensor.shape) == 2 and tensor.shape[1:] == counts[1:]:
        why = f"vocab_size is {counts[0]}, {name} has {tensor.shape[0]} rows"
        return Flaw("weights", "vocab_size", CONFIG, why, f"write vocab_size: {tensor.shape[0]}")
    why = f"tensor {quote_name(name)} has the shape {list(tensor.shape)}, config.json declares {list(counts)}"
    return Flaw("weights", "shape", tensor.file.name, why, "weights and config.json are of two models: take one")


def numbers(folder: CheckpointFolder) -> Iterator[Flaw]:
    """Yield tensors with values that are not finite, are impossibly large, or are all zero. Biases may be zero."""
    try:
        tensors = folder.tensors
    except WrongWeights as error:
        raise NotRun(str(error)) from error
    for name, tensor in sorted(tensors.items()):
        if tensor.dtype in FLOATS and (flaw := _numbers(name, tensor)) is not None:
            yield flaw


def _numbers(name: str, tensor: Tensor) -> Flaw | None:
    import numpy

    largest = 0.0
    for part in values_of(tensor):
        # NaN and infinity survive both.
        low, high = float(numpy.min(part)), float(numpy.max(part))
        if not (numpy.isfinite(low) and numpy.isfinite(high)):
            wrong = int((~numpy.isfinite(part)).sum())
            why = f"tensor {quote_name(name)} holds {wrong} values that are not finite"
            return Flaw("weights", "not_finite", tensor.file.name, why, _AGAIN)
        largest = max(largest, -low, high)
    if largest > LARGEST:
        why = f"tensor {quote_name(name)} holds {largest:.3g}, larger than any weight: a bit has flipped"
        return Flaw("weights", "too_large", tensor.file.name, why, _AGAIN)
    if largest == 0 and tensor.size and not name.endswith(".bias"):
        return Flaw("weights", "all_zero", tensor.file.name, f"tensor {quote_name(name)} is all zero", _AGAIN)
    return None


def _equal(tensor: Tensor, other: Tensor) -> bool:
    import numpy

    if (tensor.dtype, tensor.shape) != (other.dtype, other.shape):
        return False
    return all(
        numpy.array_equal(ours, theirs) for ours, theirs in zip(values_of(tensor), values_of(other), strict=True)
    )


def _names(folder: CheckpointFolder) -> str:
    return ", ".join(sorted(path.name for path in folder.path.glob("*.safetensors"))[:2]) or "model.safetensors"
