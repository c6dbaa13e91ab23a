"""Does a GGUF file hold the numbers of its checkpoint, as exactly as its types can?

A file that loads, and computes another model, differs here: a tensor that was left as it was, swapped, or written in
another order of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.rules.packaging.bounded_json import WrongFile
from training.rules.packaging.checkpoint_folder import CheckpointFolder
from training.rules.packaging.flaw import Flaw, NotRun
from training.rules.packaging.gguf_header import GgufTensor, read_header
from training.rules.packaging.gguf_rules import architecture_of
from training.rules.packaging.gguf_settings import rope_factors
from training.rules.packaging.model_families import EMBEDDING, HEAD
from training.rules.weight_files import FLOATS, Tensor, WrongWeights, quote_name, values_of

_AGAIN = "export the checkpoint again"
_BLOCK = 32
"""Values that share a scale in ``Q8_0``."""
_PART = 1 << 22
_MOST_LISTED = 5
_TOP = {"token_embd.weight": EMBEDDING, "output_norm.weight": "model.norm.weight", "output.weight": HEAD}
_LAYER = {
    **{"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj"},
    **{"attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj"},
    **{"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"},
    **{"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"},
}
_TURNED = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
"""Matrices whose rows ``llama`` keeps in another order, and the setting with the number of their heads."""
_NAME = re.compile(r"blk\.(\d{1,4})\.([a-z_]+)\.(weight|bias)")


def values(folder: CheckpointFolder, path: Path) -> Iterator[Flaw]:
    """Yield the tensors of a GGUF file that hold other numbers than the checkpoint.

    Raises:
        NotRun: file or checkpoint cannot be read, its family is unknown, or a tensor has a type that is not known here.
    """
    try:
        config, ours, theirs = folder.config, folder.tensors, read_header(path).tensors
    except (WrongFile, WrongWeights) as error:
        raise NotRun(f"values were not compared: {error}") from error
    family = architecture_of(config)
    if family is None:
        raise NotRun("values were not compared: config.json names no known family")
    yield from _left_out(config, ours, theirs, path.name)
    unknown = sorted({gguf_tensor.dtype for gguf_tensor in theirs.values()} - {"F32", "F16", "Q8_0"})
    yield from _other_factors(config, theirs, path)
    visible = 0
    for name, tensor in sorted(theirs.items()):
        source = _source(name)
        if source == HEAD and HEAD not in ours and _ties(config):
            source = EMBEDDING
        if source is None or source not in ours or tensor.dtype in unknown or visible >= _MOST_LISTED:
            continue
        heads = _heads(config, name) if family == "llama" else None
        if why := _apart(tensor, path, ours[source], heads):
            visible += 1
            yield Flaw(
                "gguf",
                "values",
                path.name,
                f"tensor {quote_name(name)} {why} {quote_name(source)} of the checkpoint",
                _AGAIN,
            )
    if unknown:
        raise NotRun(f"values of the types {', '.join(unknown)} were not compared")


def _left_out(
    config: dict[str, Any], ours: dict[str, Tensor], theirs: dict[str, GgufTensor], file: str
) -> Iterator[Flaw]:
    """Yield biases and an output that the checkpoint has and its export lacks: llama.cpp computes without them."""
    carried = {_source(name) for name in theirs} | ({HEAD} if _ties(config) else set[str | None]())
    missing = sorted(name for name in ours.keys() - carried if name == HEAD or name.endswith(".bias"))
    for name in missing[:_MOST_LISTED]:
        why = f"lacks {quote_name(name)} of the checkpoint"
        why += ": llama.cpp takes the input embeddings in its place" if name == HEAD else ""
        yield Flaw("gguf", "left_out", file, why, _AGAIN)


def _other_factors(config: dict[str, Any], theirs: dict[str, GgufTensor], path: Path) -> Iterator[Flaw]:
    """Yield the factors of positions that are not those of config.json; raises NotRun if they cannot be computed."""
    import numpy

    factors, tensor = rope_factors(config), theirs.get("rope_freqs.weight")
    if not factors or tensor is None or tensor.dtype != "F32":
        return
    if tensor.shape != (len(factors),) or not numpy.allclose(
        _read_values(path, tensor, 0, len(factors)), factors, rtol=1e-4, atol=0
    ):
        why = "tensor rope_freqs.weight holds other factors of positions than config.json states"
        yield Flaw("gguf", "rope_scaling", path.name, why, _AGAIN)


def _ties(config: dict[str, Any]) -> bool:
    return config.get("tie_word_embeddings") is True


def _source(name: str) -> str | None:
    """Return what a tensor is called in the checkpoint."""
    if name in _TOP:
        return _TOP[name]
    match = _NAME.fullmatch(name)
    return f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}" if match and match[2] in _LAYER else None


def _heads(config: dict[str, Any], name: str) -> int | None:
    match = _NAME.fullmatch(name)
    setting = _TURNED.get(match[2]) if match and match[3] == "weight" else None
    if setting is None:
        return None
    arguments = config.get(setting) or config.get("num_attention_heads")
    if not isinstance(arguments, int) or arguments < 1:
        raise NotRun(f"values were not compared: config.json has no {setting}")
    return arguments


def _apart(theirs: GgufTensor, path: Path, ours: Tensor, heads: int | None) -> str:
    """Return how a tensor differs; empty if it holds the numbers of the checkpoint."""
    if ours.dtype not in FLOATS or tuple(reversed(theirs.shape)) != ours.shape:
        return f"has the shape {list(reversed(theirs.shape))}, not the {list(ours.shape)} of"
    start = 0
    for part in _parts(ours, heads):
        wrong = _beyond(part, _read_values(path, theirs, start, part.size), theirs.dtype)
        if wrong:
            return f"holds {wrong} or more values that are not those of"
        start += part.size
    return ""


def _parts(ours: Tensor, heads: int | None) -> Iterator[Any]:
    """Yield the checkpoint's numbers in the order of the file, flat; whole blocks, but for the end."""
    import numpy

    if heads is None:
        yield from values_of(ours)
        return
    whole = numpy.concatenate(list(values_of(ours))).reshape(ours.shape)
    rows, width = ours.shape[0], ours.shape[1]
    if rows % (2 * heads):
        raise NotRun("values were not compared: the rows of a matrix do not divide into its heads")
    turned = whole.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(-1)
    for start in range(0, turned.size, _PART):
        yield turned[start : start + _PART]


