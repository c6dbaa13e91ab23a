"""Writes a checkpoint as the GGUF file that llama.cpp reads.

An engine needs no vocabulary, because its prompts and answers are token ids; an export has the checkpoint's tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from specs.stages.packaging.parameters import GgufFormat as Format
from training.engines.gguf_vocabulary import add_vocabulary
from training.engines.gguf_weights import ARCHITECTURES, NoGguf, describe, require_plain, tensors_in, values_in

_BLOCK = 32
_LARGEST_F16 = 65504.0


class _TensorPlacement(NamedTuple):
    file: Path
    tensor: str
    format: Format


def write_gguf(folder: Path, target: Path, format: Format = "f32", *, vocabulary: bool = False) -> dict[str, int]:
    """Write a checkpoint folder to a GGUF file; return how many tensors it holds of each format.

    Vectors stay in float32; a matrix whose rows are not whole blocks of 8 bits is left in 16.

    Raises:
        NoGguf: the model, its tokenizer or a number cannot be written so that llama.cpp reads the same.
    """
    import gguf
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
    architecture = (config.architectures or ["none"])[0]
    name = ARCHITECTURES.get(architecture)
    if name is None:
        known = ", ".join(ARCHITECTURES)
        raise NoGguf(f"cannot convert a {architecture} for llama.cpp; supported: {known}")
    require_plain(config)
    writer = gguf.GGUFWriter(target, name)
    try:
        describe(writer, config)
        if vocabulary:
            kinds = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "q8_0": "MOSTLY_Q8_0"}
            writer.add_file_type(gguf.LlamaFileType[kinds[format]])
            writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
            add_vocabulary(writer, folder, config.vocab_size)
        else:
            writer.add_tokenizer_model("no_vocab")
        placed = list(_announce_tensors(writer, folder, config, name, format))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for value in placed:
            writer.write_tensor_data(_encode_values(values_in(value.file, value.tensor, config, name), value))
    except BaseException:
        writer.close()
        target.unlink(missing_ok=True)
        raise
    writer.close()
    return {text: sum(value.format == text for value in placed) for text in sorted({value.format for value in placed})}


def _announce_tensors(writer: Any, folder: Path, config: Any, name: str, format: Format) -> Iterator[_TensorPlacement]:
    """Announce every tensor to the writer, and yield it; raises NoGguf if llama.cpp has no name for it."""
    import gguf

    kind = next(model_arch for model_arch, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for file, tensor, shape in tensors_in(folder, config):
        called = names.get_name(tensor, try_suffixes=(".weight", ".bias"))
        if called is None:
            raise NoGguf(f"tensor '{tensor}' has no name in llama.cpp's '{name}'")
        placed = _TensorPlacement(file, tensor, _format_of(shape, format))
        _announce(writer, called, shape, placed.format)
        yield placed


def _format_of(shape: tuple[int, ...], wanted: Format) -> Format:
    if len(shape) < 2:
        return "f32"
    return "f16" if wanted == "q8_0" and shape[-1] % _BLOCK else wanted


def _announce(writer: Any, name: str, shape: tuple[int, ...], format: Format) -> None:
    import gguf
    import numpy

    count = math.prod(shape)
    if format == "q8_0":
        kind = gguf.GGMLQuantizationType.Q8_0
        size = count // _BLOCK * (_BLOCK + 2)
        writer.add_tensor_info(name, (*shape[:-1], size // (count // shape[-1])), numpy.dtype("uint8"), size, kind)
    else:
        width = numpy.dtype("float32" if format == "f32" else "float16")
        writer.add_tensor_info(name, shape, width, count * width.itemsize)


def _encode_values(values: Any, value: _TensorPlacement) -> Any:
    import gguf
    import numpy

    if value.format == "f32":
        return values
    if not numpy.isfinite(values).all() or numpy.abs(values).max(initial=0.0) > _LARGEST_F16:
        raise NoGguf(f"tensor '{value.tensor}' holds values that {value.format} cannot; write f32")
    if value.format == "f16":
        return values.astype("float16")
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
