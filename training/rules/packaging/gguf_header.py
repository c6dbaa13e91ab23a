"""Reads the header of a GGUF file of unknown origin, with limits on everything that the file states about itself.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Tensors are not read.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from specs.system.regular_files import open_regular
from specs.system.text import one_line
from training.rules.packaging.bounded_json import WrongFile

MOST_KEYS, MOST_TENSORS, MOST_ELEMENTS = 10_000, 100_000, 4_000_000
MOST_TEXT = 16_000_000
MOST_HEADER = 512_000_000
MOST_DIMENSIONS = 4

_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9
BLOCKS = {
    **{0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22)},
    **{7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110)},
    **{12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 30: ("BF16", 1, 2)},
    **{16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50)},
    **{20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136)},
    **{29: ("IQ1_M", 256, 56), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17)},
}
"""Name, values per block and bytes per block of a type, by ggml's number."""


class GgufTensor(NamedTuple):
    """Where a tensor is, its type and shape; the fastest dimension first, as in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    """First byte in the file."""
    end: int


class GgufHeader(NamedTuple):
    """What a GGUF file states."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


def read_header(path: Path) -> GgufHeader:
    """Return the header of a GGUF file; raises WrongFile if it is another file, damaged, or beyond the limits."""
    try:
        with open_regular(path) as handle:
            return _GgufReader(handle, path.name).header()
    except FileNotFoundError as error:
        raise WrongFile(path.name, "is missing", missing=True) from error
    except OSError as error:
        raise WrongFile(path.name, f"cannot be read: {error.strerror or error}") from error


class _GgufReader:
    def __init__(self, handle: BinaryIO, name: str) -> None:
        self._handle, self._name = handle, name
        self._size = os.fstat(handle.fileno()).st_size
        self._read = 0

    def header(self) -> GgufHeader:
        if self._bytes(4) != b"GGUF":
            raise self._wrong("is not a GGUF file")
        version, tensors, keys = self._number("<I"), self._number("<Q"), self._number("<Q")
        if version not in (2, 3):
            raise self._wrong(f"has version {version}; known: 2 and 3")
        if keys > MOST_KEYS or tensors > MOST_TENSORS:
            raise self._wrong(f"states {keys} keys and {tensors} tensors; at most {MOST_KEYS} and {MOST_TENSORS}")
        metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self._text(1 << 16)
            if key in metadata:
                raise self._wrong(f"states '{one_line(key, 60)}' twice")
            metadata[key] = self._value(self._number("<I"))
        placed = [self._tensor() for _ in range(tensors)]
        step = metadata.get("general.alignment", 32)
        if not isinstance(step, int) or not 1 <= step <= 1 << 16 or step & (step - 1):
            raise self._wrong("states an alignment that is not a power of two up to 65536")
        begin = -(-self._read // step) * step
        gguf_tensors: dict[str, GgufTensor] = {}
        for name, dtype, shape, offset, size in placed:
            if name in gguf_tensors:
                raise self._wrong(f"states tensor '{one_line(name, 60)}' twice")
            gguf_tensor = GgufTensor(dtype, shape, begin + offset, begin + offset + size)
            if offset % step or gguf_tensor.end > self._size:
                raise self._wrong(f"places tensor '{one_line(name, 60)}' outside of the file")
            gguf_tensors[name] = gguf_tensor
        reached = begin
        for tensor in sorted(gguf_tensors.values(), key=lambda gguf_tensor: gguf_tensor.start):
            if tensor.start < reached:
                raise self._wrong("has tensors that overlap")
            reached = tensor.end
        return GgufHeader(metadata, gguf_tensors)

    def _tensor(self) -> tuple[str, str, tuple[int, ...], int, int]:
        name, dimensions = self._text(1 << 10), self._number("<I")
        if not 1 <= dimensions <= MOST_DIMENSIONS:
            raise self._wrong(f"states a tensor of {dimensions} dimensions")
        shape = tuple(self._number("<Q") for _ in range(dimensions))
        number, offset = self._number("<I"), self._number("<Q")
        # Of a type that is not known here only the place of the first byte can be compared with the file.
        dtype, block, width = BLOCKS.get(number, (f"type {number}", 1, 0))
        if shape[0] % block:
            raise self._wrong(f"states a tensor of {dtype} whose rows of {shape[0]} are not whole blocks")
        return name, dtype, shape, offset, math.prod(shape) // block * width

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text(MOST_TEXT)
        if kind != _ARRAY:
            return self._number(self._form(kind))
        of, count = self._number("<I"), self._number("<Q")
        if count > MOST_ELEMENTS:
            raise self._wrong(f"states a list of {count} values; at most {MOST_ELEMENTS}")
        if of == _TEXT:
            return [self._text(MOST_TEXT) for _ in range(count)]
        form = self._form(of)
        data = self._bytes(count * struct.calcsize(form))
        return [value for (value,) in struct.iter_unpack(form, data)]

    def _form(self, kind: int) -> str:
        if kind not in _NUMBERS:
            # A list of lists is not in use, and would nest.
            raise self._wrong(f"states a value of type {kind}")
        return _NUMBERS[kind]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _text(self, most: int) -> str:
        length = self._number("<Q")
        if length > most:
            raise self._wrong(f"states a text of {length} bytes; at most {most}")
        return self._bytes(length).decode("utf-8", errors="replace")

    def _bytes(self, count: int) -> bytes:
        # Asked before anything is reserved: a few bytes may state a length of exabytes.
        if count > self._size - self._read:
            raise self._wrong("ends within its header")
        self._read += count
        if self._read > MOST_HEADER:
            raise self._wrong(f"has a header of more than {MOST_HEADER:,} bytes")
        return self._handle.read(count)

    def _wrong(self, why: str) -> WrongFile:
        return WrongFile(self._name, why)