def _read_values(path: Path, tensor: GgufTensor, first: int, count: int) -> Any:
    """Return numbers of the file as float32, from the place of the first."""
    import numpy

    if tensor.dtype != "Q8_0":
        width, form = (4, "<f4") if tensor.dtype == "F32" else (2, "<f2")
        return numpy.fromfile(path, form, count, offset=tensor.start + first * width).astype("f4")
    blocks = count // _BLOCK
    raw = numpy.fromfile(path, "u1", blocks * 34, offset=tensor.start + first // _BLOCK * 34).reshape(-1, 34)
    scales = raw[:, :2].copy().view("<f2").astype("f4")
    return (scales * raw[:, 2:].view("i1")).reshape(-1)


def _beyond(ours: Any, theirs: Any, dtype: str) -> int:
    """Return how many numbers differ by more than the type makes them. What is not a number differs."""
    import numpy

    ours = ours.astype("f4")
    if dtype == "F32":
        bound: Any = numpy.zeros(1, "f4")
    elif dtype == "F16":
        # Half a unit in the last of 11 bits; below the smallest normal number, half of the smallest step.
        bound = numpy.maximum(numpy.abs(ours) * 2.0**-11, 2.0**-25)
    else:
        # Half a step of 127 in the largest of a block, and the scale itself in 11 bits.
        largest = numpy.abs(ours.reshape(-1, _BLOCK)).max(1, keepdims=True)
        step = numpy.broadcast_to(largest / 127, (len(largest), _BLOCK)).reshape(-1)
        bound = step * (0.5 + 127 * 2.0**-11) + 2.0**-17
    with numpy.errstate(invalid="ignore"):
        return int((~(numpy.abs(ours - theirs) <= bound * (1 + 1e-5))).sum())
