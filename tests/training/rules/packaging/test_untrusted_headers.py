"""Headers of unknown origin are read or end in one kind of error: no crash, no memory for what a few bytes state."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from training.rules.packaging.bounded_json import WrongFile, parse_json, read_json
from training.rules.packaging.gguf_header import MOST_ELEMENTS, MOST_KEYS, read_header
from training.rules.weight_files import WrongWeights, tensors_of

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBERS = st.integers(-(2**70), 2**70) | st.just(float("inf")) | st.none() | st.text(max_size=3) | st.booleans()
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "F16", "BF16", "I64", "X"]) | NUMBERS,
        "shape": st.lists(NUMBERS, max_size=4) | NUMBERS,
        "data_offsets": st.lists(NUMBERS, max_size=3) | NUMBERS,
    },
)


def safetensors(folder: Path, header: bytes, data: bytes, length: int | None = None) -> Path:
    stated = len(header) if length is None else length
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", stated % 2**64) + header + data)
    return folder


def tensors(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(tensors_of(folder))
    except WrongWeights:
        return None


ONE = '"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}'
GOOD = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()


def test_the_good_file_is_read(tmp_path: Path) -> None:
    results = tensors(safetensors(tmp_path, GOOD, b"\0" * 8))
    assert results is not None and results["a"].size == 8


@pytest.mark.parametrize("length", [0, 1, 2**63, 2**64 - 1, len(GOOD) + 1, len(GOOD) + 9, len(GOOD) - 1])
def test_a_length_that_lies_is_refused(length: int, tmp_path: Path) -> None:
    assert tensors(safetensors(tmp_path, GOOD, b"\0" * 8, length)) is None


@pytest.mark.parametrize(
    "header",
    [
        '{' + ', '.join([ONE] * 2) + '}',
        '{"b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, ' + ONE + "}",
        '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
        '{"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}',
        '{"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}',
        '{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}',
        '{"a": ' * 5000 + "0" + "}" * 5000,
        "[]",
        "null",
        "",
    ],
)  # fmt: skip
def test_a_header_that_does_not_cover_its_file_once_is_refused(header: str, tmp_path: Path) -> None:
    assert tensors(safetensors(tmp_path, header.encode(), b"\0" * 8)) is None


@QUICK
@given(st.dictionaries(st.text(max_size=4), ENTRY | NUMBERS, max_size=4), st.integers(0, 40))
def test_any_header_is_read_or_refused(tmp_path: Path, header: dict[str, Any], size: int) -> None:
    results = tensors(safetensors(tmp_path, json.dumps(header).encode(), b"\0" * size))
    # What is read lies within the file and covers it once.
    assert results is None or sum(item.size for item in results.values()) == size


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    tensors(tmp_path)
    (tmp_path / "model.gguf").write_bytes(data)
    with pytest.raises(WrongFile):
        read_header(tmp_path / "model.gguf")


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def gguf(keys: list[bytes], infos: list[bytes], data: bytes = b"", *, stated: tuple[int, int] | None = None) -> bytes:
    counts = stated or (len(infos), len(keys))
    head = b"GGUF" + struct.pack("<IQQ", 3, *counts) + b"".join(keys) + b"".join(infos)
    return head + b"\0" * (-len(head) % 32) + data


def info(name: bytes = b"t", shape: tuple[int, ...] = (8,), dtype: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, dtype, offset)


NAMED = text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")


def headed(folder: Path, data: bytes) -> Any:
    (folder / "model.gguf").write_bytes(data)
    return read_header(folder / "model.gguf")


def test_the_good_gguf_is_read(tmp_path: Path) -> None:
    result = headed(tmp_path, gguf([NAMED], [info()], b"\0" * 32))
    assert result.metadata == {"general.architecture": "llama"} and result.tensors["t"].end % 32 == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (gguf([NAMED], [info()], b"\0" * 31), "outside of the file"),
        (gguf([NAMED], [info(offset=2**63)], b"\0" * 32), "outside of the file"),
        (gguf([NAMED], [info(offset=4)], b"\0" * 64), "outside of the file"),
        (gguf([NAMED], [info(shape=(2**62, 2**62))], b"\0" * 32), "outside of the file"),
        (gguf([NAMED], [info(dtype=8)], b"\0" * 32), "not whole blocks"),
        (gguf([NAMED], [info(), info()], b"\0" * 32), "twice"),
        (gguf([NAMED], [info(), info(b"u")], b"\0" * 32), "overlap"),
        (gguf([NAMED, NAMED], [info()], b"\0" * 32), "twice"),
        (gguf([], [info(shape=(1,) * 5)], b"\0" * 32), "5 dimensions"),
        (gguf([], [], stated=(2**63, 0)), "tensors; at most"),
        (gguf([], [], stated=(0, MOST_KEYS + 1)), "keys and"),
        (gguf([struct.pack("<Q", 2**60)], []), "a text of"),
        (gguf([text(b"a") + struct.pack("<IIQ", 9, 4, MOST_ELEMENTS + 1)], []), "a list of"),
        (gguf([text(b"a") + struct.pack("<IIQ", 9, 4, 1000)], []), "ends within"),
        (gguf([text(b"a") + struct.pack("<IIQ", 9, 9, 1)], []), "type 9"),
        (gguf([text(b"general.alignment") + struct.pack("<II", 4, 3)], []), "power of two"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGML", "not a GGUF"),
        (b"", "ends within"),
    ],
)
def test_what_a_gguf_states_wrongly_is_refused(data: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(WrongFile, match=why):
        headed(tmp_path, data)


WHOLE = gguf(
    [NAMED, text(b"n") + struct.pack("<IIQ3I", 9, 4, 3, 1, 2, 3)], [info(), info(b"u", (4,), 1, 32)], b"\0" * 40
)


@QUICK
@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=9))
@example(0, b"\xff")
def test_a_damaged_gguf_is_read_or_refused(tmp_path: Path, place: int, wrong: bytes) -> None:
    try:
        result = headed(tmp_path, WHOLE[:place] + wrong + WHOLE[place + len(wrong) :])
    except WrongFile:
        return
    assert all(0 <= tensor.start <= tensor.end <= len(WHOLE) + 9 for tensor in result.tensors.values())


@pytest.mark.parametrize("count", range(0, len(WHOLE) - 1, 3))
def test_a_truncated_gguf_is_refused(count: int, tmp_path: Path) -> None:
    with pytest.raises(WrongFile):
        headed(tmp_path, WHOLE[:count])


@pytest.mark.parametrize("wrong", ["[" * 100_000, '{"a":1,"a":2}', "{", "9" * 5000, b"\xff\xfe\0", "", '"\\ud8"'])
def test_json_that_is_none_is_one_error(wrong: str | bytes) -> None:
    with pytest.raises(WrongFile):
        parse_json(wrong if isinstance(wrong, bytes) else wrong.encode(), "file.json")


def test_json_larger_than_allowed_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_text("[" + "1," * 100 + "1]", encoding="utf-8")
    assert len(read_json(tmp_path / "large.json")) == 101
    with pytest.raises(WrongFile, match="more than 100 bytes"):
        read_json(tmp_path / "large.json", 100)
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(WrongFile):
            read_json(path)


@QUICK
@given(
    st.recursive(st.none() | st.integers(-(2**53), 2**53) | st.text(max_size=4), lambda strategy: st.lists(strategy))
)
def test_good_json_is_itself(value: Any) -> None:
    assert parse_json(json.dumps(value).encode(), "file.json") == value
