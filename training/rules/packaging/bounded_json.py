"""Reads JSON of unknown origin: files of limited size, no key twice, no nesting that exhausts the parser."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from specs.system.regular_files import open_regular
from specs.system.text import one_line

MOST_BYTES = 64_000_000
"""Tokenizers with a vocabulary of 256,000 tokens take about 34 MB."""


class WrongFile(Exception):
    """A file is missing or cannot be read; the message says why in one sentence."""

    def __init__(self, file: str, why: str, *, missing: bool = False) -> None:
        super().__init__(f"{file} {why}")
        self.file = file
        self.why = why
        self.missing = missing


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """Return the value of a JSON file; raises WrongFile if it is missing, too large, or no strict JSON."""
    return parse_json(read_bytes(path, most), path.name)


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file of limited size; raises WrongFile."""
    try:
        with open_regular(path) as handle:
            if os.fstat(handle.fileno()).st_size > most:
                raise WrongFile(path.name, f"has more than {most:,} bytes")
            return handle.read(most)
    except FileNotFoundError as error:
        raise WrongFile(path.name, "is missing", missing=True) from error
    except OSError as error:
        raise WrongFile(path.name, f"cannot be read: {error.strerror or error}") from error


def parse_json(text: bytes, name: str) -> Any:
    """Return the value of a JSON text; raises WrongFile, which calls it ``name``."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise WrongFile(name, "is nested too deeply") from error
    except ValueError as error:
        raise WrongFile(name, f"is not valid JSON: {one_line(error, 120)}") from error


def parse_object(text: bytes, name: str) -> dict[str, Any]:
    """Return a JSON object; errors as :func:`parse_json`."""
    return _as_object(parse_json(text, name), name)


def read_object(path: Path, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return the JSON object of a file; errors as :func:`read_json`."""
    return _as_object(read_json(path, most), path.name)


def _as_object(result: Any, name: str) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise WrongFile(name, f"holds a {type(result).__name__} instead of an object")
    return result


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    results = dict(pairs)
    if len(results) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key '{one_line(twice, 60)}' occurs twice")
    return results
